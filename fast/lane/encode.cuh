// Casts from binary32 patterns to codes, on integers alone: round by adding half minus one plus the kept lsb,
// rebias, clamp. Branch-free but for what template arguments and warp-uniform arguments decide.
#pragma once
#include "contract/problem.h"
#include "fast/lane/layout.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Half a step less one moves everything above a tie up; this, added to it, moves the tie too (N2.1, N17.1).
// `kept`: the code below.
ASSAY_LANE uint32_t tie_up(ElementTies ties, uint32_t kept) {
  return ties == ElementTies::even ? kept & 1u : ties == ElementTies::away ? 1u : 0u;
}

// The code of `bits` in E, one of F32, BF16, F16, E4M3, E5M2, E2M3, E3M2, E2M1. `round` is rne or rz; `ties`
// of rne by N17.1.
template <Encoding E>
ASSAY_LANE uint32_t encode(uint32_t bits, Round round = Round::rne, Overflow overflow = Overflow::sat,
                           ElementTies ties = ElementTies::even) {
  if constexpr (E == Encoding::f32) {
    return canonical(bits);
  } else {
    using L = Layout<E>;
    const uint32_t a = bits & kAbs;
    const bool nearest = round == Round::rne;
    // N2.1, N2.6: at or above the least normal value the kept bits sit at a fixed place.
    const uint32_t half = nearest ? (1u << (L::kDrop - 1)) - 1u + tie_up(ties, a >> L::kDrop) : 0u;
    uint32_t code = ((a + half) >> L::kDrop) - L::kRebias;
    if constexpr (L::kBias != 127) {
      // N2.1: below it the quantum is fixed, so the place moves with the exponent. Past 25 places everything
      // is rounded away. Of larger values only the shift matters: it stays defined, and what comes out is not
      // taken.
      const uint32_t places =
          L::kDrop + (L::kMinNormal >> 23) - ((a < L::kMinNormal ? a : L::kMinNormal) >> 23);
      const uint32_t shift = places < 25u ? places : 25u;
      const uint32_t significand = (a & kFraction) | 0x00800000u;
      const uint32_t half_below =
          nearest ? (1u << (shift - 1u)) - 1u + tie_up(ties, significand >> shift) : 0u;
      const uint32_t below = (significand + half_below) >> shift;
      code = a < L::kMinNormal ? below : code;
    }
    // N2.2, N2.3, N2.6: rounding toward zero never leaves the finite range, infinity itself does.
    const bool saturate = overflow == Overflow::sat || (!nearest && a != kInf);
    const uint32_t beyond = saturate ? L::kMax : L::kHasInf ? L::kInfCode : L::kNanCode;
    code = code > L::kMax ? beyond : code;
    code |= (bits >> (32 - L::kBits)) & L::kSignCode;  // N2.5
    return a > kInf ? L::kNanCode : code;              // N2.4
  }
}

// The E8M0 code of |bits| (N2.7). `up`: the least power of two not below it, else the greatest not above it.
ASSAY_LANE uint32_t encode_e8m0(uint32_t bits, bool up = true, Overflow overflow = Overflow::sat) {
  const uint32_t a = bits & kAbs;
  uint32_t code = (a >> 23) + ((up && (a & kFraction) != 0u) ? 1u : 0u);
  code = code > 254u ? (overflow == Overflow::sat ? 254u : 255u) : code;
  code = a <= 0x00400000u ? 0u : code;  // 2^-127 and below
  return a > kInf ? 255u : code;
}

// The same with the encoding chosen at run time. E8M0 takes rp or rz, the others rne or rz.
ASSAY_LANE uint32_t encode_to(Encoding to, uint32_t bits, Round round, Overflow overflow) {
  switch (to) {
    case Encoding::f32: return bits;
    case Encoding::bf16: return encode<Encoding::bf16>(bits, round, overflow);
    case Encoding::f16: return encode<Encoding::f16>(bits, round, overflow);
    case Encoding::e4m3: return encode<Encoding::e4m3>(bits, round, overflow);
    case Encoding::e5m2: return encode<Encoding::e5m2>(bits, round, overflow);
    case Encoding::e2m3: return encode<Encoding::e2m3>(bits, round, overflow);
    case Encoding::e3m2: return encode<Encoding::e3m2>(bits, round, overflow);
    case Encoding::e2m1: return encode<Encoding::e2m1>(bits, round, overflow);
    case Encoding::e8m0: return encode_e8m0(bits, round == Round::rp, overflow);
    case Encoding::u8:
    case Encoding::u32: break;  // no cast reaches them
  }
  return 0;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
