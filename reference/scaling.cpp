#include "reference/scaling.h"

#include "reference/parallel.h"

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

double max_of(Encoding element) { return value_of(element, info(element).max_finite); }

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

void dequantize_per_tensor(const Run& run, Direction d) {
  const ConstBuffer& data = run.input(d, "data");
  const double scale_inv = scalar(run.input(d, "scale_inv"));
  const Values stored = values(data, run.threads);                           // N2.8
  const Values q = data.plane->transposed ? transposed(stored, run.threads) : stored;   // N6.1
  const Buffer& y = run.output("y");
  const Encoder round(y.plane->encoding, Round::rne, Overflow::nosat);       // N2.3
  parallel_for(run.threads, q.rows(), [&](int64_t r) {
    for (int64_t c = 0; c < q.cols(); ++c) store(y, r * q.cols() + c, dequantized(q(r, c), scale_inv, round));   // N3.10
  });
}

std::vector<TraceStep> trace_dequantize_per_tensor(const Run& run, Direction d, int64_t row, int64_t col) {
  const ConstBuffer& data = run.input(d, "data");
  const Encoding element = data.plane->encoding, out = run.problem.as<Dequantize>()->out;
  const uint32_t code = load(data, data.plane->transposed ? col * data.plane->logical.cols + row : row * data.plane->logical.cols + col);
  const double value = value_of(element, code), scale_inv = scalar(run.input(d, "scale_inv"));
  return {code_step("N6.1", "element code", element, code), value_step("N2.8", "element value", value),
          value_step("N3.7", "decode scale", scale_inv), value_step("N3.10", "value * decode scale", narrowed(value * scale_inv)),
          code_step("N3.10", "rounded to the output", out, dequantized(value, scale_inv, Encoder(out, Round::rne, Overflow::nosat)))};
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
