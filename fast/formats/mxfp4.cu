// MXFP4: blocks with the default numerics by a kernel of their own, in registers; everything else by
// direction lanes (lane/mx_direction.cuh). Dequantized patch by patch (N15).
#include "fast/directions.h"
#include "fast/lane/mxfp4.cuh"
#include "fast/move/dequantize.cuh"
#include "fast/move/e2m1_lines.cuh"
#include "fast/move/pair.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct Mxfp4PairArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Extent extent;
  Target row, col;
};

// One direction of a patch: lines are rows (kRows) or columns, and stored rows. A block of 32 lies in four
// lanes; each of them makes the scales of 2 of the 8 lines (N15.1, N15.2). x as load_patch<S, true> needs it;
// the stored rows a multiple of 8 long.
template <class S, bool kRows>
ASSAY_DEVICE void mxfp4_direction(const Target& to, const Extent& extent, const Place& at,
                                  const uint32_t (&words)[kPatch][S::kWords]) {
  constexpr int kLow = kRows ? 1 : 8, kHigh = 2 * kLow;
  const auto scale_code = [](uint32_t amax) { return Hardware::e8m0(as_float(mxfp4_scaled_amax(amax))); };
  uint32_t items[S::kWords];
  const bool nan = maxima<S, kRows>(words, items);
  const uint2 amax = quad_maxima<S, kLow, kHigh>(items, at.lane);
  const uint32_t low = scale_code(amax.x), high = scale_code(amax.y);
  // A scale is not below amax / 6, so a finite block stays below 7; the code of infinity is 254.
  const bool tame = __any_sync(kAllLanes, nan || low > kLargestLineCode || high > kLargestLineCode) == 0;
  const uint2 codes = quad_gather<kLow, kHigh>(low | high << 8, at.lane);

  const int64_t line = kRows ? at.row : at.col, lines = kRows ? extent.rows : extent.cols,
                j = (kRows ? at.col : at.row) >> 5, blocks = ((kRows ? extent.cols : extent.rows) + 31) >> 5,
                padded = (blocks + 3) & ~int64_t{3};
  if (j < padded) {  // N15.4
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int l = 2 * (kRows ? at.quad() : at.row_group()) + k;
      const int64_t i = line + l;
      to.scales[to.gemm ? gemm_index(i, j, padded >> 2) : i * padded + j] =
          i < lines && j < blocks ? uint8_t(byte_of(codes, l)) : uint8_t(0);  // N6.4
    }
  }
  constexpr bool kLineSums = Hardware::kE2m1ByAdder && S::kEncoding == Encoding::bf16;
  if constexpr (kLineSums) {
    if (tame) {
      uint32_t lines[kPatch];
      e2m1_lines_of_bf16<kRows>(words, codes, lines);
      return store_e2m1_lines<kRows>(to.data, extent, at, [&](int l) { return lines[l]; });
    }
  }
  store_e2m1_lines<kRows>(to.data, extent, at, [&](int l) {
    float x[kPatch];
    line_values<S, kRows>(words, l, x);
    return Hardware::e2m1_codes(x, as_float(mx_multiplier(byte_of(codes, l))), line_signs<S, kRows>(words, l),
                                !kLineSums && tame);  // N15.3
  });
}

// Default numerics, one read. A thread per patch.
template <class S, bool kRow, bool kCol>
__global__ void __launch_bounds__(kThreads, S::kBlocks > 2 ? 2 : S::kBlocks) mxfp4_pair(Mxfp4PairArgs a) {
  if (is_noop(a.noop)) return;
  const Place at = my_place(a.extent);
  uint32_t words[kPatch][S::kWords];
  load_patch<S, true>(a.x, a.extent, at, words);
  if constexpr (kRow) mxfp4_direction<S, true>(a.row, a.extent, at, words);
  if constexpr (kCol) mxfp4_direction<S, false>(a.col, a.extent, at, words);
}

// Whether the tuned kernel computes what both quantizers ask for.
bool tunable(const Problem& p) {
  for (Direction d : kDirections)
    if (p.quantizer(d) && p.quantizer(d)->numerics != Numerics{}) return false;
  return true;
}

}  // namespace

std::string quantize_mxfp4(const Job& job) {
  const Problem& p = job.problem;
  const Shape s = p.x.shape;
  auto target = [&](Direction d) -> Target {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (!q) return {};
    return {job.output<uint8_t>(d, "data"), job.output<uint8_t>(d, scale_stem(q->scales)),
            q->scales == ScaleLayout::gemm};
  };
  const Mxfp4PairArgs args{job.input<void>("x"),
                           job.input("noop"),
                           {s.rows, s.cols},
                           target(Direction::row),
                           target(Direction::col)};
  const bool vector = s.cols % kPatch == 0 && (!p.col || s.rows % kPatch == 0) && aligned(16, {args.x}) &&
                      aligned(4, {args.row.data, args.col.data});
  if (!vector || job.policy == Policy::general || !tunable(p)) return quantize_directions(job);

  const LaunchConfig config{.name = "mxfp4_pair", .grid = args.extent.tiles(), .block = kThreads};
  if (s.count() != 0)
    with_source(p.x.source, [&](auto source) {
      using S = decltype(source);
      if (p.row && p.col) launch(config, mxfp4_pair<S, true, true>, args);
      else if (p.row) launch(config, mxfp4_pair<S, true, false>, args);
      else launch(config, mxfp4_pair<S, false, true>, args);
    });
  return "mxfp4_pair<" + directions(p) + "> " + how(p);
}

std::string dequantize_mxfp4(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  return dequantize_blocks<FormatId::mxfp4>(
      job, E8m0Scale{job.input<uint8_t>(d, scale_stem(job.problem.quantizer(d)->scales))});
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
