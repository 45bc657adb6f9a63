// FP8 scales from an amax: of a tensor (N3.2 to N3.7) or of a block (N9.2), the encode scale first or the
// decode scale (N17.5), divided as N17.14 says.
#pragma once
#include "contract/numerics.h"
#include "fast/lane/fp8_tensor.cuh"
#include "fast/lane/scale_quotient.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct Fp8Scales {
  uint32_t scale = kOne, scale_inv = kOne;
};

// The least power of two not below d in magnitude, and 2^-149 at least; infinity stays (N17.5).
ASSAY_LANE uint32_t power_of_two_above(uint32_t d) {
  const uint32_t sign = d & kSign, a = d & kAbs;
  if (a <= 1u) return sign | 1u;
  if (a >= 0x00800000u) return a >= kInf ? d : sign | ((a + kFraction) & ~kFraction);
  return sign | 1u << (32 - __clz(int(a - 1u)));  // a subnormal counts units of 2^-149
}

struct CurrentScale {
  uint32_t largest = 0;  // MAX of the element encoding
  uint32_t eps = 0;
  bool pow2 = false;
  InfAmax inf_amax = InfAmax::unit;
  uint32_t limit = kMaxFinite;  // what replaces an infinite scale
  ScaleOrder order = ScaleOrder::encode_first;
  ScaleQuotient quotient;
  bool zero_divides = false;  // an amax of 0 gives the decode scale 0 and an infinite scale (N17.15)
  uint32_t epsilon = 0;       // or this decode scale, where it is not 0 (N17.15)

  ASSAY_LANE Fp8Scales operator()(uint32_t amax) const {
    const uint32_t a = as_float(amax) < as_float(eps) ? eps : amax;  // N3.2
    if ((a & kAbs) == 0u && zero_divides) return {kInf, 0u};
    if ((a & kAbs) == 0u && epsilon != 0u) return {inverse(epsilon), epsilon};
    if ((a & kAbs) == 0u || is_nan(a) || ((a & kAbs) == kInf && inf_amax == InfAmax::unit))
      return {kOne, kOne};  // N3.4
    if (order != ScaleOrder::encode_first) {
      uint32_t d = as_bits(quotient.of_amax(as_float(a), as_float(largest)));  // N17.5
      if ((d & kAbs) == 0u && epsilon != 0u) d = epsilon;
      if (pow2) d = power_of_two_above(d);
      return {inverse(d), d};
    }
    uint32_t scale = as_bits(quotient.over_amax(as_float(largest), as_float(a)));  // N3.3
    if ((scale & kAbs) == kInf) scale = limit;                                     // N3.5
    if (pow2) scale &= 0xFF800000u;                                                // N3.6
    return {scale, inverse(scale)};                                                // N3.7
  }
  ASSAY_LANE uint32_t inverse(uint32_t scale) const {
    return canonical(as_bits(quotient.reciprocal(as_float(scale))));
  }  // N1.3
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
