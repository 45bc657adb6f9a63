// Stochastic rounding to E2M1 (N12.3): by integers, by a fused multiply-add, and by the conversion
// instruction where a GPU has it, else by the adder.
#pragma once
#include "contract/numerics.h"
#include "fast/lane/e2m1_adder.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// A code with the sign of `bits`; NaN gives 7 (N2.4).
ASSAY_LANE uint32_t signed_e2m1(uint32_t bits, uint32_t magnitude) {
  return is_nan(bits) ? 7u : (bits >> 28 & 8u) | magnitude;
}

// sr_rule=integer: the top 8 of the bits that E2M1 drops, plus the byte; the carry goes on into the code.
ASSAY_LANE uint32_t stochastic_integer(uint32_t bits, uint32_t byte) {
  const uint32_t a = bits & kAbs;
  if (a >= 0x40C00000u) return signed_e2m1(bits, 7u);
  uint32_t kept;  // code and dropped bits, in units of 1/256 of a step
  if (a >= kOne) {
    kept = (a - 0x3F000000u) >> 14;  // exponent and first fraction bit count in codes, from 2 at the value 1
  } else {
    const uint32_t exponent = a >> 23;
    kept = exponent < 118u ? 0u : ((a & kFraction) | 0x00800000u) >> (141u - exponent);
  }
  return signed_e2m1(bits, (kept + byte) >> 8);
}

// sr_rule=fma: u steps are added in one rounding, and the sum is cut to the grid where it then lies.
ASSAY_LANE uint32_t stochastic_fma(uint32_t bits, uint32_t byte) {
  const uint32_t a = bits & kAbs;
  if (a >= 0x40C00000u) return signed_e2m1(bits, 7u);
  const uint32_t step = a >= 0x40800000u ? 0x40000000u : a >= 0x40000000u ? kOne : 0x3F000000u;
  const float u = __fmul_rn(float(int(byte)), as_float(0x3B800000u));  // byte / 256, exact
  const uint32_t t = as_bits(__fmaf_rn(u, as_float(step), as_float(a)));
  // The codes of 4 and above are 2 apart in value, those of 2 and 3 one, below them a half.
  uint32_t magnitude;
  if (t >= 0x40C00000u) magnitude = 7u;
  else if (t >= 0x40800000u) magnitude = 6u;
  else if (t >= 0x40000000u) magnitude = t >= 0x40400000u ? 5u : 4u;
  else if (t >= kOne) magnitude = t >= 0x3FC00000u ? 3u : 2u;
  else magnitude = t >= 0x3F000000u ? 1u : 0u;
  return signed_e2m1(bits, magnitude);
}

// The codes of four values, byte e of `bytes` for value e, element e in bits 4e..4e+3 of the result.
struct StochasticBits {
  static constexpr const char* kName = "bits";
  ASSAY_LANE static uint32_t four(float x0, float x1, float x2, float x3, uint32_t bytes) {
    return stochastic_integer(as_bits(x0), bytes & 0xFFu) |
           stochastic_integer(as_bits(x1), (bytes >> 8) & 0xFFu) << 4 |
           stochastic_integer(as_bits(x2), (bytes >> 16) & 0xFFu) << 8 |
           stochastic_integer(as_bits(x3), bytes >> 24) << 12;
  }
};

// cvt.rs.satfinite.e2m1x4.f32, which only sm_100a and its like have. It takes byte 0, 2, 1, 3 of its random
// word for element 0, 1, 2, 3 by the reading of the PTX text in N12.5; never run on hardware. Elsewhere, and
// under the host executor, the adder (e2m1_adder.cuh).
struct StochasticHardware {
  static constexpr const char* kName = "hardware";
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
  ASSAY_LANE static uint32_t four(float x0, float x1, float x2, float x3, uint32_t bytes) {
    uint16_t codes;
    asm("cvt.rs.satfinite.e2m1x4.f32 %0, {%1, %2, %3, %4}, %5;"
        : "=h"(codes)
        : "f"(x3), "f"(x2), "f"(x1), "f"(x0), "r"(__byte_perm(bytes, 0, 0x3120)));
    return codes;
  }
#else
  ASSAY_LANE static uint32_t four(float x0, float x1, float x2, float x3, uint32_t bytes) {
    const float y0 = e2m1_clamped(x0), y1 = e2m1_clamped(x1), y2 = e2m1_clamped(x2), y3 = e2m1_clamped(x3);
    const uint32_t codes = e2m1_four_drawn(fabsf(y0), fabsf(y1), fabsf(y2), fabsf(y3), bytes);
    return (codes >> 8 & 0xFFu) | codes >> 16 | (as_bits(y0) >> 28 & 0x8u) | (as_bits(y1) >> 24 & 0x80u) |
           (as_bits(y2) >> 20 & 0x800u) | (as_bits(y3) >> 16 & 0x8000u);
  }
#endif
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
