// E2M1 of BF16 values times powers of two, two values in a word (N15.3): what kernels of MXFP4 do on targets
// without an instruction for E2M1. The host executor runs it too.
//
// Such a product is a BF16 value again. So the three lines of e2m1_adder.cuh are fused operations of BF16,
// which round their sums once: nothing is widened, and an instruction serves two elements. The last place of
// a sum from 64 on is 1/2, so that a code counts halves, and the lines are y, y / 2 + 1 and y / 4 + 2.
#pragma once
#include "fast/lane/encode.cuh"
#include "fast/lane/source.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// a * b + c of two BF16 values each, rounded once, to the nearest.
ASSAY_LANE uint32_t fma_bf16_pair(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDA_ARCH__)
  uint32_t both;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(both) : "r"(a), "r"(b), "r"(c));
  return both;
#else
  // Rounded to binary32 before. The lines allow that: a sum that binary32 does not hold is that of a product
  // below 1/8, far from the first tie.
  const auto one = [](uint32_t x, uint32_t y, uint32_t z) {
    return encode<Encoding::bf16>(as_bits(__fmaf_rn(as_float(x), as_float(y), as_float(z))));
  };
  return one(a << 16, b << 16, c << 16) | one(a & 0xFFFF0000u, b & 0xFFFF0000u, c & 0xFFFF0000u) << 16;
#endif
}
// Minima of two unsigned halves at once.
ASSAY_LANE uint32_t min_halves(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __vminu2(a, b);
#else
  const uint32_t low = (a & 0xFFFFu) < (b & 0xFFFFu) ? a : b, high = a < b ? a : b;
  return (low & 0xFFFFu) | (high & 0xFFFF0000u);
#endif
}

// What two elements are multiplied by for each line, by the E8M0 codes of their scales, which stand in the
// low bytes of both halves. The largest code leaves a normal number for the third line.
inline constexpr uint32_t kLargestLineCode = 251;
struct E2m1Lines {
  uint32_t first, second, third;
  ASSAY_LANE static E2m1Lines of(uint32_t codes) {
    const uint32_t first = 0x7F007F00u - codes * 128u;  // 2^(127 - code), N5.4
    return {first, first - 0x00800080u, first - 0x01000100u};
  }
};

// 64 in both halves, plus the codes of two magnitudes in steps of 1/2. The products lie in [0, 7).
inline constexpr uint32_t kLineBase = 0x42804280u;
ASSAY_LANE uint32_t e2m1_line_sums(uint32_t magnitudes, const E2m1Lines& by) {
  const uint32_t first = fma_bf16_pair(magnitudes, by.first, kLineBase),
                 second = fma_bf16_pair(magnitudes, by.second, kLineBase + 0x00020002u),
                 third = fma_bf16_pair(magnitudes, by.third, kLineBase + 0x00040004u);
  return min_halves(min_halves(first, second), third);
}

// The magnitude codes of eight elements, element k in bits 4k..4k+2, from the sums of neighbours in a row.
ASSAY_LANE uint32_t e2m1_of_row(const uint32_t (&sums)[4]) {
  const uint32_t left = __byte_perm(sums[0], sums[1], 0x6240), right = __byte_perm(sums[2], sums[3], 0x6240);
  return __byte_perm(left, right, 0x7632) * 16u + __byte_perm(left, right, 0x5410) - 0x88888880u;
}
// The same of two columns, from the sums of eight rows.
ASSAY_LANE uint2 e2m1_of_columns(const uint32_t (&sums)[8]) {
  const uint32_t top = ((sums[3] * 16u + sums[2]) * 16u + sums[1]) * 16u + sums[0] - kLineBase * 0x1111u,
                 bottom = ((sums[7] * 16u + sums[6]) * 16u + sums[5]) * 16u + sums[4] - kLineBase * 0x1111u;
  return make_uint2(__byte_perm(top, bottom, 0x5410), __byte_perm(top, bottom, 0x7632));
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
