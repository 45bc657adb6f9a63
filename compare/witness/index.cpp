#include "compare/witness/index.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "compare/witness/records/records.h"
#include "fixtures/sha256.h"

namespace assay {

using std::string;

namespace {

Error bad(string message) { return {std::move(message), 0, ""}; }

// The params and tensors of one entry; what is wrong with them, or nothing.
std::optional<Error> read_tensors(const json::Value& entry, const string& where, IndexFile& f) {
  if (const json::Value* params = entry.find("params")) {
    if (!params->object()) return bad(where + ": 'params' is " + params->describe() + ", expected an object");
    f.params = *params;
  }
  const json::Value* tensors = entry.find("tensors");
  if (!tensors || !tensors->array()) return bad(where + ": expected an array 'tensors'");
  for (const json::Value& t : *tensors->array()) {
    static const std::set<string, std::less<>> kRoles = {"input", "param", "expected", "info"};
    if (t.text("name").empty() || !kRoles.contains(t.text("role")))
      return bad(where + ": a tensor needs a 'name' and a 'role' of input, param, expected or info, found " +
                 json::dump(t));
    f.tensors.push_back({string(t.text("name")), string(t.text("role"))});
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<IndexFile>> read_index(const string& directory) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) return bad(directory + " is not a folder");
  const string path = directory + "/index.json";
  auto index = json::read(path);
  if (!index) return index.error();
  const json::Value* files = index->find("files");
  if (!files || !files->array())
    return bad(path + ": expected an object with an array 'files', found " + index->describe());
  if (files->array()->empty()) return bad(path + ": 'files' is empty");
  std::vector<IndexFile> out;
  std::set<string> seen;
  for (size_t i = 0; i < files->array()->size(); ++i) {
    const json::Value& entry = (*files->array())[i];
    IndexFile f;
    f.file = entry.text("file");
    f.family = entry.text("family");
    f.sha256 = entry.text("sha256");
    f.consensus = entry.text("consensus");
    const string where = fmt::format("{}: files[{}]{}", path, i, f.file.empty() ? "" : " (" + f.file + ")");
    if (f.file.empty() || f.family.empty()) return bad(where + ": expected the strings 'file' and 'family'");
    if (f.file.find('/') != string::npos || f.file.starts_with("."))
      return bad(where + ": 'file' must name a file of the folder itself");
    if (!seen.insert(f.file).second) return bad(where + ": listed twice");
    if (!is_witness_family(f.family))
      if (auto error = read_tensors(entry, where, f)) return *error;
    out.push_back(std::move(f));
  }
  return out;
}

Result<safetensors::File> open_file(const string& path, IndexFile& entry) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  const string found = sha256(mapped->bytes());
  if (!entry.sha256.empty() && found != entry.sha256)
    return bad(fmt::format("{}: sha256 is {}, the index says {}", path, found, entry.sha256));
  entry.sha256 = found;
  auto file = safetensors::read(path);
  if (!file) return file.error();
  std::set<string> listed;
  for (const IndexTensor& t : entry.tensors) {
    if (!file->find(t.name))
      return bad(fmt::format("{}: the index lists a tensor '{}' that the file lacks", path, t.name));
    if (!listed.insert(t.name).second)
      return bad(fmt::format("{}: the index lists tensor '{}' twice", path, t.name));
  }
  for (const safetensors::Tensor& t : file->tensors())
    if (!listed.contains(t.name))
      return bad(fmt::format("{}: tensor '{}' is not in the index: it has no role", path, t.name));
  return file;
}

}  // namespace assay
