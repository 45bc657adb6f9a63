// NVFP4, one direction: tensor amax to encode scale, block amax to E4M3 scale to element multiplier to codes
// (N10). What depends on the tensor amax alone is hoisted out of the blocks.
#pragma once
#include "contract/numerics.h"
#include "contract/problem.h"
#include "fast/lane/convert.cuh"
#include "fast/lane/decode.cuh"
#include "fast/lane/element_rule.cuh"
#include "fast/lane/scale_quotient.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

inline constexpr uint32_t kSixth = 0x3E2AAAABu;  // the binary32 nearest to 1/6 (N10.5)
inline constexpr uint32_t kLargestBf16 = 0x7F7F0000u;

// What a tensor amax, or that of one stored row, comes to.
struct Nvfp4Scales {
  float amax = 0, encode = 0, decode = 0, factor = 0;  // A, S, D, m
  float decode_first = 0;                              // P (N17.8)
};

// The least E4M3 code whose value is not below that of `bits`, at most 448 (N17.11).
ASSAY_LANE uint32_t encode_e4m3_up(uint32_t bits) {
  const uint32_t cut = encode<Encoding::e4m3>(bits, Round::rz);
  const bool below =
      cut < Layout<Encoding::e4m3>::kMax && as_float(decode<Encoding::e4m3>(cut)) < as_float(bits);
  return below ? cut + 1u : cut;
}

// The code of a scale by away_240 (N17.11).
ASSAY_LANE uint32_t encode_e4m3_away_240(uint32_t bits) {
  const uint32_t a = bits & kAbs, sign = (bits & kSign) >> 24;
  if (is_nan(bits)) return Layout<Encoding::e4m3>::kNanCode;
  if (a == 0x3A7FFFFFu) return sign | 1u;  // below 2^-10 by its last place: half a unit more rounds up to one
  const uint32_t code = encode<Encoding::e4m3>(a, Round::rne, Overflow::sat, ElementTies::away);
  if (a < Layout<Encoding::e4m3>::kMinNormal) return sign | (code < 7u ? code : 7u);
  return sign | (code > 0x77u ? 0x7Eu : code);
}

// From amaxes to scales, with every choice of the Numerics.
struct Nvfp4Chain {
  bool m256 = false, inf_zero = false, nan_unit = false, nan_wins = false;
  Multiplier by{};
  Nvfp4Scale scale{};
  Nvfp4Floor floor{};
  ZeroMultiplier under_zero{};
  ScaleRound round{};
  ScaleQuotient quotient;
  bool by_division = false;  // elements are divided rather than multiplied (N17.10)

  // `source`: x's encoding.
  static Nvfp4Chain of(const Quantizer& q, Encoding source) {
    const Numerics& n = q.numerics;
    return {q.e4m3_max == E4m3Max::m256,
            n.inf_amax == InfAmax::zero,
            n.nan_tensor_amax == NanTensorAmax::unit,
            n.nan_clamp == NanClamp::propagate,
            n.multiplier,
            n.nvfp4_scale,
            n.nvfp4_floor,
            n.zero_multiplier,
            n.scale_round,
            ScaleQuotient::of(q, source),
            n.multiplier == Multiplier::divide_product || n.multiplier == Multiplier::divide_quotient ||
                n.multiplier == Multiplier::divide_twice};
  }
  // 6 * F, the value of the largest code of the largest scale: 2688 or 1536.
  ASSAY_LANE float largest() const { return as_float(m256 ? 0x44C00000u : 0x45280000u); }
  // The same, or 1 where the amax is P itself (N17.8).
  ASSAY_LANE float range() const { return scale == Nvfp4Scale::given_product ? 1.0f : largest(); }
  // The binary32 nearest to the reciprocal of largest() (N10.15).
  ASSAY_LANE float reciprocal_of_largest() const { return as_float(m256 ? 0x3A2AAAABu : 0x39C30C31u); }

  // N10.3: the minimum with `limit`; a NaN loses unless `nan_wins`.
  ASSAY_LANE float clamp(float v, uint32_t limit) const {
    const uint32_t bits = as_bits(v);
    if (is_nan(bits)) return as_float(nan_wins ? kNan : limit);
    return (bits & kSign) == 0u && bits > limit ? as_float(limit) : v;
  }
  // N10.2, N10.5, N10.7, N17.14.
  ASSAY_LANE Nvfp4Scales of_tensor(uint32_t amax) const {
    if (scale == Nvfp4Scale::unit) return {as_float(amax), 1.0f, 1.0f, as_float(kSixth), 1.0f};
    uint32_t encode = as_bits(clamp(quotient.over_amax(range(), as_float(amax)), kMaxFinite));
    const bool kept_zero = inf_zero && (amax & kAbs) == kInf;
    if ((amax & kAbs) == 0u || ((encode & kAbs) == 0u && !kept_zero)) encode = kOne;
    if (nan_unit && is_nan(amax)) encode = kOne;
    return {as_float(amax), as_float(encode), __frcp_rn(as_float(encode)),
            __fmul_rn(as_float(encode), as_float(kSixth)), quotient.of_amax(as_float(amax), range())};
  }
  // A block's amax in terms of the tensor's scale (N10.6, N17.8, N17.14). The default is asked for first, so
  // that its blocks pay one comparison.
  ASSAY_LANE float in_tensor_scale(const Nvfp4Scales& t, float b) const {
    if (scale == Nvfp4Scale::folded) return __fmul_rn(b, t.factor);
    const float six = as_float(kLargest<Encoding::e2m1>);
    switch (scale) {
      case Nvfp4Scale::folded: break;
      case Nvfp4Scale::quotient_first: return __fmul_rn(quotient.rounded(__fdiv_rn(b, six)), t.encode);
      case Nvfp4Scale::product_first: return __fmul_rn(t.encode, __fmul_rn(b, as_float(kSixth)));
      case Nvfp4Scale::decode: return __fdiv_rn(quotient.rounded(__fdiv_rn(b, six)), t.decode_first);
      case Nvfp4Scale::decode_product:
      case Nvfp4Scale::given_product: return __fdiv_rn(b, __fmul_rn(six, t.decode_first));
      case Nvfp4Scale::decode_first: return __fdiv_rn(__fdiv_rn(b, t.decode_first), six);  // N17.14: binary32
      case Nvfp4Scale::unit: break;
    }
    return quotient.rounded(__fdiv_rn(b, six));
  }
  // What becomes the block's scale once it is cast (N10.6, N17.9).
  ASSAY_LANE uint32_t scaled_amax(const Nvfp4Scales& t, uint32_t block_amax) const {
    const float v = clamp(in_tensor_scale(t, as_float(block_amax)), kMaxFinite);
    constexpr uint32_t kLeastNormal = Layout<Encoding::e4m3>::kMinNormal, kLeast = 0x3B000000u;  // 2^-6, 2^-9
    if (floor == Nvfp4Floor::least_normal && v < as_float(kLeastNormal)) return kLeastNormal;
    if (floor == Nvfp4Floor::one && v != 0.0f && v < as_float(kLeast)) return kLeast;
    return as_bits(v);
  }
  // The stored scale of a block.
  ASSAY_LANE uint32_t block_scale(const Nvfp4Scales& t, uint32_t block_amax) const {
    const uint32_t v = scaled_amax(t, block_amax);
    const uint32_t code = round == ScaleRound::rne  ? encode<Encoding::e4m3>(v)
                          : round == ScaleRound::rp ? encode_e4m3_up(v)
                                                    : encode_e4m3_away_240(v);
    if (code != 0u) return code;
    return floor == Nvfp4Floor::one ? 0x38u : floor == Nvfp4Floor::eighth ? 0x20u : 0u;  // N17.9
  }
  // What elements of a block with that scale are multiplied by (N10.8, N17.10), or divided by where divides()
  // says so.
  ASSAY_LANE float multiplier(const Nvfp4Scales& t, uint32_t scale) const {
    if (zeroes(scale)) return under_zero == ZeroMultiplier::zero ? 0.0f : as_float(0x322BCC77u);  // 1e-8
    return multiplier_of(t, as_float(decode<Encoding::e4m3>(scale)));
  }
  // The same of a scale with that value, where zeroes() says no.
  ASSAY_LANE float multiplier_of(const Nvfp4Scales& t, float value) const {
    if (by == Multiplier::reciprocal) return clamp(__frcp_rn(__fmul_rn(value, t.decode)), kMaxFinite);
    switch (by) {
      case Multiplier::bf16_quotient: {
        const uint32_t code = encode<Encoding::bf16>(as_bits(clamp(__fdiv_rn(t.encode, value), kLargestBf16)),
                                                     Round::rne, Overflow::nosat);
        return as_float(canonical(code << 16));  // N1.3
      }
      case Multiplier::quotient: return clamp(__fdiv_rn(t.encode, value), kMaxFinite);
      case Multiplier::decode_reciprocal:
        return clamp(__fdiv_rn(__frcp_rn(t.decode_first), value), kMaxFinite);
      case Multiplier::product_reciprocal: return __frcp_rn(__fmul_rn(value, t.decode_first));
      case Multiplier::divide_product: return __fmul_rn(value, t.decode_first);
      case Multiplier::divide_twice: return value;
      case Multiplier::reciprocal:
      case Multiplier::divide_quotient: break;
    }
    return __fdiv_rn(value, t.encode);
  }
  // Whether a block with that scale divides.
  ASSAY_LANE bool divides(uint32_t scale) const { return by_division && !zeroes(scale); }
  // The factor of the elements of a block with that scale, whole.
  ASSAY_LANE ElementFactor factor(const Nvfp4Scales& t, uint32_t scale) const {
    return {multiplier(t, scale), divides(scale), by == Multiplier::divide_twice ? t.decode_first : 1.0f};
  }
  // N17.10: a scale of either zero has a multiplier of its own.
  ASSAY_LANE bool zeroes(uint32_t scale) const {
    return under_zero != ZeroMultiplier::limit && (scale & 0x7Fu) == 0u;
  }
  // What codes of a block with that scale are multiplied by (N10.15). `amax`: that of the direction or of the
  // stored row.
  ASSAY_LANE float decode_multiplier(uint32_t amax, uint32_t scale) const {
    const float value = as_float(decode<Encoding::e4m3>(scale));
    return __fmul_rn(__fmul_rn(value, as_float(amax)), reciprocal_of_largest());
  }
};

// Four over six: the two scales of a block, and the error of a code (N10.10 to N10.12).
struct FourOverSixRule {
  bool on = false, squared = false, fast = false;

  static FourOverSixRule of(const Quantizer& q) {
    return {q.four_over_six != FourOverSix::off, q.four_over_six == FourOverSix::mse,
            q.numerics.four_over_six_error == CandidateError::fast};
  }
  // The scale that makes 6 (`four`: 4) the largest code. The limit is 448 for either F, and comes before the
  // cast; NaN loses.
  ASSAY_LANE uint32_t scale(const Nvfp4Scales& t, uint32_t block_amax, bool four) const {
    constexpr uint32_t kSix = 0x40C00000u, kOneAndHalf = 0x3FC00000u, k448 = 0x43E00000u;
    float base = __fmul_rn(__fdiv_rn(as_float(block_amax), as_float(kSix)), t.encode);
    if (four) base = __fmul_rn(base, as_float(kOneAndHalf));
    const uint32_t bits = as_bits(base);
    return encode<Encoding::e4m3>((bits & kSign) == 0u && bits > k448 ? k448 : bits);
  }
  // err + the error of `code` for x in a block with the E4M3 scale `scale`, `value` its value.
  ASSAY_LANE float add(float err, const Nvfp4Chain& chain, const Nvfp4Scales& t, float value, uint32_t x,
                       uint32_t code) const {
    const float product = __fmul_rn(as_float(decode<Encoding::e2m1>(code)), value);
    const float diff = fast ? __fsub_rn(product, __fmul_rn(as_float(x), t.encode))
                            : __fsub_rn(__fdiv_rn(__fmul_rn(product, t.amax), chain.largest()), as_float(x));
    return __fadd_rn(err, squared ? __fmul_rn(diff, diff) : as_float(as_bits(diff) & kAbs));
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
