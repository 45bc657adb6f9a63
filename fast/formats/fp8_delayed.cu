// Per-tensor FP8 with delayed scaling: the scale is given, the amax is accumulated (N3.1, N3.11), and the
// history is updated (N4).
#include "fast/formats/fp8_tensor.cuh"
#include "fast/lane/fp8_delayed.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct StartArgs {
  const uint32_t* noop = nullptr;
  const uint32_t *scale[2] = {}, *prior[2] = {};
  uint32_t *amax[2] = {}, *scale_inv[2] = {};
};

__global__ void fp8_delayed_start(StartArgs a) {
  if (is_noop(a.noop)) return;
  for (int d = 0; d < 2; ++d) {
    if (a.scale[d] == nullptr) continue;
    *a.amax[d] = *a.prior[d];
    *a.scale_inv[d] = reciprocal(*a.scale[d]);
  }
}

struct UpdateArgs {
  DelayedScale rule;
  AmaxAlgo algo = AmaxAlgo::max;
  int64_t length = 0, slots = 0;
  const uint32_t *history = nullptr, *scale = nullptr, *reduced = nullptr;
  uint32_t *next_history = nullptr, *next_scale = nullptr;
};

// One thread per slot; neighbouring threads read neighbouring words of every row.
__global__ void __launch_bounds__(kThreads) delayed_update(UpdateArgs a) {
  const int64_t slot = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (slot >= a.slots) return;
  uint32_t last = a.history[slot];
  if (a.reduced != nullptr && (a.reduced[slot] & kAbs) != 0u) last = a.reduced[slot];  // N4.1
  const bool frozen =
      a.rule.rule == UpdateRule::bulk && (last & kAbs) == 0u;  // N4.3; the other rules never freeze (N4.4)
  const bool unfused = a.rule.rule == UpdateRule::unfused;
  // Non-negative values compare as integers; negative ones never win against the +0 to start from.
  uint32_t amax = 0;
  bool nan = false;
  auto take = [&](uint32_t h) {
    nan |= is_nan(h);
    if (h <= kInf && h > amax) amax = h;
  };
  for (int64_t i = 0; i < a.length; ++i) {
    const uint32_t next = i + 1 < a.length ? a.history[(i + 1) * a.slots + slot] : last;  // N4.2, N4.5
    take(next);
    a.next_history[i * a.slots + slot] = frozen ? a.history[i * a.slots + slot] : i == 0 ? 0u : next;
  }
  if (frozen) amax = 0;
  if (unfused && nan) amax = kNan;  // N4.5
  if (a.algo == AmaxAlgo::most_recent) amax = last;
  a.next_scale[slot] = a.rule(amax, a.scale[slot]);
}

}  // namespace

std::string quantize_fp8_delayed(const Job& job) {
  const Problem& p = job.problem;
  if (!fp8_tunable(job) || (p.row ? p.row : p.col)->row_scaled) return quantize_directions(job);
  StartArgs args;
  args.noop = job.input("noop");
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const int i = d == Direction::row ? 0 : 1;
    args.scale[i] = job.input(d, "given.scale");
    args.prior[i] = job.input(d, "prior.amax");
    args.amax[i] = job.output(d, "amax");
    args.scale_inv[i] = job.output(d, "scale_inv");
  }
  launch({.name = "fp8_delayed_start", .grid = 1, .block = 1}, fp8_delayed_start, args);
  return launch_fp8_pair(job, "fp8_delayed", false, [&](auto element, int i) {
    return Fp8Tensor<element.value, Hardware, true>{args.scale[i], args.amax[i]};
  });
}

std::string dequantize_fp8_delayed(const Job& job) { return dequantize_fp8<FormatId::fp8_delayed>(job); }

std::string run_update(const Job& job) {
  const Problem& p = job.problem;
  const Update& op = *p.as<Update>();
  UpdateArgs args;
  args.rule = {p.row->element == Encoding::e4m3 ? kLargest<Encoding::e4m3> : kLargest<Encoding::e5m2>,
               op.rule, op.margin};
  args.algo = op.algo;
  args.length = p.x.shape.rows;
  args.slots = p.x.shape.cols;
  args.history = job.input("history");
  args.scale = job.input("scale");
  args.reduced = job.input("reduced");
  args.next_history = job.output("next.history");
  args.next_scale = job.output("next.scale");
  if (args.slots != 0)
    launch({.name = "delayed_update",
            .grid = unsigned((args.slots + kThreads - 1) / kThreads),
            .block = kThreads},
           delayed_update, args);
  return "delayed_update";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
