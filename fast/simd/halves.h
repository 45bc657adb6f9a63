// Lanes of 16 bits, and the scales of blocks of 32 of bf16, or of binary32 rounded to odd, in them (N5.2,
// N5.3). A source of foreach_target.h includes this file once for each instruction set.
#if defined(ASSAY_SIMD_HALVES) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_SIMD_HALVES
#undef ASSAY_SIMD_HALVES
#else
#define ASSAY_SIMD_HALVES
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>

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

// Bytes of x between what is read and what is fetched. AVX-512 makes codes faster than a processor reads
// ahead by itself: without this, rows of a large x were written at six tenths of the speed. What is fetched
// past the end of x is not used, and a prefetch cannot fault.
constexpr uintptr_t kAhead = 8192;
HWY_INLINE void fetch_ahead(const std::byte* x) {
  hwy::Prefetch(reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(x) + kAhead));
}

// What a whole block has in common, for each of its lanes: the E8M0 code (scale_of, for bits of bf16), and
// the exponent that its elements are scaled with, which is the same but for a block of zeros. Their scale is
// the least, and any ordinary one gives their codes.
struct HalfScale {
  Vh k, exponent;
};
template <class F> HWY_INLINE HalfScale half_scale(Vh amax) {
  const Vh above = hn::Add(amax, half((0x7FFFFF - F::kMaxFraction) >> 16));
  const auto none = hn::Eq(amax, hn::Zero(Dh()));
  const Vh k = hn::IfThenZeroElse(none, hn::Sub(hn::ShiftRight<7>(above), half(F::kMaxExponent)));
  return {k, hn::IfThenElse(none, half(kOne), k)};
}
// Whether this file's codes may be taken under the scales of these amaxes. A tiny one reaches magnitudes that
// are subnormal in bf16, whose bits have no exponent.
HWY_INLINE bool half_scales_are_ordinary(Vh amax, const HalfScale& scale) {
  const auto tiny = hn::And(hn::Lt(scale.k, half(kTinyScale)), hn::Gt(amax, hn::Zero(Dh())));
  return hn::AllFalse(Dh(), hn::Or(tiny, hn::Gt(amax, half(kInfiniteHalf - 1))));
}

// The largest magnitude of whole vectors of halves, as a pattern of bf16 or f16; where a NaN is among them,
// that of a NaN.
template <bool kFetch> HWY_INLINE uint16_t largest_half(const std::byte* x, int64_t vectors) {
  Vh most = hn::Zero(Dh());
  for (int64_t i = 0; i < vectors; ++i) {
    const std::byte* const at = x + static_cast<size_t>(i) * kHalfLanes * 2;
    if (kFetch) fetch_ahead(at);
    most = hn::Max(most, half_magnitude(halves_at(at)));
  }
  return static_cast<uint16_t>(hn::GetLane(hn::MaxOfLanes(Dh(), most)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_SIMD_HALVES
