// Casts: every element to another encoding, both chosen at run time (N2).
#include "fast/choose.h"
#include "fast/lane/encode.cuh"
#include "fast/lane/stochastic.cuh"
#include "fast/move/element.cuh"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

struct CastArgs {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t count = 0;
  Encoding from{}, to{};
  Round round{};
  Overflow overflow{};
};

// 8 elements a thread. kVector: x and y are 16-byte aligned.
template <int kIn, int kOut, bool kVector>
__global__ void __launch_bounds__(kThreads) cast_kernel(CastArgs a) {
  const int64_t first = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * 8;
  if (first >= a.count) return;
  if (kVector && first + 8 <= a.count) {
    uint32_t in[8], out[8];
    load_eight<kIn>(a.x, first, in);
#pragma unroll
    for (int j = 0; j < 8; ++j) out[j] = encode_to(a.to, decode_from(a.from, in[j]), a.round, a.overflow);
    store_eight<kOut>(a.y, first, out);
    return;
  }
  for (int64_t i = first; i < a.count && i < first + 8; ++i)
    store_element<kOut>(a.y, i,
                        encode_to(a.to, decode_from(a.from, load_element<kIn>(a.x, i)), a.round, a.overflow));
}

// From binary32 to E2M1 with a byte for each element (N12.3), 4 elements a thread.
struct DrawnArgs {
  const uint32_t* x = nullptr;
  const uint8_t* bits = nullptr;
  uint8_t* y = nullptr;
  int64_t count = 0;
  bool by_fma = false;
};
template <class Convert> __global__ void __launch_bounds__(kThreads) cast_stochastic_kernel(DrawnArgs a) {
  const int64_t first = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
  if (first >= a.count) return;
  uint32_t x[4] = {}, bytes = 0, codes = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (first + k < a.count) x[k] = a.x[first + k], bytes |= uint32_t(a.bits[first + k]) << (8 * k);
  if (a.by_fma) {
#pragma unroll
    for (int k = 0; k < 4; ++k) codes |= stochastic_fma(x[k], (bytes >> (8 * k)) & 0xFFu) << (4 * k);
  } else {
    codes = Convert::four(as_float(x[0]), as_float(x[1]), as_float(x[2]), as_float(x[3]), bytes);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (first + k < a.count) a.y[first + k] = uint8_t((codes >> (4 * k)) & 15u);
}
std::string cast_stochastic(const Job& job) {
  const Problem& p = job.problem;
  const DrawnArgs args{job.input("x"), job.input<uint8_t>("bits"), job.output<uint8_t>("y"),
                       p.x.shape.count(), p.as<Cast>()->sr_rule == SrRule::fma};
  const LaunchConfig config{.name = "cast_stochastic",
                            .grid = unsigned((args.count + kThreads * 4 - 1) / (kThreads * 4)),
                            .block = kThreads};
  const bool general = job.policy == Policy::general;
  if (args.count != 0 && general) launch(config, cast_stochastic_kernel<StochasticBits>, args);
  if (args.count != 0 && !general) launch(config, cast_stochastic_kernel<StochasticHardware>, args);
  return std::string("cast_stochastic ") + (args.by_fma ? "fma"
                                            : general   ? StochasticBits::kName
                                                        : StochasticHardware::kName);
}

template <class F> void with_bytes(Encoding e, F&& f) {
  const int bytes = info(e).bytes();
  if (bytes == 1) f(Constant<1>{});
  else if (bytes == 2) f(Constant<2>{});
  else f(Constant<4>{});
}

}  // namespace

std::string run_cast(const Job& job) {
  const Problem& p = job.problem;
  const Cast& op = *p.as<Cast>();
  if (op.round == Round::sr) return cast_stochastic(job);
  const CastArgs args{
      job.input<void>("x"), job.output<void>("y"), p.x.shape.count(), p.x.source, op.to, op.round,
      op.overflow};
  const bool vector = aligned(16, {args.x, args.y});
  const LaunchConfig config{
      .name = "cast", .grid = unsigned((args.count + kThreads * 8 - 1) / (kThreads * 8)), .block = kThreads};
  if (args.count != 0)
    with_bytes(args.from, [&](auto in) {
      with_bytes(args.to, [&](auto out) {
        with_flag(vector, [&](auto v) { launch(config, cast_kernel<in.value, out.value, v.value>, args); });
      });
    });
  return "cast<" + std::string(info(args.from).name) + ", " + std::string(info(args.to).name) + ">" +
         (vector ? " vector" : " scalar");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
