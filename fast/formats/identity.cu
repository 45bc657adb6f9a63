// Identity: row and column data are the source's bytes, read once (N7.1).
#include <type_traits>

#include "fast/choose.h"
#include "fast/lane/identity.cuh"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

// Copies `bytes` bytes to each target that is not null. kVector: every pointer is 16-byte aligned.
template <bool kVector>
__global__ void __launch_bounds__(kThreads)
    identity_pair(const uint8_t* x, int64_t bytes, const uint32_t* noop, uint8_t* row, uint8_t* col) {
  if (is_noop(noop)) return;
  constexpr int kWidth = kVector ? 16 : 1, kUnroll = 4;
  const int64_t words = bytes / kWidth, first = int64_t(blockIdx.x) * kUnroll * kThreads + threadIdx.x;
  using Word = std::conditional_t<kVector, uint4, uint8_t>;
  Word word[kUnroll];  // all are on their way before the first is stored
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t at = first + u * kThreads;
    if (at >= words) continue;
    if constexpr (kVector) word[u] = identity(load16_streaming(x + at * 16));
    else word[u] = x[at];
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t at = first + u * kThreads;
    if (at >= words) continue;
    for (uint8_t* to : {row, col}) {
      if (to == nullptr) continue;
      if constexpr (kVector) store16_streaming(to + at * 16, word[u]);
      else to[at] = word[u];
    }
  }
  if (blockIdx.x != 0) return;
  for (int64_t at = words * kWidth + threadIdx.x; at < bytes; at += kThreads) {
    if (row != nullptr) row[at] = x[at];
    if (col != nullptr) col[at] = x[at];
  }
}

std::string copy(const Job& job, const uint8_t* x, uint8_t* row, uint8_t* col, const char* name) {
  const Shape s = job.problem.x.shape;
  const int64_t bytes = s.count() * info(job.problem.x.source).bytes();
  const bool vector = aligned(16, {x, row, col});
  const int64_t per_block = int64_t(kThreads) * 4 * (vector ? 16 : 1);
  const LaunchConfig config{
      .name = name, .grid = unsigned((bytes + per_block - 1) / per_block), .block = kThreads};
  if (bytes != 0 && vector) launch(config, identity_pair<true>, x, bytes, job.input("noop"), row, col);
  if (bytes != 0 && !vector) launch(config, identity_pair<false>, x, bytes, job.input("noop"), row, col);
  return std::string(name) + "<" + directions(job.problem) + "> " + how(job.problem) +
         (vector ? ", vector" : ", bytes");
}

}  // namespace

std::string quantize_identity(const Job& job) {
  return copy(job, job.input<uint8_t>("x"), job.output<uint8_t>("row.data"), job.output<uint8_t>("col.data"),
              "identity_pair");
}

std::string dequantize_identity(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  return copy(job, job.input<uint8_t>(d, "data"), job.output<uint8_t>("y"), nullptr, "identity_copy");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
