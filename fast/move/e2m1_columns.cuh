// Columns of E2M1 codes, turned through shared memory. Of a stored line a warp holds 32 codes, 16 bytes: half
// a sector, and the L2 fetches a sector of which it gets a part. The block's tile has 64 bytes of each line.
#pragma once
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The codes of a tile's columns, those of 8 rows in a word. Groups of 8 columns lie 4 words further apart
// than they are long: then what the lanes of a warp put at once, and what they take, lies in different banks.
inline constexpr int kColumnWords = kTile / kPatch, kGroupWords = kPatch * kColumnWords + 4;
ASSAY_DEVICE uint32_t* e2m1_columns(int group) {
  ASSAY_SHARED_ALIGNED(16, uint32_t, e2m1_tile, [kTile / kPatch][kGroupWords]);
  return e2m1_tile[group];
}

// Puts the columns of this thread's patch; codes(l): those of column l.
template <class Codes> ASSAY_DEVICE void put_e2m1_columns(const Place& at, Codes codes) {
  uint32_t* to =
      e2m1_columns(int(at.col & (kTile - 1)) / kPatch) + unsigned(at.row & (kTile - 1)) / unsigned{kPatch};
#pragma unroll
  for (int l = 0; l < kPatch; ++l)
    if (l < at.cols) to[l * kColumnWords] = codes(l);
}

// Stores the columns that all threads of the block put before a barrier, as rows of [cols, rows]: 16 lanes
// take a line's 64 bytes. `data` is 4-byte aligned, and rows and cols are multiples of 8.
ASSAY_DEVICE void store_e2m1_columns(uint8_t* data, const Extent& extent, const Place& at) {
  const int warp = int(threadIdx.x >> 5), word = at.lane & (kColumnWords - 1), odd = at.lane >> 4;
  const int64_t row = (at.row & ~int64_t{kTile - 1}) + word * kPatch,
                col = (at.col & ~int64_t{kTile - 1}) + warp * 2 * kPatch;
  if (row >= extent.rows || col >= extent.cols) return;
  const uint32_t* from = e2m1_columns(warp * 2) + odd * kColumnWords + word;
  uint8_t* to = data + (((col + odd) * extent.rows + row) >> 1);
#pragma unroll
  for (int g = 0; g < 2; ++g) {
    if (g == 1 && col + kPatch >= extent.cols) return;
#pragma unroll
    for (int l = 0; l < kPatch; l += 2, to += extent.rows)
      *reinterpret_cast<uint32_t*>(to) = from[g * kGroupWords + l * kColumnWords];
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
