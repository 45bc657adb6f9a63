// The microscaling formats: from a block's amax to its E8M0 scale, with every choice of the Numerics (N5.3,
// N17.6, N17.7).
#pragma once
#include "fast/lane/mxfp4.cuh"
#include "fast/lane/mxfp6.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The value whose E8M0 code is stored. No two of these formats have an element in common.
ASSAY_LANE uint32_t mx_scaled_amax_of(Encoding element, uint32_t amax) {
  switch (element) {
    case Encoding::e4m3: return mx_scaled_amax<Encoding::e4m3>(amax);
    case Encoding::e5m2: return mx_scaled_amax<Encoding::e5m2>(amax);
    case Encoding::e2m3: return mxfp6_scaled_amax<Encoding::e2m3>(amax);
    case Encoding::e3m2: return mxfp6_scaled_amax<Encoding::e3m2>(amax);
    case Encoding::e2m1: return mxfp4_scaled_amax(amax);
    case Encoding::f32:
    case Encoding::bf16:
    case Encoding::f16:
    case Encoding::e8m0:
    case Encoding::u8:
    case Encoding::u32: break;  // no element of a microscaling format
  }
  return kNan;
}

struct MxScaleRule {
  Encoding element{};
  MxScale rounding{};
  bool inf_is_nan = false;
  uint32_t half_unit = 0;         // of the element's precision, in the fraction of a binary32 pattern
  uint32_t largest_exponent = 0;  // of MAX
  bool zero_divides = false;      // elements under the code 00 are divided by 0 (N17.15)

  static MxScaleRule of(const Quantizer& q) {
    const EncodingInfo& e = info(q.element);
    return {q.element,
            q.numerics.mx_scale,
            q.numerics.mx_inf == MxInf::nan,
            1u << (22 - e.mantissa_bits),
            (e.max_finite >> e.mantissa_bits) - uint32_t(e.bias),
            q.numerics.zero_amax == ZeroAmax::divided};
  }

  // What elements under a scale code are multiplied by, as binary32 bits (N5.4).
  ASSAY_LANE uint32_t multiplier(uint32_t code) const {
    return code == 0u && zero_divides ? kInf : mx_multiplier(code);
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
      case MxScale::even: return below_largest(a + half_unit);
      case MxScale::even_e2m1: return below_largest(a + (1u << 21));
    }
    return 0;
  }

 private:
  // The exponent field of `bits` less that of MAX: 0 where there is none left, which is also the code of
  // amaxes that are zero or subnormal.
  ASSAY_LANE uint32_t below_largest(uint32_t bits) const {
    const uint32_t exponent = bits >> 23;
    return exponent > largest_exponent ? exponent - largest_exponent : 0u;
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
