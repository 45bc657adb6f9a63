// A line that many tensors are quantized by. Reading it, asking who has it and comparing its planes with the
// caller's takes longer than quantizing a small tensor; here all of that is done once.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"

namespace assay::python {

class PreparedLine {
 public:
  // Throws Failure "line": a line that cannot be read.
  explicit PreparedLine(const std::string& line);

  // Whether the vectorised method makes its planes from x, and from nothing else. Only then run() may be
  // called.
  bool can_run() const;

  // Reads the x that lies at an address, in the line's encoding and C order, and writes the output planes to
  // theirs, in the order of the line. Each address has room for the plane's bytes. 0 threads: the cores of
  // this machine. Returns what made the planes, "simd AVX2"; nothing, where x lies at no multiple of its
  // element's size and so has to be copied first, or where it lies nowhere.
  std::optional<std::string> run(uintptr_t x, std::span<const uintptr_t> outputs, int threads) const;

 private:
  Problem problem_;
  std::vector<Plane> inputs_, outputs_;
};

}  // namespace assay::python
