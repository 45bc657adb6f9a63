// FP8 blockwise: quantized by direction lanes (lane/fp8_block_direction.cuh), dequantized patch by patch
// (N9).
#include "fast/directions.h"
#include "fast/lane/fp8_block.cuh"
#include "fast/move/dequantize.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

std::string quantize_fp8_block(const Job& job) { return quantize_directions(job); }

std::string dequantize_fp8_block(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  const ScaleLayout layout = job.problem.quantizer(d)->scales;
  return dequantize_blocks<FormatId::fp8_block>(
      job, Fp8BlockScale{job.input<void>(d, scale_stem(layout)), layout == ScaleLayout::gemm});
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
