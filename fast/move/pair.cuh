// The tuned kernel of one format at default Numerics: reads the tensor once and writes one direction or both.
// Vectors only; every other case is served by direction lanes (fast/directions.h).
//
// A lane type says what one direction does with its elements:
//   kBlocks                 one scale per 32 elements (or per 32x32) rather than one for the tensor
//   kLines                  one scale per row, or per column, rather than one for the tensor
//   kTransposed             column data are stored [cols, rows]
//   kActive                 whether this direction is produced
//   kSquare                 the block is 32x32
//   kSame                   with the same lane in both directions, column codes are the row codes
//   kAmax                   the kernel also accumulates the tensor's amax
//   scale_code(amax)        stored code of a block's amax, both as integers
//   multiplier(code)        what elements of a block with that code are multiplied by
//   tensor_multiplier()     the same where the tensor has one
//   line_multiplier(line)   the same where each row or column has one
//   tensor_amax()           where to accumulate the tensor's amax, or null
//   pair(lo, hi, mlo, mhi)  the codes of lo * mlo and hi * mhi, in the two low bytes
// None stands for a direction that is not produced.
#pragma once
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct None {
  static constexpr bool kActive = false, kBlocks = false, kLines = false, kSquare = false,
                        kTransposed = false, kSame = false, kAmax = false;
  ASSAY_LANE static uint32_t scale_code(uint32_t) { return 0; }
  ASSAY_LANE static float multiplier(uint32_t) { return 0; }
  ASSAY_LANE static float tensor_multiplier() { return 0; }
  ASSAY_LANE static uint32_t* tensor_amax() { return nullptr; }
  ASSAY_LANE static uint32_t pair(float, float, float, float) { return 0; }
};

// Where one direction goes.
struct Target {
  uint8_t* data = nullptr;
  uint8_t* scales = nullptr;  // E8M0, padded as contract/planes.h says
  bool gemm = false;          // scales in the GEMM layout
};

template <class RowLane, class ColLane> struct PairArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Extent extent;
  RowLane row;
  ColLane col;
  Target row_to, col_to;
};

// Row scales of items 2q and 2q + 1 of this patch. The tile's padding gets 0 (N6.4), so no byte of the plane
// stays unwritten.
ASSAY_DEVICE void store_row_scales(const Target& to, const Extent& extent, const Place& at, uint2 codes) {
  const int64_t pitch = (extent.cols + kTile - 1) / kTile * 4, j = at.col >> 5;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int item = 2 * at.quad() + k;
    const int64_t i = at.row + item;
    const bool meaningful = i < extent.rows && (j << 5) < extent.cols;
    to.scales[to.gemm ? gemm_index(i, j, pitch >> 2) : i * pitch + j] =
        meaningful ? uint8_t(byte_of(codes, item)) : uint8_t(0);
  }
}
ASSAY_DEVICE void store_col_scales(const Target& to, const Extent& extent, const Place& at, uint2 codes) {
  const int64_t pitch = (extent.cols + kTile - 1) / kTile * kTile, down = (extent.rows + kTile - 1) / kTile,
                j = at.row >> 5;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int item = 2 * at.row_group() + k;
    const int64_t i = at.col + item;
    const bool meaningful = i < extent.cols && (j << 5) < extent.rows;
    to.scales[to.gemm ? gemm_index(i, j, down) : j * pitch + i] =
        meaningful ? uint8_t(byte_of(codes, item)) : uint8_t(0);
  }
}

// Scale codes of the 8 rows (kRows) or columns of this patch.
template <class S, bool kRows, class Lane>
ASSAY_DEVICE uint2 block_scales(const Lane& lane, const uint32_t (&words)[kPatch][S::kWords], int my_lane) {
  constexpr int kLow = kRows ? 1 : 8, kHigh = kRows ? 2 : 16;
  uint32_t items[S::kWords];
  maxima<S, kRows>(words, items);
  if constexpr (Lane::kSquare) {
    const uint32_t code = lane.scale_code(square_maximum<S>(items)) * 0x01010101u;
    return make_uint2(code, code);
  }
  const uint2 amax = quad_maxima<S, kLow, kHigh>(items, my_lane);
  return quad_gather<kLow, kHigh>(lane.scale_code(amax.x) | lane.scale_code(amax.y) << 8, my_lane);
}

// 8 codes of row i of the patch; multiplier(j) is element j's.
template <class S, class Lane, class Multiplier>
ASSAY_LANE uint2 encode_row(const Lane& lane, const uint32_t (&words)[S::kWords], Multiplier multiplier) {
  uint32_t pairs[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    pairs[k] = lane.pair(as_float(S::widen(words, 2 * k)), as_float(S::widen(words, 2 * k + 1)),
                         multiplier(2 * k), multiplier(2 * k + 1));
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

// Blocks per multiprocessor. Turning a patch, a maximum over the block or the tile, and one direction of a
// square block need more registers.
template <class RowLane, class ColLane>
inline constexpr bool kPairIsWide =
    RowLane::kAmax || ColLane::kTransposed || RowLane::kSame != ColLane::kSame;
template <class S, class RowLane, class ColLane>
inline constexpr int kPairBlocks = kPairIsWide<RowLane, ColLane>&& S::kBlocks > 2 ? 2 : S::kBlocks;

// One thread per patch. x is 16-byte and data 8-byte aligned, cols a multiple of 8, and rows too where
// columns are transposed. kSame of both lanes: the column codes are the row codes.
template <class RowLane, class ColLane, class S>
__global__ void __launch_bounds__(kThreads, kPairBlocks<S, RowLane, ColLane>)
    pair_kernel(PairArgs<RowLane, ColLane> a) {
  constexpr bool kSame = RowLane::kSame && ColLane::kSame;
  if (is_noop(a.noop)) return;
  const Place at = my_place(a.extent);
  uint32_t words[kPatch][S::kWords];
  load_patch<S, true>(a.x, a.extent, at, words);

  if constexpr (RowLane::kAmax || ColLane::kAmax)  // N3.1
    block_atomic_max(patch_maximum<S>(words), a.row.tensor_amax(), a.col.tensor_amax());

  uint2 row_codes{}, turned[kPatch];
  if constexpr (RowLane::kActive) {
    float multiplier = 0;
    if constexpr (RowLane::kBlocks) {
      row_codes = block_scales<S, true>(a.row, words, at.lane);
      store_row_scales(a.row_to, a.extent, at, row_codes);
    } else if constexpr (!RowLane::kLines) {
      multiplier = a.row.tensor_multiplier();
    }
    uint8_t* to = a.row_to.data + at.row * a.extent.cols + at.col;
    uint8_t* same =
        kSame && !ColLane::kTransposed ? a.col_to.data + at.row * a.extent.cols + at.col : nullptr;
#pragma unroll
    for (int i = 0; i < kPatch; ++i, to += a.extent.cols) {
      turned[i] = make_uint2(0, 0);
      if (i >= at.rows)
        continue;  // around the arithmetic too: in one straight line, ptxas widens the whole patch first and
                   // spills
      if constexpr (RowLane::kBlocks) multiplier = a.row.multiplier(byte_of(row_codes, i));
      if constexpr (RowLane::kLines) multiplier = a.row.line_multiplier(at.row + i);
      const uint2 codes = encode_row<S>(a.row, words[i], [&](int) { return multiplier; });
      store_codes<true>(to, at.cols, codes);
      if constexpr (kSame && ColLane::kTransposed) turned[i] = codes;
      if constexpr (kSame && !ColLane::kTransposed) {
        store_codes<true>(same + i * a.extent.cols, at.cols, codes);
      }
    }
  }
  if constexpr (!ColLane::kActive) return;

  if constexpr (kSame) {
    if constexpr (ColLane::kBlocks) store_col_scales(a.col_to, a.extent, at, row_codes);
  } else {
    float multiplier[kPatch] = {};
    if constexpr (ColLane::kBlocks) {
      const uint2 codes = block_scales<S, false>(a.col, words, at.lane);
      store_col_scales(a.col_to, a.extent, at, codes);
#pragma unroll
      for (int j = 0; j < kPatch; ++j) multiplier[j] = a.col.multiplier(byte_of(codes, j));
    } else if constexpr (ColLane::kLines) {
#pragma unroll
      for (int j = 0; j < kPatch; ++j) multiplier[j] = j < at.cols ? a.col.line_multiplier(at.col + j) : 0.0f;
    } else {
      multiplier[0] = a.col.tensor_multiplier();
    }
    uint8_t* to = a.col_to.data + at.row * a.extent.cols + at.col;
#pragma unroll
    for (int i = 0; i < kPatch; ++i, to += a.extent.cols) {
      turned[i] = make_uint2(0, 0);
      if (i >= at.rows) continue;
      const uint2 codes = encode_row<S>(
          a.col, words[i], [&](int j) { return multiplier[ColLane::kBlocks || ColLane::kLines ? j : 0]; });
      if constexpr (ColLane::kTransposed) turned[i] = codes;
      else store_codes<true>(to, at.cols, codes);
    }
  }
  if constexpr (ColLane::kTransposed) {
    transpose8(turned);
    uint8_t* to = a.col_to.data + at.col * a.extent.rows + at.row;
#pragma unroll
    for (int j = 0; j < kPatch; ++j, to += a.extent.rows)
      if (j < at.cols) store_codes<true>(to, at.rows, turned[j]);
  }
}

template <class S, class RowLane, class ColLane>
void launch_pair(const char* name, const PairArgs<RowLane, ColLane>& args) {
  if (args.extent.rows == 0 || args.extent.cols == 0) return;
  launch({.name = name, .grid = args.extent.tiles(), .block = kThreads}, pair_kernel<RowLane, ColLane, S>,
         args);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
