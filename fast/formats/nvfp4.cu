// NVFP4: quantized by direction lanes (lane/nvfp4_direction.cuh), dequantized patch by patch (N10).
#include "fast/directions.h"
#include "fast/lane/nvfp4.cuh"
#include "fast/move/dequantize.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

// E4M3 codes under the amax of the direction or of the stored row (N10.15).
struct Nvfp4Scale {
  const uint8_t* codes = nullptr;
  const uint32_t* amax = nullptr;
  bool by_line = false;
  Nvfp4Chain chain;
  ASSAY_LANE float operator()(int64_t index, int64_t line) const { return chain.decode_multiplier(amax[by_line ? line : 0], codes[index]); }
};

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

std::string quantize_nvfp4(const Job& job) { return quantize_directions(job); }

std::string dequantize_nvfp4(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  const Quantizer& q = *job.problem.quantizer(d);
  return dequantize_blocks<FormatId::nvfp4>(job, Nvfp4Scale{job.input<uint8_t>(d, scale_stem(q.scales)), job.input(d, "amax"), q.row_scaled, Nvfp4Chain::of(q)});
}

std::string scale_chain_nvfp4(const Job& job) {
  const Nvfp4ChainArgs args{Nvfp4Chain::of(*job.problem.row), job.input("x"), job.problem.x.shape.rows, job.output("encode_scale"), job.output("multiplier"),
                            job.output<uint8_t>("scale_inv")};
  if (args.count != 0)
    launch({.name = "nvfp4_scale_chain", .grid = unsigned((args.count + kThreads - 1) / kThreads), .block = kThreads}, nvfp4_scale_chain, args);
  return "nvfp4_scale_chain";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
