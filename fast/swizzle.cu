// Scales between the compact layout and the GEMM layout, by shifts and masks: bytes move (N6.3, N6.5, N6.6),
// F32 scales become E8M0 codes and come back from them (N9.6).
#include "fast/choose.h"
#include "fast/lane/fp8_block.cuh"
#include "fast/move/block_index.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct SwizzleArgs {
  const uint8_t* from = nullptr;
  uint8_t* to = nullptr;
  int64_t i_valid = 0, j_valid = 0;  // beyond these the forward direction writes 0
  int64_t tiles_i = 0, tiles_j = 0;  // of 128 and of 4
  bool columns = false;              // compact is [j][i] rather than [i][j]
};

// One thread per 16 bytes of the GEMM layout: i%32 fixed, the 4 words are i = 32 w + i%32, the bytes of a
// word 4 neighbouring j. Threads 0..7 of a group of 256 take neighbouring j tiles, whose compact words are
// contiguous in row scales.
template <bool kInverse, bool kVector>
__global__ void __launch_bounds__(kThreads) swizzle_kernel(SwizzleArgs a) {
  const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t groups_j = (a.tiles_j + 7) >> 3, group = thread >> 8;
  const int64_t tile_i = group / groups_j, tile_j = ((group - tile_i * groups_j) << 3) + (thread & 7);
  const int64_t i0 = (tile_i << 7) + ((thread >> 3) & 31), j0 = tile_j << 2;
  if (tile_i >= a.tiles_i || tile_j >= a.tiles_j) return;
  const int64_t gemm = ((tile_i * a.tiles_j + tile_j) << 9) + ((i0 & 31) << 4);
  const int64_t pitch = a.columns ? a.tiles_i << 7 : a.tiles_j << 2;

  auto compact = [&](int w, int b) {
    return a.columns ? (j0 + b) * pitch + i0 + 32 * w : (i0 + 32 * w) * pitch + j0 + b;
  };
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
      words[w] = i0 + 32 * w < a.i_valid ? words[w] & valid : 0u;  // N6.6
    }
    if constexpr (kVector) {
      store16(a.to + gemm, make_uint4(words[0], words[1], words[2], words[3]));
    } else {
      for (int w = 0; w < 4; ++w)
        for (int b = 0; b < 4; ++b) a.to[gemm + 4 * w + b] = uint8_t(words[w] >> (8 * b));
    }
  }
}

struct BlockSwizzleArgs {
  const void* from = nullptr;
  void* to = nullptr;
  BlockIndex compact, gemm;
  int64_t lines = 0, blocks = 0;             // that have a scale
  int64_t padded_rows = 0, padded_cols = 0;  // of the compact plane
  bool by_block = false;                     // compact is [block][line]
  bool vector = false;                       // `to` is 16-byte aligned
};

// A warp per tile of 128 lines and one block, a thread per 16 bytes of it: lines 32 w + i%32, each with its
// code four times.
__global__ void __launch_bounds__(kThreads) fp8_block_swizzle(BlockSwizzleArgs a) {
  const int64_t tile = int64_t(blockIdx.x) * (kThreads / 32) + (threadIdx.x >> 5), tile_i = tile / a.blocks,
                j = tile - tile_i * a.blocks;
  const int64_t first = (tile_i << 7) + (threadIdx.x & 31u);
  if (first - (threadIdx.x & 31u) >= a.lines) return;
  uint32_t words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const int64_t i = first + 32 * w;
    words[w] = i < a.lines
                   ? fp8_block_code(static_cast<const uint32_t*>(a.from)[a.compact(i, j << 7)]) * 0x01010101u
                   : 0u;
  }
  uint8_t* to = static_cast<uint8_t*>(a.to) + a.gemm(first, j << 7);
  if (a.vector) return store16(to, make_uint4(words[0], words[1], words[2], words[3]));
#pragma unroll
  for (int b = 0; b < 16; ++b) to[b] = uint8_t(words[b >> 2] >> (8 * (b & 3)));
}

// A thread per entry of the compact plane, padding included (N6.4).
__global__ void __launch_bounds__(kThreads) fp8_block_unswizzle(BlockSwizzleArgs a) {
  const int64_t entry = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (entry >= a.padded_rows * a.padded_cols) return;
  const int64_t r = entry / a.padded_cols, c = entry - r * a.padded_cols;
  const int64_t i = a.by_block ? c : r << 7, j = a.by_block ? r : c;
  const bool meaningful = i < a.lines && j < a.blocks;
  static_cast<uint32_t*>(a.to)[entry] =
      meaningful ? mx_scale(static_cast<const uint8_t*>(a.from)[a.gemm(i, j << 7)]) : 0u;
}

std::string swizzle_fp8_block(const Job& job, Direction d, bool inverse) {
  const Quantizer& q = *job.problem.quantizer(d);
  const Shape s = job.problem.x.shape;
  BlockSwizzleArgs args;
  args.from = job.input<void>(d, scale_stem(inverse ? ScaleLayout::gemm : ScaleLayout::compact));
  args.to = job.output<void>(d, scale_stem(inverse ? ScaleLayout::compact : ScaleLayout::gemm));
  args.compact = block_index(q, s, d, ScaleLayout::compact);
  args.gemm = block_index(q, s, d, ScaleLayout::gemm);
  const Geometry compact = geometry(q, s, d, ScaleLayout::compact);
  args.by_block = !is_square(q.block);
  args.lines = compact.data.rows;
  args.blocks = args.by_block ? compact.scale.rows : compact.scale.cols;
  args.padded_rows = compact.scale_padded.rows;
  args.padded_cols = compact.scale_padded.cols;
  args.vector = aligned(16, {args.to});
  const int64_t threads =
      inverse ? args.padded_rows * args.padded_cols : ((args.lines + 127) >> 7) * args.blocks * 32;
  const LaunchConfig config{.name = inverse ? "fp8_block_unswizzle" : "fp8_block_swizzle",
                            .grid = unsigned((threads + kThreads - 1) / kThreads),
                            .block = kThreads};
  if (threads != 0) launch(config, inverse ? fp8_block_unswizzle : fp8_block_swizzle, args);
  return std::string(config.name) + " " + std::string(name_of(d));
}

}  // namespace

std::string run_swizzle(const Job& job) {
  const Problem& p = job.problem;
  const bool inverse = p.as<Swizzle>()->inverse;
  const Direction d = p.row ? Direction::row : Direction::col;
  const Quantizer& q = *p.quantizer(d);
  if (q.format == FormatId::fp8_block) return swizzle_fp8_block(job, d, inverse);
  const Geometry g = geometry(q, p.x.shape, d, ScaleLayout::compact);
  SwizzleArgs args;
  args.columns = d == Direction::col && !g.transposed;
  args.from = job.input<uint8_t>(d, scale_stem(inverse ? ScaleLayout::gemm : ScaleLayout::compact));
  args.to = job.output<uint8_t>(d, scale_stem(inverse ? ScaleLayout::compact : ScaleLayout::gemm));
  const int64_t contracted = args.columns ? g.data.rows : g.data.cols, length = length_of(q.block);
  args.i_valid = args.columns ? g.data.cols : g.data.rows;
  const int64_t blocks = (contracted + length - 1) / length;
  args.j_valid = q.numerics.swizzle_extent == SwizzleExtent::floor ? contracted / length : blocks;  // N6.6
  args.tiles_i = (args.i_valid + 127) >> 7;
  args.tiles_j = (blocks + 3) >> 2;
  const bool vector = aligned(16, {args.from, args.to});
  const int64_t grid = args.tiles_i * ((args.tiles_j + 7) >> 3);
  const LaunchConfig config{.name = "swizzle", .grid = unsigned(grid), .block = kThreads};
  if (grid != 0)
    with_flag(inverse, [&](auto i) {
      with_flag(vector, [&](auto v) { launch(config, swizzle_kernel<i.value, v.value>, args); });
    });
  return std::string(inverse ? "unswizzle " : "swizzle ") + std::string(name_of(d)) +
         (vector ? ", vector" : ", scalar");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
