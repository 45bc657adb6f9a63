// MXFP8: one tuned patch kernel for either direction or both, any block, compact or GEMM scales. Other
// Numerics and alignments go through direction lanes.
#include "fast/directions.h"
#include "fast/lane/mx_scale.cuh"
#include "fast/move/block_pair.cuh"
#include "fast/move/dequantize.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

// What a tuned kernel needs: default numerics, and one element and one block for both directions.
bool tunable(const Problem& p) {
  for (Direction d : kDirections) {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (q && q->numerics != Numerics{}) return false;
  }
  return !p.row || !p.col || (p.row->element == p.col->element && p.row->block == p.col->block);
}

struct ChainArgs {
  const void* x = nullptr;
  int64_t count = 0;
  bool from_codes = false;
  MxScaleRule rule;
  uint8_t* codes = nullptr;
  uint32_t *multiplier = nullptr, *decoded = nullptr;
};

// Element i of x is an amax, or already a stored code.
__global__ void __launch_bounds__(kThreads) mx_scale_chain(ChainArgs a) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  uint32_t code;
  if (a.from_codes) {
    code = static_cast<const uint8_t*>(a.x)[i];
  } else {
    code = a.rule(static_cast<const uint32_t*>(a.x)[i]);
    a.codes[i] = uint8_t(code);
  }
  a.multiplier[i] = a.rule.multiplier(code);
  a.decoded[i] = mx_scale(code);
}

}  // namespace

std::string quantize_mxfp8(const Job& job) {
  const Problem& p = job.problem;
  const Target row = block_target(job, Direction::row), col = block_target(job, Direction::col);
  const bool vector =
      p.x.shape.cols % kPatch == 0 && aligned(16, {job.input<void>("x")}) && aligned(8, {row.data, col.data});
  if (!vector || job.policy == Policy::general || !tunable(p)) return quantize_directions(job);

  const Quantizer& any = p.row ? *p.row : *p.col;
  with_source(p.x.source, [&](auto source) {
    using S = decltype(source);
    with_fp8(any.element, [&](auto element) {
      with_flag(is_square(any.block), [&](auto square) {
        constexpr Encoding E = element.value;
        constexpr bool kSquare = square.value;
        using Side = Mxfp8Side<E, kSquare>;
        if constexpr (!kSquare) {
          using Strip = Mxfp8Side<E, false, false, true>;
          if (!row.gemm && !col.gemm && aligned(4, {row.scales, col.scales})) {
            if (!p.col) return launch_block_pair<S>("mxfp8_pair<row>", job, Strip{row, {}}, NoSide{});
            if (!p.row) return launch_block_pair<S>("mxfp8_pair<col>", job, NoSide{}, Strip{col, {}});
            return launch_block_pair<S>("mxfp8_pair<row, col>", job, Strip{row, {}}, Strip{col, {}});
          }
        }
        if (!p.col) return launch_block_pair<S>("mxfp8_pair<row>", job, Side{row, {}}, NoSide{});
        if (!p.row) return launch_block_pair<S>("mxfp8_pair<col>", job, NoSide{}, Side{col, {}});
        if constexpr (kSquare)
          launch_block_pair<S>("mxfp8_pair<row, col>", job, Mxfp8Side<E, true, true>{row, col}, NoSide{});
        else launch_block_pair<S>("mxfp8_pair<row, col>", job, Side{row, {}}, Side{col, {}});
      });
    });
  });
  return "mxfp8_pair<" + directions(p) + "> " + how(p);
}

std::string dequantize_mxfp8(const Job& job) {
  const Problem& p = job.problem;
  const Direction d = p.row ? Direction::row : Direction::col;
  return dequantize_blocks<FormatId::mxfp8>(
      job, E8m0Scale{job.input<uint8_t>(d, scale_stem(p.quantizer(d)->scales))});
}

std::string scale_chain_e8m0(const Job& job) {
  const Problem& p = job.problem;
  const ChainArgs args{job.input<void>("x"),
                       p.x.shape.count(),
                       p.x.source == Encoding::e8m0,
                       MxScaleRule::of(*p.row),
                       job.output<uint8_t>("scale_inv"),
                       job.output("multiplier"),
                       job.output("decoded")};
  if (args.count != 0)
    launch({.name = "mx_scale_chain",
            .grid = unsigned((args.count + kThreads - 1) / kThreads),
            .block = kThreads},
           mx_scale_chain, args);
  return "mx_scale_chain";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
