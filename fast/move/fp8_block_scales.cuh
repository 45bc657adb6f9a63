// Where the scales of FP8 blocks are stored (N9.4, N9.6).
#pragma once
#include "fast/lane/fp8_block.cuh"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The scale of stored row i in block j along it, of `lines` stored rows of `elements`: in [block][row] padded
// to 4 rows (N9.4), or its exponent field four times (N9.6). i counts on to the end of its tile: padding is 0
// (N6.4).
ASSAY_LANE void store_block_scale(uint8_t* scales, bool gemm, int64_t lines, int64_t elements, int64_t i,
                                  int64_t j, uint32_t scale_inv) {
  const uint32_t scale = i < lines ? scale_inv : 0u;
  if (gemm) {
    const int64_t blocks = (elements + kTile - 1) / kTile;
    uint8_t* to = scales + gemm_index(i, 4 * j, blocks);
    const uint32_t code = fp8_block_code(scale);
    if ((reinterpret_cast<uintptr_t>(to) & 3u) == 0) {
      *reinterpret_cast<uint32_t*>(to) = code * 0x01010101u;
    } else {
#pragma unroll
      for (int copy = 0; copy < 4; ++copy) to[copy] = uint8_t(code);
    }
  } else if (const int64_t pitch = (lines + 3) & ~int64_t{3}; i < pitch) {
    reinterpret_cast<uint32_t*>(scales)[j * pitch + i] = scale;
  }
}

// The scale of the tile in row `down` and column `across` of tiles, each thread of the first kTile giving its
// number `mine`: one entry in [row of tiles][block], padded to 4 blocks (N9.4), where the tile at the end
// stores the padding (N6.4); or that of each stored row (N9.6).
ASSAY_LANE void store_tile_scale(uint8_t* scales, bool gemm, int64_t lines, int64_t elements, int64_t down,
                                 int64_t across, int mine, uint32_t scale_inv) {
  if (gemm) return store_block_scale(scales, gemm, lines, elements, down * kTile + mine, across, scale_inv);
  const int64_t blocks = (elements + kTile - 1) / kTile, pitch = (blocks + 3) & ~int64_t{3};
  uint32_t* to = reinterpret_cast<uint32_t*>(scales) + down * pitch + across;
  if (mine == 0) *to = scale_inv;
  else if (across == blocks - 1 && across + mine < pitch) to[mine] = 0;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
