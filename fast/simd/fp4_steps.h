// What the kernels of E2M1 share: codes stand two a byte, so elements are taken as even and odd ones.
// nvfp4.cpp and mxfp4.cpp include this file once for each instruction set, with vectors of at most 8 lanes.
#if defined(ASSAY_SIMD_FP4_STEPS) == defined(HWY_TARGET_TOGGLE)
#ifdef ASSAY_SIMD_FP4_STEPS
#undef ASSAY_SIMD_FP4_STEPS
#else
#define ASSAY_SIMD_FP4_STEPS
#endif

#include <bit>
#include <cstring>

#define ASSAY_SIMD_LANES 8  // half a block of NVFP4: its even elements, or its odd ones
#include "fast/simd/kernels.h"
#include "fast/simd/steps.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {
namespace {

// Elements 0, 2, 4 ... and 1, 3, 5 ... of consecutive ones, as bits of binary32.
struct Pairs {
  V even, odd;
};
template <class S> HWY_INLINE Pairs load_pairs(const std::byte* at) {
  if constexpr (std::is_same_v<S, FromBf16>) {
    const V both = hn::LoadU(D(), reinterpret_cast<const int32_t*>(at));
    return {hn::ShiftLeft<16>(both), hn::And(both, constant(static_cast<int32_t>(0xFFFF0000)))};
  } else if constexpr (std::is_same_v<S, FromF16>) {
    const hn::Rebind<hwy::float16_t, D> narrow;
    const hn::RebindToUnsigned<D> wide;
    const auto both = hn::LoadU(wide, reinterpret_cast<const uint32_t*>(at));
    const hn::Rebind<uint16_t, D> halves;
    const auto part = [&](auto words) {
      return hn::BitCast(D(), hn::PromoteTo(W(), hn::BitCast(narrow, hn::TruncateTo(halves, words))));
    };
    return {part(hn::And(both, hn::Set(wide, 0xFFFFu))), part(hn::ShiftRight<16>(both))};
  } else {
    V even = hn::Zero(D()), odd = even;
    hn::LoadInterleaved2(D(), reinterpret_cast<const int32_t*>(at), even, odd);
    return {even, odd};
  }
}

constexpr size_t kWordBytes = 8;  // of 16 codes

// How n of 16 recorded codes differ from those that were made.
HWY_INLINE Doubt difference(const std::byte* made, const std::byte* recorded, int64_t n) {
  uint64_t ours = 0, theirs = 0;  // code i in bits 4i to 4i + 3, as both processors are little-endian
  std::memcpy(&ours, made, kWordBytes);
  std::memcpy(&theirs, recorded, kWordBytes);
  uint64_t bits = ours ^ theirs;
  bits |= bits >> 2;
  bits |= bits >> 1;
  bits &= 0x1111111111111111 >> (64 - 4 * n);  // one for each code that differs
  if (bits == 0) return {true, 0, 0};          // what follows them does (N6.8)
  return {false, std::popcount(bits), std::countr_zero(bits) / 4};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#endif  // ASSAY_SIMD_FP4_STEPS
