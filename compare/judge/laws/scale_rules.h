// Which scales fit an amax.
#pragma once
#include <cstdint>
#include <optional>

#include "compare/arithmetic/expected_values.h"
#include "contract/problem.h"

namespace assay {

// Whether the code k, of encoding e, may be the scale of a block whose largest magnitude is `amax`. `nan`
// says that the block holds a NaN. `of_tensor` is what NVFP4 needs; without it no law says what its scale
// must be.
bool scale_fits(const Quantizer& q, Encoding source, const std::optional<TensorScales>& of_tensor, uint32_t k,
                Encoding e, double amax, bool nan);
// The same of NVFP4, from S and P and a block's amax (N10.6, N17.8, N17.9, N17.11, N17.14).
bool nvfp4_scale_fits(const Quantizer& q, Encoding source, const TensorScales& of_tensor, uint32_t k,
                      double amax);

}  // namespace assay
