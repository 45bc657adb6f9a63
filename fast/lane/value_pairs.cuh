// Two codes of 8 bits widened at once, two values narrowed to 16 bits at once: by conversion instructions in
// nvcc's kernels, by the integers of decode() and encode() under the host executor.
#pragma once
#include "fast/lane/decode.cuh"
#include "fast/lane/encode.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// What two codes stand for (N2.8), the first in the low byte. nvcc's kernels take the conversion
// instructions, through F16, which holds every value of both encodings; the host executor takes the integers
// of decode().
struct ValuePair {
  float lo, hi;
};
template <Encoding E> ASSAY_LANE ValuePair values_of_pair(uint32_t codes) {
#if defined(__CUDA_ARCH__)
  if constexpr (E == Encoding::e4m3 || E == Encoding::e5m2) {
    uint32_t halves;
    if constexpr (E == Encoding::e4m3)
      asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(uint16_t(codes)));
    else asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(uint16_t(codes)));
    ValuePair v;
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %2; cvt.f32.f16 %0, lo; cvt.f32.f16 %1, hi; }"
        : "=f"(v.lo), "=f"(v.hi)
        : "r"(halves));
    return v;
  } else
#endif
  {
    return {as_float(decode<E>(codes & 0xFFu)), as_float(decode<E>((codes >> 8) & 0xFFu))};
  }
}

// Two values narrowed to 16 bits each, to the nearest, infinite beyond the largest (N2.1, N2.6), a NaN to
// 7FFF (N2.4); the first in the low half.
template <Encoding Out> ASSAY_LANE uint32_t narrowed_pair(float lo, float hi) {
#if defined(__CUDA_ARCH__)
  uint32_t both;
  if constexpr (Out == Encoding::bf16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(hi), "f"(lo));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(hi), "f"(lo));
  return both;
#else
  return encode<Out>(as_bits(lo), Round::rne, Overflow::nosat) |
         encode<Out>(as_bits(hi), Round::rne, Overflow::nosat) << 16;
#endif
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
