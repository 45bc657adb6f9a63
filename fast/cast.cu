// Casts: every element to another encoding, both chosen at run time (N2).
#include "fast/choose.h"
#include "fast/lane/encode.cuh"
#include "fast/lane/stochastic.cuh"
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

template <int kBytes>
ASSAY_DEVICE uint32_t load_element(const void* p, int64_t i) {
  if constexpr (kBytes == 1) return static_cast<const uint8_t*>(p)[i];
  else if constexpr (kBytes == 2) return static_cast<const uint16_t*>(p)[i];
  else return static_cast<const uint32_t*>(p)[i];
}
template <int kBytes>
ASSAY_DEVICE void store_element(void* p, int64_t i, uint32_t code) {
  if constexpr (kBytes == 1) static_cast<uint8_t*>(p)[i] = uint8_t(code);
  else if constexpr (kBytes == 2) static_cast<uint16_t*>(p)[i] = uint16_t(code);
  else static_cast<uint32_t*>(p)[i] = code;
}
// 8 elements from word 8 / kBytes * at on.
template <int kBytes>
ASSAY_DEVICE void load_eight(const void* p, int64_t first, uint32_t (&out)[8]) {
  const char* from = static_cast<const char*>(p) + first * kBytes;
  uint32_t w[2 * kBytes];
  if constexpr (kBytes == 1) {
    const uint2 v = load8_streaming(from);
    w[0] = v.x, w[1] = v.y;
  } else {
#pragma unroll
    for (int k = 0; k < 2 * kBytes; k += 4) {
      const uint4 v = load16_streaming(from + 4 * k);
      w[k] = v.x, w[k + 1] = v.y, w[k + 2] = v.z, w[k + 3] = v.w;
    }
  }
  constexpr uint32_t kMask = kBytes == 4 ? 0xFFFFFFFFu : (1u << (8 * (kBytes % 4))) - 1u;
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = (w[j * kBytes / 4] >> (8 * (j * kBytes % 4))) & kMask;
}
template <int kBytes>
ASSAY_DEVICE void store_eight(void* p, int64_t first, const uint32_t (&codes)[8]) {
  char* to = static_cast<char*>(p) + first * kBytes;
  uint32_t w[2 * kBytes] = {};
#pragma unroll
  for (int j = 0; j < 8; ++j) w[j * kBytes / 4] |= codes[j] << (8 * (j * kBytes % 4));
  if constexpr (kBytes == 1) {
    store8_streaming(to, make_uint2(w[0], w[1]));
  } else {
#pragma unroll
    for (int k = 0; k < 2 * kBytes; k += 4) store16_streaming(to + 4 * k, make_uint4(w[k], w[k + 1], w[k + 2], w[k + 3]));
  }
}

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
    store_element<kOut>(a.y, i, encode_to(a.to, decode_from(a.from, load_element<kIn>(a.x, i)), a.round, a.overflow));
}

// From binary32 to E2M1 with a byte for each element (N12.3), 4 elements a thread.
struct DrawnArgs {
  const uint32_t* x = nullptr;
  const uint8_t* bits = nullptr;
  uint8_t* y = nullptr;
  int64_t count = 0;
  bool by_fma = false;
};
template <class Convert>
__global__ void __launch_bounds__(kThreads) cast_stochastic_kernel(DrawnArgs a) {
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
  const DrawnArgs args{job.input("x"), job.input<uint8_t>("bits"), job.output<uint8_t>("y"), p.x.shape.count(), p.as<Cast>()->sr_rule == SrRule::fma};
  const LaunchConfig config{.name = "cast_stochastic", .grid = unsigned((args.count + kThreads * 4 - 1) / (kThreads * 4)), .block = kThreads};
  const bool general = job.policy == Policy::general;
  if (args.count != 0 && general) launch(config, cast_stochastic_kernel<StochasticBits>, args);
  if (args.count != 0 && !general) launch(config, cast_stochastic_kernel<StochasticHardware>, args);
  return std::string("cast_stochastic ") + (args.by_fma ? "fma" : general ? StochasticBits::kName : StochasticHardware::kName);
}

template <class F>
void with_bytes(Encoding e, F&& f) {
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
  const CastArgs args{job.input<void>("x"), job.output<void>("y"), p.x.shape.count(), p.x.source, op.to, op.round, op.overflow};
  const bool vector = aligned(16, {args.x, args.y});
  const LaunchConfig config{.name = "cast", .grid = unsigned((args.count + kThreads * 8 - 1) / (kThreads * 8)), .block = kThreads};
  if (args.count != 0)
    with_bytes(args.from, [&](auto in) {
      with_bytes(args.to, [&](auto out) {
        with_flag(vector, [&](auto v) { launch(config, cast_kernel<in.value, out.value, v.value>, args); });
      });
    });
  return "cast<" + std::string(info(args.from).name) + ", " + std::string(info(args.to).name) + ">" + (vector ? " vector" : " scalar");
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
