// Packs as the package reads them.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fixtures/json.h"

namespace assay::python {

// The cases of packs, and folders of packs, in the order of a training step.
class Dumped {
 public:
  explicit Dumped(const std::vector<std::string>& paths);  // throws Failure
  ~Dumped();
  // {"cases": [{"id", "pack", "line", "planes": [{"name", "dtype", "shape", "digest"}]}]}.
  json::Value facts() const;
  // The bytes of one plane of one case; they live as long as this object.
  std::span<const std::byte> bytes(size_t case_index, size_t plane_index) const;

 private:
  struct Held;
  std::unique_ptr<Held> held_;
};

}  // namespace assay::python
