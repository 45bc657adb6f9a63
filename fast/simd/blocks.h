// What is seen of the codes of a block of MXFP8 or FP8, codes of any kind, made in lanes of 32 bits.
// mxfp8.cpp and fp8.cpp include this file once for each instruction set.
#if defined(ASSAY_SIMD_BLOCKS) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_SIMD_BLOCKS
#undef ASSAY_SIMD_BLOCKS
#else
#define ASSAY_SIMD_BLOCKS
#endif

#include <array>

#include "fast/simd/kernels.h"
#include "fast/simd/steps.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

// The codes of a quantizer are written, or compared with those of a dump. What was seen of a block, or of
// neighbouring ones lane by lane.
struct Seen {
  using U = hn::RebindToUnsigned<D>;
  V equal;           // how many codes were the recorded ones
  V alike, leading;  // -1: all were so far; how many were before the first other one
  V most;            // the largest code without its sign
  hn::Vec<U> least;  // the least but 0, less 1

  static HWY_INLINE Seen nothing() {
    const V zero = hn::Zero(D());
    return {zero, constant(-1), zero, zero, hn::Set(U(), 0xFFFFFFFFu)};
  }

  template <class F> HWY_INLINE void add(V code, V bits, const std::byte* recorded) {
    const hn::Rebind<uint8_t, D> bytes;
    const V there = hn::PromoteTo(D(), hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(recorded)));
    const V same = hn::VecFromMask(D(), hn::Eq(there, hn::Or(code, sign_of<F>(bits))));
    equal = hn::Sub(equal, same);
    alike = hn::And(alike, same);
    leading = hn::Sub(leading, alike);
    see(code);
  }
  HWY_INLINE void see(V code) {
    most = hn::Max(most, code);
    least = hn::Min(least, hn::BitCast(U(), hn::Sub(code, constant(1))));
  }
  // Not 0 where a code is subnormal or one of the largest magnitude, as those of NaN and infinity are, and
  // where the amax is infinite.
  template <class F> HWY_INLINE V special(V k) const {
    constexpr uint32_t kNormal = 1u << F::kMantissa;
    const V subnormal = hn::BitCast(D(), hn::VecFromMask(U(), hn::Gt(hn::Set(U(), kNormal - 1), least)));
    const V top = hn::VecFromMask(D(), hn::Gt(most, constant(F::kTop - 1)));
    const V infinite = hn::VecFromMask(D(), hn::Gt(k, constant(kInfiniteScale - 1)));
    return hn::Or(infinite, hn::Or(subnormal, top));
  }
  // Of one block in n vectors.
  template <class F> HWY_INLINE Doubt of_block(V k, int64_t n) const {
    const V rare = special<F>(k), differ = hn::Sub(constant(static_cast<int32_t>(n)), equal);
    if (HWY_LIKELY(hn::AllTrue(D(), hn::Eq(hn::Or(rare, differ), hn::Zero(D()))))) return {};
    return {!hn::AllTrue(D(), hn::Eq(rare, hn::Zero(D()))), hn::GetLane(hn::SumOfLanes(D(), differ)), 0};
  }
};

// Of as many neighbouring blocks down columns as a vector has lanes.
struct Columns {
  static constexpr size_t kMost = 16;  // lanes of any target
  HWY_ALIGN std::array<int32_t, kMost> scales{}, special{}, equal{}, leading{};
  template <class F> HWY_INLINE void put(const Seen& seen, V k) {
    hn::Store(seen.special<F>(k), D(), special.data());
    hn::Store(seen.equal, D(), equal.data());
    hn::Store(seen.leading, D(), leading.data());
  }
  Doubt of(size_t lane, int64_t height) const {
    const int32_t differ = static_cast<int32_t>(height) - equal[lane];
    return {special[lane] != 0, differ, differ ? leading[lane] : 0};
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_SIMD_BLOCKS
