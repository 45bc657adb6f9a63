#include "reference/adam.h"

#include <algorithm>
#include <cmath>

#include "reference/exact_sum.h"
#include "reference/parallel.h"
#include "reference/rounding.h"

namespace assay::reference {

namespace {

// The key's binary32 value.
double number(F32Bits bits) { return value_of(Encoding::f32, bits); }

// a * b + c rounded once. The product of two binary32 values is exact in binary64.
double fused(double a, double b, double c) {
  const double product = a * b;
  // Infinities, NaN and the sign of a zero are those of the two values' plain sum.
  if (!std::isfinite(product) || !std::isfinite(c) || product == 0 || c == 0) return narrowed(product + c);
  ExactSum sum;
  sum.add(product);
  sum.add(c);
  return sum.rounded();
}

// N19.2: a * b + c where every operation rounds, or the sum alone.
double sum_of(AdamRounding rounding, double a, double b, double c) {
  return rounding == AdamRounding::fma ? fused(a, b, c) : narrowed(narrowed(a * b) + c);
}

struct Step {
  explicit Step(const Adam& op)
      : rounding(op.adam),
        l2(op.decoupling == WeightDecay::l2),
        lr(number(op.lr)),
        beta1(number(op.beta1)),
        beta2(number(op.beta2)),
        eps(number(op.eps)),
        decay(number(op.decay)),
        rest1(narrowed(1 - beta1)),
        rest2(narrowed(1 - beta2)),
        c1(op.bias_correction ? bias_correction(beta1, op.step) : 1),
        c2(op.bias_correction ? bias_correction(beta2, op.step) : 1) {}

  struct Result {
    double g, m, v, numerator, denominator, update, p;
  };
  Result operator()(double g, double p, double m, double v) const {
    Result r{};
    r.g = l2 ? sum_of(rounding, decay, p, g) : g;                             // N19.3
    r.m = sum_of(rounding, beta1, m, narrowed(rest1 * r.g));                  // N19.2
    r.v = sum_of(rounding, beta2, v, narrowed(narrowed(rest2 * r.g) * r.g));  // N19.2
    r.numerator = narrowed(r.m / c1);                                         // N19.4
    r.denominator = narrowed(narrowed(std::sqrt(narrowed(r.v / c2))) + eps);  // N19.4
    r.update = narrowed(r.numerator / r.denominator);                         // N19.4
    if (!l2) r.update = sum_of(rounding, decay, p, r.update);                 // N19.3
    r.p = sum_of(rounding, -lr, r.update, p);                                 // N19.4
    return r;
  }

  AdamRounding rounding;
  bool l2;
  double lr, beta1, beta2, eps, decay, rest1, rest2, c1, c2;
};

struct Planes {
  explicit Planes(const Run& run)
      : g(run.input("x")), p(run.input("p")), m(run.input("m")), v(run.input("v")) {}
  const ConstBuffer &g, &p, &m, &v;
  Step::Result at(const Step& step, int64_t i) const {
    const auto value = [i](const ConstBuffer& b) { return value_of(b.plane->encoding, load(b, i)); };
    return step(value(g), value(p), value(m), value(v));
  }
};

// N19.5: what is stored of a result.
void put(const Buffer& to, const Encoder& encoder, int64_t i, double value) {
  store(to, i, to.plane->encoding == Encoding::f32 ? f32_code(value) : encoder(value));
}

}  // namespace

double bias_correction(double beta, int step) { return narrowed(1 - std::pow(beta, step)); }

void adam(const Run& run) {
  const Step step(*run.problem.as<Adam>());
  const Planes in(run);
  const Buffer &m = run.output("next.m"), &v = run.output("next.v"), &p = run.output("next.p");
  const Encoder moment(m.plane->encoding, Round::rne, Overflow::nosat),
      parameter(p.plane->encoding, Round::rne, Overflow::nosat);
  const int64_t cols = run.problem.x.shape.cols;
  parallel_for(run.threads, run.problem.x.shape.rows, [&](int64_t row) {
    for (int64_t i = row * cols; i < (row + 1) * cols; ++i) {
      const Step::Result r = in.at(step, i);
      put(m, moment, i, r.m);
      put(v, moment, i, r.v);
      put(p, parameter, i, r.p);
    }
  });
}

void scale_state(const Run& run) {
  const ScaleState& op = *run.problem.as<ScaleState>();
  const ConstBuffer& x = run.input("x");
  const Buffer& y = run.output("y");
  const int64_t count = run.problem.x.shape.count();
  const auto value = [&](int64_t i) { return value_of(x.plane->encoding, load(x, i)); };
  if (op.inverse) {  // N19.7
    const double scale = scalar(run.input("scale"));
    for (int64_t i = 0; i < count; ++i) store(y, i, f32_code(narrowed(value(i) * scale)));
    return;
  }
  double amax = 0;  // N19.6: a NaN stays
  for (int64_t i = 0; i < count; ++i) {
    const double magnitude = std::abs(value(i));
    amax = std::isnan(amax) || std::isnan(magnitude) ? kNaN : std::max(amax, magnitude);
  }
  const bool half = op.to == Encoding::f16;
  const double scale = narrowed(amax / (half ? 32752.0 : 448.0)),
               multiplier = half && !(scale > 0) ? 0 : narrowed(1 / scale);
  store_scalar(run.output("scale"), scale);
  store_scalar(run.output("multiplier"), multiplier);
  const Encoder encoder(op.to, Round::rne, half ? Overflow::nosat : Overflow::sat);
  for (int64_t i = 0; i < count; ++i) store(y, i, encoder(narrowed(value(i) * multiplier)));
}

Tracer trace_adam(const Run& run) {
  return [=, step = Step(*run.problem.as<Adam>())](int64_t row, int64_t col) -> std::vector<TraceStep> {
    const Planes in(run);
    const int64_t i = row * run.problem.x.shape.cols + col;
    const Step::Result r = in.at(step, i);
    const auto shown = [](const char* clause, const char* what, double v) {
      return TraceStep{clause, what, Encoding::f32, f32_code(v)};
    };
    const auto read = [&](const char* what, const ConstBuffer& b) {
      return TraceStep{"N19.1", what, b.plane->encoding, load(b, i)};
    };
    return {read("gradient", in.g),
            read("parameter", in.p),
            read("first moment", in.m),
            read("second moment", in.v),
            shown("N19.3", "gradient with its decay", r.g),
            shown("N19.2", "new first moment", r.m),
            shown("N19.2", "new second moment", r.v),
            shown("N19.1", "correction of the first moment", step.c1),
            shown("N19.1", "correction of the second moment", step.c2),
            shown("N19.4", "numerator", r.numerator),
            shown("N19.4", "denominator", r.denominator),
            shown("N19.3", "update with its decay", r.update),
            shown("N19.4", "new parameter", r.p)};
  };
}

}  // namespace assay::reference
