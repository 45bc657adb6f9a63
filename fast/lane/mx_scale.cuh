// MXFP8 and MXFP4: from a block's amax to its E8M0 scale, with every choice of the Numerics (N5.3, N17.6,
// N17.7).
#pragma once
#include "fast/lane/mxfp4.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct MxScaleRule {
  Encoding element{};
  MxScale rounding{};
  bool inf_is_nan = false;

  static MxScaleRule of(const Quantizer& q) {
    return {q.element, q.numerics.mx_scale, q.numerics.mx_inf == MxInf::nan};
  }

  ASSAY_LANE uint32_t operator()(uint32_t amax) const {
    const uint32_t a = amax & kAbs;
    if (a >= kInf) return a == kInf && !inf_is_nan ? 254u : 255u;           // N17.7
    switch (rounding) {                                                     // N17.6
      case MxScale::up: return encode_e8m0(mx_scaled_amax_of(element, a));  // N5.3
      case MxScale::down: return encode_e8m0(mx_scaled_amax_of(element, a), false);
      case MxScale::nearest: {
        const uint32_t p = mx_scaled_amax_of(element, a), fraction = p & kFraction, half = 0x00400000u;
        return (p >> 23) + (fraction > half || (fraction == half && p >> 23 != 0u) ? 1u : 0u);
      }
      case MxScale::floor: return below_largest(a);
      case MxScale::ceil: return below_largest(a + kFraction);
      case MxScale::even:
        return below_largest(a + (element == Encoding::e4m3   ? 1u << 19
                                  : element == Encoding::e5m2 ? 1u << 20
                                                              : 1u << 21));
      case MxScale::even_e2m1: return below_largest(a + (1u << 21));
    }
    return 0;
  }

 private:
  // The exponent field of `bits` less that of MAX: 0 where there is none left, which is also the code of
  // amaxes that are zero or subnormal.
  ASSAY_LANE uint32_t below_largest(uint32_t bits) const {
    const uint32_t exponent = bits >> 23, largest = element == Encoding::e4m3   ? 8u
                                                    : element == Encoding::e5m2 ? 15u
                                                                                : 2u;
    return exponent > largest ? exponent - largest : 0u;
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
