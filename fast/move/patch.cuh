// How a tensor is spread over threads, and how data move between them. No rounding happens here.
//
// A block of 256 threads takes a tile of 128x128 elements, which is also what scale planes are padded to.
// Each of its 8 warps takes 32 rows x 64 columns, each lane a patch of 8x8 elements held in registers:
//
//   lane = 8 * (row group 0..3) + (column group 0..7)        lanes 8q+4h .. 8q+4h+3 share 32 columns, lanes
//   equal modulo 8 share 32 rows
//
// So one read serves both directions: a 1x32 block lies in 4 neighbouring lanes, a 32x1 block in 4 lanes 8
// apart, and columns are transposed inside a patch. Loads are 16 bytes a lane and 128 contiguous bytes a row,
// stores 8 bytes a lane, both without shared memory. Where no block ties a warp to 32 rows, it takes 16 rows
// x 128 columns (Spread::lines), so that it stores whole lines of 128 bytes; its columns go through
// turned_tile.cuh. Where scales of rows are stored in lines, the eight warps stand side by side
// (Spread::strip).
#pragma once
#include "fast/lane/source.cuh"
#include "fast/launch.h"

namespace assay::ASSAY_FAST_NAMESPACE {

inline constexpr int kTile = 128, kThreads = 256, kPatch = 8;
inline constexpr int kStripRows = 32, kStripCols = 512;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// Exactly 1.0 leaves every output as it was (N6.7).
ASSAY_DEVICE bool is_noop(const uint32_t* flag) { return flag != nullptr && *flag == kOne; }

struct Extent {
  int64_t rows = 0, cols = 0;
  // Tiles of 128x128, the grid of a patch kernel.
  unsigned tiles() const { return unsigned(((rows + kTile - 1) / kTile) * ((cols + kTile - 1) / kTile)); }
  // Of two tiles side by side, or of the last one alone.
  unsigned pairs_of_tiles() const {
    return unsigned(((rows + kTile - 1) / kTile) * ((cols + 2 * kTile - 1) / (2 * kTile)));
  }
  // Strips of 32x512, over all rows that scale planes are padded to.
  unsigned strips() const {
    return unsigned((rows + kTile - 1) / kTile * (kTile / kStripRows) *
                    ((cols + kStripCols - 1) / kStripCols));
  }
};

// Where this thread's patch begins, and how many of its 8 rows and columns lie inside the tensor: both 0
// where none does. row_group() and quad() are those of Spread::blocks.
struct Place {
  int64_t row, col;
  int lane, rows, cols;
  ASSAY_DEVICE int row_group() const { return lane >> 3; }
  ASSAY_DEVICE int quad() const { return lane & 3; }  // place within the 4 lanes of a 1x32 block
};
ASSAY_LANE int inside(int64_t first, int64_t extent) {
  const int64_t left = extent - first;
  return left >= kPatch ? kPatch : left > 0 ? int(left) : 0;
}
// How the warps of a block share its tile: 32 rows x 64 columns each, or 16 rows x 128 columns; or the first,
// side by side in a strip.
enum class Spread : uint8_t { blocks, lines, strip };
// The row and column of a tile (or strip) among those of a tensor.
struct TileAt {
  unsigned row, col;
};
// Of tile `tile`, counted along rows of tiles.
template <Spread kSpread = Spread::blocks> ASSAY_DEVICE TileAt tile_at(const Extent& extent, unsigned tile) {
  constexpr int kCols = kSpread == Spread::strip ? kStripCols : kTile;
  const unsigned across = unsigned((extent.cols + kCols - 1) / kCols), row = tile / across;
  return {row, tile - row * across};
}
// This thread's place in a tile.
template <Spread kSpread = Spread::blocks>
ASSAY_DEVICE Place place_at(const Extent& extent, const TileAt& tile) {
  constexpr bool kLines = kSpread == Spread::lines, kStrip = kSpread == Spread::strip;
  constexpr int kRows = kStrip ? kStripRows : kTile, kCols = kStrip ? kStripCols : kTile;
  const int lane = int(threadIdx.x & 31u), warp = int(threadIdx.x >> 5);
  const int down = kLines   ? warp * 2 + (lane >> 4)
                   : kStrip ? lane >> 3
                            : (warp >> 1) * 4 + (lane >> 3),
            across_tile = kLines   ? lane & 15
                          : kStrip ? warp * 8 + (lane & 7)
                                   : (warp & 1) * 8 + (lane & 7);
  const int64_t row = int64_t(tile.row) * kRows + down * kPatch,
                col = int64_t(tile.col) * kCols + across_tile * kPatch;
  const int rows = inside(row, extent.rows), cols = inside(col, extent.cols);
  return {row, col, lane, cols == 0 ? 0 : rows, rows == 0 ? 0 : cols};
}
template <Spread kSpread = Spread::blocks>
ASSAY_DEVICE Place place_in_tile(const Extent& extent, unsigned tile) {
  return place_at<kSpread>(extent, tile_at<kSpread>(extent, tile));
}
ASSAY_DEVICE Place my_place(const Extent& extent) { return place_in_tile(extent, blockIdx.x); }

// Loads a patch; what lies outside the tensor is 0. kVector: `x` is 16-byte aligned and cols is a multiple
// of 8. kAgain: it will be read again, and stays in the caches.
template <class S, bool kVector, bool kAgain = false>
ASSAY_DEVICE void load_patch(const void* x, const Extent& extent, const Place& at,
                             uint32_t (&words)[kPatch][S::kWords]) {
  constexpr int kBytes = 4 / S::kPerWord;
  const char* from = static_cast<const char*>(x) + (at.row * extent.cols + at.col) * kBytes;
  const int64_t pitch = extent.cols * kBytes;
#pragma unroll
  for (int i = 0; i < kPatch; ++i, from += pitch) {
    const bool on = i < at.rows;
    if constexpr (kVector) {
#pragma unroll
      for (int w = 0; w < S::kWords; w += 4) {
        const uint4 v = !on      ? make_uint4(0, 0, 0, 0)
                        : kAgain ? load16(from + w * 4)
                                 : load16_streaming(from + w * 4);
        words[i][w] = v.x, words[i][w + 1] = v.y, words[i][w + 2] = v.z, words[i][w + 3] = v.w;
      }
    } else {
#pragma unroll
      for (int w = 0; w < S::kWords; ++w) {
        words[i][w] = 0;
#pragma unroll
        for (int h = 0; h < S::kPerWord; ++h) {
          const int j = w * S::kPerWord + h;
          if (!on || j >= at.cols) continue;
          if constexpr (S::kHalves)
            words[i][w] |= uint32_t(reinterpret_cast<const uint16_t*>(from)[j]) << (16 * h);
          else words[i][w] = reinterpret_cast<const uint32_t*>(from)[j];
        }
      }
    }
  }
}

// Code i of 8.
ASSAY_LANE uint32_t byte_of(uint2 codes, int i) {
  return ((i < 4 ? codes.x : codes.y) >> (8 * (i & 3))) & 0xFFu;
}

// Stores the first `count` of 8 codes. kVector: `to` is 8-byte aligned and all 8 are stored.
template <bool kVector> ASSAY_DEVICE void store_codes(uint8_t* to, int count, uint2 codes) {
  if constexpr (kVector) {
    store8(to, codes);
  } else {
#pragma unroll
    for (int j = 0; j < kPatch; ++j)
      if (j < count) to[j] = uint8_t((j < 4 ? codes.x : codes.y) >> (8 * (j & 3)));
  }
}

// Transposes a 4x4 square of bytes.
ASSAY_LANE void transpose4(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t& o0, uint32_t& o1,
                           uint32_t& o2, uint32_t& o3) {
  const uint32_t ab01 = __byte_perm(a, b, 0x5140), ab23 = __byte_perm(a, b, 0x7362);
  const uint32_t cd01 = __byte_perm(c, d, 0x5140), cd23 = __byte_perm(c, d, 0x7362);
  o0 = __byte_perm(ab01, cd01, 0x5410), o1 = __byte_perm(ab01, cd01, 0x7632);
  o2 = __byte_perm(ab23, cd23, 0x5410), o3 = __byte_perm(ab23, cd23, 0x7632);
}
// Transposes an 8x8 square of bytes in place.
ASSAY_LANE void transpose8(uint2 (&q)[kPatch]) {
  uint2 t[kPatch];
  transpose4(q[0].x, q[1].x, q[2].x, q[3].x, t[0].x, t[1].x, t[2].x, t[3].x);
  transpose4(q[4].x, q[5].x, q[6].x, q[7].x, t[0].y, t[1].y, t[2].y, t[3].y);
  transpose4(q[0].y, q[1].y, q[2].y, q[3].y, t[4].x, t[5].x, t[6].x, t[7].x);
  transpose4(q[4].y, q[5].y, q[6].y, q[7].y, t[4].y, t[5].y, t[6].y, t[7].y);
#pragma unroll
  for (int i = 0; i < kPatch; ++i) q[i] = t[i];
}

// Greatest absolute value of each row, 8 items in the order of S's words. kDrop: NaN elements count as 0.
template <class S, bool kDrop>
ASSAY_LANE void row_maxima(const uint32_t (&words)[kPatch][S::kWords], uint32_t (&out)[S::kWords]) {
  uint32_t best[kPatch];
#pragma unroll
  for (int i = 0; i < kPatch; ++i) {
    best[i] = 0;
#pragma unroll
    for (int w = 0; w < S::kWords; ++w) {
      const uint32_t a = words[i][w] & S::kAbsWord;
      best[i] = S::max(best[i], kDrop ? S::drop_nan(a) : a);
    }
  }
#pragma unroll
  for (int w = 0; w < S::kWords; ++w) {
    if constexpr (S::kHalves)
      out[w] = max_halves(__byte_perm(best[2 * w], best[2 * w + 1], 0x5410),
                          __byte_perm(best[2 * w], best[2 * w + 1], 0x7632));
    else out[w] = best[w];
  }
}
// The same of each column.
template <class S, bool kDrop>
ASSAY_LANE void col_maxima(const uint32_t (&words)[kPatch][S::kWords], uint32_t (&out)[S::kWords]) {
#pragma unroll
  for (int w = 0; w < S::kWords; ++w) {
    out[w] = 0;
#pragma unroll
    for (int i = 0; i < kPatch; ++i) {
      const uint32_t a = words[i][w] & S::kAbsWord;
      out[w] = S::max(out[w], kDrop ? S::drop_nan(a) : a);
    }
  }
}
template <class S> ASSAY_LANE bool any_nan(const uint32_t (&maxima)[S::kWords]) {
  uint32_t best = 0;
#pragma unroll
  for (int w = 0; w < S::kWords; ++w) best = S::max(best, maxima[w]);
  return S::any_nan(best);
}
// Maxima along rows or columns. NaN is rare: it wins every integer maximum, and only then are the elements
// looked at again. Returns whether there was one.
template <class S, bool kRows>
ASSAY_LANE bool maxima(const uint32_t (&words)[kPatch][S::kWords], uint32_t (&out)[S::kWords]) {
  if constexpr (kRows) row_maxima<S, false>(words, out);
  else col_maxima<S, false>(words, out);
  if (!any_nan<S>(out)) return false;
  if constexpr (kRows) row_maxima<S, true>(words, out);
  else col_maxima<S, true>(words, out);
  return true;
}

// Reduces 8 items over the 4 lanes whose numbers differ in the bits kLow and kHigh, in halves: lane q of the
// four ends with items 2q and 2q + 1, widened to binary32. 3 shuffles for 16-bit sources, 6 for F32.
template <class S, int kLow, int kHigh>
ASSAY_DEVICE uint2 quad_maxima(const uint32_t (&items)[S::kWords], int lane) {
  constexpr int kHalf = S::kWords / 2, kQuarter = S::kWords / 4;
  const bool high = (lane & kHigh) != 0, low = (lane & kLow) != 0;
  uint32_t half[kHalf], mine[kQuarter];
#pragma unroll
  for (int w = 0; w < kHalf; ++w) {
    const uint32_t keep = high ? items[kHalf + w] : items[w], give = high ? items[w] : items[kHalf + w];
    half[w] = S::max(keep, __shfl_xor_sync(kAllLanes, give, kHigh));
  }
#pragma unroll
  for (int w = 0; w < kQuarter; ++w) {
    const uint32_t keep = low ? half[kQuarter + w] : half[w], give = low ? half[w] : half[kQuarter + w];
    mine[w] = S::max(keep, __shfl_xor_sync(kAllLanes, give, kLow));
  }
  return make_uint2(S::widen(mine, 0), S::widen(mine, 1));
}
// The inverse: lane q gives the bytes of items 2q and 2q + 1, every lane gets all 8.
template <int kLow, int kHigh> ASSAY_DEVICE uint2 quad_gather(uint32_t two, int lane) {
  const uint32_t other = __shfl_xor_sync(kAllLanes, two, kLow);
  const uint32_t four = (lane & kLow) != 0 ? other | two << 16 : two | other << 16;
  const uint32_t rest = __shfl_xor_sync(kAllLanes, four, kHigh);
  return (lane & kHigh) != 0 ? make_uint2(rest, four) : make_uint2(four, rest);
}
// One maximum over the warp's half that shares 32x32 elements, as binary32.
template <class S> ASSAY_DEVICE uint32_t square_maximum(const uint32_t (&items)[S::kWords]) {
  uint32_t best = items[0];
#pragma unroll
  for (int w = 1; w < S::kWords; ++w) best = S::max(best, items[w]);
#pragma unroll
  for (int bit : {1, 2, 8, 16}) best = S::max(best, __shfl_xor_sync(kAllLanes, best, bit));
  const uint32_t first = S::widen(&best, 0);
  if constexpr (!S::kHalves) return first;
  const uint32_t second = S::widen(&best, 1);
  return first > second ? first : second;
}
// The patch's own maximum, as binary32, NaN dropped.
template <class S> ASSAY_LANE uint32_t patch_maximum(const uint32_t (&words)[kPatch][S::kWords]) {
  uint32_t items[S::kWords];
  maxima<S, false>(words, items);
  uint32_t best = 0;
#pragma unroll
  for (int j = 0; j < kPatch; ++j) {
    const uint32_t item = S::widen(items, j);
    best = item > best ? item : best;
  }
  return best;
}

// Raises *first and *second (where not null) to the block's maximum of non-negative binary32 patterns. Every
// thread of the block calls.
ASSAY_DEVICE void block_atomic_max(uint32_t value, uint32_t* first, uint32_t* second) {
  ASSAY_SHARED(uint32_t, by_warp, [32]);
  const uint32_t warp_max = __reduce_max_sync(kAllLanes, value);
  if ((threadIdx.x & 31u) == 0) by_warp[threadIdx.x >> 5] = warp_max;
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint32_t best = warp_max;
  for (unsigned w = 1; w < blockDim.x / 32; ++w) best = by_warp[w] > best ? by_warp[w] : best;
  // As signed integers, so that a negative value there is less than any maximum.
  if (first != nullptr) atomicMax(reinterpret_cast<int*>(first), int(best));
  if (second != nullptr) atomicMax(reinterpret_cast<int*>(second), int(best));
}

// Byte of scale (i, j) in the GEMM layout: i along the dimension that is not contracted, j the scale index
// along the contracted one (N6.3).
ASSAY_LANE int64_t gemm_index(int64_t i, int64_t j, int64_t tiles_of_4) {
  return ((((i >> 7) * tiles_of_4 + (j >> 2)) << 9) | ((i & 31) << 4) | (((i >> 5) & 3) << 2) | (j & 3));
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
