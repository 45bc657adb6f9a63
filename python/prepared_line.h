// A line that many tensors are quantized by. Reading it, asking who has it and comparing its planes with the
// caller's takes longer than quantizing a small tensor; here all of that is done once.
#pragma once
#include <cstddef>
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

  // Reads x, in the line's encoding and C order, and writes the output planes. `memory` has x and then the
  // planes in the order of the line. 0 threads: the cores of this machine. Returns what made the planes,
  // "simd AVX2". Returns nothing where an address is null, where a plane has another size than the line's,
  // where x is not aligned to its elements, or where memory or threads are short. Call `run` of case.h then:
  // it copies x where that helps, or says what is wrong.
  std::optional<std::string> run(std::span<const std::span<std::byte>> memory, int threads) const;

 private:
  Problem problem_;
  std::vector<Plane> inputs_, outputs_;
};

}  // namespace assay::python
