// Per-tensor FP8, the element arithmetic that delayed and current scaling share (N3.7, N3.8).
#pragma once
#include "contract/problem.h"
#include "fast/lane/convert.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// fl(1 / scale), canonical where it is NaN (N3.7, N1.3).
ASSAY_LANE uint32_t reciprocal(uint32_t scale) { return canonical(as_bits(__frcp_rn(as_float(scale)))); }

// Default numerics. kAccumulate: the kernel also raises the amax (fp8_delayed). kByLine: one scale for each
// stored row (N3.12), so that columns are not the rows' codes.
template <Encoding E, class Convert, bool kAccumulate, bool kByLine = false> struct Fp8Tensor {
  static constexpr bool kActive = true, kLines = kByLine, kSame = !kByLine, kAmax = kAccumulate;
  const uint32_t* scale = nullptr;
  uint32_t* amax = nullptr;

  ASSAY_LANE float tensor_multiplier() const { return as_float(*scale); }
  ASSAY_LANE float line_multiplier(int64_t line) const { return as_float(scale[line]); }
  ASSAY_LANE uint32_t* tensor_amax() const { return amax; }
  ASSAY_LANE static void store_scales() {}
  ASSAY_LANE static uint32_t pair(float lo, float hi, float mlo, float mhi) {  // N3.8
    return Convert::template pair<E>(__fmul_rn(lo, mlo), __fmul_rn(hi, mhi));
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
