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
#include <limits>

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
constexpr uintptr_t kAhead = 16384;
HWY_INLINE void fetch_ahead(const std::byte* x, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64)
    hwy::Prefetch(reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(x) + line + kAhead));
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
// Whether codes may be taken in lanes of 16 bits under the scales of these amaxes. A tiny one reaches
// magnitudes that are subnormal in bf16, whose bits have no exponent.
HWY_INLINE bool half_scales_are_ordinary(Vh amax, const HalfScale& scale) {
  const auto tiny = hn::And(hn::Lt(scale.k, half(kTinyScale)), hn::Gt(amax, hn::Zero(Dh())));
  return hn::AllFalse(Dh(), hn::Or(tiny, hn::Gt(amax, half(kInfiniteHalf - 1))));
}

// Of whole vectors of patterns, one or more, the largest in each lane without its sign. Those of NaNs are
// above any other.
template <bool kFetch, class Lanes>
HWY_INLINE hn::Vec<Lanes> lane_amaxes(Lanes d, const std::byte* x, size_t bytes) {
  using Lane = hn::TFromD<Lanes>;
  const auto magnitudes_at = [&](size_t at) {
    if (kFetch) fetch_ahead(x + at, sizeof(hn::Vec<Lanes>));
    return hn::And(hn::LoadU(d, reinterpret_cast<const Lane*>(x + at)),
                   hn::Set(d, std::numeric_limits<Lane>::max()));
  };
  auto most = magnitudes_at(0);
  for (size_t at = sizeof(most); at < bytes; at += sizeof(most)) most = hn::Max(most, magnitudes_at(at));
  return most;
}

// The largest lanes of neighbouring vectors, as many as 128 bits have lanes. The larger of the two
// interleavings of vectors has lanes of both, and half as many of each as before. After log2(kCount) such
// steps every 128 bits have one lane of each vector, in order, because the steps join those that are kCount /
// 2 apart, then half of that, then neighbours.
#if HWY_TARGET == HWY_SCALAR  // has no such lanes; Highway compiles it, nothing uses it
template <class D, class Vector, class T> HWY_INLINE void put_amaxes(D, Vector, T*) {}
#else
template <size_t kCount, class D, class Vector>
HWY_INLINE hn::Vec<D> interleaved_amaxes(D d, Vector vector, size_t first, size_t step) {
  if constexpr (kCount == 1) {
    return vector(first);
  } else {
    const auto a = interleaved_amaxes<kCount / 2>(d, vector, first, 2 * step),
               b = interleaved_amaxes<kCount / 2>(d, vector, first + step, 2 * step);
    return hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  }
}
template <class V> HWY_INLINE auto largest_of_128_bits(V v) {
  const hn::DFromV<V> d;
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<decltype(d)>) == 16) {
    return v;
  } else {
    const hn::Half<decltype(d)> narrow;
    return largest_of_128_bits(hn::Max(hn::LowerHalf(narrow, v), hn::UpperHalf(narrow, v)));
  }
}
template <class D, class Vector, class T> HWY_INLINE void put_amaxes(D d, Vector vector, T* out) {
  using Lane = hn::TFromD<D>;
  const auto all = interleaved_amaxes<16 / sizeof(Lane)>(d, vector, 0, 1);
  hn::StoreU(largest_of_128_bits(all), hn::Full128<Lane>(), reinterpret_cast<Lane*>(out));
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_SIMD_HALVES
