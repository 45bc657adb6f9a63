// Per-tensor FP8 with current scaling: amax, scale, elements (N3).
#include "fast/formats/fp8_current_scale.h"
#include "fast/formats/fp8_tensor.cuh"
#include "fast/move/amax.cuh"
#include "fast/scratch.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

// The rule of kernels in registers, which fp8_tunable() sends here with these values alone: as constants, so
// that no code for the others is compiled.
ASSAY_LANE CurrentScale fixed_rule(CurrentScale rule) {
  rule.order = ScaleOrder::encode_first, rule.quotient = {};
  rule.zero_divides = false, rule.epsilon = 0;
  return rule;
}

// One scale for the tensor, or for each stored row (N3.12).
struct ScaleArgs {
  CurrentScale rule;
  const uint32_t* noop = nullptr;
  const uint32_t* given[2] = {};
  uint32_t *amax[2] = {}, *scale[2] = {}, *scale_inv[2] = {};
  int64_t slots[2] = {};
};
void launch_slots(const char* name, void (*kernel)(ScaleArgs), const ScaleArgs& a) {
  const int64_t slots = a.slots[0] > a.slots[1] ? a.slots[0] : a.slots[1],
                blocks = (slots + kThreads - 1) / kThreads;
  if (slots != 0)
    launch({.name = name, .grid = unsigned(blocks), .block = unsigned(slots < kThreads ? slots : kThreads)},
           kernel, a);
}

__global__ void fp8_clear_amax(ScaleArgs a) {
  if (is_noop(a.noop)) return;
  const int64_t slot = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int d = 0; d < 2; ++d)
    if (a.amax[d] != nullptr && slot < a.slots[d]) a.amax[d][slot] = 0;
}

__global__ void fp8_current_scale(ScaleArgs a) {
  if (is_noop(a.noop)) return;
  const int64_t slot = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int d = 0; d < 2; ++d) {
    if (slot >= a.slots[d]) continue;
    const Fp8Scales s = a.rule(a.given[d] != nullptr ? a.given[d][slot] : a.amax[d][slot]);
    a.scale[d][slot] = s.scale;
    a.scale_inv[d][slot] = s.scale_inv;
  }
}

struct RowsArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  int64_t cols = 0;  // a multiple of 8
  CurrentScale rule;
  uint32_t *amax = nullptr, *scale = nullptr, *scale_inv = nullptr;
  uint8_t* data = nullptr;
};

// Octet `at` of a row of `count`, as S packs it; zeros beyond. kAgain: it will be read again, and stays in
// the caches.
template <class S, bool kAgain>
ASSAY_DEVICE void load_octet(const char* row, int64_t at, int64_t count, uint32_t (&words)[S::kWords]) {
#pragma unroll
  for (int w = 0; w < S::kWords; w += 4) {
    const char* from = row + (at * S::kWords + w) * 4;
    const uint4 v = at >= count ? make_uint4(0, 0, 0, 0) : kAgain ? load16(from) : load16_streaming(from);
    words[w] = v.x, words[w + 1] = v.y, words[w + 2] = v.z, words[w + 3] = v.w;
  }
}

// Rows alone, a scale each: a block takes a row. Its first kHeld * 8 elements a thread wait in registers for
// their scale, the rest in the caches.
template <class S, Encoding E> __global__ void __launch_bounds__(kThreads) fp8_rows(RowsArgs a) {
  constexpr int kHeld = 4;
  if (is_noop(a.noop)) return;
  const int64_t row = blockIdx.x, octets = a.cols / 8;
  const char* from = static_cast<const char*>(a.x) + row * octets * S::kWords * 4;
  uint8_t* to = a.data + row * a.cols;
  uint32_t held[kHeld][S::kWords], more[S::kWords], best = 0;
#pragma unroll
  for (int u = 0; u < kHeld; ++u)
    load_octet<S, false>(from, threadIdx.x + int64_t(u) * blockDim.x, octets, held[u]);
#pragma unroll
  for (int u = 0; u < kHeld; ++u) best = S::max(best, packed_maximum<S>(held[u]));
  for (int64_t at = threadIdx.x + int64_t{kHeld} * blockDim.x; at < octets; at += blockDim.x) {
    load_octet<S, true>(from, at, octets, more);
    best = S::max(best, packed_maximum<S>(more));
  }
  const uint32_t amax = block_maximum(widened_maximum<S>(best));
  const Fp8Scales s = fixed_rule(a.rule)(amax);
  if (threadIdx.x == 0) a.amax[row] = amax, a.scale[row] = s.scale, a.scale_inv[row] = s.scale_inv;

  const auto store = [&](const uint32_t(&words)[S::kWords], int64_t at) {
    if (at < octets)
      store8_streaming(to + at * 8, encode_row<S>(Fp8Tensor<E, Hardware, false>{}, words,
                                                  [&](int) { return as_float(s.scale); }));  // N3.8
  };
#pragma unroll
  for (int u = 0; u < kHeld; ++u) store(held[u], threadIdx.x + int64_t(u) * blockDim.x);
  for (int64_t at = threadIdx.x + int64_t{kHeld} * blockDim.x; at < octets; at += blockDim.x) {
    load_octet<S, false>(from, at, octets, more);
    store(more, at);
  }
}

std::string launch_rows(const Job& job, const ScaleArgs& scales) {
  const Problem& p = job.problem;
  const Shape s = p.x.shape;
  const RowsArgs args{job.input<void>("x"),
                      scales.noop,
                      s.cols,
                      scales.rule,
                      scales.amax[0],
                      scales.scale[0],
                      scales.scale_inv[0],
                      job.output<uint8_t>("row.data")};
  const int64_t warps = (s.cols / 8 + 31) / 32;
  const LaunchConfig config{.name = "fp8_rows",
                            .grid = unsigned(s.rows),
                            .block = unsigned(warps < 1               ? 32
                                              : warps > kThreads / 32 ? kThreads
                                                                      : warps * 32)};
  if (s.rows != 0)
    with_source(p.x.source, [&](auto source) {
      with_fp8(p.row->element,
               [&](auto element) { launch(config, fp8_rows<decltype(source), element.value>, args); });
    });
  return "fp8_current_rows<row> " + how(p);
}

// Rows and columns, or columns alone, a scale each.
std::string launch_lines(const Job& job, const ScaleArgs& args, bool computed) {
  const Shape s = job.problem.x.shape;
  if (computed) {
    launch_slots("fp8_clear_amax", fp8_clear_amax, args);
    with_source(job.problem.x.source, [&](auto source) {
      launch_line_amax<decltype(source)>(job.input<void>("x"), {s.rows, s.cols}, args.noop, args.amax[0],
                                         args.amax[1]);
    });
  }
  launch_slots("fp8_current_scale", fp8_current_scale, args);
  return "amax of lines, " + launch_fp8_pair(job, "fp8_current", computed, [&](auto element, int i) {
           return Fp8Tensor<element.value, Hardware, false, true>{args.scale[i]};
         });
}

// One scale, which every thread makes of the amax, and one stores: so there is no launch between the pass
// that finds the amax and the one that casts. It is found in memory of its own, since outputs may not be
// cleared before `noop` is known.
template <Encoding E> struct Fp8Current {
  static constexpr bool kActive = true, kLines = false, kSame = true, kAmax = false;
  CurrentScale rule;
  const uint32_t* from = nullptr;
  uint32_t *amax = nullptr, *scale = nullptr, *scale_inv = nullptr;  // amax: null where it is given

  ASSAY_LANE Fp8Scales scales() const { return fixed_rule(rule)(*from); }
  ASSAY_LANE float tensor_multiplier() const { return as_float(scales().scale); }
  ASSAY_LANE static uint32_t* tensor_amax() { return nullptr; }
  ASSAY_LANE static uint32_t pair(float lo, float hi, float mlo, float mhi) {
    return Fp8Tensor<E, Hardware, false>::pair(lo, hi, mlo, mhi);
  }
  ASSAY_LANE void store_scales() const {
    const Fp8Scales s = scales();
    if (amax != nullptr) *amax = *from;
    *scale = s.scale, *scale_inv = s.scale_inv;
  }
};

std::string launch_tensor(const Job& job, const ScaleArgs& args, bool computed) {
  const int64_t count = job.problem.x.shape.count();
  if (count == 0) {  // no block would store the scales
    if (computed) launch_slots("fp8_clear_amax", fp8_clear_amax, args);
    launch_slots("fp8_current_scale", fp8_current_scale, args);
  }
  Scratch scratch(computed ? sizeof(uint32_t) : 0, Contents::zeros);
  uint32_t* amax = scratch.as<uint32_t>();
  if (computed)
    with_source(job.problem.x.source, [&](auto source) {
      launch_amax<decltype(source)>(job.input<void>("x"), count, args.noop, amax, nullptr);
    });
  const std::string pair = launch_fp8_pair(job, "fp8_current", computed, [&](auto element, int i) {
    Fp8Current<element.value> lane;
    lane.rule = args.rule, lane.from = args.given[i] != nullptr ? args.given[i] : amax;
    lane.amax = args.amax[i], lane.scale = args.scale[i], lane.scale_inv = args.scale_inv[i];
    return lane;
  });
  return (computed ? "amax, " : "") + pair;
}

// Element i of x is an amax.
__global__ void __launch_bounds__(kThreads)
    fp8_scale_chain(CurrentScale rule, const uint32_t* x, int64_t count, uint32_t* scale,
                    uint32_t* scale_inv) {
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
  bool computed = false, by_line = false;
  for (Direction d : kDirections) {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (!q) continue;
    const int i = d == Direction::row ? 0 : 1;
    args.given[i] = job.input(d, "given.amax");
    args.amax[i] = job.output(d, "amax");
    args.scale[i] = job.output(d, "scale");
    args.scale_inv[i] = job.output(d, "scale_inv");
    args.slots[i] = !q->row_scaled ? 1 : d == Direction::row ? p.x.shape.rows : p.x.shape.cols;
    computed |= args.amax[i] != nullptr;
    by_line |= q->row_scaled;
  }
  if (by_line && !p.col) return launch_rows(job, args);
  return by_line ? launch_lines(job, args, computed) : launch_tensor(job, args, computed);
}

std::string dequantize_fp8_current(const Job& job) { return dequantize_fp8<FormatId::fp8_current>(job); }

std::string scale_chain_f32(const Job& job) {
  const int64_t count = job.problem.x.shape.count();
  if (count != 0)
    launch(
        {.name = "fp8_scale_chain", .grid = unsigned((count + kThreads - 1) / kThreads), .block = kThreads},
        fp8_scale_chain, current_scale(*job.problem.row, job.problem.x.source), job.input("x"), count,
        job.output("scale"), job.output("scale_inv"));
  return "fp8_scale_chain";
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
