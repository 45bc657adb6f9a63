#include "compare/packs/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "compare/text/printable.h"
#include "fixtures/json.h"

namespace assay {

namespace {

using std::string;
namespace fs = std::filesystem;

constexpr std::string_view kPickles[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"};

bool is_pickle(const fs::path& path) {
  return std::ranges::find(kPickles, path.extension().string()) != std::end(kPickles);
}

Error refused_pickle(const string& path) {
  return Error{
      printable(path) +
          ": expected safetensors or GGUF, found a pickle file, which runs code when it is read; save the "
          "model with safetensors (save_pretrained(..., safe_serialization=True))",
      0, ""};
}

// What quantized the checkpoint, as far as config.json or ModelOpt's own file says.
string method_of(const fs::path& folder) {
  if (const auto config = json::read((folder / "config.json").string()))
    if (const json::Value* q = config->find("quantization_config"))
      if (!q->text("quant_method").empty()) return string(q->text("quant_method"));
  if (const auto config = json::read((folder / "hf_quant_config.json").string()))
    if (const json::Value* producer = config->find("producer")) return string(producer->text("name"));
  return {};
}

std::optional<Error> add_file(const string& path, const std::set<string>* wanted, Checkpoint& out) {
  auto file = safetensors::read(path);
  if (!file) return file.error();
  std::set<string> found;
  for (const safetensors::Tensor& t : file->tensors()) {
    if (wanted && !wanted->contains(t.name)) continue;
    found.insert(t.name);
    out.tensors[t.name] = {string(safetensors::name(t.dtype)), t.shape, t.bytes};
  }
  if (wanted && found != *wanted) {
    const auto absent = std::ranges::find_if(*wanted, [&](const string& n) { return !found.contains(n); });
    return Error{printable(path) + ": expected the tensor " + printable(*absent) +
                     ", which the index has here, found none",
                 0, ""};
  }
  out.files.push_back(std::move(*file));
  return {};
}

std::optional<Error> add_index(const string& path, Checkpoint& out) {
  const auto index = json::read(path);
  if (!index) return index.error();
  const json::Value* map = index->find("weight_map");
  if (!map || !map->object())
    return Error{printable(path) + ": expected an object weight_map, found none", 0, ""};
  std::map<string, std::set<string>> shards;
  for (const auto& [tensor, file] : *map->object()) {
    const string* name = file.string();
    if (!name || name->empty() || name->find('/') != string::npos)
      return Error{
          printable(path) + ": expected the name of a file beside the index, found " + file.describe(), 0,
          ""};
    if (is_pickle(*name)) return refused_pickle(*name);
    shards[*name].insert(tensor);
  }
  for (const auto& [file, tensors] : shards)
    if (auto error = add_file((fs::path(path).parent_path() / file).string(), &tensors, out)) return error;
  return {};
}

// The file of a folder that stands for it. Error: none, or several without an index.
Result<string> file_of_folder(const fs::path& folder) {
  std::vector<string> files, indices;
  string pickle;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const string name = entry.path().string();
    if (name.ends_with(".safetensors.index.json")) indices.push_back(name);
    else if (name.ends_with(".safetensors") || name.ends_with(".gguf")) files.push_back(name);
    else if (is_pickle(entry.path())) pickle = name;
  }
  if (indices.size() == 1) return indices.front();
  if (indices.empty() && files.size() == 1) return files.front();
  if (files.empty() && !pickle.empty()) return refused_pickle(pickle);
  return Error{printable(folder.string()) +
                   ": expected one *.safetensors.index.json, or one safetensors or GGUF file, found " +
                   std::to_string(indices.size()) + " and " + std::to_string(files.size()) +
                   "; name the file",
               0, ""};
}

}  // namespace

int64_t StoredTensor::count() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

Shape StoredTensor::matrix() const {
  if (shape.empty()) return {1, 1};
  return {shape.back() ? count() / shape.back() : 0, shape.back()};
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto at = tensors.find(name);
  return at == tensors.end() ? nullptr : &at->second;
}

Result<Checkpoint> read_checkpoint(const string& path) {
  Checkpoint out;
  out.path = path;
  string file = path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    auto one = file_of_folder(path);
    if (!one) return one.error();
    file = *one;
  }
  if (is_pickle(file)) return refused_pickle(file);
  out.method = method_of(fs::path(file).parent_path());
  std::optional<Error> error;
  if (file.ends_with(".json")) {
    error = add_index(file, out);
  } else if (file.ends_with(".gguf")) {
    auto mapped = MappedFile::open(file);
    if (!mapped) return mapped.error();
    error = read_gguf(mapped->bytes(), file, out);
    out.keep.push_back(std::move(*mapped));
    if (out.method.empty()) out.method = "gguf";
  } else {
    error = add_file(file, nullptr, out);
  }
  if (error) return *error;
  return out;
}

}  // namespace assay
