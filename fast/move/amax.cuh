// The tensor's amax: one pass over its elements in any order (N3.1). That of each row and column: one pass
// over its patches (N3.12).
#pragma once
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

inline constexpr int kAmaxUnroll = 4;  // 16-byte loads in flight per thread

// Greatest absolute value of the words, element by element as S packs them, NaN dropped.
template <class S, int kCount> ASSAY_LANE uint32_t packed_maximum(const uint32_t (&words)[kCount]) {
  uint32_t best = 0;
#pragma unroll
  for (int k = 0; k < kCount; ++k) best = S::max(best, words[k] & S::kAbsWord);
  if (!S::any_nan(best)) return best;
  best = 0;
#pragma unroll
  for (int k = 0; k < kCount; ++k) best = S::max(best, S::drop_nan(words[k] & S::kAbsWord));
  return best;
}

// The greater of a packed maximum's elements, as binary32.
template <class S> ASSAY_LANE uint32_t widened_maximum(uint32_t packed) {
  const uint32_t first = S::widen(&packed, 0);
  if constexpr (!S::kHalves) return first;
  const uint32_t second = S::widen(&packed, 1);
  return first > second ? first : second;
}

// The maximum over all threads of the block, in every thread. Holds a barrier; once in a kernel.
ASSAY_DEVICE uint32_t block_maximum(uint32_t value) {
  ASSAY_SHARED(uint32_t, maximum_by_warp, [32]);
  const uint32_t warp_max = __reduce_max_sync(kAllLanes, value);
  if ((threadIdx.x & 31u) == 0) maximum_by_warp[threadIdx.x >> 5] = warp_max;
  __syncthreads();
  uint32_t best = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) best = maximum_by_warp[w] > best ? maximum_by_warp[w] : best;
  return best;
}

// Raises *first and *second (where not null) to the amax of `count` elements. Any grid; kVector: x is 16-byte
// aligned.
template <class S, bool kVector>
__global__ void __launch_bounds__(kThreads)
    amax_kernel(const void* x, int64_t count, const uint32_t* noop, uint32_t* first, uint32_t* second) {
  if (is_noop(noop)) return;
  constexpr int kElements = 4 * S::kPerWord;  // of a 16-byte load
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x,
                threads = int64_t(gridDim.x) * blockDim.x;
  uint32_t best[1] = {};
  const int64_t vectors = kVector ? count / kElements : 0;
  for (int64_t at = thread; at < vectors; at += threads * kAmaxUnroll) {
    uint32_t words[4 * kAmaxUnroll];
#pragma unroll
    for (int u = 0; u < kAmaxUnroll; ++u) {
      const int64_t v = at + u * threads;
      const uint4 loaded =
          v < vectors ? load16(static_cast<const char*>(x) + v * 16) : make_uint4(0, 0, 0, 0);
      words[4 * u] = loaded.x, words[4 * u + 1] = loaded.y, words[4 * u + 2] = loaded.z,
                words[4 * u + 3] = loaded.w;
    }
    best[0] = S::max(best[0], packed_maximum<S>(words));
  }
  for (int64_t at = vectors * kElements + thread; at < count; at += threads) {
    uint32_t word[1];
    if constexpr (S::kHalves) word[0] = static_cast<const uint16_t*>(x)[at];
    else word[0] = static_cast<const uint32_t*>(x)[at];
    best[0] = S::max(best[0], packed_maximum<S>(word));
  }
  block_atomic_max(widened_maximum<S>(best[0]), first, second);
}

template <class S>
void launch_amax(const void* x, int64_t count, const uint32_t* noop, uint32_t* first, uint32_t* second) {
  if (count == 0) return;
  const bool vector = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  // As many blocks as run at once: those of a second wave would run alone, and each costs an atomic maximum.
  const int64_t per_block = int64_t(kThreads) * (vector ? 4 * S::kPerWord * kAmaxUnroll : 1),
                wanted = (count + per_block - 1) / per_block, most = int64_t{8} * multiprocessors();
  const LaunchConfig config{
      .name = "amax", .grid = unsigned(wanted < most ? wanted : most), .block = kThreads};
  if (vector) launch(config, amax_kernel<S, true>, x, count, noop, first, second);
  else launch(config, amax_kernel<S, false>, x, count, noop, first, second);
}

// Raises the two amaxes from `line` on, as far as there are lines.
ASSAY_DEVICE void raise_two(uint32_t* amax, int64_t line, int64_t lines, uint2 two) {
  if (line < lines) atomicMax(reinterpret_cast<int*>(amax + line), int(two.x));
  if (line + 1 < lines) atomicMax(reinterpret_cast<int*>(amax + line + 1), int(two.y));
}

// Raises row[i] (where not null) to the amax of row i, and col[j] to that of column j. A thread per patch,
// which a warp has 8 of in a row and 4 in a column; x is 16-byte aligned and cols a multiple of 8.
template <class S>
__global__ void __launch_bounds__(kThreads, S::kBlocks)
    line_amax_kernel(const void* x, Extent extent, const uint32_t* noop, uint32_t* row, uint32_t* col) {
  if (is_noop(noop)) return;
  const Place at = my_place(extent);
  uint32_t words[kPatch][S::kWords], items[S::kWords];
  load_patch<S, true, true>(x, extent, at, words);
  if (row != nullptr) {
    maxima<S, true>(words, items);
    uint2 two = quad_maxima<S, 1, 2>(items, at.lane);
    const uint32_t other_x = __shfl_xor_sync(kAllLanes, two.x, 4),
                   other_y = __shfl_xor_sync(kAllLanes, two.y, 4);
    two = make_uint2(two.x > other_x ? two.x : other_x, two.y > other_y ? two.y : other_y);
    if ((at.lane & 4) == 0) raise_two(row, at.row + 2 * at.quad(), extent.rows, two);
  }
  if (col != nullptr) {
    maxima<S, false>(words, items);
    raise_two(col, at.col + 2 * at.row_group(), extent.cols, quad_maxima<S, 8, 16>(items, at.lane));
  }
}

template <class S>
void launch_line_amax(const void* x, const Extent& extent, const uint32_t* noop, uint32_t* row,
                      uint32_t* col) {
  if (extent.rows == 0 || extent.cols == 0) return;
  launch({.name = "line_amax", .grid = extent.tiles(), .block = kThreads}, line_amax_kernel<S>, x, extent,
         noop, row, col);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
