// The steps that the kernels share. A source of foreach_target.h includes this file once for each instruction
// set; with ASSAY_SIMD_LANES it bounds the lanes of a vector.
#if defined(ASSAY_SIMD_STEPS) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_SIMD_STEPS
#undef ASSAY_SIMD_STEPS
#else
#define ASSAY_SIMD_STEPS
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "fast/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {  // a source's lanes are its own

namespace hn = hwy::HWY_NAMESPACE;

#ifdef ASSAY_SIMD_LANES
using D = hn::CappedTag<int32_t, ASSAY_SIMD_LANES>;
#else
using D = hn::ScalableTag<int32_t>;
#endif
using V = hn::Vec<D>;
using M = hn::Mask<D>;
using W = hn::RebindToFloat<D>;

constexpr int32_t kInf = 0x7F800000;  // bits of infinity; NaNs are above
constexpr int kOne = 127;             // the E8M0 code of 1

// The encodings. `kBias` is the exponent's, `kTop` the code of the largest finite magnitude, `kMaxExponent`
// and `kMaxFraction` the exponent of that value and the 23 bits below it; `kNan` the code of a NaN (N2.4).
struct E4m3 {
  static constexpr int kMantissa = 3, kBias = 7, kTop = 0x7E, kMaxExponent = 8, kNan = 0x7F;
  static constexpr int kMaxFraction = 0x600000;
};
struct E5m2 {
  static constexpr int kMantissa = 2, kBias = 15, kTop = 0x7B, kMaxExponent = 15, kNan = 0x7F;
  static constexpr int kMaxFraction = 0x600000;
};
struct E2m1 {
  static constexpr int kMantissa = 1, kBias = 1, kTop = 7, kMaxExponent = 2, kNan = 7;
  static constexpr int kMaxFraction = 0x400000;
};

HWY_INLINE V constant(int32_t value) { return hn::Set(D(), value); }

// Loads one vector of elements as the bits of binary32 (N1.2). `kInfinity`: the pattern of infinity; those of
// NaNs are above.
struct FromBf16 {
  using Bits = uint16_t;
  static constexpr size_t kBytes = 2;
  static constexpr Bits kInfinity = 0x7F80;
  static HWY_INLINE V load(const std::byte* at) {
    const hn::Rebind<uint16_t, D> narrow;
    const hn::RebindToUnsigned<D> wide;
    const auto halves = hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(at));
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(wide, halves)));
  }
};
struct FromF16 {
  using Bits = uint16_t;
  static constexpr size_t kBytes = 2;
  static constexpr Bits kInfinity = 0x7C00;
  static HWY_INLINE V load(const std::byte* at) {
    const hn::Rebind<hwy::float16_t, D> narrow;
    const hn::RebindToFloat<D> wide;
    const auto halves = hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(at));
    return hn::BitCast(D(), hn::PromoteTo(wide, halves));
  }
};
struct FromF32 {
  using Bits = uint32_t;
  static constexpr size_t kBytes = 4;
  static constexpr Bits kInfinity = kInf;
  static HWY_INLINE V load(const std::byte* at) {
    return hn::LoadU(D(), reinterpret_cast<const int32_t*>(at));
  }
};

// What body makes of the loader of a source: body(FromBf16()), for instance.
template <class Body> HWY_INLINE auto with_source(Source source, Body body) {
  switch (source) {
    case Source::f16: return body(FromF16());
    case Source::f32: return body(FromF32());
    case Source::bf16: break;
  }
  return body(FromBf16());
}

HWY_INLINE V magnitude(V bits) { return hn::And(bits, constant(0x7FFFFFFF)); }

// N2.1, N2.2: the code of |x| * 2^(127 - k) without a sign, from the bits of |x|, which may be a NaN or an
// infinity: these give the largest code, unless k is that of an infinite amax. The significand is cut at the
// place of the code's last bit; what is cut off is compared with one half. k is at least kTinyScale, or x is
// not subnormal: so 0 and subnormals need no other significand, since all of it is cut off.
template <class F> HWY_INLINE V code_of(V a, V k) {
  const V binade = hn::Sub(hn::ShiftRight<23>(a), hn::Sub(k, constant(F::kBias - 1)));  // 0: the least normal
  const V significand = hn::Or(hn::And(a, constant(0x7FFFFF)), constant(0x800000));
  const V below = hn::Max(hn::Neg(binade), hn::Zero(D()));
  const V cut = hn::Min(hn::Add(below, constant(23 - F::kMantissa)), constant(30));
  const V kept = hn::Shr(significand, cut);
  const V left = hn::Sub(significand, hn::Shl(kept, cut));
  const V twice = hn::Add(hn::Add(left, left), hn::And(kept, constant(1)));  // odd: a tie goes up
  const M up = hn::Gt(twice, hn::Shl(constant(1), cut));
  const V base = hn::ShiftLeft<F::kMantissa>(hn::Max(binade, hn::Zero(D())));
  return hn::Min(hn::Sub(hn::Add(base, kept), hn::VecFromMask(D(), up)), constant(F::kTop));
}
template <class F> HWY_INLINE V sign_of(V bits) {  // N2.5, N5.6
  constexpr int place = F::kTop > 7 ? 7 : 3;
  return hn::And(hn::ShiftRight<31 - place>(bits), constant(1 << place));
}
// The code as it is written: an infinity stays one whatever the scale (N2.2); N2.4.
template <class F> HWY_INLINE V whole_code(V code, V a, V bits) {
  code = hn::IfThenElse(hn::Gt(a, constant(kInf - 1)), constant(F::kTop), code);
  return hn::IfThenElse(hn::Gt(a, constant(kInf)), constant(F::kNan), hn::Or(code, sign_of<F>(bits)));
}

constexpr int kInfiniteScale = 254;  // the E8M0 code of an infinite amax, and of no other

// N5.2, N5.3 without the product: amax * fl(1 / MAX) is above 2^j exactly where the amax is above m * 2^j'
// for the j' of MAX and its significand m, but for one amax, whose product is rounded among the subnormals.
template <class F> HWY_INLINE V scale_of(V amax) {
  constexpr int32_t kLeast = F::kMaxExponent << 23 | (F::kMaxFraction + 1);  // up to here the scale is 2^-127
  const V above = hn::Add(amax, constant(0x7FFFFF - F::kMaxFraction));  // carries where the fraction is above
  V k = hn::Sub(hn::ShiftRight<23>(above), constant(F::kMaxExponent));
  k = hn::IfThenElseZero(hn::Gt(amax, constant(kLeast)), k);
  k = hn::IfThenElse(hn::Gt(amax, constant(kInf - 1)), constant(kInfiniteScale), k);
  return hn::IfThenElse(hn::Gt(amax, constant(kInf)), constant(255), k);
}

// Blocks whose scale is tiny hold subnormals of binary32: these are lifted by 2^64, which is exact, and their
// codes taken with a scale that is as much larger.
constexpr int kTinyScale = 64;
HWY_INLINE V lifted(V a, M tiny) {
  const hn::RebindToFloat<D> f;
  const auto factor =
      hn::IfThenElse(hn::RebindMask(f, tiny), hn::Set(f, 18446744073709551616.0f), hn::Set(f, 1.0f));
  return hn::BitCast(D(), hn::Mul(hn::BitCast(f, a), factor));
}

// Writes the low byte of each lane.
HWY_INLINE void write(V codes, std::byte* at) {
  const hn::Rebind<uint8_t, D> bytes;
  hn::StoreU(hn::DemoteTo(bytes, codes), bytes, reinterpret_cast<uint8_t*>(at));
}

HWY_INLINE V amax_step(V most, V a) {  // N5.1: a NaN is passed over
  return hn::Max(most, hn::IfThenZeroElse(hn::Gt(a, constant(kInf)), a));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_SIMD_STEPS
