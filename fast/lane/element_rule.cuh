// One element under the choices that no conversion instruction has: divided rather than multiplied, other
// zeros, rounded twice, other ties, overflow that does not saturate (N17.1 to N17.5, N17.10). Every encoding
// by integers, chosen at run time.
#pragma once
#include "fast/lane/decode.cuh"
#include "fast/lane/encode.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// What the elements of a block are multiplied by, or divided by.
struct ElementFactor {
  float value = 0;
  bool divides = false;
  float before = 1.0f;  // with `divides`: a divisor that comes first (N17.10: divide_twice)
};

struct ElementRule {
  bool on = false;  // off: a product and a conversion do it (move/direction.cuh), with neg_zero=keep or plus
  Encoding element{};
  NegZero zero{};
  ElementTies ties{};
  Overflow overflow = Overflow::sat;
  PreRound pre_round{};
  int code_bits = 8;
  uint32_t nan_bits = 0;    // set in the code of a scaled element that is NaN (N17.16)
  uint32_t nan_mask = ~0u;  // what stays of that code

  // `divides`: some block divides.
  static ElementRule of(const Quantizer& q, bool divides) {
    const Numerics& n = q.numerics;
    ElementRule rule{divides,       q.element,   n.neg_zero,          n.element_ties,
                     Overflow::sat, n.pre_round, info(q.element).bits};
    if (n.element_overflow == ElementOverflow::nan && info(q.element).bits == 8)
      rule.overflow = Overflow::nosat;  // N17.2
    if (n.nan_code != NanCode::positive) rule.nan_bits = 1u << (rule.code_bits - 1);
    if (n.nan_code == NanCode::minus_zero) rule.nan_mask = 0u;
    rule.on |= rule.nan_bits != 0u || rule.zero == NegZero::drop || rule.zero == NegZero::minus ||
               rule.ties != ElementTies::even || rule.overflow == Overflow::nosat ||
               rule.pre_round != PreRound::none;
    return rule;
  }

  // fl(x * f) or fl(x / f), and what becomes of an exact zero (N5.6, N17.4).
  ASSAY_LANE uint32_t scaled(uint32_t x, ElementFactor f) const {
    const uint32_t factor = as_bits(f.value) & kAbs;
    const float v = f.divides ? __fdiv_rn(as_float(x), f.before) : as_float(x);
    const uint32_t y = as_bits(f.divides ? __fdiv_rn(v, f.value) : __fmul_rn(v, f.value));
    const bool exact = (as_bits(v) & kAbs) == 0u || factor == (f.divides ? kInf : 0u);
    if ((y & kAbs) != 0u || !exact) return y;
    return zero == NegZero::plus ? 0u : zero == NegZero::minus ? kSign : y;
  }
  // The scaled element rounded once before it is cast (N17.3).
  ASSAY_LANE uint32_t rounded(uint32_t y) const {
    if (pre_round == PreRound::bf16)
      return decode<Encoding::bf16>(encode<Encoding::bf16>(y, Round::rne, Overflow::nosat));
    if (pre_round == PreRound::f16)
      return decode<Encoding::f16>(encode<Encoding::f16>(y, Round::rne, Overflow::nosat));
    if (pre_round == PreRound::f16_rz)
      return decode<Encoding::f16>(encode<Encoding::f16>(y, Round::rz, Overflow::nosat));
    return y;
  }
  // N17.1, N17.2.
  ASSAY_LANE uint32_t cast(uint32_t y) const {
    switch (element) {
      case Encoding::e4m3: return encode<Encoding::e4m3>(y, Round::rne, overflow, ties);
      case Encoding::e5m2: return encode<Encoding::e5m2>(y, Round::rne, overflow, ties);
      case Encoding::e2m3: return encode<Encoding::e2m3>(y, Round::rne, Overflow::sat, ties);
      case Encoding::e3m2: return encode<Encoding::e3m2>(y, Round::rne, Overflow::sat, ties);
      case Encoding::e2m1: return encode<Encoding::e2m1>(y, Round::rne, Overflow::sat, ties);
      case Encoding::f32:
      case Encoding::bf16:
      case Encoding::f16:
      case Encoding::e8m0:
      case Encoding::u8:
      case Encoding::u32: break;  // no element of scaled data
    }
    return 0;
  }
  // Whether N17.16 gives the code of this scaled element.
  ASSAY_LANE bool has_nan_code(uint32_t y) const { return nan_bits != 0u && is_nan(y); }
  // A code that is stored: neg_zero=drop knows no -0 (N17.4).
  ASSAY_LANE uint32_t stored(uint32_t code) const {
    const uint32_t sign = 1u << (code_bits - 1);
    return zero == NegZero::drop && code == sign ? 0u : code;
  }
  // The code that is stored of a scaled element y that was cast to `code`: a NaN may have its own (N17.16).
  ASSAY_LANE uint32_t stored(uint32_t y, uint32_t code) const {
    return has_nan_code(y) ? (code & nan_mask) | nan_bits : stored(code);
  }
  // The same of eight E2M1 codes in 4 bits each.
  ASSAY_LANE uint32_t eight_stored(uint32_t codes) const {
    if (zero != NegZero::drop) return codes;
    const uint32_t magnitude =
        (codes | codes << 1 | codes << 2) & 0x44444444u;  // bit 2 of each: whether there is any
    return codes & ~(~(magnitude << 1) & 0x88888888u);
  }
  ASSAY_LANE uint32_t code(uint32_t x, ElementFactor f) const {
    const uint32_t y = rounded(scaled(x, f));
    return stored(y, cast(y));
  }

  // The codes of 8 elements side by side, the first lowest: in 4 bits each where they have 4, else in 8. One
  // copy of the code for all of them, as it is long.
  ASSAY_LANE uint64_t eight(const uint32_t (&x)[8], ElementFactor f) const {
    const int width = code_bits == 4 ? 4 : 8;
    uint64_t codes = 0;
#pragma unroll 1
    for (int k = 0; k < 8; ++k) codes |= uint64_t(code(x[k], f)) << (width * k);
    return codes;
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
