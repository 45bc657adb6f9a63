// The lines of a patch as stored rows of E2M1 codes: what the tuned kernels of both formats of 4 bits do once
// each line has its multiplier.
#pragma once
#include "fast/lane/convert.cuh"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Lines are rows (kRows) or columns; either is stored along itself, 8 codes in 4 bytes (N6.1, N6.8). `tame`:
// what Hardware::e2m1_codes asks for of every product of the warp. data is 4-byte aligned, and lines are a
// multiple of 8 long.
template <class S, bool kRows>
ASSAY_DEVICE void store_e2m1_lines(uint8_t* data, const Extent& extent, const Place& at,
                                   const uint32_t (&words)[kPatch][S::kWords],
                                   const float (&multiplier)[kPatch], bool tame) {
  const int64_t line = kRows ? at.row : at.col, first = kRows ? at.col : at.row,
                elements = kRows ? extent.cols : extent.rows;
  const int lines = kRows ? at.rows : at.cols;
  uint8_t* to = data + ((line * elements + first) >> 1);
#pragma unroll
  for (int l = 0; l < kPatch; ++l, to += elements >> 1) {
    if (l >= lines) continue;
    float y[kPatch];
#pragma unroll
    for (int k = 0; k < kPatch; ++k)
      y[k] = __fmul_rn(as_float(kRows ? S::widen(words[l], k) : S::widen(words[k], l)), multiplier[l]);
    *reinterpret_cast<uint32_t*>(to) = Hardware::e2m1_codes(y, tame);
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
