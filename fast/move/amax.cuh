// The tensor's amax: one pass over its elements in any order (N3.1).
#pragma once
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

inline constexpr int kAmaxUnroll = 4;   // 16-byte loads in flight per thread

// Greatest absolute value of the words, element by element as S packs them, NaN dropped.
template <class S, int kCount>
ASSAY_LANE uint32_t packed_maximum(const uint32_t (&words)[kCount]) {
  uint32_t best = 0;
#pragma unroll
  for (int k = 0; k < kCount; ++k) best = S::max(best, words[k] & S::kAbsWord);
  if (!S::any_nan(best)) return best;
  best = 0;
#pragma unroll
  for (int k = 0; k < kCount; ++k) best = S::max(best, S::drop_nan(words[k] & S::kAbsWord));
  return best;
}

// Raises *first and *second (where not null) to the amax of `count` elements. Any grid; kVector: x is 16-byte aligned.
template <class S, bool kVector>
__global__ void __launch_bounds__(kThreads) amax_kernel(const void* x, int64_t count, const uint32_t* noop, uint32_t* first, uint32_t* second) {
  if (is_noop(noop)) return;
  constexpr int kElements = 4 * S::kPerWord;   // of a 16-byte load
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, threads = int64_t(gridDim.x) * blockDim.x;
  uint32_t best[1] = {};
  const int64_t vectors = kVector ? count / kElements : 0;
  for (int64_t at = thread; at < vectors; at += threads * kAmaxUnroll) {
    uint32_t words[4 * kAmaxUnroll];
#pragma unroll
    for (int u = 0; u < kAmaxUnroll; ++u) {
      const int64_t v = at + u * threads;
      const uint4 loaded = v < vectors ? load16(static_cast<const char*>(x) + v * 16) : make_uint4(0, 0, 0, 0);
      words[4 * u] = loaded.x, words[4 * u + 1] = loaded.y, words[4 * u + 2] = loaded.z, words[4 * u + 3] = loaded.w;
    }
    best[0] = S::max(best[0], packed_maximum<S>(words));
  }
  for (int64_t at = vectors * kElements + thread; at < count; at += threads) {
    uint32_t word[1];
    if constexpr (S::kHalves) word[0] = static_cast<const uint16_t*>(x)[at];
    else word[0] = static_cast<const uint32_t*>(x)[at];
    best[0] = S::max(best[0], packed_maximum<S>(word));
  }
  uint32_t value = S::widen(best, 0);
  if constexpr (S::kHalves) value = S::widen(best, 1) > value ? S::widen(best, 1) : value;
  block_atomic_max(value, first, second);
}

template <class S>
void launch_amax(const void* x, int64_t count, const uint32_t* noop, uint32_t* first, uint32_t* second) {
  if (count == 0) return;
  const bool vector = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  // Enough blocks to fill the largest GPU, few enough that the last maxima cost nothing.
  const int64_t per_block = int64_t(kThreads) * (vector ? 4 * S::kPerWord * kAmaxUnroll : 1), wanted = (count + per_block - 1) / per_block;
  const LaunchConfig config{.name = "amax", .grid = unsigned(wanted < 1184 ? wanted : 1184), .block = kThreads};
  if (vector) launch(config, amax_kernel<S, true>, x, count, noop, first, second);
  else launch(config, amax_kernel<S, false>, x, count, noop, first, second);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
