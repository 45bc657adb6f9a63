// MXFP8: one tuned patch kernel for either direction or both, any block, compact or GEMM scales. Other
// Numerics and alignments go through direction lanes.
#include "fast/choose.h"
#include "fast/directions.h"
#include "fast/lane/mx_scale.cuh"
#include "fast/move/dequantize.cuh"
#include "fast/move/pair.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

Target target(const Job& job, Direction d) {
  const std::optional<Quantizer>& q = job.problem.quantizer(d);
  if (!q) return {};
  const bool gemm = q->scales == ScaleLayout::gemm;
  return {job.output<uint8_t>(d, "data"), job.output<uint8_t>(d, scale_stem(q->scales)), gemm};
}

template <class RowLane, class ColLane>
PairArgs<RowLane, ColLane> arguments(const Job& job, RowLane row, ColLane col) {
  const Shape s = job.problem.x.shape;
  return {job.input<void>("x"),        job.input("noop"),          {s.rows, s.cols}, row, col,
          target(job, Direction::row), target(job, Direction::col)};
}

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
  const Target row = target(job, Direction::row), col = target(job, Direction::col);
  const bool vector =
      p.x.shape.cols % kPatch == 0 && aligned(16, {job.input<void>("x")}) && aligned(8, {row.data, col.data});
  if (!vector || job.policy == Policy::general || !tunable(p)) return quantize_directions(job);

  const Quantizer& any = p.row ? *p.row : *p.col;
  with_source(p.x.source, [&](auto source) {
    using S = decltype(source);
    with_fp8(any.element, [&](auto element) {
      with_flag(any.block == Block::b32x32, [&](auto square) {
        using Lane = Mxfp8<element.value, Hardware, square.value>;
        if (p.row && p.col) launch_pair<S>("mxfp8_pair<row, col>", arguments(job, Lane{}, Lane{}));
        else if (p.row) launch_pair<S>("mxfp8_pair<row>", arguments(job, Lane{}, None{}));
        else launch_pair<S>("mxfp8_pair<col>", arguments(job, None{}, Lane{}));
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
