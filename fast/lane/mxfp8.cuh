// MXFP8, one direction: block amax to E8M0 code to multiplier to codes (N5).
#pragma once
#include "contract/problem.h"
#include "fast/lane/convert.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// fl(1 / MAX) of the element encoding (N5.2).
template <Encoding E>
inline constexpr uint32_t kMaxReciprocal = E == Encoding::e4m3 ? 0x3B124925u : 0x37924925u;

// 2^(127 - code), exact: code 254 is the subnormal 2^-127, 255 NaN (N5.4).
ASSAY_LANE uint32_t mx_multiplier(uint32_t code) {
  const uint32_t bits = code == 254u ? 0x00400000u : (254u - code) << 23;
  return code == 255u ? kNan : bits;
}
// 2^(code - 127), exact: code 0 is the subnormal 2^-127, 255 NaN (N5.9).
ASSAY_LANE uint32_t mx_scale(uint32_t code) {
  const uint32_t bits = code == 0u ? 0x00400000u : code << 23;
  return code == 255u ? kNan : bits;
}
// The scaled amax whose E8M0 code is stored (N5.2).
template <Encoding E> ASSAY_LANE uint32_t mx_scaled_amax(uint32_t amax) {
  return as_bits(__fmul_rn(as_float(amax), as_float(kMaxReciprocal<E>)));
}

// Default numerics.
template <Encoding E, class Convert> struct Mxfp8 {
  // N5.3
  ASSAY_LANE static uint32_t scale_code(uint32_t amax) {
    return Convert::e8m0(as_float(mx_scaled_amax<E>(amax)));
  }
  // N5.5
  ASSAY_LANE static uint32_t pair(float lo, float hi, float mlo, float mhi) {
    return Convert::template pair<E>(__fmul_rn(lo, mlo), __fmul_rn(hi, mhi));
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
