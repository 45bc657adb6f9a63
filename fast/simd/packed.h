// MXFP8 of bf16 in lanes of 16 bits. A scale is a power of two, so the code of a magnitude is its own upper
// bits, rounded at a fixed place, less what the scale takes from the exponent: bf16's bits are enough. That
// holds for codes of normal magnitudes and for magnitudes so small that their code is 0. A block that has
// others, or a NaN, an infinity or a tiny scale, is left to kernels.cpp. It includes this file once for each
// instruction set.
#if defined(ASSAY_SIMD_PACKED) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_SIMD_PACKED
#undef ASSAY_SIMD_PACKED
#else
#define ASSAY_SIMD_PACKED
#endif

#include <array>

#include "fast/simd/steps.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

using Dh = hn::ScalableTag<int16_t>;
using Vh = hn::Vec<Dh>;
using Uh = hn::RebindToUnsigned<Dh>;
constexpr size_t kHalfLanes = hn::MaxLanes(Dh());
constexpr int16_t kInfiniteHalf = 0x7F80;

HWY_INLINE Vh half(int value) { return hn::Set(Dh(), static_cast<int16_t>(value)); }
HWY_INLINE Vh halves_at(const std::byte* at) { return hn::LoadU(Dh(), reinterpret_cast<const int16_t*>(at)); }
HWY_INLINE Vh half_magnitude(Vh bits) { return hn::And(bits, half(0x7FFF)); }

// What a whole block has in common, for each of its lanes: the E8M0 code (scale_of, for bits of bf16), and
// what its scale takes from a code. A block of zeros, whose scale is the least, takes what a scale of 1 does.
struct HalfScale {
  Vh k, taken;
};
template <class F> HWY_INLINE HalfScale half_scale(Vh amax) {
  const Vh above = hn::Add(amax, half((0x7FFFFF - F::kMaxFraction) >> 16));
  const auto none = hn::Eq(amax, hn::Zero(Dh()));
  const Vh k = hn::IfThenZeroElse(none, hn::Sub(hn::ShiftRight<7>(above), half(F::kMaxExponent)));
  const Vh exponent = hn::IfThenElse(none, half(kOne), k);
  return {k, hn::ShiftLeft<F::kMantissa>(hn::Sub(exponent, half(F::kBias)))};
}
// Whether this file's codes may be taken under the scales of these amaxes. A tiny one reaches magnitudes that
// are subnormal in bf16, whose bits have no exponent.
HWY_INLINE bool half_scales_are_ordinary(Vh amax, const HalfScale& scale) {
  const auto tiny = hn::And(hn::Lt(scale.k, half(kTinyScale)), hn::Gt(amax, hn::Zero(Dh())));
  return hn::AllFalse(Dh(), hn::Or(tiny, hn::Gt(amax, half(kInfiniteHalf - 1))));
}

// Codes with signs of a block, or of a row of neighbouring blocks, and whether they are what the file's head
// asks for.
template <class F, bool kAccept> struct HalfCodes {
  static constexpr int kCut = 7 - F::kMantissa;                  // bits below a code's last
  static constexpr int kZero = F::kMantissa << F::kMantissa;     // codes further below 0 than this are 0
  static constexpr int kOrdinary = kZero + (1 << F::kMantissa);  // the least normal code, counted from there
  hn::Vec<Uh> least;
  Vh differ;

  static HWY_INLINE HalfCodes none() { return {hn::Set(Uh(), 0xFFFF), hn::Zero(Dh())}; }

  // `most`: the largest code of each lane so far, under kAccept alone.
  HWY_INLINE void add(Vh bits, Vh taken, std::byte* data, Vh& most) {
    const Vh a = half_magnitude(bits), odd = hn::And(hn::ShiftRight<kCut>(a), half(1));
    const Vh rounded = hn::ShiftRight<kCut>(hn::Add(hn::Add(a, half((1 << (kCut - 1)) - 1)), odd));
    const Vh code = hn::Sub(rounded, taken);
    least = hn::Min(least, hn::BitCast(Uh(), hn::Add(code, half(kZero))));
    const Vh magnitude = hn::Min(hn::Max(code, hn::Zero(Dh())), half(F::kTop));
    const Vh whole = hn::Or(magnitude, hn::And(hn::ShiftRight<8>(bits), half(0x80)));
    const hn::Rebind<uint8_t, Dh> bytes;
    auto* const at = reinterpret_cast<uint8_t*>(data);
    if constexpr (!kAccept) {
      hn::StoreU(hn::DemoteTo(bytes, whole), bytes, at);
    } else {
      most = hn::Max(most, magnitude);
      differ = hn::Or(differ, hn::Xor(whole, hn::PromoteTo(Dh(), hn::LoadU(bytes, at))));
    }
  }
  // Whether the codes are right, and under kAccept the recorded ones.
  HWY_INLINE bool hold() const {
    return hn::AllTrue(Uh(), hn::Gt(least, hn::Set(Uh(), kOrdinary - 1))) &&
           (!kAccept || hn::AllTrue(Dh(), hn::Eq(differ, hn::Zero(Dh()))));
  }
};
// Whether none of these codes is of the largest magnitude.
template <class F> HWY_INLINE bool below_top(Vh most) {
  return hn::AllTrue(Dh(), hn::Lt(most, half(F::kTop)));
}

// A block of 32 along a row. -1: it is not of these, and what was written means nothing; else its E8M0 code.
// Under kAccept its codes are then the recorded ones, too, and none is of the largest magnitude.
template <class F, bool kAccept> HWY_INLINE int packed_row_block(const std::byte* x, std::byte* data) {
  constexpr size_t kParts = 32 / kHalfLanes;
  Vh amax = hn::Zero(Dh());
  for (size_t i = 0; i < kParts; ++i) amax = hn::Max(amax, half_magnitude(halves_at(x + i * kHalfLanes * 2)));
  amax = hn::MaxOfLanes(Dh(), amax);
  const HalfScale scale = half_scale<F>(amax);
  auto codes = HalfCodes<F, kAccept>::none();
  Vh most = hn::Zero(Dh());
  for (size_t i = 0; i < kParts; ++i)
    codes.add(halves_at(x + i * kHalfLanes * 2), scale.taken, data + i * kHalfLanes, most);
  const bool hold = half_scales_are_ordinary(amax, scale) && codes.hold() && below_top<F>(most);
  return hold ? hn::GetLane(scale.k) : -1;
}

// 64 neighbouring blocks down columns, of `height` rows: as many as fill cache lines of codes. False: not all
// are of these, and what was written means nothing. Under kAccept scales and codes are otherwise the recorded
// ones, and top(c) is told of each column with a code of the largest magnitude: most rows of 64 have one.
constexpr int64_t kPackedColumns = 64;
template <class F, bool kAccept, class Top>
HWY_INLINE bool packed_columns(const std::byte* x, size_t stride, std::byte* data, size_t to_stride,
                               int64_t height, std::byte* scales, Top top) {
  constexpr size_t kParts = kPackedColumns / kHalfLanes;
  // Not std::array: the constructors of NEON's vectors are inlined into functions compiled for NEON alone.
  Vh amax[kParts], taken[kParts], most[kParts];
  const auto halves = [&](int64_t row, size_t part) {
    return halves_at(x + static_cast<size_t>(row) * stride + part * kHalfLanes * 2);
  };
  for (size_t part = 0; part < kParts; ++part) amax[part] = half_magnitude(halves(0, part));
  for (int64_t i = 1; i < height; ++i)
    for (size_t part = 0; part < kParts; ++part)
      amax[part] = hn::Max(amax[part], half_magnitude(halves(i, part)));
  for (size_t part = 0; part < kParts; ++part) {
    const HalfScale scale = half_scale<F>(amax[part]);
    if (!half_scales_are_ordinary(amax[part], scale)) return false;
    taken[part] = scale.taken, most[part] = hn::Zero(Dh());
    const hn::Rebind<uint8_t, Dh> bytes;
    auto* const at = reinterpret_cast<uint8_t*>(scales + part * kHalfLanes);
    if constexpr (!kAccept) hn::StoreU(hn::DemoteTo(bytes, scale.k), bytes, at);
    else if (!hn::AllTrue(Dh(), hn::Eq(scale.k, hn::PromoteTo(Dh(), hn::LoadU(bytes, at))))) return false;
  }
  auto codes = HalfCodes<F, kAccept>::none();
  for (int64_t i = 0; i < height; ++i)
    for (size_t part = 0; part < kParts; ++part)
      codes.add(halves(i, part), taken[part], data + static_cast<size_t>(i) * to_stride + part * kHalfLanes,
                most[part]);
  if (!codes.hold()) return false;
  for (size_t part = 0; kAccept && part < kParts; ++part) {
    if (HWY_LIKELY(below_top<F>(most[part]))) continue;
    HWY_ALIGN std::array<int16_t, kHalfLanes> largest;
    hn::Store(most[part], Dh(), largest.data());
    for (size_t lane = 0; lane < kHalfLanes; ++lane)
      if (largest[lane] == F::kTop) top(static_cast<int64_t>(part * kHalfLanes + lane));
  }
  return true;
}

// The largest magnitude of whole vectors of halves as bits of bf16; above kInfiniteHalf where a NaN is among
// them.
HWY_INLINE uint32_t packed_amax(const std::byte* x, int64_t vectors) {
  Vh most = hn::Zero(Dh());
  for (int64_t i = 0; i < vectors; ++i)
    most = hn::Max(most, half_magnitude(halves_at(x + static_cast<size_t>(i) * kHalfLanes * 2)));
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(Dh(), most)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_SIMD_PACKED
