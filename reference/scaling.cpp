#include "reference/scaling.h"

namespace assay::reference {

double tensor_amax(const Values& x, double start, int threads) {
  std::vector<double> of_row(static_cast<size_t>(x.rows()), 0.0);            // a maximum has the same bits in any order
  parallel_for(threads, x.rows(), [&](int64_t r) {
    double amax = 0;
    for (int64_t c = 0; c < x.cols(); ++c) amax = larger(amax, x(r, c));
    of_row[static_cast<size_t>(r)] = amax;
  });
  double amax = 0;
  for (double of : of_row) amax = larger(amax, of);
  if (x.size() == 0 || std::isnan(start)) return start;                      // nothing joins it; a NaN that the slot held stays
  return start > amax ? start : amax;
}

void scaled_codes(const float* x, int64_t n, double multiplier, NegZero neg_zero, const Encoder cast, uint8_t* codes) {
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(cast(scaled(x[i], multiplier, neg_zero)));
}

double max_of(Encoding element) {
  static const std::vector<double> largest = [] {
    std::vector<double> of;
    for (size_t e = 0; e < kFloatEncodings; ++e) of.push_back(value_of(static_cast<Encoding>(e), kEncodings[e].max_finite));
    return of;
  }();
  return largest[static_cast<size_t>(element)];
}

Bytes per_tensor_elements(const Values& x, double scale, Encoding element, NegZero neg_zero, int threads) {
  const Encoder cast(element, Round::rne, Overflow::sat);
  Bytes codes(x.rows(), x.cols());
  parallel_for(threads, x.rows(), [&](int64_t r) {
    scaled_codes(x.data() + r * x.cols(), x.cols(), scale, neg_zero, cast, codes.data() + r * x.cols());   // N3.8
  });
  return codes;
}

void store_per_tensor_data(const Run& run, Direction d, const Bytes& codes) {
  store(run.output(d, "data"), d == Direction::col ? transposed(codes, run.threads) : codes);   // N3.9, N6.1
}

namespace {

// The largest power of two not above |scale|, with the sign of scale; what clearing the mantissa of a normal value leaves.
double floored_to_power_of_two(double scale) {
  if (scale == 0) return scale;
  int exponent;
  std::frexp(scale, &exponent);                                              // |scale| in [2^(exponent-1), 2^exponent)
  return std::copysign(power_of_two(exponent - 1), scale);
}

}  // namespace

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

void divided_scale_chain(const Run& run) {
  const Values amax = values(run.input("x"), run.threads);
  const Buffer &scale = run.output("scale"), &scale_inv = run.output("scale_inv");
  parallel_for(run.threads, amax.size(), [&](int64_t i) {
    const Chain chain = chain_of(amax.data()[i], run.quantizer(Direction::row), run.problem.x.source);
    store(scale, i, f32_code(chain.scale));
    store(scale_inv, i, f32_code(chain.scale_inv));
  });
}

std::vector<TraceStep> trace_chain(double amax, const Quantizer& q, Encoding source, std::string_view of) {
  const Chain chain = chain_of(amax, q, source);
  return {value_step("N3.1", "amax" + std::string(of), amax), value_step("N3.2", "amax, at least eps", chain.least),
          value_step("N3.3", "MAX", max_of(q.element)), value_step("N3.3", "scale (N3.4 to N3.6 applied)", chain.scale),
          value_step("N3.7", "decode scale", chain.scale_inv)};
}

std::vector<TraceStep> trace_dequantize(const Run& run, Direction d, int64_t row, int64_t col, std::vector<TraceStep> scale_steps, double scale,
                                        const std::string& clause) {
  const ConstBuffer& data = run.input(d, "data");
  const auto [i, j] = stored_at(*data.plane, row, col);
  const Encoding element = data.plane->encoding, out = run.problem.as<Dequantize>()->out;
  const uint32_t code = load(data, i * data.plane->padded.cols + j);
  const double value = value_of(element, code);
  std::vector<TraceStep> steps = {code_step("N6.1", "element code", element, code), value_step("N2.8", "element value", value)};
  for (TraceStep& step : scale_steps) steps.push_back(std::move(step));
  steps.push_back(value_step(clause, "decode scale", scale));
  steps.push_back(value_step(clause, "value * decode scale", narrowed(value * scale)));
  steps.push_back(code_step(clause, "rounded to the output", out, dequantized(value, scale, Encoder(out, Round::rne, Overflow::nosat))));
  return steps;
}

void dequantize_per_tensor(const Run& run, Direction d) {
  const double scale_inv = scalar(run.input(d, "scale_inv"));
  dequantize_each(run, d, [=](int64_t, int64_t) { return scale_inv; });      // N3.10
}

std::vector<TraceStep> trace_dequantize_per_tensor(const Run& run, Direction d, int64_t row, int64_t col) {
  return trace_dequantize(run, d, row, col, {}, scalar(run.input(d, "scale_inv")), "N3.10");
}

TraceStep value_step(std::string clause, std::string what, double value) {
  return {std::move(clause), std::move(what), Encoding::f32, f32_code(value)};
}

TraceStep code_step(std::string clause, std::string what, Encoding encoding, uint32_t code) {
  return {std::move(clause), std::move(what), encoding, code};
}

std::vector<TraceStep> trace_element(double x, double multiplier, const Quantizer& q, const std::string& clause) {
  const double product = scaled(x, multiplier, q.numerics.neg_zero);
  return {value_step("N1.2", "element", x), value_step(clause, "element * multiplier", product),
          code_step("N2.1", "code", q.element, Encoder(q.element, Round::rne, Overflow::sat)(product))};
}

}  // namespace assay::reference
