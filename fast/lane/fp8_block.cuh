// FP8 blockwise, one block: amax to scale by the rule of current scaling (N9.2), and the decode scale in both
// of its forms (N9.5, N9.6).
#pragma once
#include "fast/lane/fp8_current.cuh"
#include "fast/lane/mxfp8.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The E8M0 code of a decode scale: its exponent field, mantissa and sign dropped (N9.6).
ASSAY_LANE uint32_t fp8_block_code(uint32_t scale_inv) { return (scale_inv >> 23) & 0xFFu; }

// Entry `index` of a scale plane as a binary32 factor.
struct Fp8BlockScale {
  const void* scales = nullptr;
  bool gemm = false;
  ASSAY_LANE float operator()(int64_t index, int64_t) const {
    return as_float(gemm ? mx_scale(static_cast<const uint8_t*>(scales)[index])
                         : static_cast<const uint32_t*>(scales)[index]);
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
