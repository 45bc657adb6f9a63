// Predicates of the steps of one element.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/rounding/cases.h"
#include "compare/rounding/predicates.h"

namespace assay::rounding {

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
}

double Moment::value() const { return value_of(self_.encoding, self_.bits); }

double Moment::before() const { return value_of(Encoding::f32, before_); }

const TraceStep* Step::find(std::string_view names) const {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const TraceStep& s) { return names_step(names, s.what); });
  return found == all.end() ? nullptr : &*found;
}

double Step::of(std::string_view names) const {
  const TraceStep* s = find(names);
  return s ? value_of(s->encoding, s->bits) : kNaN;
}

namespace predicates {

namespace {

constexpr float kMost = std::numeric_limits<float>::max();
const float kInf = std::numeric_limits<float>::infinity();

bool finite(double v) { return std::isfinite(v); }
bool is_power(double v) {
  int exponent;
  return finite(v) && v != 0 && std::fabs(std::frexp(v, &exponent)) == 0.5;
}

// A code and what it was rounded from, as magnitudes on the grid of its encoding.
struct Rounding {
  explicit Rounding(const Moment& s)
      : e(s.self().encoding),
        code(s.self().bits),
        sign(info(e).has_sign() ? sign_bit(e) : 0),
        magnitude(sign ? code & (sign - 1) : code),
        from(s.before()),
        v(std::fabs(from)),
        to(std::fabs(value_of(e, magnitude))),
        largest(value_of(e, info(e).max_finite)),
        least(value_of(e, 1)),
        least_normal(std::ldexp(1.0, 1 - info(e).bias)),
        number(finite(v) && finite(to)) {}

  double step() const { return step_at(e, std::min(v, largest)); }
  double lower() const { return std::floor(v / step()) * step(); }
  bool lower_even() const { return std::fmod(lower() / step(), 2) == 0; }
  bool tie(double of) const {
    const double unit = step_at(e, std::min(of, largest));
    return std::fmod(of, unit) == unit / 2;
  }
  // The next binary32 magnitude, up or down.
  double next(float towards) const { return std::nextafterf(static_cast<float>(v), towards); }
  double end() const { return largest + step_at(e, largest) / 2; }
  // Between zero and the end: where values round to neighbours.
  bool inside() const { return number && v > 0 && v < largest; }

  Encoding e;
  uint32_t code, sign, magnitude;
  double from, v, to, largest, least, least_normal;
  bool number;
};

bool neighbour_is_tie(const Moment& s, float towards, bool even) {
  const Rounding r(s);
  if (!r.inside()) return false;
  const double next = r.next(towards);
  return next < r.largest && next > 0 && r.tie(next) && step_at(r.e, next) == r.step() &&
         r.lower_even() == even;
}

// Of an E8M0 code: the value that it stands for, and the magnitude that it was made from.
struct Scale {
  explicit Scale(const Moment& s) : code(s.self().bits), from(std::fabs(s.before())), to(s.value()) {}
  uint32_t code;
  double from, to;
};

}  // namespace

bool any(const Moment&) { return true; }
bool zero(const Moment& s) { return s.value() == 0; }
bool minus_zero(const Moment& s) { return s.value() == 0 && std::signbit(s.value()); }
bool subnormal(const Moment& s) { return is_subnormal(Encoding::f32, s.value()); }
bool normal(const Moment& s) { return finite(s.value()) && s.value() != 0 && !subnormal(s); }
bool negative(const Moment& s) { return finite(s.value()) && s.value() < 0; }
bool largest(const Moment& s) { return s.value() == static_cast<double>(kMost); }
bool source_largest(const Moment& s) {
  const Encoding source = s.lane.problem.x.source;
  return source != Encoding::f32 && s.value() == value_of(source, info(source).max_finite);
}
bool infinite(const Moment& s) { return std::isinf(s.value()) && s.value() > 0; }
bool minus_infinite(const Moment& s) { return std::isinf(s.value()) && s.value() < 0; }
bool nan(const Moment& s) { return std::isnan(s.value()); }
bool one(const Moment& s) { return s.value() == 1; }
bool power_of_two(const Moment& s) { return is_power(s.value()); }
bool largest_power(const Moment& s) { return s.value() == 0x1p127; }
bool largest_bf16(const Moment& s) { return s.value() == 0x1.fep127; }
bool least_f32(const Moment& s) { return s.value() == 0x1p-149; }
bool least_e4m3(const Moment& s) { return s.value() == 0x1p-9; }
bool least_normal_e4m3(const Moment& s) { return s.value() == 0x1p-6; }
bool tiny(const Moment& s) { return s.value() == static_cast<double>(1e-8f); }
bool masked(const Moment& s) { return s.value() == -10000; }
bool source_subnormal(const Moment& s) { return is_subnormal(s.lane.problem.x.source, s.value()); }
bool underflowed(const Moment& s) { return s.value() == 0 && s.before() != 0 && finite(s.before()); }
bool one_of_infinity(const Step& s) { return one(s) && std::isinf(s.of("amax*")); }
bool one_of_nan(const Step& s) { return one(s) && std::isnan(s.of("amax*")); }
bool largest_of_nan(const Step& s) { return largest(s) && std::isnan(s.of("amax*")); }
bool between_powers(const Moment& s) { return normal(s) && !is_power(s.value()); }
bool equals_before(const Moment& s) { return s.value() == s.before(); }
bool differs_from_before(const Moment& s) { return !equals_before(s) && !nan(s); }

bool exact(const Moment& s) {
  const Rounding r(s);
  return r.number && r.v == r.to && r.v != 0;
}
bool rounds_down(const Moment& s) {
  const Rounding r(s);
  return r.inside() && r.to != 0 && r.to < r.v && !r.tie(r.v);
}
bool rounds_up(const Moment& s) {
  const Rounding r(s);
  return r.inside() && r.to > r.v && !r.tie(r.v);
}
bool tie_above_even(const Moment& s) {
  const Rounding r(s);
  return r.inside() && r.tie(r.v) && r.lower_even();
}
bool tie_above_odd(const Moment& s) {
  const Rounding r(s);
  return r.inside() && r.tie(r.v) && !r.lower_even();
}
bool below_tie_above_even(const Moment& s) { return neighbour_is_tie(s, kInf, true); }
bool below_tie_above_odd(const Moment& s) { return neighbour_is_tie(s, kInf, false); }
bool over_tie_above_even(const Moment& s) { return neighbour_is_tie(s, 0, true); }
bool over_tie_above_odd(const Moment& s) { return neighbour_is_tie(s, 0, false); }
bool subnormal_code(const Moment& s) {
  const Rounding r(s);
  return r.number && r.to != 0 && r.to < r.least_normal;
}
bool least_code(const Moment& s) {
  const Rounding r(s);
  return r.number && r.magnitude == 1;
}
bool tie_at_least(const Moment& s) {
  const Rounding r(s);
  return r.v == r.least / 2;
}
bool over_tie_at_least(const Moment& s) {
  const Rounding r(s);
  return finite(r.v) && r.v > 0 && r.next(0) == r.least / 2;
}
bool underflows(const Moment& s) {
  const Rounding r(s);
  return r.from > 0 && finite(r.from) && r.to == 0;
}
bool negative_underflows(const Moment& s) {
  const Rounding r(s);
  return r.from < 0 && finite(r.from) && r.to == 0;
}
bool carries(const Moment& s) {
  const Rounding r(s);
  return r.number && r.to > r.v && is_power(r.to) && r.to > r.least_normal;
}
bool becomes_normal(const Moment& s) {
  const Rounding r(s);
  return r.number && r.v < r.to && r.to == r.least_normal;
}
bool exactly_largest(const Moment& s) {
  const Rounding r(s);
  return r.number && r.v == r.largest;
}
bool rounds_to_largest(const Moment& s) {
  const Rounding r(s);
  return r.number && r.v > r.largest && r.v < r.end() && r.to == r.largest;
}
bool tie_beyond_largest(const Moment& s) {
  const Rounding r(s);
  return r.v == r.end();
}
bool saturates(const Moment& s) {
  const Rounding r(s);
  return r.number && r.v > r.end() && r.to == r.largest;
}
bool overflows_to_infinity(const Moment& s) {
  const Rounding r(s);
  return finite(r.v) && std::isinf(r.to);
}
bool overflows_to_nan(const Moment& s) {
  const Rounding r(s);
  return finite(r.v) && is_nan(r.e, r.code);
}
bool infinity_saturates(const Moment& s) {
  const Rounding r(s);
  return std::isinf(r.v) && r.to == r.largest;
}
bool infinity_stays(const Moment& s) {
  const Rounding r(s);
  return std::isinf(r.v) && std::isinf(r.to);
}
bool infinity_to_nan(const Moment& s) {
  const Rounding r(s);
  return std::isinf(r.v) && is_nan(r.e, r.code);
}
bool nan_to_nan(const Moment& s) {
  return std::isnan(s.before()) && is_nan(s.self().encoding, s.self().bits);
}
bool nan_to_number(const Moment& s) {
  return std::isnan(s.before()) && !is_nan(s.self().encoding, s.self().bits);
}
bool zero_code(const Moment& s) { return Rounding(s).to == 0; }
bool largest_code(const Moment& s) { return Rounding(s).magnitude == info(s.self().encoding).max_finite; }
bool zero_bits(const Moment& s) { return s.self().bits == 0; }
bool own_subnormal(const Moment& s) {
  return is_subnormal(s.self().encoding, s.value()) && std::isfinite(s.value());
}
bool nan_to_minus_zero(const Moment& s) {
  return std::isnan(s.before()) && s.self().bits == sign_bit(s.self().encoding);
}
bool one_of_zero(const Moment& s) { return s.value() == 1 && s.before() == 0; }
bool eighth_of_less(const Moment& s) { return s.value() == 0.125 && s.before() < 0x1p-9; }
bool nan_code(const Moment& s) { return is_nan(s.self().encoding, s.self().bits); }
bool sign_of_nan(const Moment& s) {
  return nan_code(s) && (s.self().bits & sign_bit(s.self().encoding)) != 0;
}
bool zero_loses_sign(const Moment& s) {
  const Rounding r(s);
  return std::signbit(r.from) && !std::isnan(r.from) && r.code == 0;
}

bool scale_exact(const Moment& s) {
  const Scale c(s);
  return finite(c.from) && c.from != 0 && c.from == c.to;
}
bool scale_up(const Moment& s) {
  const Scale c(s);
  return finite(c.from) && c.from != 0 && c.to > c.from && c.code != 0;
}
bool scale_down(const Moment& s) {
  const Scale c(s);
  return finite(c.from) && c.to < c.from && c.code != 0xFE;
}
bool scale_over_power(const Moment& s) {
  const Scale c(s);
  return finite(c.from) && c.from > 0 && is_power(std::nextafterf(static_cast<float>(c.from), 0));
}
bool scale_under_power(const Moment& s) {
  const Scale c(s);
  return finite(c.from) && c.from > 0 && is_power(std::nextafterf(static_cast<float>(c.from), kInf));
}
bool scale_least(const Moment& s) {
  const Scale c(s);
  return c.code == 0 && c.from != 0;
}
bool scale_of_zero(const Moment& s) {
  const Scale c(s);
  return c.code == 0 && c.from == 0;
}
bool scale_subnormal(const Moment& s) {
  const Scale c(s);
  return c.from > 0x1p-127 && c.from < 0x1p-126;
}
bool scale_of_infinity(const Moment& s) {
  const Scale c(s);
  return c.code == 0xFE && std::isinf(c.from);
}
bool scale_infinity_nan(const Moment& s) {
  const Scale c(s);
  return c.code == 0xFF && std::isinf(c.from);
}
bool scale_beyond(const Moment& s) {
  const Scale c(s);
  return c.code == 0xFE && finite(c.from) && c.from > 0x1p127;
}
bool scale_exact_exponent(const Moment& s) { return is_power(s.before()); }
bool amax_between(const Moment& s) { return finite(s.before()) && s.before() != 0 && !is_power(s.before()); }
bool zero_bits_of_amax(const Moment& s) { return s.self().bits == 0 && s.before() != 0; }
bool scale_of_nan(const Moment& s) {
  const Scale c(s);
  return c.code == 0xFF && std::isnan(c.from);
}
bool scale_half(const Moment& s) {
  const Scale c(s);
  int exponent;
  return finite(c.from) && c.from != 0 && std::frexp(c.from, &exponent) == 0.75;
}

namespace {

// The amax of the element's block; of a tensor without blocks there is none.
constexpr std::string_view kBlockAmax =
    "amax of the block|amax of the 32x32 block|amax of the 16x16 block|amax of the 128x128 block";
// Whether the element is a NaN, and the amax of it and others is not.
bool ignored_by(const Step& s, std::string_view amax) {
  return s.find("element") && std::isnan(s.of("element")) && s.find(amax) && !std::isnan(s.of(amax));
}
// The amax that an E8M0 scale is made of: of the block, or the one of a scale_chain.
double chain_amax(const Step& s) { return s.of("amax*"); }

}  // namespace

bool nan_ignored(const Step& s) { return ignored_by(s, kBlockAmax); }
bool nan_ignored_in_tensor(const Step& s) {
  return ignored_by(s, "amax of the tensor|amax of the stored row");
}
bool is_amax(const Step& s) { return s.of("element") != 0 && std::fabs(s.of("element")) == s.of(kBlockAmax); }

namespace {

// The product of an element with its factor, or its quotient.
struct Product {
  explicit Product(const Step& s) : x(s.of("element")), y(s.value()) {}
  bool of_number() const { return finite(x) && x != 0; }
  double x, y;
};

}  // namespace

bool greatest_of_infinite_amax(const Step& s) { return s.self().bits == 0xFE && std::isinf(chain_amax(s)); }
bool nan_of_nan_amax(const Step& s) { return s.self().bits == 0xFF && std::isnan(chain_amax(s)); }
bool fills_binade_of_amax(const Step& s) {
  return finite(s.value()) && std::ilogb(s.value()) > std::ilogb(chain_amax(s));
}
bool stays_in_binade_of_amax(const Step& s) {
  return finite(s.value()) && std::ilogb(s.value()) == std::ilogb(chain_amax(s));
}
bool product_subnormal(const Step& s) {
  const Product p(s);
  return p.of_number() && is_subnormal(Encoding::f32, p.y);
}
bool product_underflows(const Step& s) {
  const Product p(s);
  return p.of_number() && p.y == 0;
}
bool product_overflows(const Step& s) {
  const Product p(s);
  return p.of_number() && std::isinf(p.y);
}
bool zero_becomes_nan(const Step& s) {
  const Product p(s);
  return p.x == 0 && std::isnan(p.y);
}
bool minus_zero_product(const Step& s) {
  const Product p(s);
  return p.x == 0 && p.y == 0 && std::signbit(p.y);
}
bool plus_zero_of_negative(const Step& s) {
  const Product p(s);
  return p.x == 0 && std::signbit(p.x) && p.y == 0 && !std::signbit(p.y);
}
bool minus_zero_of_positive(const Step& s) {
  const Product p(s);
  return p.x == 0 && !std::signbit(p.x) && p.y == 0 && std::signbit(p.y);
}
bool twice_rounded_differs(const Step& s) {
  // The code of what was rounded before is not that of the value itself.
  const TraceStep& code = s.all.back();
  return finite(s.before()) && element_code(code.encoding, s.before()) != code.bits;
}

bool same_candidates(const Step& s) { return s.of("scale for 4") == s.of("scale for 6"); }

namespace {

// Four over six: the two errors, and the scale that was taken.
struct Choice {
  explicit Choice(const Step& s)
      : error4(s.of("error of the scale for 4")),
        error6(s.of("error of the scale for 6")),
        four(s.of("scale") == s.of("scale for 4")),
        six(s.of("scale") == s.of("scale for 6")) {}
  double error4, error6;
  bool four, six;
};

}  // namespace

bool picks_four(const Step& s) {
  const Choice c(s);
  return c.error4 < c.error6 && c.four;
}
bool picks_six(const Step& s) {
  const Choice c(s);
  return c.error4 > c.error6 && c.six;
}
bool errors_nan(const Step& s) {
  const Choice c(s);
  return (std::isnan(c.error4) || std::isnan(c.error6)) && c.six;
}
bool errors_infinite(const Step& s) {
  const Choice c(s);
  return std::isinf(c.error4) && std::isinf(c.error6) && c.six;
}
bool errors_tie(const Step& s) {
  const Choice c(s);
  return c.error4 == c.error6 && c.six && !c.four;
}

namespace {

// How many of the 16 leaves of a rotated element `f` holds for.
template <class F> int leaves(const Step& s, F f) {
  int n = 0;
  for (const TraceStep& t : s.all)
    if (t.clause == "N11.1") n += f(value_of(t.encoding, t.bits)) ? 1 : 0;
  return n;
}

}  // namespace

bool sum_cancels(const Step& s) {
  return s.value() == 0 && leaves(s, [](double v) { return v != 0; }) > 0;
}
bool leaf_infinite(const Step& s) {
  const int above = leaves(s, [](double v) { return std::isinf(v) && v > 0; }),
            below = leaves(s, [](double v) { return std::isinf(v) && v < 0; });
  return std::isinf(s.value()) && (above > 0) != (below > 0);
}
bool leaves_infinite(const Step& s) {
  return std::isnan(s.value()) && leaves(s, [](double v) { return std::isinf(v); }) > 1 &&
         leaves(s, [](double v) { return std::isnan(v); }) == 0;
}
bool leaf_nan(const Step& s) {
  return std::isnan(s.value()) && leaves(s, [](double v) { return std::isnan(v); }) > 0;
}
bool sum_overflows(const Step& s) {
  return std::isinf(s.value()) && leaves(s, [](double v) { return !finite(v); }) == 0;
}

namespace {

// A code that a random byte decided: the value of the grid below the magnitude, and how far above it lies.
struct Drawn {
  explicit Drawn(const Step& s) : r(s), byte(s.of("random byte")) {
    if (!r.number || r.v >= r.largest) return;
    low = r.lower();
    fraction = (r.v - low) / r.step();
    inside = fraction > 0;
  }
  bool up() const { return inside && r.to > r.v; }
  Rounding r;
  double byte, low = 0, fraction = 0;
  bool inside = false;
};

}  // namespace

bool drawn_up(const Step& s) { return Drawn(s).up(); }
bool drawn_down(const Step& s) {
  const Drawn d(s);
  return d.inside && !d.up();
}
bool drawn_exact(const Step& s) {
  const Drawn d(s);
  return d.r.number && d.r.v == d.r.to && d.r.v != 0 && d.byte > 0;
}
bool drawn_first_up(const Step& s) {
  const Drawn d(s);
  return d.up() && std::floor(256 * d.fraction) + d.byte == 256;
}
bool drawn_last_down(const Step& s) {
  const Drawn d(s);
  return d.inside && !d.up() && std::floor(256 * d.fraction) + d.byte == 255;
}
bool drawn_beyond(const Moment& s) {
  const Rounding r(s);
  return r.number && r.v > r.largest;
}
bool drawn_from_zero(const Step& s) {
  const Drawn d(s);
  return d.up() && d.low == 0;
}
bool drawn_to_largest(const Step& s) {
  const Drawn d(s);
  return d.up() && d.r.to == d.r.largest;
}
bool draw_fraction_below(const Step& s) {
  const Drawn d(s);
  return d.inside && d.fraction < 0x1p-8;
}
bool byte_zero(const Moment& s) { return s.self().bits == 0; }
bool byte_full(const Moment& s) { return s.self().bits == 255; }

namespace {

double given(const Step& s, std::string_view plane, int64_t row) {
  const PlaneData* p = find_plane(s.lane.inputs, plane);
  return p ? value_of(Encoding::f32, code_at(p->plane, p->bytes, row * p->plane.padded.cols + s.col)) : kNaN;
}

}  // namespace

bool moved_from_history(const Step& s) { return s.value() > s.of("latest amax"); }
bool reduced_zero(const Step& s) { return given(s, "reduced", 0) == 0; }
bool reduced_other(const Step& s) { return std::fabs(given(s, "reduced", 0)) > 0; }
bool reduced_nan(const Step& s) {
  return find_plane(s.lane.inputs, "reduced") && std::isnan(given(s, "reduced", 0));
}
bool scale_stays(const Step& s) {
  const double amax = s.of("amax*");
  return s.value() == given(s, "scale", 0) && !(finite(amax) && amax > 0);
}
bool clamped_old_scale(const Step& s) { return largest(s) && std::isinf(given(s, "scale", 0)); }
bool history_nan(const Step& s) {
  const PlaneData* h = find_plane(s.lane.inputs, "history");
  for (int64_t i = 1; h && i < h->plane.logical.rows; ++i)
    if (std::isnan(given(s, "history", i)) && s.value() > 0) return true;
  return false;
}

}  // namespace predicates

}  // namespace assay::rounding
