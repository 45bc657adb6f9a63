// E2M1 by the floating-point adder (N2.1, N2.4, N2.5): what kernels do on targets without an instruction for
// it. The third method beside the integers of encode.cuh and that instruction; the host executor runs it too.
#pragma once
#include "fast/lane/layout.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// |y| + 2^22 * b, where b is the greatest power of two not above |y|, and at least 1. The last place of that
// sum is the step of E2M1 at |y|. So the adder rounds as the cast does, ties to even, and the sum's low bits
// count the steps from zero: two of them in every binade from 1 on are codes of the binades below, and the
// exponent counts those. The low byte is kAdderBias + the code of |y|. y is finite and below 7 in magnitude.
inline constexpr uint32_t kAdderBias = 0x2A;
ASSAY_LANE uint32_t e2m1_sum(float y) {
  const float binade = as_float(as_bits(fmaxf(fabsf(y), 1.0f)) & kInf);
  const uint32_t sum = as_bits(__fadd_rn(fabsf(y), __fmul_rn(binade, 4194304.0f)));
  return sum + (sum >> 22);
}

// Into the range that e2m1_sum takes, to the same code: NaN becomes 6, whose code is that of NaN.
ASSAY_LANE float e2m1_clamped(float y) { return fmaxf(fminf(y, 6.0f), -6.0f); }

// The codes of two values of any kind, the first in the low half of the byte.
ASSAY_LANE uint32_t e2m1_pair(float lo, float hi) {
  const float a = e2m1_clamped(lo), b = e2m1_clamped(hi);
  const uint32_t codes = e2m1_sum(a) + (e2m1_sum(b) << 4) - kAdderBias * 0x11u;
  return (codes & 0x77u) | (as_bits(a) >> 28 & 0x8u) | (as_bits(b) >> 24 & 0x80u);
}

// Bytes `byte` of four words.
ASSAY_LANE uint32_t bytes_of_four(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t byte) {
  const uint32_t two = byte * 0x11u + 0x40u;
  return __byte_perm(__byte_perm(a, b, two), __byte_perm(c, d, two), 0x5410);
}

// The codes of eight values, element k in bits 4k..4k+3, each value finite and below 7 in magnitude. Elements
// of even and of odd number go in words of bytes of their own, which one addition joins.
ASSAY_LANE uint32_t e2m1_eight(const float (&y)[8]) {
  uint32_t sum[8], bits[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) sum[k] = e2m1_sum(y[k]), bits[k] = as_bits(y[k]);
  const uint32_t even = bytes_of_four(sum[0], sum[2], sum[4], sum[6], 0),
                 odd = bytes_of_four(sum[1], sum[3], sum[5], sum[7], 0);
  const uint32_t even_signs = bytes_of_four(bits[0], bits[2], bits[4], bits[6], 3),
                 odd_signs = bytes_of_four(bits[1], bits[3], bits[5], bits[7], 3);
  const uint32_t codes = even + (odd << 4) - kAdderBias * 0x11111111u;
  return codes | (even_signs >> 4 & 0x08080808u) | (odd_signs & 0x80808080u);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
