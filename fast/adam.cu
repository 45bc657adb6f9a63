// A step of Adam, one thread an element (N19), and optimizer states stored beside one scale (N19.6, N19.7).
#include "fast/adam_numbers.h"
#include "fast/choose.h"
#include "fast/lane/adam.cuh"
#include "fast/lane/decode.cuh"
#include "fast/lane/encode.cuh"
#include "fast/move/amax.cuh"
#include "fast/move/element.cuh"
#include "fast/scratch.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

// ---- Adam ----------------------------------------------------------------------------

struct AdamArgs {
  const void *g = nullptr, *p = nullptr, *m = nullptr, *v = nullptr;
  void *next_p = nullptr, *next_m = nullptr, *next_v = nullptr;
  int64_t count = 0;
  Encoding gradient{}, parameter{}, moments{};
  AdamNumbers numbers;
};

ASSAY_DEVICE float read_wide(Encoding e, const void* from, int64_t i) {
  return as_float(decode_from(e, e == Encoding::f32 ? load_element<4>(from, i) : load_element<2>(from, i)));
}
// N19.5.
ASSAY_DEVICE void write_wide(Encoding e, void* to, int64_t i, float value) {
  const uint32_t code = encode_to(e, canonical(as_bits(value)), Round::rne, Overflow::nosat);
  if (e == Encoding::f32) store_element<4>(to, i, code);
  else store_element<2>(to, i, code);
}

template <bool kFused> __global__ void __launch_bounds__(kThreads) adam_kernel(AdamArgs a) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const AdamElement before{read_wide(a.gradient, a.g, i), read_wide(a.parameter, a.p, i),
                           read_wide(a.moments, a.m, i), read_wide(a.moments, a.v, i)};
  const AdamElement after = adam_step<kFused>(a.numbers, before);
  write_wide(a.moments, a.next_m, i, after.m);
  write_wide(a.moments, a.next_v, i, after.v);
  write_wide(a.parameter, a.next_p, i, after.p);
}

unsigned blocks_for(int64_t count) { return unsigned((count + kThreads - 1) / kThreads); }

// ---- states --------------------------------------------------------------------------

struct StateArgs {
  const void* x = nullptr;
  const uint32_t* amax = nullptr;  // of |x|; a NaN is above every number
  uint32_t *scale = nullptr, *multiplier = nullptr;
  void* y = nullptr;
  int64_t count = 0;
  bool half = false;
};

__global__ void state_clear_kernel(uint32_t* amax) { *amax = 0; }

// Raises *amax to the pattern of each |x|: a NaN's lies above an infinity's, so it stays (N19.6).
__global__ void __launch_bounds__(kThreads)
    state_amax_kernel(const uint32_t* x, int64_t count, uint32_t* amax) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint32_t best = block_maximum(i < count ? x[i] & kAbs : 0u);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<int*>(amax), int(best));
}

__global__ void __launch_bounds__(kThreads) state_scale_kernel(StateArgs a) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const float scale = __fdiv_rn(as_float(*a.amax), a.half ? 32752.0f : 448.0f);
  const float multiplier = a.half && !(scale > 0.0f) ? 0.0f : __frcp_rn(scale);
  if (i == 0) *a.scale = canonical(as_bits(scale)), *a.multiplier = canonical(as_bits(multiplier));
  if (i >= a.count) return;
  const uint32_t scaled = as_bits(__fmul_rn(as_float(static_cast<const uint32_t*>(a.x)[i]), multiplier));
  if (a.half) store_element<2>(a.y, i, encode<Encoding::f16>(scaled, Round::rne, Overflow::nosat));
  else store_element<1>(a.y, i, encode<Encoding::e4m3>(scaled, Round::rne, Overflow::sat));
}

__global__ void __launch_bounds__(kThreads) state_unscale_kernel(StateArgs a) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const uint32_t value = a.half ? decode<Encoding::f16>(load_element<2>(a.x, i))
                                : decode<Encoding::e4m3>(load_element<1>(a.x, i));
  const float state = __fmul_rn(as_float(value), as_float(*a.scale));
  store_element<4>(a.y, i, canonical(as_bits(state)));
}

}  // namespace

std::string run_adam(const Job& job) {
  const Problem& p = job.problem;
  const Adam& op = *p.as<Adam>();
  const AdamArgs args{job.input<void>("x"),
                      job.input<void>("p"),
                      job.input<void>("m"),
                      job.input<void>("v"),
                      job.output<void>("next.p"),
                      job.output<void>("next.m"),
                      job.output<void>("next.v"),
                      p.x.shape.count(),
                      p.x.source,
                      op.parameter,
                      op.moments,
                      numbers_of(op)};
  const LaunchConfig config{.name = "adam", .grid = blocks_for(args.count), .block = kThreads};
  const bool fused = op.adam == AdamRounding::fma;
  if (args.count != 0) with_flag(fused, [&](auto f) { launch(config, adam_kernel<f.value>, args); });
  return std::string("adam ") + (fused ? "fma" : "plain");
}

std::string run_scale_state(const Job& job) {
  const Problem& p = job.problem;
  const ScaleState& op = *p.as<ScaleState>();
  StateArgs args;
  args.x = job.input<void>("x"), args.y = job.output<void>("y");
  args.count = p.x.shape.count(), args.half = op.to == Encoding::f16;
  LaunchConfig config{.name = "unscale_state", .grid = blocks_for(args.count), .block = kThreads};
  if (op.inverse) {
    args.scale = const_cast<uint32_t*>(job.input("scale"));
    if (args.count != 0) launch(config, state_unscale_kernel, args);
    return "unscale_state";
  }
  args.scale = job.output("scale"), args.multiplier = job.output("multiplier");
  Scratch amax(sizeof(uint32_t));
  launch({.name = "state_clear_amax", .grid = 1, .block = 1}, state_clear_kernel, amax.as<uint32_t>());
  args.amax = amax.as<uint32_t>();
  config.name = "state_amax";
  if (args.count != 0)
    launch(config, state_amax_kernel, static_cast<const uint32_t*>(args.x), args.count, amax.as<uint32_t>());
  config.name = "scale_state";
  if (args.count == 0) config.grid = 1;  // the scale of an empty state is written all the same
  launch(config, state_scale_kernel, args);
  return "scale_state";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
