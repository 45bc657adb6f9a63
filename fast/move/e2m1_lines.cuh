// The lines of a patch as stored rows of E2M1 codes: what the tuned kernels of both formats of 4 bits do once
// each line has its multiplier.
#pragma once
#include "fast/lane/convert.cuh"
#include "fast/move/patch.cuh"

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

// Lines are rows (kRows) or columns; either is stored along itself, 8 codes in 4 bytes (N6.1, N6.8).
// codes(x, signs, l): those of line l. data is 4-byte aligned, and lines are a multiple of 8 long.
template <class S, bool kRows, class Codes>
ASSAY_DEVICE void store_e2m1_lines(uint8_t* data, const Extent& extent, const Place& at,
                                   const uint32_t (&words)[kPatch][S::kWords], Codes codes) {
  const int64_t line = kRows ? at.row : at.col, first = kRows ? at.col : at.row,
                elements = kRows ? extent.cols : extent.rows;
  const int lines = kRows ? at.rows : at.cols;
  uint8_t* to = data + ((line * elements + first) >> 1);
#pragma unroll
  for (int l = 0; l < kPatch; ++l, to += elements >> 1) {
    if (l >= lines) continue;
    float x[kPatch];
#pragma unroll
    for (int k = 0; k < kPatch; ++k) x[k] = as_float(kRows ? S::widen(words[l], k) : S::widen(words[k], l));
    *reinterpret_cast<uint32_t*>(to) = codes(x, line_signs<S, kRows>(words, l), l);
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
