// The kernel in registers of FP8 with a scale for the tensor, or for each stored row: reads the tensor once
// and writes one direction or both; columns are stored [cols, rows]. Vectors only; every other case is served
// by direction lanes (fast/directions.h).
//
// A lane type says what one direction does with its elements:
//   kLines                  one scale per row, or per column, rather than one for the tensor
//   kActive                 whether this direction is produced
//   kSame                   with the same lane in both directions, column codes are the row codes
//   kAmax                   the kernel also accumulates the tensor's amax
//   tensor_multiplier()     what elements are multiplied by
//   line_multiplier(line)   the same where each row or column has its own
//   tensor_amax()           where to accumulate the tensor's amax, or null
//   pair(lo, hi, mlo, mhi)  the codes of lo * mlo and hi * mhi, in the two low bytes
//   store_scales()          stores the scales that the kernel itself makes; one thread of the grid calls it
// None stands for a direction that is not produced.
#pragma once
#include "fast/move/turned_tile.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct None {
  static constexpr bool kActive = false, kLines = false, kSame = false, kAmax = false;
  ASSAY_LANE static float tensor_multiplier() { return 0; }
  ASSAY_LANE static uint32_t* tensor_amax() { return nullptr; }
  ASSAY_LANE static uint32_t pair(float, float, float, float) { return 0; }
  ASSAY_LANE static void store_scales() {}
};

template <class RowLane, class ColLane> struct PairArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Extent extent;
  RowLane row;
  ColLane col;
  uint8_t *row_to = nullptr, *col_to = nullptr;
  // Tiles from the last to the first: what a pass over x before this one read last is in the cache still.
  bool backwards = false;
};

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

// Blocks per multiprocessor. Turning a patch and a maximum over the block need more registers.
template <class S, class RowLane, class ColLane>
inline constexpr int kPairBlocks =
    (RowLane::kAmax || ColLane::kActive || RowLane::kSame != ColLane::kSame) && S::kBlocks > 2 ? 2
                                                                                               : S::kBlocks;

// One thread per patch. x is 16-byte and data 8-byte aligned, cols a multiple of 8, and rows too where
// there are columns. kSame of both lanes: the column codes are the row codes.
template <class RowLane, class ColLane, class S>
__global__ void __launch_bounds__(kThreads, kPairBlocks<S, RowLane, ColLane>)
    pair_kernel(PairArgs<RowLane, ColLane> a) {
  constexpr bool kSame = RowLane::kSame && ColLane::kSame;
  if (is_noop(a.noop)) return;
  const Place at =
      place_in_tile<Spread::lines>(a.extent, a.backwards ? gridDim.x - 1u - blockIdx.x : blockIdx.x);
  uint32_t words[kPatch][S::kWords];
  load_patch<S, true>(a.x, a.extent, at, words);
  if (blockIdx.x == 0 && threadIdx.x == 0) a.row.store_scales(), a.col.store_scales();

  if constexpr (RowLane::kAmax || ColLane::kAmax)  // N3.1
    block_atomic_max(patch_maximum<S>(words), a.row.tensor_amax(), a.col.tensor_amax());

  uint2 turned[kPatch];
  const int64_t first = at.row * a.extent.cols + at.col;
  if constexpr (RowLane::kActive) {
    float multiplier = 0;
    if constexpr (!RowLane::kLines) multiplier = a.row.tensor_multiplier();
    uint8_t* to = a.row_to + first;
#pragma unroll
    for (int i = 0; i < kPatch; ++i, to += a.extent.cols) {
      turned[i] = make_uint2(0, 0);
      if (i >= at.rows)
        continue;  // around the arithmetic too: in one straight line, ptxas widens the whole patch first and
                   // spills
      if constexpr (RowLane::kLines) multiplier = a.row.line_multiplier(at.row + i);
      turned[i] = encode_row<S>(a.row, words[i], [&](int) { return multiplier; });
      store8(to, turned[i]);
    }
  }
  if constexpr (ColLane::kActive) {
    if constexpr (!kSame) {
      float multiplier[kPatch] = {};
      if constexpr (ColLane::kLines) {
#pragma unroll
        for (int j = 0; j < kPatch; ++j)
          multiplier[j] = j < at.cols ? a.col.line_multiplier(at.col + j) : 0.0f;
      } else {
        multiplier[0] = a.col.tensor_multiplier();
      }
#pragma unroll
      for (int i = 0; i < kPatch; ++i) {
        turned[i] = make_uint2(0, 0);
        if (i >= at.rows) continue;
        turned[i] =
            encode_row<S>(a.col, words[i], [&](int j) { return multiplier[ColLane::kLines ? j : 0]; });
      }
    }
    transpose8(turned);
    store_turned(a.col_to, a.extent, at, turned);
  }
}

template <class S, class RowLane, class ColLane>
void launch_pair(const char* name, const PairArgs<RowLane, ColLane>& args) {
  if (args.extent.rows == 0 || args.extent.cols == 0) return;
  launch({.name = name, .grid = args.extent.tiles(), .block = kThreads}, pair_kernel<RowLane, ColLane, S>,
         args);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
