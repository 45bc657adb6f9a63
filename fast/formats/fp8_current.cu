// Per-tensor FP8 with current scaling: amax, scale, elements (N3).
#include "fast/formats/fp8_current_scale.h"
#include "fast/formats/fp8_tensor.cuh"
#include "fast/move/amax.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct ScaleArgs {
  CurrentScale rule;
  const uint32_t* noop = nullptr;
  const uint32_t* given[2] = {};
  uint32_t *amax[2] = {}, *scale[2] = {}, *scale_inv[2] = {};
};

__global__ void fp8_clear_amax(ScaleArgs a) {
  if (is_noop(a.noop)) return;
  for (uint32_t* amax : a.amax)
    if (amax != nullptr) *amax = 0;
}

__global__ void fp8_current_scale(ScaleArgs a) {
  if (is_noop(a.noop)) return;
  for (int d = 0; d < 2; ++d) {
    if (a.scale[d] == nullptr) continue;
    const Fp8Scales s = a.rule(a.given[d] != nullptr ? *a.given[d] : *a.amax[d]);
    *a.scale[d] = s.scale;
    *a.scale_inv[d] = s.scale_inv;
  }
}

// Element i of x is an amax.
__global__ void __launch_bounds__(kThreads) fp8_scale_chain(CurrentScale rule, const uint32_t* x, int64_t count, uint32_t* scale, uint32_t* scale_inv) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const Fp8Scales s = rule(x[i]);
  scale[i] = s.scale;
  scale_inv[i] = s.scale_inv;
}

}  // namespace

std::string quantize_fp8_current(const Job& job) {
  if (!fp8_tunable(job)) return quantize_directions(job);
  const Problem& p = job.problem;
  ScaleArgs args;
  args.rule = current_scale(p.row ? *p.row : *p.col, p.x.source);
  args.noop = job.input("noop");
  Fp8Slots slots;
  bool computed = false;
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const int i = d == Direction::row ? 0 : 1;
    args.given[i] = job.input(d, "given.amax");
    args.amax[i] = job.output(d, "amax");
    args.scale[i] = job.output(d, "scale");
    args.scale_inv[i] = job.output(d, "scale_inv");
    slots.scale[i] = args.scale[i];
    computed |= args.amax[i] != nullptr;
  }
  if (computed) {
    launch({.name = "fp8_clear_amax", .grid = 1, .block = 1}, fp8_clear_amax, args);
    with_source(p.x.source, [&](auto source) {
      launch_amax<decltype(source)>(job.input<void>("x"), p.x.shape.count(), args.noop, args.amax[0], args.amax[1]);
    });
  }
  launch({.name = "fp8_current_scale", .grid = 1, .block = 1}, fp8_current_scale, args);
  return (computed ? "amax, " : "") + launch_fp8_pair<false>(job, "fp8_current", slots);
}

std::string dequantize_fp8_current(const Job& job) { return dequantize_fp8(job); }

std::string scale_chain_f32(const Job& job) {
  const int64_t count = job.problem.x.shape.count();
  if (count != 0)
    launch({.name = "fp8_scale_chain", .grid = unsigned((count + kThreads - 1) / kThreads), .block = kThreads}, fp8_scale_chain,
           current_scale(*job.problem.row, job.problem.x.source), job.input("x"), count, job.output("scale"), job.output("scale_inv"));
  return "fp8_scale_chain";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
