// Scales between the compact layout and the GEMM layout, by shifts and masks (N6.3, N6.5, N6.6).
#include "fast/choose.h"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct SwizzleArgs {
  const uint8_t* from = nullptr;
  uint8_t* to = nullptr;
  int64_t i_valid = 0, j_valid = 0;   // beyond these the forward direction writes 0
  int64_t tiles_i = 0, tiles_j = 0;   // of 128 and of 4
  bool columns = false;               // compact is [j][i] rather than [i][j]
};

// One thread per 16 bytes of the GEMM layout: i%32 fixed, the 4 words are i = 32 w + i%32, the bytes of a word 4 neighbouring j.
// Threads 0..7 of a group of 256 take neighbouring j tiles, whose compact words are contiguous in row scales.
template <bool kInverse, bool kVector>
__global__ void __launch_bounds__(kThreads) swizzle_kernel(SwizzleArgs a) {
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t groups_j = (a.tiles_j + 7) >> 3, group = thread >> 8;
  const int64_t tile_i = group / groups_j, tile_j = ((group - tile_i * groups_j) << 3) + (thread & 7);
  const int64_t i0 = (tile_i << 7) + ((thread >> 3) & 31), j0 = tile_j << 2;
  if (tile_i >= a.tiles_i || tile_j >= a.tiles_j) return;
  const int64_t gemm = ((tile_i * a.tiles_j + tile_j) << 9) + ((i0 & 31) << 4);
  const int64_t pitch = a.columns ? a.tiles_i << 7 : a.tiles_j << 2;

  auto compact = [&](int w, int b) { return a.columns ? (j0 + b) * pitch + i0 + 32 * w : (i0 + 32 * w) * pitch + j0 + b; };
  if constexpr (kInverse) {
    uint32_t words[4];
    if constexpr (kVector) {
      const uint4 v = load16(a.from + gemm);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
      for (int w = 0; w < 4; ++w) {
        words[w] = 0;
        for (int b = 0; b < 4; ++b) words[w] |= uint32_t(a.from[gemm + 4 * w + b]) << (8 * b);
      }
    }
    for (int w = 0; w < 4; ++w) {
      if (kVector && !a.columns) {
        *reinterpret_cast<uint32_t*>(a.to + compact(w, 0)) = words[w];
        continue;
      }
      for (int b = 0; b < 4; ++b) a.to[compact(w, b)] = uint8_t(words[w] >> (8 * b));
    }
  } else {
    const int64_t left = a.j_valid - j0;
    const uint32_t valid = left >= 4 ? 0xFFFFFFFFu : left <= 0 ? 0u : (1u << (8 * left)) - 1u;
    uint32_t words[4];
    for (int w = 0; w < 4; ++w) {
      if (kVector && !a.columns) {
        words[w] = *reinterpret_cast<const uint32_t*>(a.from + compact(w, 0));
      } else {
        words[w] = 0;
        for (int b = 0; b < 4; ++b) words[w] |= uint32_t(a.from[compact(w, b)]) << (8 * b);
      }
      words[w] = i0 + 32 * w < a.i_valid ? words[w] & valid : 0u;   // N6.6
    }
    if constexpr (kVector) {
      store16(a.to + gemm, make_uint4(words[0], words[1], words[2], words[3]));
    } else {
      for (int w = 0; w < 4; ++w)
        for (int b = 0; b < 4; ++b) a.to[gemm + 4 * w + b] = uint8_t(words[w] >> (8 * b));
    }
  }
}

}  // namespace

std::string run_swizzle(const Job& job) {
  const Problem& p = job.problem;
  const bool inverse = p.as<Swizzle>()->inverse;
  const Direction d = p.row ? Direction::row : Direction::col;
  const Quantizer& q = *p.quantizer(d);
  const Shape s = p.x.shape;
  SwizzleArgs args;
  args.columns = d == Direction::col;
  args.from = job.input<uint8_t>(d, inverse ? "scale_gemm" : "scale_inv");
  args.to = job.output<uint8_t>(d, inverse ? "scale_inv" : "scale_gemm");
  const int64_t contracted = args.columns ? s.rows : s.cols;
  args.i_valid = args.columns ? s.cols : s.rows;
  args.j_valid = q.numerics.swizzle_extent == SwizzleExtent::floor ? contracted >> 5 : (contracted + 31) >> 5;   // N6.6
  args.tiles_i = (args.i_valid + 127) >> 7;
  args.tiles_j = (contracted + 127) >> 7;
  const bool vector = aligned(16, {args.from, args.to});
  const int64_t blocks = args.tiles_i * ((args.tiles_j + 7) >> 3);
  const LaunchConfig config{.name = "swizzle", .grid = unsigned(blocks), .block = kThreads};
  if (blocks != 0)
    with_flag(inverse, [&](auto i) { with_flag(vector, [&](auto v) { launch(config, swizzle_kernel<i.value, v.value>, args); }); });
  return std::string(inverse ? "unswizzle " : "swizzle ") + std::string(name_of(d)) + (vector ? ", vector" : ", scalar");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
