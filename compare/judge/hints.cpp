#include "compare/judge/hints.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"

namespace assay {

namespace {

// The differences of a plane, and the pairs of codes that they are: of narrow codes each pair once, so that a
// rule about codes takes no longer where every element of a large plane differs.
struct Pattern {
  explicit Pattern(const Compared& compared) : c(compared) {
    constexpr size_t kNarrow = 8;  // bits
    if (info(e).bits > static_cast<int>(kNarrow)) return;
    std::vector<uint8_t> seen(size_t{1} << (2 * kNarrow));
    for (const int64_t i : c.differing) {
      const uint32_t g = got(i), w = want(i);
      if (uint8_t& pair = seen[g << kNarrow | w]; pair == 0) pair = 1, pairs.emplace_back(g, w);
    }
  }
  const Compared& c;
  const Plane& plane = c.want->plane;
  Encoding e = plane.encoding;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // of narrow codes: got and want
  uint32_t got(int64_t i) const { return code_at(plane, c.got->bytes, i); }
  uint32_t want(int64_t i) const { return code_at(plane, c.want->bytes, i); }
  // Whether f(got, want) holds for every difference.
  template <class F> bool all(F f) const {
    if (!pairs.empty())
      return std::all_of(pairs.begin(), pairs.end(), [&](const auto& p) { return f(p.first, p.second); });
    return std::all_of(c.differing.begin(), c.differing.end(), [&](int64_t i) { return f(got(i), want(i)); });
  }
  bool many() const { return c.differing.size() > 1; }
};

std::string one_value(const Pattern& p) {
  if (p.c.differing.size() < 8) return {};
  const uint32_t first = p.got(p.c.differing[0]), wanted = p.want(p.c.differing[0]);
  if (!p.all([&](uint32_t g, uint32_t) { return g == first; })) return {};
  // One value in place of another, neither of them zero, may be any error of a factor.
  const bool one_wanted = p.all([&](uint32_t, uint32_t w) { return w == wanted; });
  if (one_wanted && value_of(p.e, first) != 0 && value_of(p.e, wanted) != 0) return {};
  return fmt::format("the code {} in all of them: not written, or written with a constant",
                     code_hex(p.e, first));
}

std::string nan_only(const Pattern& p) {
  if (p.all([&](uint32_t g, uint32_t w) { return is_nan(p.e, g) && is_nan(p.e, w); }))
    return "NaN on both sides with other bits: which NaN is written (N1.3, N2.4)";
  if (p.all([&](uint32_t g, uint32_t) { return is_nan(p.e, g); }))
    return "NaN only on the judged side: NaN or infinity handling, not rounding";
  if (p.all([&](uint32_t, uint32_t w) { return is_nan(p.e, w); }))
    return "a NaN is missing on the judged side: NaN handling, not rounding";
  return {};
}

std::string zero_sign(const Pattern& p) {
  const bool all = p.all([&](uint32_t g, uint32_t w) {
    return info(p.e).has_sign() && value_of(p.e, g) == 0 && value_of(p.e, w) == 0;
  });
  return all ? "the sign of zero only (N2.5, N5.6 neg_zero)" : "";
}

std::string other_sign(const Pattern& p) {
  if (!info(p.e).has_sign()) return {};
  const uint32_t sign = 1u << (info(p.e).bits - 1);
  return p.all([&](uint32_t g, uint32_t w) { return (g ^ w) == sign; })
             ? "the sign only, the magnitudes are equal"
             : "";
}

std::string saturation(const Pattern& p) {
  const bool all = p.all([&](uint32_t g, uint32_t w) {
    return is_saturated(p.e, g) || is_saturated(p.e, w) || is_nan(p.e, g) || is_nan(p.e, w);
  });
  // One element that came as the largest value is no pattern; a NaN or an infinity beside it is.
  const bool finite = p.all([&](uint32_t g, uint32_t w) {
    return std::isfinite(value_of(p.e, g)) && std::isfinite(value_of(p.e, w));
  });
  if (!all || (finite && !p.many())) return {};
  return "only at the largest values: saturation against infinity or NaN (N2.2, N2.3)";
}

std::string one_binade(const Pattern& p) {
  if (p.e != Encoding::e8m0) return {};
  auto by = [&](int64_t step) {
    return p.all([&](uint32_t g, uint32_t w) {
      const auto a = ordinal(p.e, g), b = ordinal(p.e, w);
      return a && b && *a - *b == step;
    });
  };
  if (by(-1))
    return "one binade too small wherever they differ: the scale is rounded down where N5.3 rounds up, or "
           "its amax misses the largest element";
  if (by(1))
    return "one binade too large wherever they differ: the scale is rounded up twice, or its amax takes in "
           "elements of another block";
  return {};
}

// Every value is off by the same power of two, which says something where the mantissas have enough bits to
// agree in.
std::string power_of_two(const Pattern& p) {
  constexpr size_t kEnough = 10;  // bits of mantissa that agree; fewer agree by chance
  if (static_cast<size_t>(info(p.e).mantissa_bits) * p.c.differing.size() < kEnough) return {};
  if (info(p.e).exponent_bits == 0) return {};  // counters, offsets and sizes are no products of a factor
  if (p.c.problem && p.c.problem->as<Gemm>()) return {};  // product() says which factors there are
  const auto ratio = [&](uint32_t g, uint32_t w) { return value_of(p.e, g) / value_of(p.e, w); };
  const double first = ratio(p.got(p.c.differing[0]), p.want(p.c.differing[0]));
  int exponent = 0;
  if (!std::isfinite(first) || std::frexp(first, &exponent) != 0.5) return {};
  if (!p.all([&](uint32_t g, uint32_t w) { return ratio(g, w) == first; })) return {};
  return fmt::format("2^{} times the right value{}: a factor, not rounding", exponent - 1,
                     p.many() ? " in all of them" : "");
}

// The logical regions as lists of codes, in rows and columns.
std::vector<uint32_t> logical_codes(const PlaneData& data, const Plane& plane) {
  std::vector<uint32_t> out;
  out.reserve(static_cast<size_t>(plane.logical.count()));
  for (int64_t r = 0; r < plane.logical.rows; ++r)
    for (int64_t c = 0; c < plane.logical.cols; ++c)
      out.push_back(code_at(plane, data.bytes, index_of(plane, r, c)));
  return out;
}

// Whether the plane consists of whole tiles of 128 x 4 scales, so that it can stand in GEMM order (N6.3).
bool has_whole_tiles(const Plane& plane) {
  const Shape s = plane.padded;
  return plane.tiles_by_columns() ? s.rows % 4 == 0 && s.cols % 128 == 0
                                  : s.rows % 128 == 0 && s.cols % 4 == 0;
}

std::string order(const Pattern& p) {
  const Shape s = p.plane.logical;
  if (p.c.differing.size() < 2 || s.count() < 4) return {};
  const std::vector<uint32_t> got = logical_codes(*p.c.got, p.plane),
                              want = logical_codes(*p.c.want, p.plane);
  if (s.rows > 1 && s.cols > 1) {
    bool transposed = true;
    for (int64_t i = 0; transposed && i < s.count(); ++i)
      transposed = got[static_cast<size_t>(i)] == want[static_cast<size_t>(i % s.rows * s.cols + i / s.rows)];
    if (transposed) return "the same codes, transposed: the stored order is wrong (N6.1)";
  }
  if (p.plane.layout == ScaleLayout::gemm || p.plane.name.ends_with(".scale_inv")) {
    Plane other = p.plane;
    other.layout = p.plane.layout == ScaleLayout::gemm ? ScaleLayout::compact : ScaleLayout::gemm;
    if (has_whole_tiles(other) && logical_codes(*p.c.got, other) == want)
      return other.layout == ScaleLayout::gemm
                 ? "the right scales, but in GEMM order; the line asks for compact order (N6.2, N6.3)"
                 : "the right scales, but in compact order; the line asks for GEMM order (N6.3)";
  }
  std::vector<uint32_t> a = got, b = want;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  // Zeros and NaN that change their places say as much of arithmetic as of an order.
  const auto ordinary = [&](uint32_t w) { return std::isfinite(value_of(p.e, w)) && value_of(p.e, w) != 0; };
  const auto some = std::find_if(p.c.differing.begin(), p.c.differing.end(),
                                 [&](int64_t i) { return ordinary(p.want(i)); });
  const bool several = some != p.c.differing.end() &&
                       !p.all([&](uint32_t, uint32_t w) { return w == p.want(*some) || !ordinary(w); });
  if (several && a == b) return "the same codes in another order: layout or indexing, not arithmetic";
  return {};
}

// Whether differences in random places would all lie in the last `end` of `of` lines less than one time
// in 64.
bool is_unlikely(int64_t end, int64_t of, size_t differences) {
  return std::pow(static_cast<double>(end) / static_cast<double>(of), static_cast<double>(differences)) <
         1.0 / 64;
}

std::string tail(const Pattern& p) {
  const Shape s = p.plane.logical;
  if (!p.many()) return {};
  const size_t n = p.c.differing.size();
  std::vector<Place> places;
  for (int64_t i : p.c.differing) places.push_back(place_of(p.plane, i));
  auto all = [&](auto f) { return std::all_of(places.begin(), places.end(), f); };
  if (is_unlikely(1, s.rows, n) && all([&](Place x) { return x.row == s.rows - 1; }))
    return "only in the last row: the row bound, or a tail";
  if (is_unlikely(1, s.cols, n) && all([&](Place x) { return x.col == s.cols - 1; }))
    return "only in the last column: the column bound, or a tail";
  if (p.e == Encoding::u32) return {};  // offsets and sizes of members: no block has them
  for (int64_t unit : {16, 32, 64, 128}) {
    if (s.cols > unit && s.cols % unit != 0 && is_unlikely(s.cols % unit, s.cols, n) &&
        all([&](Place x) { return x.col >= s.cols / unit * unit; }))
      return fmt::format("only in the last {} columns, which do not fill a block of {}: tail handling",
                         s.cols % unit, unit);
    if (s.rows > unit && s.rows % unit != 0 && is_unlikely(s.rows % unit, s.rows, n) &&
        all([&](Place x) { return x.row >= s.rows / unit * unit; }))
      return fmt::format("only in the last {} rows, which do not fill a block of {}: tail handling",
                         s.rows % unit, unit);
  }
  return {};
}

// The differing elements of a product's d: which lines of which operand they share, and what their sizes say.
std::string product(const Pattern& p) {
  if (!p.c.problem || !p.c.problem->as<Gemm>() || !p.many()) return {};
  const Shape s = p.plane.logical;
  const auto [first, last] =
      std::minmax_element(p.c.differing.begin(), p.c.differing.end(),
                          [&](int64_t x, int64_t y) { return x % s.cols < y % s.cols; });
  const int64_t n0 = p.c.differing.front() / s.cols, n1 = p.c.differing.back() / s.cols, m0 = *first % s.cols,
                m1 = *last % s.cols;
  if (s.rows > 1 && n0 == n1)
    return fmt::format("only in row n = {} of d: line {} of b, its scales or its amax, not the sum", n0, n0);
  if (s.cols > 1 && m0 == m1)
    return fmt::format(
        "only in column m = {} of d: line {} of a, its scales or its amax, or bias[{}], not the sum", m0, m0,
        m0);
  for (const int64_t unit : {16, 32, 64, 128}) {
    if (s.rows > unit && n0 / unit == n1 / unit)
      return fmt::format("only in rows n = {}..{} of d: a block of b, or a tile of d", n0 / unit * unit,
                         std::min((n0 / unit + 1) * unit, s.rows) - 1);
    if (s.cols > unit && m0 / unit == m1 / unit)
      return fmt::format("only in columns m = {}..{} of d: a block of a, or a tile of d", m0 / unit * unit,
                         std::min((m0 / unit + 1) * unit, s.cols) - 1);
  }
  constexpr size_t kEnough = 8;  // fewer agree by chance
  if (p.c.differing.size() < kEnough) return {};
  double largest = 0, least = std::numeric_limits<double>::infinity(), most = -least;
  for (int64_t i = 0; i < s.count(); ++i)
    if (const double w = std::fabs(value_of(p.e, p.want(i))); std::isfinite(w))
      largest = std::max(largest, w);
  for (const int64_t i : p.c.differing) {
    const double w = value_of(p.e, p.want(i)), ratio = value_of(p.e, p.got(i)) / w;
    least = std::isfinite(ratio) ? std::min(least, ratio) : -std::numeric_limits<double>::infinity();
    most = std::max(most, ratio);
  }
  const double ulp =
      std::ldexp(1.0, -info(p.e).mantissa_bits);  // what rounding alone does to a ratio is below two
  if (least > 0 && most / least < 1 + 2 * ulp && std::fabs(least - 1) > 8 * ulp)
    return fmt::format(
        "about {:.4g} times the right value in all of them: alpha, an amax or a scale, not the sum",
        std::sqrt(least * most));
  if (!p.all([&](uint32_t g, uint32_t w) {
        return codes_apart(p.e, g, w) == 1 ||
               std::fabs(value_of(p.e, g) - value_of(p.e, w)) <= std::ldexp(largest, -16);
      }))
    return {};
  if (p.all(
          [&](uint32_t g, uint32_t w) { return std::fabs(value_of(p.e, g)) < std::fabs(value_of(p.e, w)); }))
    return "small, and always toward zero: terms or results of the sum are cut, not rounded (N16.4)";
  return "small, in either direction: the sum's own roundings, its order, a fused operation or another "
         "accumulator (N16.2 to N16.7); not operands or layout";
}

std::string one_apart(const Pattern& p) {
  if (!p.all([&](uint32_t g, uint32_t w) { return codes_apart(p.e, g, w) == 1; })) return {};
  auto toward = [&](bool up) {
    return p.all([&](uint32_t g, uint32_t w) {
      const double a = std::fabs(value_of(p.e, g)), b = std::fabs(value_of(p.e, w));
      return up ? a > b : a < b;
    });
  };
  if (p.many() && toward(false))
    return "one code apart, always toward zero: truncation, or ties the other way";
  if (p.many() && toward(true))
    return "one code apart, always away from zero: a rounding rule, or rounding twice";
  return "one code apart: rounding or its order, not layout";
}

}  // namespace

std::string hint_of(const Compared& c, bool part) {
  const Pattern p{c};
  if (c.differing.size() > (size_t{1} << 24))
    return {};  // seconds of looking; the first coordinate says enough
  const auto first_of = [&](std::initializer_list<std::string (*)(const Pattern&)> rules) {
    for (const auto rule : rules)
      if (std::string hint = rule(p); !hint.empty()) return hint;
    return std::string{};
  };
  if (part)
    return first_of(
        {nan_only, zero_sign, one_binade, power_of_two, one_value, other_sign, one_apart, saturation});
  return first_of({nan_only, zero_sign, one_binade, power_of_two, one_value, other_sign, order, tail, product,
                   one_apart, saturation});
}

}  // namespace assay
