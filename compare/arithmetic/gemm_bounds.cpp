#include "compare/arithmetic/gemm_bounds.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/expansion.h"
#include "compare/arithmetic/expected_values.h"
#include "contract/dispatch.h"

namespace assay {

namespace {

constexpr double kUnit = 0x1p-24, kLargest = 0x1.fffffep127,
                 kSafe = 1.001;  // kSafe: what the bounds' own doubles may lose
constexpr int64_t kChain = 128;
constexpr int kNoLow = 10000, kLeastLow = -149;  // below it binary32 has no place

double value(const PlaneData& p, int64_t row, int64_t col) {
  return value_of(p.plane.encoding, code_at(p.plane, p.bytes, index_of(p.plane, row, col)));
}
double narrow(double v) { return static_cast<double>(static_cast<float>(v)); }

// The cast of N16.8, of finite values.
double rounded(Encoding e, double v) {
  if (e == Encoding::f32) return narrow(v);
  const double most = value_of(e, info(e).max_finite), step = step_at(e, v),
               q = std::nearbyint(v / step) * step;
  if (std::fabs(q) <= most) return q;
  return std::copysign(info(e).bits == 8 ? most : HUGE_VAL, v);
}

// x is a multiple of 2^this. x is finite and not zero.
int lowest_bit(double x) {
  int exponent;
  double rest = std::fabs(std::frexp(x, &exponent));
  for (; rest != 0; --exponent) rest = 2 * rest - std::trunc(2 * rest);
  return exponent;
}

double tf32(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 10);
  return std::trunc(x / step) * step;
}

// N16.9
bool scaled_by_amax(const Quantizer& q) { return q.format == FormatId::nvfp4 && q.row_scaled; }

bool stands(double v) { return narrow(v) == v; }
// x + y, both binary32, is a binary32 value.
bool adds_exactly(double x, double y) {
  const double sum = x + y;
  return sum - x == y && sum - y == x && stands(sum);
}
bool power_of_two(double v) {
  int exponent;
  return std::fabs(std::frexp(v, &exponent)) == 0.5;
}
// The magnitudes of what is finite in a sum add up to `finite`. Where that may overflow, it may be the
// infinity of the other sign.
double plain_of(double sum, double finite) { return std::isinf(sum) && !(finite <= kLargest / 4) ? 0 : sum; }

}  // namespace

bool has_unpinned_bits(const Gemm& g) {
  if (g.sum == GemmSum::f32_sequential || g.sum == GemmSum::exact) return false;
  const auto fp8 = [](const Operand& o) { return info(o.quantizer.format).per_tensor_fp8(); };
  const auto shifts = [](F32Bits factor) {
    const double v = value_of(Encoding::f32, factor);
    return power_of_two(v) && std::fabs(v) >= 0x1p-126;
  };
  const bool scaled = fp8(g.a) || fp8(g.b) || g.a.quantizer.format == FormatId::fp8_block ||
                      g.b.quantizer.format == FormatId::fp8_block;
  if ((fp8(g.a) && g.a.quantizer.row_scaled) || (fp8(g.b) && g.b.quantizer.row_scaled)) return true;
  if ((g.reads_c() || g.bias) && (scaled || g.multiplies())) return true;
  return (scaled && !shifts(g.alpha)) || (g.reads_c() && (g.bias || !shifts(g.beta)));
}

GemmBounds::GemmBounds(const Problem& p, const std::vector<PlaneData>& inputs, GemmOrder order)
    : p_(p),
      op_(*p.as<Gemm>()),
      in_(inputs),
      order_(order),
      codes_(op_.sum != GemmSum::f32_sequential && op_.sum != GemmSum::exact),
      by_amax_(scaled_by_amax(op_.a.quantizer) || scaled_by_amax(op_.b.quantizer)) {
  const bool fp8 = op_.sum == GemmSum::hopper_fp8_split || op_.sum == GemmSum::hopper_fp8_fast;
  length_ = fp8 ? 32 : op_.sum == GemmSum::hopper_f16 ? 16 : 8;
  fraction_ = fp8 ? 13 : 25;
  out_fraction_ = fp8 ? 13 : 23;
  a_ = elements(Side::a);
  b_ = elements(Side::b);
}

GemmBounds::Elements GemmBounds::elements(Side side) const {
  const Quantizer& q = op_.operand(side).quantizer;
  const std::string prefix = std::string(name_of(side)) + ".";
  const Direction d = op_.direction(side);
  PlaneData data = *plane(prefix + "data");
  const PlaneData *scale = plane(prefix + "scale_inv"), *amax = plane(prefix + "amax");
  PlaneData scales = scale ? *scale : PlaneData{};
  for (Plane& own : input_planes(operand_dequantize(p_, side)))  // with their direction
    if (own.name.ends_with("scale_inv")) scales.plane = std::move(own);
  const bool outer_first = d == Direction::row || data.plane.transposed;
  const Shape stored = data.plane.logical;
  const int64_t outer = outer_first ? stored.rows : stored.cols;

  Elements out;
  out.k = outer_first ? stored.cols : stored.rows;
  const bool bf16 = op_.sum == GemmSum::hopper_f16 && through_bf16(q);  // N16.12
  out.least = std::ldexp(1.0, 1 - info(bf16 ? Encoding::bf16 : q.element).bias);
  out.square = is_square(q.block);
  const bool binary_scale = scale && info(q.format).scale == Encoding::f32,
             nvfp4 = q.format == FormatId::nvfp4;
  if (!codes_ && (binary_scale || nvfp4)) {
    out.relative = (nvfp4 ? 4 : 1) * kUnit;
    out.absolute = 0x1p-146;
  }
  for (int64_t o = 0; o < outer; ++o) {
    double magnitude = 0;
    int low = kNoLow;
    bool stands = !nvfp4;
    for (int64_t k = 0; k < out.k; ++k) {
      const int64_t i = outer_first ? o : k, j = outer_first ? k : o;
      double v = value(data, i, j);
      if (op_.sum == GemmSum::hopper_tf32) v = tf32(v);
      if (bf16) {
        double s = value_of(scales.plane.encoding,
                            code_at(scales.plane, scales.bytes, scale_index(q, scales.plane, i, j)));
        if (nvfp4)
          s = narrow(narrow(s * (by_amax_ ? 1 : value(*amax, q.row_scaled ? o : 0, 0))) *
                     narrow(1.0 / (q.e4m3_max == E4m3Max::m256 ? 1536 : 2688)));  // N10.15
        v = narrow(v * s);
        if (std::isfinite(v)) v = rounded(Encoding::bf16, v);
      } else if (!codes_ && scale) {
        const double code = v,
                     s = value_of(scales.plane.encoding,
                                  code_at(scales.plane, scales.bytes, scale_index(q, scales.plane, i, j)));
        double by_steps = s;
        v *= s;
        if (nvfp4) {  // N10.15, N16.9
          const double of_all = by_amax_ ? 1 : value(*amax, q.row_scaled ? o : 0, 0),
                       most = q.e4m3_max == E4m3Max::m256 ? 1536 : 2688;
          by_steps = narrow(narrow(s * of_all) * narrow(1 / most));
          v *= of_all / most;
        }
        by_steps = narrow(code * by_steps);
        if (!std::isfinite(by_steps)) v = by_steps;  // what a step on the way makes infinite stays so
      }
      out.values.push_back(v);
      magnitude += std::fabs(v);
      stands = stands && narrow(v) == v;
      if (v != 0 && std::isfinite(v)) low = std::min(low, lowest_bit(v));
    }
    out.magnitudes.push_back(magnitude);
    out.low.push_back(low);
    out.stands.push_back(stands);
    if (!codes_ && out.relative != 0 && !stands) out.low.back() = -kNoLow;
  }
  if (codes_ && scale && !bf16)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t k = 0; k < std::max<int64_t>(out.k, 1); k += kChain)
        out.scales.push_back(
            value_of(scales.plane.encoding,
                     out.k == 0 && info(q.format).has_blocks()
                         ? 0
                         : code_at(scales.plane, scales.bytes, scale_index(q, scales.plane, o, k))));
  return out;
}

GemmBounds::Sum GemmBounds::in_binary32(int64_t n, int64_t m) const {
  const size_t row_a = static_cast<size_t>(m), row_b = static_cast<size_t>(n);
  const double *a = a_.values.data() + m * a_.k, *b = b_.values.data() + n * b_.k;
  double sum = 0, total = 0, finite = 0, peak = 0;
  for (int64_t k = 0; k < a_.k; ++k) {
    const double product = a[k] * b[k];
    sum += product;
    total += std::fabs(product);
    if (std::isfinite(product)) finite += std::fabs(product);
    peak = std::max({peak, std::fabs(product), std::fabs(sum)});
  }
  const double u = static_cast<double>(a_.k + 1) * kUnit,
               steps = op_.sum == GemmSum::exact ? kUnit * std::fabs(sum) : u / (1 - u) * total;
  Sum out{sum, 0,
          total <= std::ldexp(1.0, 24 + std::clamp(a_.low[row_a] + b_.low[row_b], -500, 500)) &&
              a_.low[row_a] != -kNoLow && b_.low[row_b] != -kNoLow &&
              a_.low[row_a] + b_.low[row_b] >= kLeastLow,
          plain_of(sum, finite)};
  out.exact = out.exact &&
              (op_.sum == GemmSum::exact || peak <= kLargest);  // N16.3 rounds once, whatever lies between
  if (out.exact) return out;
  if (op_.sum == GemmSum::exact && a_.stands[row_a] && b_.stands[row_b] && std::isfinite(total)) {  // N16.3
    Expansion all;
    for (int64_t k = 0; k < a_.k; ++k) all.add(a[k] * b[k]);  // a product has 48 bits
    out.value = all.to_binary32();
    return out;
  }
  out.bound = kSafe * (total * (a_.relative + b_.relative) +
                       std::max(a_.absolute, b_.absolute) * (a_.magnitudes[row_a] + b_.magnitudes[row_b]) +
                       steps + static_cast<double>(a_.k) * (0x1p-149 + total * 0x1p-52));
  if (!(total <= kLargest / 4)) out.value = NAN;
  return out;
}

GemmBounds::Sum GemmBounds::chain(int64_t n, int64_t m, int64_t k0, int64_t k1) const {
  const double *a = a_.values.data() + m * a_.k, *b = b_.values.data() + n * b_.k;
  const double cut = std::ldexp(1.0, -fraction_), last = std::ldexp(1.0, -out_fraction_);
  double sum = 0, bound = 0, total = 0, finite = 0, largest = 0;
  for (int64_t k = k0; k < k1; k += length_) {
    double top = sum == 0 && bound == 0 ? 0 : std::max(std::fabs(sum) + bound, 0x1p-126);
    const int64_t end = std::min(k1, k + length_);
    for (int64_t i = k; i < end; ++i) {
      const double product = a[i] * b[i];
      sum += product;
      total += std::fabs(product);
      if (std::isfinite(product)) finite += std::fabs(product);
      if (product != 0)
        top = std::max(top, std::max(std::fabs(a[i]), a_.least) * std::max(std::fabs(b[i]), b_.least));
    }
    largest = std::max(largest, top);
    bound += static_cast<double>(end - k) * cut * top;
    bound += last * (std::fabs(sum) + bound) + std::ldexp(0x1p-126, -out_fraction_);
  }
  const int low = std::clamp(a_.low[static_cast<size_t>(m)] + b_.low[static_cast<size_t>(n)], -500, 500);
  Sum out{sum, kSafe * bound + total * 0x1p-45,
          std::max(total, largest) <= std::ldexp(1.0, out_fraction_ + low) &&
              low >= kLeastLow + 23 - out_fraction_,
          plain_of(sum, finite)};
  if (out.exact) out.bound = 0;
  if (!(total <= kLargest / 4)) out.value = NAN;
  return out;
}

GemmBounds::Sum GemmBounds::on_tensor_core(int64_t n, int64_t m) const {
  if (op_.sum != GemmSum::hopper_fp8_split) return chain(n, m, 0, a_.k);
  const bool blocks = op_.a.quantizer.format == FormatId::fp8_block;
  const int64_t per_row = std::max<int64_t>(ceil_div(a_.k, kChain), 1);
  Sum out{0, 0, true, 0};
  double finite = 0;
  for (int64_t k = 0; k < a_.k; k += kChain) {
    const Sum p = chain(n, m, k, std::min(a_.k, k + kChain));
    double first = 1, second = 1;
    if (blocks) {
      first = b_.scales[static_cast<size_t>(n * per_row + k / kChain)];
      second = a_.scales[static_cast<size_t>(m * per_row + k / kChain)];
    }
    // N16.7: what is rounded before the sum, the product of the scales or that of the chain with b's, and
    // what that is multiplied by.
    const bool tiles = a_.square || b_.square;
    const double most = std::fabs(p.value) + p.bound, term = p.value * first * second,
                 scaled = tiles ? first * second : p.value * first,
                 greatest = tiles ? std::fabs(scaled) : std::fabs(first) * most,
                 times = tiles ? most : std::fabs(second);
    const double slack =
        std::fabs(first * second) * p.bound + (blocks ? times * (greatest * kUnit + 0x1p-150) : 0);
    out.exact = out.exact && p.exact && narrow(scaled) == scaled &&
                narrow(out.value + term) == out.value + term && out.value + term - out.value == term;
    out.value += term;
    out.plain += p.plain * first * second;
    out.bound += slack;
    out.bound += kSafe * kUnit * (std::fabs(out.value) + out.bound) + 0x1p-149;
    if (out.exact) out.bound = 0;
    // What one of the two roundings makes infinite stays so, even where the exact sum comes back.
    if (!(greatest <= kLargest && std::fabs(out.value) + out.bound <= kLargest)) out.value = NAN;
    if (std::isfinite(p.plain * first * second))
      finite += std::fabs(first) * (std::fabs(p.plain) + p.bound) * std::max(1.0, std::fabs(second));
  }
  out.plain = plain_of(out.plain, finite);
  return out;
}

// What multiplies the sum, but alpha: N16.6, N16.9.
std::vector<double> GemmBounds::factors(int64_t n, int64_t m) const {
  const Quantizer &a = op_.a.quantizer, &b = op_.b.quantizer;
  if (by_amax_)
    return {value(*plane("b.amax"), b.row_scaled ? n : 0, 0),
            value(*plane("a.amax"), a.row_scaled ? m : 0, 0)};
  if (!codes_ || a_.scales.empty() || a.format == FormatId::fp8_block) return {};
  const int64_t per_row = std::max<int64_t>(ceil_div(a_.k, kChain), 1);
  return {b_.scales[static_cast<size_t>(n * per_row)], a_.scales[static_cast<size_t>(m * per_row)]};
}

std::optional<GemmBounds::Interval> GemmBounds::at(int64_t n, int64_t m) const {
  const Sum sum = codes_ ? on_tensor_core(n, m) : in_binary32(n, m);
  return order_ == GemmOrder::any ? in_any_order(sum, n, m) : as_said(sum, n, m);
}

std::optional<GemmBounds::Interval> GemmBounds::as_said(const Sum& sum, int64_t n, int64_t m) const {
  if (!std::isfinite(sum.value) || !(std::fabs(sum.value) + sum.bound <= kLargest)) return {};
  // v is a binary32 value between the ends. Every step from here on is monotone, so it is done to both.
  double low = sum.value - sum.bound, high = sum.value + sum.bound;
  bool finite = true;
  const auto step = [&](auto f) {
    const double x = narrow(f(low)), y = narrow(f(high));
    finite = finite && std::isfinite(x) && std::isfinite(y);
    low = std::min(x, y);
    high = std::max(x, y);
  };
  const auto times = [&](double factor) { step([&](double v) { return v * factor; }); };
  if (const std::vector<double> f = factors(n, m); !f.empty()) {
    if (by_amax_ && op_.a.quantizer.row_scaled && op_.b.quantizer.row_scaled) {  // N16.9
      times(f[0]);
      times(f[1]);
    } else {
      times(narrow(f[0] * f[1]));  // N16.6, N16.9
    }
  }
  if (op_.multiplies()) times(value_of(Encoding::f32, op_.alpha));
  if (op_.reads_c()) {
    const double c = narrow(value_of(Encoding::f32, op_.beta) * value(*plane("c"), n, m));
    step([&](double v) { return v + c; });
  }
  if (op_.bias) {
    const double bias = value(*plane("bias"), 0, m);
    step([&](double v) { return v + bias; });
  }
  if (!finite) return {};
  return Interval{rounded(p_.x.source, low), rounded(p_.x.source, high), sum.exact};
}

// N16.13. Every order is a tree of products of the sum and the factors, and sums of that product and the
// terms.
std::optional<GemmBounds::Interval> GemmBounds::in_any_order(const Sum& sum, int64_t n, int64_t m) const {
  std::vector<double> f = factors(n, m);
  if (op_.multiplies()) f.push_back(value_of(Encoding::f32, op_.alpha));
  const double beta = op_.reads_c() ? value_of(Encoding::f32, op_.beta) : 0,
               c = op_.reads_c() ? beta * value(*plane("c"), n, m) : 0;
  const double bias = op_.bias ? value(*plane("bias"), 0, m) : 0;
  const bool finite = std::isfinite(sum.plain) && std::isfinite(c) && std::isfinite(bias) &&
                      std::all_of(f.begin(), f.end(), [](double v) { return std::isfinite(v); });
  if (!finite) return not_finite(sum, f, c, bias);
  if (!std::isfinite(sum.value)) return {};

  // The products of every subset, which are what the trees' nodes hold: none may overflow, and one that may
  // be subnormal loses half the least subnormal, which whatever is multiplied later enlarges.
  const double most = std::fabs(sum.value) + sum.bound,
               least = std::max(std::fabs(sum.value) - sum.bound, 0.0);
  const unsigned subsets = 2u << f.size();  // bit 0: the sum
  std::vector<double> products(subsets, 1);
  double lost = 0;
  bool exact = sum.exact;
  const auto product_of = [&](unsigned set, double of_sum) {
    double p = (set & 1) != 0 ? of_sum : 1;
    for (size_t i = 0; i < f.size(); ++i)
      if ((set >> (i + 1) & 1) != 0) p *= f[i];
    return p;
  };
  for (unsigned set = 1; set < subsets; ++set) {
    const double high = std::fabs(product_of(set, most)), low = std::fabs(product_of(set, least));
    if (!(high <= kLargest * (1 - 0x1p-20))) return {};
    if ((set & (set - 1)) != 0 && high != 0 && low < 0x1p-126)
      lost = std::max(lost, std::fabs(product_of(~set & (subsets - 1), most)));
    products[set] =
        product_of(set, sum.value);  // factor by factor: in doubles exact while those before it stand
    exact = exact && stands(products[set]);
  }
  const double whole = product_of(subsets - 2, 0), product = products[subsets - 1],
               t = most * std::fabs(whole);
  const auto roundings =
      static_cast<double>(std::count_if(f.begin(), f.end(), [](double v) { return !power_of_two(v); }));
  double bound = sum.bound * std::fabs(whole) + (std::pow(1 + kUnit, roundings) - 1) * t +
                 static_cast<double>(f.size()) * lost * 0x1p-149;

  const Encoding out = p_.x.source;
  if (op_.reads_c() || op_.bias) {
    const double total = t + std::fabs(c) + std::fabs(bias),
                 cast = op_.reads_c() && out != Encoding::f32 ? step_at(out, total * (1 + 0x1p-7)) / 2 : 0;
    if (!(total <= kLargest / 2) || (cast != 0 && total * (1 + 0x1p-7) > value_of(out, info(out).max_finite)))
      return {};
    bound += 3 * kUnit * (1 + 4 * kUnit) * (total + cast) + cast + 0x1p-149;
    const auto keeps = [&](double v) { return cast == 0 || rounded(out, v) == v; };
    exact = exact && stands(c) && adds_exactly(product, c) && adds_exactly(product, bias) &&
            adds_exactly(c, bias) && adds_exactly(product + c, bias) && keeps(product) &&
            keeps(product + bias);
  }
  const double v = product + c + bias;
  if (exact) return Interval{rounded(out, v), rounded(out, v), true};
  return Interval{rounded(out, v - kSafe * bound), rounded(out, v + kSafe * bound)};
}

// A NaN and an infinity are the same in every order, unless a product of the factors overflows or vanishes in
// one.
std::optional<GemmBounds::Interval> GemmBounds::not_finite(const Sum& sum, std::span<const double> f,
                                                           double c, double bias) const {
  Interval nan;
  nan.nan = true;
  double product = 1;
  for (const double v : f) {
    if (std::isnan(v)) return nan;
    product *= v;
  }
  if (std::isnan(sum.plain) || std::isnan(c) || std::isnan(bias)) return nan;
  // What is finite stays far from overflowing: alone, times any of the factors, added, and cast before c is.
  const Encoding out = p_.x.source;
  const double limit = (op_.reads_c() ? value_of(out, info(out).max_finite) : kLargest) / 4;
  double terms = 0;
  for (const double v : {c, bias})
    if (std::isfinite(v)) terms += std::fabs(v);
  if (!(terms <= limit)) return {};
  const double most =
      std::isinf(sum.plain) ? 0 : std::fabs(sum.value) + sum.bound;  // NaN where there is no bound
  for (unsigned set = 0; set < 1u << f.size(); ++set) {
    double p = 1;
    for (size_t i = 0; i < f.size(); ++i)
      if ((set >> i & 1) != 0) p *= f[i];
    if (!(std::fabs(p) >= 0x1p-126 && std::fabs(p) <= kLargest / 2 && most * std::fabs(p) <= limit))
      return {};
  }
  const double d = (std::isinf(sum.plain) ? sum.plain * product : 0) + c + bias;
  if (std::isnan(d)) return nan;
  if (std::isfinite(d)) return {};
  const double end = std::copysign(info(out).bits == 8 ? value_of(out, info(out).max_finite) : HUGE_VAL, d);
  return Interval{end, end};
}

}  // namespace assay
