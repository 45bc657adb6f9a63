// Third-party vectors as the package runs them.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "compare/witness/vectors/check.h"
#include "fixtures/json.h"

namespace assay::python {

// What the tensors of a folder of vectors (compare/witness/index.h) must equal. Files whose sources disagree,
// records and the families of the training layer are left out.
class Vectors {
 public:
  explicit Vectors(const std::string& folder);  // throws Failure
  // {"vectors": [{"file", "tensor", "line", "plane", "at", "padded", "given": [{"name", "dtype",
  // "shape"}]}]}.
  json::Value facts() const;
  // Of one of them: the wanted bytes (part 0), or those of a given plane (1, 2, ...). They live as long as
  // this object.
  std::span<const std::byte> bytes(size_t vector, size_t part) const;

 private:
  std::vector<std::string> files_;  // of each check
  std::vector<VectorCheck> checks_;
};

}  // namespace assay::python
