// E2M1 by the floating-point adder (N2.1, N2.4, N2.5, N12.3): what kernels do on targets without an
// instruction for it. The third method beside the integers of encode.cuh and that instruction; the host
// executor runs it too.
//
// The codes of E2M1 count the steps from zero, and a step doubles at 2 and at 4. So the code of a magnitude
// y, with its fraction of a step, is the least of three straight lines: 2 y, y + 2 and y / 2 + 4. Each is one
// fused operation that also adds a power of two whose last place is the unit to round to: the adder rounds,
// and the low bits of the sum are the count. Rounding is monotonic, so the least of the rounded lines is the
// least line, rounded. All of this leaves the integer pipe alone, but for one minimum of three.
#pragma once
#include "fast/lane/layout.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The least of three positive values, as a pattern. Patterns compare as integers, of which Hopper takes three
// in one instruction.
ASSAY_LANE uint32_t least_of(float a, float b, float c) {
  const uint32_t two = as_bits(a) < as_bits(b) ? as_bits(a) : as_bits(b);
  return two < as_bits(c) ? two : as_bits(c);
}

// kAdderBase as a pattern, plus the code of y, ties to the even code. y lies in [0, 7).
inline constexpr uint32_t kAdderBase = 0x4B000000u;  // 2^23
ASSAY_LANE uint32_t e2m1_sum(float y) {
  const float first = __fmaf_rn(y, 2.0f, 8388608.0f), second = __fadd_rn(y, 8388610.0f),
              third = __fmaf_rn(y, 0.5f, 8388612.0f);
  return least_of(first, second, third);
}

// Into the range that e2m1_sum takes, to the same code: NaN becomes 6, whose code is that of NaN.
ASSAY_LANE float e2m1_clamped(float y) { return fmaxf(fminf(y, 6.0f), -6.0f); }

// The codes of two values of any kind, the first in the low half of the byte.
ASSAY_LANE uint32_t e2m1_pair(float lo, float hi) {
  const float a = e2m1_clamped(lo), b = e2m1_clamped(hi);
  const uint32_t codes = e2m1_sum(fabsf(a)) - kAdderBase + ((e2m1_sum(fabsf(b)) - kAdderBase) << 4);
  return codes | (as_bits(a) >> 28 & 0x8u) | (as_bits(b) >> 24 & 0x80u);
}

// Bytes `byte` of four words.
ASSAY_LANE uint32_t bytes_of_four(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t byte) {
  const uint32_t two = byte * 0x11u + 0x40u;
  return __byte_perm(__byte_perm(a, b, two), __byte_perm(c, d, two), 0x5410);
}
// Bits 7 of the bytes of `even` and `odd` as those of the signs of eight codes, element 0 of `even` lowest.
ASSAY_LANE uint32_t e2m1_signs(uint32_t even, uint32_t odd) {
  return (even >> 4 & 0x08080808u) | (odd & 0x80808080u);
}
// Those of eight binary32 values.
ASSAY_LANE uint32_t e2m1_signs(const float (&x)[8]) {
  uint32_t bits[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) bits[k] = as_bits(x[k]);
  return e2m1_signs(bytes_of_four(bits[0], bits[2], bits[4], bits[6], 3),
                    bytes_of_four(bits[1], bits[3], bits[5], bits[7], 3));
}
// The same where some of the products with x, whose magnitudes are y, are NaN: their code has no sign (N2.4).
ASSAY_LANE uint32_t e2m1_signs_of(const float (&y)[8], uint32_t signs) {
#pragma unroll
  for (int k = 0; k < 8; ++k)
    if (is_nan(as_bits(y[k]))) signs &= ~(8u << (4 * k));
  return signs;
}

// The magnitude codes of eight magnitudes below 7, element k in bits 4k..4k+2. Products shift, so that the
// sums of whole words are added up; what they all hold beside the code is taken off once.
ASSAY_LANE uint32_t e2m1_eight(const float (&y)[8]) {
  uint32_t codes = e2m1_sum(y[7]);
#pragma unroll
  for (int k = 6; k >= 0; --k) codes = codes * 16u + e2m1_sum(y[k]);
  return codes - kAdderBase * 0x11111111u;
}

// The same by stochastic rounding (sr_rule=integer): byte k of `low` and then `high` for element k. The lines
// count 1/256 of a step, cut and not rounded, as N12.3 takes the floor of them; then the byte is added, and
// the carry goes on into the code. Two counts share a word, and what 2^17 adds to them lies clear of both
// codes. y lies in [0, 6].
ASSAY_LANE uint32_t e2m1_count(float y) {
  const float first = __fmaf_rz(y, 8.0f, 131072.0f), second = __fmaf_rz(y, 4.0f, 131080.0f),
              third = __fmaf_rz(y, 2.0f, 131088.0f);
  return least_of(first, second, third);
}
// Byte 1 the codes of elements 0 and 1 of four, byte 3 those of 2 and 3; the others are 0.
ASSAY_LANE uint32_t e2m1_four_drawn(float y0, float y1, float y2, float y3, uint32_t bytes) {
  const uint32_t even = e2m1_count(y2) * 0x10000u + e2m1_count(y0) + (bytes & 0x00FF00FFu),
                 odd = e2m1_count(y3) * 0x10000u + e2m1_count(y1) + (bytes >> 8 & 0x00FF00FFu);
  return (odd & 0x07000700u) * 16u + (even & 0x07000700u);
}
ASSAY_LANE uint32_t e2m1_eight_drawn(const float (&y)[8], uint2 bytes) {
  return __byte_perm(e2m1_four_drawn(y[0], y[1], y[2], y[3], bytes.x),
                     e2m1_four_drawn(y[4], y[5], y[6], y[7], bytes.y), 0x7531);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
