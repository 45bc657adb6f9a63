// MXFP6: quantized by direction lanes (lane/mx_direction.cuh), dequantized patch by patch (N18).
#include "fast/directions.h"
#include "fast/move/dequantize.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

std::string quantize_mxfp6(const Job& job) { return quantize_directions(job); }

std::string dequantize_mxfp6(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  return dequantize_blocks<FormatId::mxfp6>(
      job, E8m0Scale{job.input<uint8_t>(d, scale_stem(job.problem.quantizer(d)->scales))});
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
