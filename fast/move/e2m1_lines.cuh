// The lines of a patch as stored rows of E2M1 codes: what the tuned kernels of both formats of 4 bits do once
// each line has its multiplier.
#pragma once
#include "fast/lane/convert.cuh"
#include "fast/lane/e2m1_bf16.cuh"
#include "fast/move/e2m1_columns.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The signs of line l, a row (kRows) or a column, as e2m1_signs gives them. Of 16-bit elements they are bits
// 7 of the odd bytes; columns l and l + 1 share the first permutations.
template <class S, bool kRows>
ASSAY_LANE uint32_t line_signs(const uint32_t (&words)[kPatch][S::kWords], int l) {
  if constexpr (!S::kHalves) {
    float x[kPatch];
#pragma unroll
    for (int k = 0; k < kPatch; ++k) x[k] = as_float(kRows ? words[l][k] : words[k][l]);
    return e2m1_signs(x);
  } else if constexpr (kRows) {
    const uint32_t low = __byte_perm(words[l][0], words[l][1], 0x7531),
                   high = __byte_perm(words[l][2], words[l][3], 0x7531);
    return e2m1_signs(__byte_perm(low, high, 0x6420), __byte_perm(low, high, 0x7531));
  } else {
    const int w = l / 2;
    const unsigned half = l % 2 != 0 ? 0x7632 : 0x5410;
    return e2m1_signs(__byte_perm(__byte_perm(words[0][w], words[2][w], 0x7351),
                                  __byte_perm(words[4][w], words[6][w], 0x7351), half),
                      __byte_perm(__byte_perm(words[1][w], words[3][w], 0x7351),
                                  __byte_perm(words[5][w], words[7][w], 0x7351), half));
  }
}

// The elements of line l, widened.
template <class S, bool kRows>
ASSAY_LANE void line_values(const uint32_t (&words)[kPatch][S::kWords], int l, float (&x)[kPatch]) {
#pragma unroll
  for (int k = 0; k < kPatch; ++k) x[k] = as_float(kRows ? S::widen(words[l], k) : S::widen(words[k], l));
}

// Lines are rows (kRows), which are stored, or columns, which are put for store_e2m1_columns. Either lies
// along itself, 8 codes in 4 bytes (N6.1, N6.8). codes(l): those of line l. data is 4-byte aligned, and rows
// are a multiple of 8 long.
template <bool kRows, class Codes>
ASSAY_DEVICE void move_e2m1_lines(uint8_t* data, const Extent& extent, const Place& at, Codes codes) {
  if constexpr (kRows) {
    uint8_t* to = data + ((at.row * extent.cols + at.col) >> 1);
#pragma unroll
    for (int l = 0; l < kPatch; ++l, to += extent.cols >> 1)
      if (l < at.rows) *reinterpret_cast<uint32_t*>(to) = codes(l);
  } else {
    put_e2m1_columns(at, codes);
  }
}

// The codes of BF16 elements under E8M0 scales, of all lines: `scales` holds a code for each line, none above
// kLargestLineCode, and every product is finite and below 7.
template <bool kRows>
ASSAY_LANE void e2m1_lines_of_bf16(const uint32_t (&words)[kPatch][4], uint2 scales,
                                   uint32_t (&codes)[kPatch]) {
  using S = Source<Encoding::bf16>;
  if constexpr (kRows) {
#pragma unroll
    for (int l = 0; l < kPatch; ++l) {
      const E2m1Lines by = E2m1Lines::of(__byte_perm(l < 4 ? scales.x : scales.y, 0, 0x4040 + l % 4 * 0x101));
      uint32_t sums[S::kWords];
#pragma unroll
      for (int w = 0; w < S::kWords; ++w) sums[w] = e2m1_line_sums(words[l][w] & S::kAbsWord, by);
      codes[l] = e2m1_of_row(sums) + line_signs<S, true>(words, l);
    }
  } else {
#pragma unroll
    for (int w = 0; w < S::kWords; ++w) {
      const E2m1Lines by = E2m1Lines::of(__byte_perm(w < 2 ? scales.x : scales.y, 0, 0x4140 + w % 2 * 0x202));
      uint32_t sums[kPatch];
#pragma unroll
      for (int i = 0; i < kPatch; ++i) sums[i] = e2m1_line_sums(words[i][w] & S::kAbsWord, by);
      const uint2 two = e2m1_of_columns(sums);
      codes[2 * w] = two.x + line_signs<S, false>(words, 2 * w);
      codes[2 * w + 1] = two.y + line_signs<S, false>(words, 2 * w + 1);
    }
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
