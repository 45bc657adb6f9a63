// E8M0 scales of blocks of 32, [line][block]. A warp holds two of the four blocks of a tile that are
// neighbours along a line: they meet in shared memory and are stored as words. A block of threads whose rows
// have such scales takes two tiles side by side, one after the other, and stores the words of both at once:
// the L2 fetches each sector of which it gets a part, and half as many are then stored in part.
#pragma once
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Where one direction goes whose blocks have E8M0 scales.
struct Target {
  uint8_t* data = nullptr;
  uint8_t* scales = nullptr;  // E8M0, padded as contract/planes.h says
  bool gemm = false;          // scales in the GEMM layout
};

// Scales of the rows of two tiles, and of a tile's columns.
struct alignas(16) TileScales {
  uint8_t rows[2][kTile][4], cols[kTile][4];
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
  TileScales& scales = tile_scales();
  uint8_t(*bytes)[4] = (kRows ? scales.rows[(element / kTile) & 1] : scales.cols) + (line & (kTile - 1));
  const bool block = (element & ~int64_t{31}) < elements;
#pragma unroll
  for (int k = 0; k < 2; ++k, two >>= 8)
    bytes[k][(element & (kTile - 1)) >> 5] = block && line + k < lines ? uint8_t(two) : uint8_t(0);
}

// Where the word of a line's scales in one tile goes; `tile` is counted along the line, as `tiles` are.
ASSAY_DEVICE uint32_t* tile_word(const Target& to, int64_t line, int64_t tile, int64_t tiles) {
  return reinterpret_cast<uint32_t*>(
      to.scales + (to.gemm ? gemm_index(line, tile * 4, tiles) : (line * tiles + tile) * 4));
}

// Stores the words of a tile's columns that the threads of the block put before a barrier; the last 128
// threads do. The scales are 4-byte aligned.
ASSAY_DEVICE void store_tile_columns(const Target& to, const Extent& extent, const Place& at) {
  static_assert(kThreads == 2 * kTile);
  if (threadIdx.x < kTile) return;
  const int mine = int(threadIdx.x & (kTile - 1));
  *tile_word(to, (at.col & ~int64_t{kTile - 1}) + mine, at.row / kTile, (extent.rows + kTile - 1) / kTile) =
      *reinterpret_cast<const uint32_t*>(tile_scales().cols[mine]);
}

// Stores the words of the rows of tile `tile`, counted along a row of tiles, and of its right neighbour; the
// first 128 threads do. The scales are 4-byte aligned.
ASSAY_DEVICE void store_tile_rows(const Target& to, const Extent& extent, unsigned tile_row, unsigned tile) {
  if (threadIdx.x >= kTile) return;
  const int mine = int(threadIdx.x);
  const int64_t line = int64_t(tile_row) * kTile + mine, tiles = (extent.cols + kTile - 1) / kTile;
  const auto word = [&](int n) { return *reinterpret_cast<const uint32_t*>(tile_scales().rows[n][mine]); };
  uint32_t* first = tile_word(to, line, tile, tiles);
  const bool second = tile + 1 < tiles;
  if (second && !to.gemm && (reinterpret_cast<uintptr_t>(first) & 7u) == 0)
    return store8(first, make_uint2(word(0), word(1)));
  *first = word(0);
  if (second) *tile_word(to, line, tile + 1, tiles) = word(1);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
