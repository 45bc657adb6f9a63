#include "reference/scaling.h"

namespace assay::reference {

namespace {

// max |x| of each row, from +0.
Values row_amaxes(const Values& x, int threads) {
  Values of_row(x.rows(), 1);
  parallel_for(threads, x.rows(), [&](int64_t r) {
    double amax = 0;
    for (int64_t c = 0; c < x.cols(); ++c) amax = larger(amax, x(r, c));
    of_row(r, 0) = static_cast<float>(amax);  // exact
  });
  return of_row;
}

}  // namespace

double tensor_amax(const Values& x, double start, int threads) {
  const Values of_row = row_amaxes(x, threads);  // a maximum has the same bits in any order
  double amax = 0;
  for (int64_t r = 0; r < x.rows(); ++r) amax = larger(amax, of_row(r, 0));
  if (x.size() == 0 || std::isnan(start)) return start;  // nothing joins it; a NaN that the slot held stays
  return start > amax ? start : amax;
}

Values amaxes(const Run& run, Direction d, const Values& x) {
  const Quantizer& q = run.quantizer(d);
  if (q.row_scaled) return row_amaxes(x, run.threads);  // N3.12, N10.9
  const double amax =
      q.amax ? scalar(run.input(d, "given.amax")) : tensor_amax(x, 0.0, run.threads);  // N3.1, N10.1, N11.4
  return Values::Constant(1, 1, static_cast<float>(amax));                             // exact
}

const char* whose_amax(const Quantizer& q) {
  return q.amax ? " (given)" : q.row_scaled ? " of the stored row" : " of the tensor";
}

Divider::Divider(const Quantizer& q, Encoding source) : rule_(q.numerics.scale_division) {
  if (rule_ == ScaleDivision::in_source && source != Encoding::f32)
    grid_.emplace(source);  // N17.14: a binary32 value is one already
}

std::vector<TraceStep> Divider::trace_encode(double amax) const {
  if (rule_ == ScaleDivision::divide) return {};
  return {value_step("N17.14", "1 / amax", quotient(1, amax))};
}
std::vector<TraceStep> Divider::trace_decode(const char* what, double most) const {
  if (rule_ != ScaleDivision::reciprocal) return {};
  return {value_step("N17.14", what, narrowed(1 / most))};
}

ElementCast::ElementCast(const Quantizer& q)
    : neg_zero_(q.numerics.neg_zero),
      nan_sign_(q.numerics.nan_code != NanCode::positive),
      cast_(q.element, Round::rne,
            q.numerics.element_overflow == ElementOverflow::nan ? Overflow::nosat : Overflow::sat,
            q.numerics.element_ties),  // N17.2, N17.1
      sign_(uint32_t{1} << (info(q.element).bits - 1)),
      nan_code_(q.numerics.nan_code == NanCode::negative ? cast_(kNaN) | sign_ : sign_) {      // N17.16
  if (q.numerics.pre_round == PreRound::bf16) pre_round_.emplace(Encoding::bf16);              // N17.3
  if (q.numerics.pre_round == PreRound::f16) pre_round_.emplace(Encoding::f16);                // N17.3
  if (q.numerics.pre_round == PreRound::f16_rz) pre_round_.emplace(Encoding::f16, Round::rz);  // N17.3
}

void ElementCast::codes(const float* x, int64_t n, const ElementFactor& factor, uint8_t* out) const {
  if (pre_round_ || neg_zero_ == NegZero::drop || nan_sign_) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>((*this)(scaled(x[i], factor)));
    return;
  }
  const Encoder cast = cast_;  // stores of bytes could alias what is shared
  const ElementFactor by = factor;
  const NegZero zero = neg_zero_;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(cast(narrowed_once(x[i], by, zero)));
}

double max_of(Encoding element) {
  static const std::vector<double> largest = [] {
    std::vector<double> of;
    for (size_t e = 0; e < kFloatEncodings; ++e)
      of.push_back(value_of(static_cast<Encoding>(e), kEncodings[e].max_finite));
    return of;
  }();
  return largest[static_cast<size_t>(element)];
}

Bytes per_tensor_elements(const Values& x, const std::vector<ElementFactor>& factors, const Quantizer& q,
                          int threads) {
  const ElementCast cast(q);
  Bytes codes(x.rows(), x.cols());
  parallel_for(threads, x.rows(), [&](int64_t r) {
    cast.codes(x.data() + r * x.cols(), x.cols(), factors[static_cast<size_t>(scale_row(q, r))],
               codes.data() + r * x.cols());  // N3.8, N3.12
  });
  return codes;
}

namespace {

// The largest power of two not above |scale|, with the sign of scale; what clearing the mantissa of a normal
// value leaves.
double floored_to_power_of_two(double scale) {
  if (scale == 0) return scale;
  int exponent;
  std::frexp(scale, &exponent);  // |scale| in [2^(exponent-1), 2^exponent)
  return std::copysign(power_of_two(exponent - 1), scale);
}

// N17.15: the distance from 1 to the next value.
double epsilon_of(Encoding source) {
  return power_of_two(source == Encoding::bf16 ? -7 : source == Encoding::f16 ? -10 : -23);
}

// N17.5: the least power of two not below |d|, 2^-149 at least; an infinite d stays.
double raised_to_power_of_two(double d) {
  if (d == 0) return power_of_two(-149);
  if (!std::isfinite(d)) return d;
  const double below = floored_to_power_of_two(d);
  return below == d ? d : 2 * below;
}

}  // namespace

Chain chain_of(double amax, const Quantizer& q, Encoding source) {
  Chain c;
  const Divider division(q, source);
  const double eps = value_of(Encoding::f32, q.eps);
  c.least = amax < eps ? eps : amax;  // N3.2: false for NaN
  const bool infinite = std::isinf(c.least);
  const bool special =
      c.least == 0 || std::isnan(c.least) || (infinite && q.numerics.inf_amax == InfAmax::unit);
  if (c.least == 0 && q.numerics.zero_amax == ZeroAmax::divided) {  // N17.15
    const bool divides = q.numerics.scale_order == ScaleOrder::decode_divide;
    return {c.least, kInfinity, 0, divides ? ElementFactor{0, true} : ElementFactor{kInfinity}};
  }
  if (q.numerics.scale_order != ScaleOrder::encode_first) {
    double d = special ? 1 : division.decode(c.least, max_of(q.element));  // N3.4, N17.5, N17.14
    if ((d == 0 || c.least == 0) && q.numerics.zero_amax == ZeroAmax::epsilon)
      d = epsilon_of(source);                               // N17.15
    if (q.pow2 && !special) d = raised_to_power_of_two(d);  // N17.5
    const Chain decoded = chain_from(d, q, source);
    return {c.least, decoded.scale, decoded.scale_inv, decoded.factor};
  }
  if (c.least == 0 && q.numerics.zero_amax == ZeroAmax::epsilon) {
    c.scale = 1 / epsilon_of(source);  // N17.15
  } else if (special) {
    c.scale = 1;  // N3.4
  } else {
    c.scale = division.encode(max_of(q.element), c.least);  // N3.3, N17.14
    if (std::isinf(c.scale))                                // N3.5
      c.scale = max_of(q.numerics.scale_limit == ScaleLimit::source_max ? source : Encoding::f32);
    if (q.pow2) c.scale = floored_to_power_of_two(c.scale);  // N3.6
  }
  c.scale_inv = division.quotient(1, c.scale);  // N3.7, N17.14
  c.factor = {c.scale};                         // N3.8
  return c;
}

Chain chain_from(double scale_inv, const Quantizer& q, Encoding source) {
  Chain c{kNaN, Divider(q, source).quotient(1, scale_inv), scale_inv, {}};  // N17.5, N17.14
  c.factor = q.numerics.scale_order == ScaleOrder::decode_divide ? ElementFactor{scale_inv, true}
                                                                 : ElementFactor{c.scale};  // N17.5
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
  std::vector<TraceStep> steps = {value_step("N3.1", "amax" + std::string(of), amax),
                                  value_step("N3.2", "amax, at least eps", chain.least),
                                  value_step("N3.3", "MAX", max_of(q.element))};
  const Divider division(q, source);
  const bool decodes = q.numerics.scale_order != ScaleOrder::encode_first;
  for (TraceStep& step :
       decodes ? division.trace_decode("1 / MAX", max_of(q.element)) : division.trace_encode(chain.least))
    steps.push_back(std::move(step));
  if (decodes) {
    steps.push_back(value_step(division.cites("N17.5"), "decode scale (N3.4 applied)", chain.scale_inv));
    steps.push_back(value_step("N17.5", "scale", chain.scale));
  } else {
    steps.push_back(value_step(division.cites("N3.3"), "scale (N3.4 to N3.6 applied)", chain.scale));
    steps.push_back(value_step("N3.7", "decode scale", chain.scale_inv));
  }
  return steps;
}

Tracer trace_divided_scale_chain(const Run& run) {
  return [=, amax = values(run.input("x"), run.threads)](int64_t row, int64_t col) {
    return trace_chain(amax(row, col), run.quantizer(Direction::row), run.problem.x.source, "");
  };
}

std::vector<TraceStep> trace_dequantize(const Run& run, Direction d, int64_t row, int64_t col,
                                        std::vector<TraceStep> scale_steps, double scale,
                                        const std::string& clause) {
  const ConstBuffer& data = run.input(d, "data");
  const auto [i, j] = stored_at(*data.plane, row, col);
  const Encoding element = data.plane->encoding, out = run.problem.as<Dequantize>()->out;
  const uint32_t code = load(data, i * data.plane->padded.cols + j);
  const double value = value_of(element, code);
  std::vector<TraceStep> steps = {code_step("N6.1", "element code", element, code),
                                  value_step("N2.8", "element value", value)};
  for (TraceStep& step : scale_steps) steps.push_back(std::move(step));
  steps.push_back(value_step(clause, "decode scale", scale));
  steps.push_back(value_step(clause, "value * decode scale", narrowed(value * scale)));
  steps.push_back(code_step(clause, "rounded to the output", out,
                            dequantized(value, scale, Encoder(out, Round::rne, Overflow::nosat))));
  return steps;
}

void dequantize_per_tensor(const Run& run, Direction d) {
  const Values scale_inv = values(run.input(d, "scale_inv"), run.threads);
  dequantize_each(run, d, [&](int64_t i, int64_t) {
    return scale_inv(scale_row(run.quantizer(d), i), 0);
  });  // N3.10, N3.12
}

Tracer trace_dequantize_per_tensor(const Run& run, Direction d) {
  return [=, scale_inv = values(run.input(d, "scale_inv"), run.threads)](int64_t row, int64_t col) {
    const auto [i, j] = stored_at(*run.input(d, "data").plane, row, col);
    return trace_dequantize(run, d, row, col, {}, scale_inv(scale_row(run.quantizer(d), i), 0), "N3.10");
  };
}

TraceStep value_step(std::string clause, std::string what, double value) {
  return {std::move(clause), std::move(what), Encoding::f32, f32_code(value)};
}

TraceStep code_step(std::string clause, std::string what, Encoding encoding, uint32_t code) {
  return {std::move(clause), std::move(what), encoding, code};
}

std::vector<TraceStep> trace_element(double x, const ElementFactor& factor, const Quantizer& q,
                                     const std::string& clause) {
  const ElementCast cast(q);
  std::vector<TraceStep> steps = {
      value_step("N1.2", "element", x),
      value_step(clause, factor.divides ? "element / divisor" : "element * multiplier",
                 cast.narrowed_once(x, factor))};
  const double scaled = cast.scaled(x, factor);
  if (q.numerics.pre_round != PreRound::none)
    steps.push_back(value_step(
        "N17.3", q.numerics.pre_round == PreRound::bf16 ? "rounded to bf16" : "cut to f16", scaled));
  steps.push_back(code_step(q.numerics.element_ties == ElementTies::even ? "N2.1" : "N17.1", "code",
                            q.element, cast(scaled)));
  return steps;
}

}  // namespace assay::reference
