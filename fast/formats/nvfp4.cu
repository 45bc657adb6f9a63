// NVFP4: blocks with the default numerics by a kernel of their own, in registers; everything else by
// direction lanes (lane/nvfp4_direction.cuh). Dequantized patch by patch (N10).
#include "fast/directions.h"
#include "fast/lane/nvfp4.cuh"
#include "fast/lane/value_pairs.cuh"
#include "fast/move/amax.cuh"
#include "fast/move/dequantize.cuh"
#include "fast/move/e2m1_lines.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

// E4M3 codes under the amax of the direction or of the stored row (N10.15).
struct Nvfp4DecodeScale {
  const uint8_t* codes = nullptr;
  const uint32_t* amax = nullptr;
  bool by_line = false;
  Nvfp4Chain chain;
  ASSAY_LANE float operator()(int64_t index, int64_t line) const {
    return chain.decode_multiplier(amax[by_line ? line : 0], codes[index]);
  }
};

// Where one direction goes, and the amax of the tensor that it goes by.
struct Nvfp4Target {
  uint8_t *data = nullptr, *scales = nullptr;
  bool gemm = false;
  const uint32_t* amax = nullptr;
};
struct Nvfp4PairArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Extent extent;
  Nvfp4Target row, col;
};

// One direction of a patch: lines are rows (kRows) or columns, and stored rows. A block of 16 lies in two
// lanes; each of them makes the scales of 4 of the 8 lines. The amax of a 16x16 block goes over four lanes
// (N10.4). x as load_patch<S, true> needs it; the stored rows a multiple of 8 long.
template <class S, bool kRows, bool kSquare>
ASSAY_DEVICE void nvfp4_direction(const Nvfp4Target& to, const Extent& extent, const Place& at,
                                  const Nvfp4Scales& tensor, const uint32_t (&words)[kPatch][S::kWords]) {
  constexpr int kNext = kRows ? 1 : 8, kHalf = S::kWords / 2;
  const int64_t line = kRows ? at.row : at.col, first = kRows ? at.col : at.row;
  const int64_t lines = kRows ? extent.rows : extent.cols, elements = kRows ? extent.cols : extent.rows;
  const bool second = (at.lane & kNext) != 0;
  const Nvfp4Chain chain;

  uint32_t items[S::kWords], half[kHalf];
  bool wild = maxima<S, kRows>(words, items);  // some scaled element may be NaN, or 7 and more
  if constexpr (kSquare) {
    uint32_t best = items[0];
#pragma unroll
    for (int w = 1; w < S::kWords; ++w) best = S::max(best, items[w]);
    if constexpr (S::kHalves) best = S::max(best, best >> 16 | best << 16);
    best = S::max(best, __shfl_xor_sync(kAllLanes, best, 1));
    best = S::max(best, __shfl_xor_sync(kAllLanes, best, 8));
#pragma unroll
    for (int w = 0; w < kHalf; ++w) half[w] = best;
  } else {
#pragma unroll
    for (int w = 0; w < kHalf; ++w) {
      const uint32_t keep = second ? items[kHalf + w] : items[w], give = second ? items[w] : items[kHalf + w];
      half[w] = S::max(keep, __shfl_xor_sync(kAllLanes, give, kNext));
    }
  }
  uint32_t scales[4];
  float multiplier[kPatch] = {};
#pragma unroll
  for (int k = 0; k < 4; k += 2) {  // N10.6, N10.8
    if (kSquare && k > 0) {
      scales[k] = scales[k + 1] = scales[0];
      continue;
    }
    const float lo = as_float(chain.scaled_amax(tensor, S::widen(half, k))),
                hi = kSquare ? lo : as_float(chain.scaled_amax(tensor, S::widen(half, k + 1)));
    const uint32_t pair = Hardware::pair<Encoding::e4m3>(lo, hi);
    const ValuePair values = values_of_pair<Encoding::e4m3>(pair);
    scales[k] = pair & 0xFFu, scales[k + 1] = pair >> 8;
    multiplier[k] = chain.multiplier_of(tensor, values.lo),
    multiplier[k + 1] = chain.multiplier_of(tensor, values.hi);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    wild |= !(__fmul_rn(as_float(S::widen(half, k)), multiplier[kSquare ? 0 : k]) < 7.0f);
  const bool tame = __any_sync(kAllLanes, wild) == 0;
  if constexpr (kSquare) {
#pragma unroll
    for (int k = 1; k < kPatch; ++k) multiplier[k] = multiplier[0];
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float mine = multiplier[k], other = __shfl_xor_sync(kAllLanes, mine, kNext);
      multiplier[k] = second ? other : mine, multiplier[4 + k] = second ? mine : other;
    }
  }

  const int64_t j = first >> 4, blocks = (elements + 15) >> 4, padded = (blocks + 3) & ~int64_t{3};  // N10.14
  if (j < padded) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int64_t i = line + (second ? 4 : 0) + k;
      to.scales[to.gemm ? gemm_index(i, j, padded >> 2) : i * padded + j] =
          i < lines && j < blocks ? uint8_t(scales[k]) : uint8_t(0);  // N6.4
    }
  }
  store_e2m1_lines<S, kRows>(to.data, extent, at, words, [&](const float(&x)[kPatch], uint32_t signs, int l) {
    return Hardware::e2m1_codes(x, multiplier[l], signs, tame);  // N10.9
  });
}

// Default numerics, one read. A thread per patch.
template <class S, bool kSquare, bool kRow, bool kCol>
__global__ void __launch_bounds__(kThreads, S::kBlocks > 2 ? 2 : S::kBlocks) nvfp4_pair(Nvfp4PairArgs a) {
  if (is_noop(a.noop)) return;
  const Place at = my_place(a.extent);
  uint32_t words[kPatch][S::kWords];
  load_patch<S, true>(a.x, a.extent, at, words);
  const Nvfp4Chain chain;
  const uint32_t amax = *(kRow ? a.row : a.col).amax;
  Nvfp4Scales tensor = chain.of_tensor(amax);
  if constexpr (kRow) nvfp4_direction<S, true, kSquare>(a.row, a.extent, at, tensor, words);
  if constexpr (kRow && kCol) {  // given amaxes may differ
    if (*a.col.amax != amax) tensor = chain.of_tensor(*a.col.amax);
  }
  if constexpr (kCol) nvfp4_direction<S, false, kSquare>(a.col, a.extent, at, tensor, words);
}

__global__ void nvfp4_clear_amax(const uint32_t* noop, uint32_t* row, uint32_t* col) {
  if (is_noop(noop)) return;
  if (row != nullptr) *row = 0;
  if (col != nullptr) *col = 0;
}

// Whether the tuned kernel computes what both quantizers ask for.
bool tunable(const Problem& p) {
  for (Direction d : kDirections) {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (q && (q->numerics != Numerics{} || q->round != Round::rne || q->rht || q->row_scaled ||
              q->four_over_six != FourOverSix::off))
      return false;
  }
  return !p.row || !p.col || p.row->block == p.col->block;
}

struct Nvfp4ChainArgs {
  Nvfp4Chain chain;
  const uint32_t* pairs = nullptr;
  int64_t count = 0;
  uint32_t *encode_scale = nullptr, *multiplier = nullptr;
  uint8_t* scale_inv = nullptr;
};

// Row i of x is a tensor amax and a block amax (N10.16).
__global__ void __launch_bounds__(kThreads) nvfp4_scale_chain(Nvfp4ChainArgs a) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const Nvfp4Scales scales = a.chain.of_tensor(a.pairs[2 * i]);
  const uint32_t code = a.chain.block_scale(scales, a.pairs[2 * i + 1]);
  a.encode_scale[i] = canonical(as_bits(scales.encode));
  a.scale_inv[i] = uint8_t(code);
  a.multiplier[i] = canonical(as_bits(a.chain.multiplier(scales, code)));
}

}  // namespace

std::string quantize_nvfp4(const Job& job) {
  const Problem& p = job.problem;
  const Shape s = p.x.shape;
  auto target = [&](Direction d) -> Nvfp4Target {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (!q) return {};
    return {job.output<uint8_t>(d, "data"), job.output<uint8_t>(d, scale_stem(q->scales)),
            q->scales == ScaleLayout::gemm, q->amax ? job.input(d, "given.amax") : job.output(d, "amax")};
  };
  const Nvfp4PairArgs args{job.input<void>("x"),
                           job.input("noop"),
                           {s.rows, s.cols},
                           target(Direction::row),
                           target(Direction::col)};
  const bool vector = s.cols % kPatch == 0 && (!p.col || s.rows % kPatch == 0) && aligned(16, {args.x}) &&
                      aligned(4, {args.row.data, args.col.data});
  if (!vector || job.policy == Policy::general || !tunable(p)) return quantize_directions(job);

  uint32_t *row_amax = job.output(Direction::row, "amax"), *col_amax = job.output(Direction::col, "amax");
  const bool computed = row_amax != nullptr || col_amax != nullptr;
  const LaunchConfig config{.name = "nvfp4_pair", .grid = args.extent.tiles(), .block = kThreads};
  if (computed)
    launch({.name = "nvfp4_clear_amax", .grid = 1, .block = 1}, nvfp4_clear_amax, args.noop, row_amax,
           col_amax);
  with_source(p.x.source, [&](auto source) {
    using S = decltype(source);
    if (computed) launch_amax<S>(args.x, s.count(), args.noop, row_amax, col_amax);
    if (s.count() == 0) return;
    with_flag(is_square((p.row ? p.row : p.col)->block), [&](auto square) {
      if (p.row && p.col) launch(config, nvfp4_pair<S, square.value, true, true>, args);
      else if (p.row) launch(config, nvfp4_pair<S, square.value, true, false>, args);
      else launch(config, nvfp4_pair<S, square.value, false, true>, args);
    });
  });
  return std::string(computed ? "amax, " : "") + "nvfp4_pair<" + directions(p) + "> " + how(p);
}

std::string dequantize_nvfp4(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  const Quantizer& q = *job.problem.quantizer(d);
  const Nvfp4DecodeScale rule{job.input<uint8_t>(d, scale_stem(q.scales)), job.input(d, "amax"), q.row_scaled,
                              Nvfp4Chain::of(q, job.problem.x.source)};
  return dequantize_blocks<FormatId::nvfp4>(job, rule);
}

std::string scale_chain_nvfp4(const Job& job) {
  const Nvfp4ChainArgs args{Nvfp4Chain::of(*job.problem.row, job.problem.x.source),
                            job.input("x"),
                            job.problem.x.shape.rows,
                            job.output("encode_scale"),
                            job.output("multiplier"),
                            job.output<uint8_t>("scale_inv")};
  if (args.count != 0)
    launch({.name = "nvfp4_scale_chain",
            .grid = unsigned((args.count + kThreads - 1) / kThreads),
            .block = kThreads},
           nvfp4_scale_chain, args);
  return "nvfp4_scale_chain";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
