// MXFP4: blocks with the default numerics by a kernel of their own, in registers; everything else by
// direction lanes (lane/mx_direction.cuh). Dequantized patch by patch (N15).
#include "fast/directions.h"
#include "fast/move/dequantize.cuh"
#include "fast/move/mxfp4_side.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

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
  const Mxfp4Side row{block_target(job, Direction::row)}, col{block_target(job, Direction::col)};
  const bool vector = s.cols % kPatch == 0 && (!p.col || s.rows % kPatch == 0) &&
                      aligned(16, {job.input<void>("x")}) &&
                      aligned(4, {row.to.data, col.to.data, row.to.scales, col.to.scales});
  if (!vector || job.policy == Policy::general || !tunable(p)) return quantize_directions(job);

  with_source(p.x.source, [&](auto source) {
    using S = decltype(source);
    if (p.row && p.col) launch_block_pair<S>("mxfp4_pair<row, col>", job, row, col);
    else if (p.row) launch_block_pair<S>("mxfp4_pair<row>", job, row, NoSide{});
    else launch_block_pair<S>("mxfp4_pair<col>", job, NoSide{}, col);
  });
  return "mxfp4_pair<" + directions(p) + "> " + how(p);
}

std::string dequantize_mxfp4(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  return dequantize_blocks<FormatId::mxfp4>(
      job, E8m0Scale{job.input<uint8_t>(d, scale_stem(job.problem.quantizer(d)->scales))});
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
