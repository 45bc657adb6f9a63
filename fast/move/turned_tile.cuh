// A tile of one-byte codes, transposed through shared memory: a warp holds 16 or 32 rows of the tensor, a
// stored line of columns has 128 of them.
#pragma once
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Where the 8 codes of patch row `unit` stand in a line of the tile: patches of one row of either spread, and
// those of one column, then lie in different banks.
ASSAY_LANE int turned_unit(int line, int unit) {
  const int group = line / kPatch;
  return unit ^ ((group * 2 & 15) | group >> 3);
}

// Stores the tile's codes as rows of [cols, rows]; turned[j] holds those of column j of this thread's patch.
// `data` is 8-byte aligned, and there are a multiple of 8 rows. Holds a barrier: every thread of the block
// calls, once in a kernel.
ASSAY_DEVICE void store_turned(uint8_t* data, const Extent& extent, const Place& at,
                               const uint2 (&turned)[kPatch]) {
  ASSAY_SHARED_ALIGNED(16, uint2, turned_tile, [kTile][kTile / kPatch]);
  const int column = int(at.col & (kTile - 1)), unit = int(at.row & (kTile - 1)) / kPatch;
#pragma unroll
  for (int j = 0; j < kPatch; ++j) store8(&turned_tile[column + j][turned_unit(column, unit)], turned[j]);
  __syncthreads();
  // 16 threads take a line of 128 bytes, and each the same 8 rows of 8 lines.
  const int mine = int(threadIdx.x & 15u), first = int(threadIdx.x >> 4) * kPatch;
  const int64_t row = (at.row & ~int64_t{kTile - 1}) + mine * kPatch,
                col = (at.col & ~int64_t{kTile - 1}) + first;
  if (row >= extent.rows) return;
  const int columns = inside(col, extent.cols);
  uint8_t* to = data + col * extent.rows + row;
#pragma unroll
  for (int j = 0; j < kPatch; ++j, to += extent.rows)
    if (j < columns) store8(to, load8(&turned_tile[first + j][turned_unit(first, mine)]));
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
