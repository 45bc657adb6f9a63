// Kernels that divide by approximate reciprocals (N17.13) do not make bytes that a rule pins: their codes lie
// in a set. Whether given bytes lie in it is decided in the judge's own interval arithmetic.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// One such kernel: the exact choices it approximates, and where its reciprocals stand.
struct Approximate {
  std::string_view name;  // "vllm.kernel"
  FormatId format;
  std::string_view exact;  // the flavour that an exact reciprocal would give; empty: defaults
  std::string_view users, source;
};
const std::vector<Approximate>& approximates();

// How many scales and codes no choice of allowed reciprocals gives: one choice for each constant and for the
// tensor scale, one for each value of a block's scale, as the same instruction gives the same answer to the
// same operand. A tensor's amax is a maximum: it has one answer, where its plane came.
struct Consistency {
  bool decided = false;  // false: the line or its planes do not allow the question: no x, a rotation,
                         // stochastic rounding, square blocks, no plane of scales or data
  int64_t amaxes_outside = 0, scales_outside = 0, scales_of = 0, codes_outside = 0, codes_of = 0;
  bool consistent() const {
    return decided && codes_of > 0 && amaxes_outside == 0 && scales_outside == 0 && codes_outside == 0;
  }
};
// `inputs` holds x; `got` planes of a quantize as its line has them. Blocks that hold a NaN or an infinity,
// or a tensor amax that does, are left out.
Consistency consistent(const Approximate&, const Problem&, const std::vector<PlaneData>& inputs,
                       const std::vector<PlaneData>& got);

}  // namespace assay
