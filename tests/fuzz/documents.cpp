// JSON documents that an earlier run wrote, or that lie beside the files that are meant: results of `assay
// bench`, a certificate, the index of a folder of vectors, the configuration of a checkpoint. Whichever a
// document is, each of them must bear it.
#include <cstddef>
#include <string>
#include <string_view>

#include "compare/commands/bench_results.h"
#include "compare/commands/certify/certificate.h"
#include "compare/packs/checkpoint.h"
#include "compare/witness/index.h"
#include "fixtures/json.h"
#include "fixtures/safetensors.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/scratch.h"

namespace {

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// A checkpoint of one tensor, with the document as its configuration.
void read_configuration(std::string_view bytes) {
  using namespace assay;
  static const std::string path = [] {
    const std::byte zero[4] = {};
    const std::string file = fuzz::written("document.safetensors", "");
    const safetensors::Tensor weight{"weight", safetensors::Dtype::F32, {1, 1}, zero};
    safetensors::write(file, {&weight, 1});
    return file;
  }();
  fuzz::written("config.json", bytes);
  fuzz::written("hf_quant_config.json", bytes);
  read_checkpoint(path);
}

}  // namespace

// Writing a file takes longer than reading it, so each reader gets only the documents that it does not refuse
// at the first member.
void assay::fuzz::documents(std::string_view bytes) {
  const auto document = json::parse(bytes);
  if (!document) return;
  if (document->find("quantization_config") || document->find("producer")) read_configuration(bytes);
  if (document->text("schema").starts_with("assay.bench")) read_earlier(written("results.json", bytes));
  if (document->find("files"))
    if (const auto index = read_index(folder_of(written("index.json", bytes))))
      for (IndexFile file : *index) open_file(written("no.safetensors", ""), file);
  if (const auto parts = passed_parts(*document)) {
    Certificate taken("", CertifyExtent::quick, "");
    for (const auto& [name, part] : *parts) taken.add(part, 0);
  }
}
