// fp8_current: per-tensor FP8 whose scale is computed from this tensor's own amax.
#include "reference/formats/format.h"
#include "reference/parallel.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

// The largest power of two not above |scale|, with the sign of scale; what clearing the mantissa of a normal value leaves.
double floored_to_power_of_two(double scale) {
  if (scale == 0) return scale;
  int exponent;
  std::frexp(scale, &exponent);                                              // |scale| in [2^(exponent-1), 2^exponent)
  return std::copysign(power_of_two(exponent - 1), scale);
}

struct Chain {
  double least;          // amax, or eps where that is larger
  double scale;
  double scale_inv;
};

Chain chain_of(double amax, const Quantizer& q, Encoding source) {
  Chain c;
  const double eps = value_of(Encoding::f32, q.eps);
  c.least = amax < eps ? eps : amax;                                         // N3.2: false for NaN
  const bool infinite = std::isinf(c.least);
  if (c.least == 0 || std::isnan(c.least) || (infinite && q.numerics.inf_amax == InfAmax::unit)) {
    c.scale = 1;                                                             // N3.4
  } else {
    c.scale = narrowed(max_of(q.element) / c.least);                         // N3.3
    if (std::isinf(c.scale))                                                 // N3.5
      c.scale = max_of(q.numerics.scale_limit == ScaleLimit::source_max ? source : Encoding::f32);
    if (q.pow2) c.scale = floored_to_power_of_two(c.scale);                  // N3.6
  }
  c.scale_inv = decode_scale(c.scale);                                       // N3.7
  return c;
}

// Computed from the tensor (N3.1), or given.
double amax_for(const Run& run, Direction d, const Values& x) {
  return run.quantizer(d).amax ? scalar(run.input(d, "given.amax")) : tensor_amax(x, 0.0, run.threads);
}

void quantize(const Run& run, Direction d) {
  const Quantizer& q = run.quantizer(d);
  const Values x = values(run.input("x"), run.threads);                      // N1.2
  const double amax = amax_for(run, d, x);
  const Chain chain = chain_of(amax, q, run.problem.x.source);
  if (!q.amax) store_scalar(run.output(d, "amax"), amax);                    // N3.2: as it was before eps
  store_scalar(run.output(d, "scale"), chain.scale);
  store_scalar(run.output(d, "scale_inv"), chain.scale_inv);
  store_per_tensor_data(run, d, per_tensor_elements(x, chain.scale, q.element, q.numerics.neg_zero, run.threads));
}

void scale_chain(const Run& run) {
  const Values amax = values(run.input("x"), run.threads);
  const Buffer &scale = run.output("scale"), &scale_inv = run.output("scale_inv");
  parallel_for(run.threads, amax.size(), [&](int64_t i) {
    const Chain chain = chain_of(amax.data()[i], run.quantizer(Direction::row), run.problem.x.source);
    store(scale, i, f32_code(chain.scale));
    store(scale_inv, i, f32_code(chain.scale_inv));
  });
}

std::vector<TraceStep> trace_chain(double amax, const Quantizer& q, Encoding source, std::string_view where) {
  const Chain chain = chain_of(amax, q, source);
  return {value_step("N3.1", "amax" + std::string(where), amax), value_step("N3.2", "amax, at least eps", chain.least),
          value_step("N3.3", "MAX", max_of(q.element)), value_step("N3.3", "scale (N3.4 to N3.6 applied)", chain.scale),
          value_step("N3.7", "decode scale", chain.scale_inv)};
}

std::vector<TraceStep> trace(const Run& run, Direction d, int64_t row, int64_t col) {
  if (run.problem.as<Dequantize>()) return trace_dequantize_per_tensor(run, d, row, col);
  const Quantizer& q = run.quantizer(d);
  const Values x = values(run.input("x"), run.threads);
  if (run.problem.as<ScaleChain>()) return trace_chain(x(row, col), q, run.problem.x.source, "");
  const double amax = amax_for(run, d, x);
  std::vector<TraceStep> steps = trace_chain(amax, q, run.problem.x.source, q.amax ? " (given)" : " of the tensor");
  const double scale = chain_of(amax, q, run.problem.x.source).scale;
  for (TraceStep& step : trace_element(x(row, col), scale, q, "N3.8")) steps.push_back(std::move(step));
  return steps;
}

}  // namespace

const Format formats::fp8_current = {
    .quantize = quantize, .dequantize = dequantize_per_tensor, .scale_chain = scale_chain, .trace = trace};

}  // namespace assay::reference
