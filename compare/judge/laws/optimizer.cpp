#include "compare/judge/laws/optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/judge/laws/rounding.h"

namespace assay {

namespace {

double number(F32Bits bits) { return static_cast<double>(std::bit_cast<float>(bits)); }

// Whether N19.8 speaks of a value: zero, or normal in binary32 with room to spare.
bool spoken_of(double v) {
  const double a = std::fabs(v);
  return a == 0 || (a >= 0x1p-125 && a < 0x1p126);
}
template <class... V> bool all_spoken_of(V... v) { return (spoken_of(v) && ...); }

// The last place of a binary32 value of this magnitude.
double last_place(double v) { return v == 0 ? 0x1p-149 : std::ldexp(1.0, std::ilogb(v) - 23); }
// Half a unit of an encoding of 16 bits at v, which a store may add (N19.5).
double store_slack(Encoding e, double v) {
  if (e == Encoding::f32) return 0;
  return std::max(std::fabs(v) * (e == Encoding::bf16 ? 0x1p-8 : 0x1p-11), 0x1p-25);
}

// One element in the judge's own doubles.
struct AdamBounds {
  struct Element {
    double m, dm, v, dv;  // values and how far a step may be from them
  };
  explicit AdamBounds(const Adam& op)
      : op(op),
        lr(number(op.lr)),
        beta1(number(op.beta1)),
        beta2(number(op.beta2)),
        eps(number(op.eps)),
        decay(number(op.decay)),
        c1(op.bias_correction ? 1 - std::pow(beta1, op.step) : 1),
        c2(op.bias_correction ? 1 - std::pow(beta2, op.step) : 1) {}

  bool l2() const { return op.decoupling == WeightDecay::l2; }
  Element moments(double g, double p, double m, double v) const {
    const double added = l2() ? decay * p : 0, grad = g + added,
                 off = l2() ? 2 * last_place(std::max(std::fabs(g), std::fabs(added))) : 0;
    const double m1 = beta1 * m, m2 = (1 - beta1) * grad, v1 = beta2 * v, v2 = (1 - beta2) * grad * grad;
    // In last places of the larger addend: 1 - beta at most one, each product a half (the second of v' is
    // carried through the third: one more), the sum one where it reaches the next binade.
    return {m1 + m2, 3 * last_place(std::max(std::fabs(m1), std::fabs(m2))) + off, v1 + v2,
            4 * last_place(std::max(v1, v2)) + 3 * std::fabs(grad) * off};
  }
  // The new parameter from the new moments, and how far it may be.
  struct Parameter {
    double p, dp;
    bool spoken;
  };
  Parameter parameter(double p, double m, double v, double moment_error) const {
    const double root = std::sqrt(v / c2), ratio = (m / c1) / (root + eps),
                 update = ratio + (l2() ? 0 : decay * p);
    // N19.3 rounds decay p, and its sum with the ratio; lr may make that more than a last place of p.
    const double decayed = l2() || decay == 0 ? 0 : std::fabs(lr * decay * p) + std::fabs(lr * update);
    const double slack = 2 * last_place(std::max(std::fabs(p), std::fabs(lr * update))) + 0x1p-24 * decayed;
    // A negative eps cancels the root, whose error then weighs more. Where the error is as large as half of
    // the sum, the sum may be 0 and the quotient infinite.
    const double grows = eps < 0 ? (root - eps) / std::fabs(root + eps) : 1;
    const double share = (0x1p-19 + moment_error) * grows;
    return {p - lr * update, slack + share / (1 - share) * std::fabs(lr * ratio),
            share < 0.5 && all_spoken_of(m / c1, v / c2, ratio, update, lr * update, p - lr * update)};
  }

  const Adam& op;
  double lr, beta1, beta2, eps, decay, c1, c2;
};

}  // namespace

void check_adam(LawRecord& laws) {
  const AdamBounds bounds(*laws.problem.as<Adam>());
  const Encoding moments = bounds.op.moments, parameter = bounds.op.parameter;
  const PlaneData &x = laws.in("x"), &p = laws.in("p"), &m = laws.in("m"), &v = laws.in("v");
  const PlaneData &next_m = laws.out("next.m"), &next_v = laws.out("next.v"), &next_p = laws.out("next.p");
  laws.begin("bound");
  const auto hold = [&](const PlaneData& plane, int64_t r, int64_t c, double want, double slack) {
    const double got = value(plane, r, c);
    if (std::fabs(got - want) <= slack) return;
    laws.breach(plane, r, c, [&] {
      return fmt::format("expected {} within {} (N19.8), found {}", number_text(want), number_text(slack),
                         number_text(got));
    });
  };
  for (int64_t r = 0; r < laws.problem.x.shape.rows; ++r)
    for (int64_t c = 0; c < laws.problem.x.shape.cols; ++c) {
      const double g = value(x, r, c), old = value(p, r, c);
      if (!all_spoken_of(g, old, value(m, r, c), value(v, r, c), bounds.decay * old)) continue;
      const auto e = bounds.moments(g, old, value(m, r, c), value(v, r, c));
      if (!all_spoken_of(e.m, e.v, (1 - bounds.beta1) * g, (1 - bounds.beta2) * g, (1 - bounds.beta2) * g * g,
                         bounds.beta1 * value(m, r, c), bounds.beta2 * value(v, r, c)))
        continue;
      hold(next_m, r, c, e.m, e.dm + store_slack(moments, e.m));
      hold(next_v, r, c, e.v, e.dv + store_slack(moments, e.v));
      const auto after = bounds.parameter(old, value(next_m, r, c), value(next_v, r, c),
                                          moments == Encoding::f32 ? 0 : 0x1p-6);  // from bf16 (N19.8)
      // Where the bound reaches beyond the largest value, an infinity may be right.
      if (after.spoken && std::fabs(after.p) + after.dp < value_of(parameter, info(parameter).max_finite))
        hold(next_p, r, c, after.p, after.dp + store_slack(parameter, after.p));
    }
}

void check_scale_state(LawRecord& laws) {
  const ScaleState& op = *laws.problem.as<ScaleState>();
  const PlaneData &x = laws.in("x"), &y = laws.out("y");
  const PlaneData& scale = op.inverse ? laws.in("scale") : laws.out("scale");
  const Shape s = laws.problem.x.shape;
  const double factor = value(op.inverse ? scale : laws.out("multiplier"), 0, 0);
  if (!op.inverse) {
    laws.begin("range");
    double amax = 0;
    for (int64_t i = 0; i < s.count(); ++i) {
      const double a = std::fabs(value(x, i / s.cols, i % s.cols));
      amax = std::isnan(amax) || std::isnan(a) ? NAN : std::max(amax, a);
    }
    const double most = op.to == Encoding::f16 ? 32752 : 448, want = amax / most, got = value(scale, 0, 0);
    // Rounding a quotient of binary32 values to binary64 first leaves its binary32 value as it is.
    const bool right = std::isnan(want) ? std::isnan(got) : got == static_cast<float>(want);
    if (!right)
      laws.breach(scale, 0, 0, [&] {
        return fmt::format("the largest magnitude is {}, so the scale is {} (N19.6)", number_text(amax),
                           number_text(want));
      });
  }
  laws.begin("half-step");
  for (int64_t r = 0; r < s.rows; ++r)
    for (int64_t c = 0; c < s.cols; ++c) {
      const double v = value(x, r, c) * factor;
      const bool stands = !std::isfinite(v) || static_cast<double>(static_cast<float>(v)) == v;
      const double slack = stands ? 0 : std::fabs(v) * 0x1p-24 + 0x1p-149;
      const std::string wrong = nearest(y.plane.encoding, code(y, r, c), v, slack,
                                        {.saturates = !op.inverse && op.to == Encoding::e4m3});
      if (!wrong.empty()) laws.breach(y, r, c, [&] { return wrong; });
    }
}

}  // namespace assay
