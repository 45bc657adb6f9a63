// Transposes through shared memory: both sides are touched along their rows.
#include "fast/transpose.h"

#include "fast/launch.h"
#include "fast/move/element.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

constexpr int kSide = 32, kRows = 8;  // a block of 32x8 threads takes 32x32 elements

template <int kBytes>
__global__ void __launch_bounds__(kSide* kRows)
    transpose_kernel(const void* from, void* to, int64_t rows, int64_t cols) {
  ASSAY_SHARED(uint32_t, tile, [kSide][kSide + 1]);
  const int64_t across = (cols + kSide - 1) / kSide, tile_row = int64_t(blockIdx.x) / across,
                tile_col = int64_t(blockIdx.x) - tile_row * across;
  const int x = int(threadIdx.x) % kSide, y = int(threadIdx.x) / kSide;
#pragma unroll
  for (int i = 0; i < kSide; i += kRows) {
    const int64_t r = tile_row * kSide + y + i, c = tile_col * kSide + x;
    if (r < rows && c < cols) tile[y + i][x] = load_element<kBytes>(from, r * cols + c);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSide; i += kRows) {
    const int64_t c = tile_col * kSide + y + i, r = tile_row * kSide + x;
    if (r < rows && c < cols) store_element<kBytes>(to, c * rows + r, tile[x][y + i]);
  }
}

}  // namespace

void transpose_elements(const void* from, void* to, int64_t rows, int64_t cols, int bytes) {
  const int64_t tiles = ((rows + kSide - 1) / kSide) * ((cols + kSide - 1) / kSide);
  if (tiles == 0) return;
  const LaunchConfig config{.name = "transpose", .grid = unsigned(tiles), .block = kSide * kRows};
  if (bytes == 1) launch(config, transpose_kernel<1>, from, to, rows, cols);
  else if (bytes == 2) launch(config, transpose_kernel<2>, from, to, rows, cols);
  else launch(config, transpose_kernel<4>, from, to, rows, cols);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
