// E8M0 scales of blocks of 32, [line][block]. A warp holds two of the four blocks of a tile that are
// neighbours along a line: they meet in shared memory and are stored as words.
#pragma once
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Where one direction goes whose blocks have E8M0 scales.
struct Target {
  uint8_t* data = nullptr;
  uint8_t* scales = nullptr;  // E8M0, padded as contract/planes.h says
  bool gemm = false;          // scales in the GEMM layout
};

// Scales of a tile's rows and columns.
struct alignas(16) TileScales {
  uint8_t bytes[2][kTile][4];
};
ASSAY_DEVICE TileScales& tile_scales() {
  ASSAY_SHARED(TileScales, scales_of_tile, [1]);
  return scales_of_tile[0];
}

// `codes`: those of the 8 lines of this patch. Each of the four lanes that share a block puts two of them; 0
// where there is no such block (N6.4).
template <bool kRows> ASSAY_DEVICE void put_tile_scales(const Extent& extent, const Place& at, uint2 codes) {
  const int q = kRows ? at.quad() : at.row_group();
  const int64_t line = (kRows ? at.row : at.col) + 2 * q, lines = kRows ? extent.rows : extent.cols,
                element = kRows ? at.col : at.row, elements = kRows ? extent.cols : extent.rows;
  uint32_t two = (q < 2 ? codes.x : codes.y) >> (16 * (q & 1));
  uint8_t(*bytes)[4] = tile_scales().bytes[kRows ? 0 : 1] + (line & (kTile - 1));
  const bool block = (element & ~int64_t{31}) < elements;
#pragma unroll
  for (int k = 0; k < 2; ++k, two >>= 8)
    bytes[k][(element & (kTile - 1)) >> 5] = block && line + k < lines ? uint8_t(two) : uint8_t(0);
}

// Stores word `mine` of the 128 that all warps have put for one direction.
template <bool kRows>
ASSAY_DEVICE void store_tile_word(const Target& to, const Extent& extent, const Place& at, int mine) {
  const int64_t row = at.row & ~int64_t{kTile - 1}, col = at.col & ~int64_t{kTile - 1};
  const int64_t line = (kRows ? row : col) + mine, block = (kRows ? col : row) >> 5,
                tiles = ((kRows ? extent.cols : extent.rows) + kTile - 1) / kTile;  // along a line
  const int64_t byte = to.gemm ? gemm_index(line, block, tiles) : line * tiles * 4 + block;
  *reinterpret_cast<uint32_t*>(to.scales + byte) =
      *reinterpret_cast<const uint32_t*>(tile_scales().bytes[kRows ? 0 : 1][mine]);
}

// Stores all words that the threads of the block put before a barrier: the first 128 threads those of rows,
// the last 128 those of columns. The scales are 4-byte aligned.
template <bool kRow, bool kCol>
ASSAY_DEVICE void store_tile_scales(const Target& row, const Target& col, const Extent& extent,
                                    const Place& at) {
  static_assert(kThreads == 2 * kTile);
  const int mine = int(threadIdx.x & (kTile - 1));
  if (threadIdx.x < kTile) {
    if constexpr (kRow) store_tile_word<true>(row, extent, at, mine);
  } else {
    if constexpr (kCol) store_tile_word<false>(col, extent, at, mine);
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
