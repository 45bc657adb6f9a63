// E8M0 scales of blocks of 1x32 in compact layout, of a block of threads that takes a strip of 32 rows x 512
// columns (Spread::strip): the 16 scales of a row meet in shared memory and are stored side by side, so that
// they fill half a sector of 32 bytes where a square tile fills an eighth of one.
#pragma once
#include "fast/move/tile_scales.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Scales of a strip's rows. Rows are a word longer than they need to be: lanes that put scales of several
// rows meet different banks.
struct alignas(4) StripScales {
  static constexpr int kScales = kStripCols / 32;
  uint8_t bytes[kStripRows][kScales + 4];
};
ASSAY_DEVICE StripScales& strip_scales() {
  ASSAY_SHARED(StripScales, scales_of_strip, [1]);
  return scales_of_strip[0];
}

// `codes`: those of the 8 rows of this patch. Each of the four lanes that share a block puts two of them.
// Outside the tensor elements are zeros, and their blocks have the code 0, which the padding asks for (N6.4).
ASSAY_DEVICE void put_strip_scales(const Place& at, uint2 codes) {
  const int line = int(at.row & (kStripRows - 1)) + 2 * at.quad(),
            block = int(at.col & (kStripCols - 1)) >> 5;
  const uint32_t two = (at.quad() < 2 ? codes.x : codes.y) >> (16 * (at.quad() & 1));
  strip_scales().bytes[line][block] = uint8_t(two);
  strip_scales().bytes[line + 1][block] = uint8_t(two >> 8);
}

// Stores what the threads of the block put before a barrier, a word each of the first 128. The scales are
// 4-byte aligned, in lines of whole words. `strip`: a function that says which strip it is.
template <class Strip>
ASSAY_DEVICE void store_strip_scales(const Target& to, const Extent& extent, Strip strip) {
  constexpr int kWords = StripScales::kScales / 4;
  static_assert(kStripRows * kWords <= kThreads);
  const int line = int(threadIdx.x) / kWords, word = int(threadIdx.x) % kWords;
  if (line >= kStripRows) return;
  const TileAt at = strip();
  const int64_t pitch = (extent.cols + kTile - 1) / kTile * 4, row = int64_t(at.row) * kStripRows + line,
                block = int64_t(at.col) * StripScales::kScales + 4 * word;
  if (block >= pitch) return;
  *reinterpret_cast<uint32_t*>(to.scales + row * pitch + block) =
      *reinterpret_cast<const uint32_t*>(strip_scales().bytes[line] + 4 * word);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
