#include "python/vectors.h"

#include <filesystem>
#include <utility>

#include "compare/witness/index.h"
#include "compare/witness/vectors/checks.h"
#include "compare/witness/vectors/training.h"
#include "contract/line.h"
#include "fixtures/safetensors.h"
#include "python/line.h"

namespace assay::python {

Vectors::Vectors(const std::string& folder) {
  auto index = read_index(folder);
  if (!index) throw Failure("run", index.error());
  for (IndexFile& entry : *index) {
    if (entry.disputed() || entry.tensors.empty() || !known_family(entry.family)) continue;
    const std::string path = (std::filesystem::path(folder) / entry.file).string();
    const auto file = open_file(path, entry);
    if (!file) throw Failure("run", file.error());
    for (const IndexTensor& t : entry.tensors) {
      if (t.role != "expected" || is_training_tensor(entry.family, t.name)) continue;
      auto checks = checks_of(entry.family, *file, entry.params, t.name, path, entry.sha256);
      if (!checks) throw Failure("run", checks.error());
      for (VectorCheck& check : *checks) {
        files_.push_back(entry.file);
        checks_.push_back(std::move(check));
      }
    }
  }
}

json::Value Vectors::facts() const {
  json::Value out = json::array();
  for (size_t i = 0; i < checks_.size(); ++i) {
    const VectorCheck& c = checks_[i];
    json::Value at = json::array(), given = json::array();
    for (const int64_t n : c.at) at.push(n);
    for (const PlaneData& p : c.inputs)
      given.push(json::object({{"name", p.plane.name},
                               {"dtype", safetensors::name(safetensors::dtype_of(p.plane.encoding))},
                               {"shape", json::array({p.plane.padded.rows, p.plane.stored().cols})}}));
    out.push(json::object({{"file", files_[i]},
                           {"tensor", c.tensor},
                           {"line", to_canonical_line(c.problem)},
                           {"plane", c.plane},
                           {"at", at},
                           {"padded", c.padded},
                           {"given", given}}));
  }
  return json::object({{"vectors", out}});
}

std::span<const std::byte> Vectors::bytes(size_t vector, size_t part) const {
  const VectorCheck& c = checks_.at(vector);
  return part == 0 ? std::span<const std::byte>(c.want)
                   : std::span<const std::byte>(c.inputs.at(part - 1).bytes);
}

}  // namespace assay::python
