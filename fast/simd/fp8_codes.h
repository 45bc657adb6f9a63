// Codes of E4M3 and E5M2 in lanes of 16 bits: bf16's bits are enough, and those of binary32 become as many by
// rounding to odd. Where magnitudes have normal codes, or are so small that their code is 0, a code is the
// upper bits of a magnitude, rounded at a fixed place, less what a power of two takes from the exponent
// (HalfCodes). Any other is rounded at a place of its own (any_half_code). A source of foreach_target.h
// includes this file once for each instruction set.
#if defined(ASSAY_SIMD_FP8_CODES) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_SIMD_FP8_CODES
#undef ASSAY_SIMD_FP8_CODES
#else
#define ASSAY_SIMD_FP8_CODES
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fast/simd/halves.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

// ---- binary32 rounded to odd ------------------------------------------------------------------------

// The last bit of what is kept is set where anything is cut off. At least two bits below the place of a
// code's last bit are kept, so that they compare with one half as all of them do: rounding twice is rounding
// once. Infinities and zeros stay what they are, and every NaN stays one.
HWY_INLINE Vh odd_halves(Vh kept, Vh cut) {
  return hn::Or(kept, hn::BitCast(Dh(), hn::Min(hn::BitCast(Uh(), cut), hn::Set(Uh(), 1))));
}
#if HWY_TARGET == HWY_SCALAR  // has no such lanes; Highway compiles it, nothing uses it
template <class S> HWY_INLINE Vh halves_of(const std::byte*) { return hn::Zero(Dh()); }
template <class S> HWY_INLINE Vh scaled_halves(const std::byte*, hn::Vec<W>) { return hn::Zero(Dh()); }
#else
static_assert(hn::MaxLanes(D()) * 2 == kHalfLanes, "lanes of 32 bits are not bounded here");
HWY_INLINE Vh odd_halves_of(V low, V high) {
  const Vh a = hn::BitCast(Dh(), low), b = hn::BitCast(Dh(), high);
  return odd_halves(hn::ConcatOdd(Dh(), b, a), hn::ConcatEven(Dh(), b, a));
}
// As many elements as a vector has halves, of any source.
template <class S> HWY_INLINE Vh halves_of(const std::byte* x) {
  if constexpr (std::is_same_v<S, FromBf16>) return halves_at(x);
  else return odd_halves_of(S::load(x), S::load(x + kHalfLanes / 2 * S::kBytes));
}
// N3.8: the same of fl(x * factor). Elements of bf16 are multiplied where they stand, as the even and the odd
// halves of binary32's lanes.
template <class S> HWY_INLINE Vh scaled_halves(const std::byte* x, hn::Vec<W> factor) {
  const auto product = [&](V bits) { return hn::BitCast(D(), hn::Mul(hn::BitCast(W(), bits), factor)); };
  if constexpr (std::is_same_v<S, FromBf16>) {
    const V both = hn::BitCast(D(), halves_at(x));
    const V even = product(hn::ShiftLeft<16>(both)), odd = product(hn::And(both, constant(-65536)));
    return odd_halves(hn::OddEven(hn::BitCast(Dh(), odd), hn::BitCast(Dh(), hn::ShiftRight<16>(even))),
                      hn::OddEven(hn::BitCast(Dh(), hn::ShiftLeft<16>(odd)), hn::BitCast(Dh(), even)));
  } else {
    return odd_halves_of(product(S::load(x)), product(S::load(x + kHalfLanes / 2 * S::kBytes)));
  }
}
#endif

// ---- codes ------------------------------------------------------------------------------------------

// N2.1: half of the last place less 1, and the code's last bit, are added before the bits below that place
// are cut off. What the scale takes from a code, (exponent - bias) << mantissa, is taken before the cut: it
// is whole codes, so that it cuts nothing else, and all that is constant in a block is one number, the
// offset. kZero is part of it, for HalfCodes::hold. `exponent` is the E8M0 code of the scale. Lanes of 16
// bits hold every sum: an ordinary scale makes the offset negative and no less than -(254 << 7), and it is
// added to a magnitude first.
template <class F> struct HalfRounding {
  static constexpr int kCut = 7 - F::kMantissa;               // bits below a code's last
  static constexpr int kZero = F::kMantissa << F::kMantissa;  // codes further below 0 than this are 0

  static HWY_INLINE Vh offset(Vh exponent) {
    constexpr int kBelowHalf = (1 << (kCut - 1)) - 1;
    return hn::Sub(half((F::kBias << 7) + (kZero << kCut) + kBelowHalf), hn::ShiftLeft<7>(exponent));
  }
  // The code of a magnitude, plus kZero.
  static HWY_INLINE Vh counted(Vh a, Vh offset) {
    const Vh odd = hn::And(hn::ShiftRight<kCut>(a), half(1));
    return hn::ShiftRight<kCut>(hn::Add(hn::Add(a, offset), odd));
  }
};

HWY_INLINE void write_halves(Vh codes, std::byte* data) {
  const hn::Rebind<uint8_t, Dh> bytes;
  hn::StoreU(hn::DemoteTo(bytes, codes), bytes, reinterpret_cast<uint8_t*>(data));
}

// Codes with signs, and whether all of them are normal or 0; under kAccept also whether they are the recorded
// ones. kBounded: no element rounds to more than the largest number, and none is a NaN. Otherwise codes hold
// only where that is so, under kAccept only where none is of the largest magnitude either.
template <class F, bool kAccept, bool kBounded> struct HalfCodes {
  using Rounding = HalfRounding<F>;
  static constexpr int kOrdinary = Rounding::kZero + (1 << F::kMantissa);  // of the least normal code
  static constexpr int kMost = Rounding::kZero + F::kTop - (kAccept ? 1 : 0);
  hn::Vec<Uh> least;
  Vh most, differ;

  static HWY_INLINE HalfCodes none() { return {hn::Set(Uh(), 0xFFFF), hn::Zero(Dh()), hn::Zero(Dh())}; }

  HWY_INLINE void add(Vh bits, Vh offset, std::byte* data) {
    const Vh counted = Rounding::counted(half_magnitude(bits), offset), zero = half(Rounding::kZero);
    least = hn::Min(least, hn::BitCast(Uh(), counted));
    if constexpr (!kBounded) most = hn::Max(most, counted);
    const Vh magnitude = hn::Sub(hn::Max(counted, zero), zero);
    const Vh whole = hn::OrAnd(magnitude, hn::ShiftRight<8>(bits), half(0x80));
    if constexpr (!kAccept) return write_halves(whole, data);
    const hn::Rebind<uint8_t, Dh> bytes;
    const auto there = hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(data));
    differ = hn::Or(differ, hn::Xor(whole, hn::PromoteTo(Dh(), there)));
  }
  HWY_INLINE bool hold() const {
    return hn::AllTrue(Uh(), hn::Gt(least, hn::Set(Uh(), kOrdinary - 1))) &&
           (kBounded || hn::AllTrue(Dh(), hn::Gt(half(kMost + 1), most))) &&
           (!kAccept || hn::AllTrue(Dh(), hn::Eq(differ, hn::Zero(Dh()))));
  }
};

// The code of any element with its sign (N2.1, N2.2, N2.4, N2.5), twice as slowly: its significand is rounded
// at a place of its own, by adding half of it as HalfRounding does.
template <class F> HWY_INLINE Vh any_half_code(Vh bits) {
  const auto number = [](int value) { return hn::Set(Uh(), static_cast<uint16_t>(value)); };
  constexpr int kCut = HalfRounding<F>::kCut,
                kLeast = kOne + 1 - F::kBias;  // exponent of the least normal code
  constexpr int kAll = 9;  // cuts off a significand of 8 bits, and half of its last place is above it
  const auto a = hn::BitCast(Uh(), half_magnitude(bits)), exponent = hn::ShiftRight<7>(a);
  const auto below = hn::Min(hn::SaturatedSub(number(kLeast), exponent), number(kAll - kCut));
  const auto cut = hn::Add(below, number(kCut));
  const auto significand = hn::Or(hn::And(a, number(0x7F)), number(0x80));
  const auto odd = hn::And(hn::Shr(significand, cut), number(1));
  const auto below_half = hn::Sub(hn::Shl(number(1 << (kCut - 1)), below), number(1));
  const auto kept = hn::Shr(hn::Add(hn::Add(significand, below_half), odd), cut);
  const auto base = hn::ShiftLeft<F::kMantissa>(hn::SaturatedSub(exponent, number(kLeast)));
  const auto code = hn::Min(hn::Add(base, kept), number(F::kTop));
  const Vh whole = hn::OrAnd(hn::BitCast(Dh(), code), hn::ShiftRight<8>(bits), half(0x80));
  return hn::IfThenElse(hn::Gt(hn::BitCast(Dh(), a), half(kInfiniteHalf)), half(F::kNan), whole);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_SIMD_FP8_CODES
