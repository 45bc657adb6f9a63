#include "compare/arithmetic/attention_core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "compare/arithmetic/attention_stages.h"
#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "contract/attention.h"

namespace assay {

namespace {

using std::string;
using Normalised = AttentionChange::Normalised;
using LogitGradient = AttentionChange::LogitGradient;

constexpr double kMasked = -10000;
// N20.18: the width and order of sums, of the sum of magnitudes; rounding to n on both sides; what a narrower
// exponential adds.
constexpr double kOfLogits = 0x1p-10, kOfSums = 0x1p-7, kNominal = 0x1p-8, kOfExponential = 0x1p-20;

double exponential(ExpRule rule, double x) {
  if (rule == ExpRule::exact)
    return static_cast<double>(static_cast<float>(std::exp(static_cast<long double>(x))));
  const double t = f32_of(x * f32_of(1.44269504088896340736));
  return t < -126 ? 0 : static_cast<double>(static_cast<float>(std::exp2(static_cast<long double>(t))));
}

class Core {
 public:
  Core(const Problem& p, const std::vector<PlaneData>& inputs, const AttentionChange& change,
       const RunLine& run, const std::vector<PlaneData>* observed)
      : p_(p),
        op_(*p.as<Attention>()),
        n_(attention_sizes(p)),
        change_(change),
        stages_(p, inputs, change, run, observed),
        bounded_(observed != nullptr),
        alpha_(op_.softmax_scale ? value_of(Encoding::f32, *op_.softmax_scale)
                                 : f32_of(1 / std::sqrt(static_cast<double>(n_.depth)))) {}

  bool forward();
  bool backward();
  std::vector<PlaneData> planes() { return stages_.take(); }

 private:
  struct Place {
    int64_t b, h, i;
  };
  Place query(int64_t row) const { return {row / (n_.heads * n_.q), row / n_.q % n_.heads, row % n_.q}; }
  double n(double v) const { return stages_.nominal(v); }
  double least_step() const { return value_of(p_.x.source, 1); }
  int64_t shared(int64_t h) const { return change_.heads_wrap ? h % n_.kv_heads : h / n_.repeats(); }
  int64_t keys_of(const Place& at) const { return (at.b * n_.kv_heads + shared(at.h)) * n_.kv; }
  int64_t result_of(const Place& at) const { return ((at.i * n_.batch + at.b) * n_.heads + at.h) * n_.depth; }
  bool padding(const Place& at) const { return at.i >= q_length(p_, at.b); }
  bool seen(const Place& at, int64_t j) const;

  // A sum of products with the clauses' order, the sum of magnitudes, and that of what the factors may be
  // off.
  struct Sum {
    double value = 0, magnitude = 0, off = 0;
    void add(double a, double a_off, double b, double b_off) {
      value = f32_of(value + f32_of(a * b));
      magnitude += std::fabs(a * b);
      off += a_off * (std::fabs(b) + b_off) + std::fabs(a) * b_off;
    }
    // Rounded to n, whose least step is `least`, and perhaps multiplied: how far a kernel may be from it.
    double error(double scale, double rounded, double least) const {
      if (off == 0 && magnitude == 0) return 0;
      return off * scale + kOfSums * magnitude * scale + std::max(kNominal * std::fabs(rounded), least);
    }
  };
  void make_logits();
  void softmax_row(int64_t row);
  void make_result();
  bool exact_row(int64_t row, const Place& at, int64_t e) const;
  bool may_overflow(const Place& at, int64_t e) const;
  bool is_open(int64_t row, const Place& at, int64_t e, double v) const;
  double dropped(double v, int64_t at) const;
  void make_gradient_of_v(const Values& d_o);
  void make_gradient_of_s(const Values& d_o);
  void make_gradient_of_logits(const Values& d_o);
  void make_gradients();

  const Problem& p_;
  const Attention& op_;
  AttentionSizes n_;
  const AttentionChange& change_;
  AttentionStages stages_;
  bool bounded_;
  double alpha_;
  Values q_, k_, v_, logits_, s_, cast_s_, o_, dv_, ds_, dp_, dq_, dk_;
  std::vector<double> exact_, exact_off_;       // S before it is rounded to n, and how far it may be
  std::vector<double> totals_;                  // Z of each row
  double scale_of_s_ = 1, largest_weight_ = 1;  // of S's cast, and its largest code
};

bool Core::seen(const Place& at, int64_t j) const {
  const int64_t queries = q_length(p_, at.b), keys = kv_length(p_, at.b);
  if (at.i >= queries || j >= keys) return false;
  const int64_t own = at.i + (op_.mask == AttentionMask::causal_bottom_right ? keys - queries : 0);
  if (op_.mask != AttentionMask::none && j > own + change_.mask_shift) return false;
  if (op_.window_left >= 0 && j < own - op_.window_left) return false;
  return op_.window_right < 0 || j <= own + op_.window_right + change_.mask_shift;
}

// N20.4, N20.5.
void Core::make_logits() {
  const PlaneData* bias = op_.bias == AttentionBias::none ? nullptr : &stages_.input("bias");
  logits_.resize(static_cast<size_t>(n_.rows() * n_.kv));
  for (int64_t row = 0; row < n_.rows(); ++row) {
    const Place at = query(row);
    for (int64_t j = 0; j < n_.kv; ++j) {
      Sum sum;
      for (int64_t e = 0; e < n_.depth; ++e)
        sum.add(q_.at(row * n_.depth + e), 0, k_.at((keys_of(at) + j) * n_.depth + e), 0);
      double v = sum.value, scale = 1;
      const double add = bias ? value_of(bias->plane.encoding,
                                         code_at(bias->plane, bias->bytes, (at.h * n_.q + at.i) * n_.kv + j))
                              : 0;
      if (op_.bias == AttentionBias::pre_scale) v = n(f32_of(n(v) + add));
      for (int t = 0; t < change_.scale_times; ++t) v = f32_of(v * alpha_), scale *= std::fabs(alpha_);
      if (op_.bias == AttentionBias::post_scale) v = f32_of(n(v) + add);
      const double most = sum.magnitude * scale + std::fabs(add) * (bias ? 1 + scale : 0);
      logits_.put(row * n_.kv + j, n(v), kOfLogits * most + kNominal * std::fabs(v));
    }
  }
}

// N20.6, N20.7, N20.10 of one row; N20.18: with logits off by t at most, S_j is off by a share of itself and
// of what the others have.
void Core::softmax_row(int64_t row) {
  const Place at = query(row);
  const int64_t first = row * n_.kv;
  double most = -std::numeric_limits<double>::infinity(), off = 0, total = 0, wide = 0;
  std::vector<double> e(static_cast<size_t>(n_.kv));
  int64_t count = 0;
  bool nan = false, equal = true;
  for (int64_t j = 0; j < n_.kv; ++j) {
    const bool visible = seen(at, j);
    const double x = visible ? logits_.at(first + j) : kMasked;
    nan |= std::isnan(x);
    if (visible) off = std::max(off, logits_.off(first + j)), equal &= count++ == 0 || x == most;
    most = std::max(most, x);
    e[static_cast<size_t>(j)] = x;
  }
  if (nan) most = std::numeric_limits<double>::quiet_NaN();
  for (double& x : e) {
    x = exponential(op_.exp, f32_of(x - most));
    total = f32_of(total + x), wide += x;
  }
  totals_[static_cast<size_t>(row)] = total;
  const bool halves = equal && count > 0 && (count & (count - 1)) == 0 && off == 0;
  const double share = std::expm1(2 * off) + kOfExponential;
  for (int64_t j = 0; j < n_.kv; ++j) {
    const double p = padding(at) ? 0 : f32_of(e[static_cast<size_t>(j)] / total);
    const double rest = std::max(0.0, wide - e[static_cast<size_t>(j)]) / wide;
    const double error = halves || padding(at) ? 0 : share * std::min(p, rest);
    exact_[static_cast<size_t>(first + j)] = p;
    exact_off_[static_cast<size_t>(first + j)] = error;
    const double cast = change_.normalised == Normalised::before_cast ? p : e[static_cast<size_t>(j)];
    const bool rounds = change_.normalised != Normalised::after_product;
    const double kept = rounds ? dropped(n(cast), first + j) : cast;
    const bool stands = error < 0x1p-40 && n(p) == p;
    s_.put(first + j, kept, stands ? error : error * (kept > p ? kept / p : 1) + kNominal * std::fabs(kept));
  }
}

double Core::dropped(double v, int64_t at) const {
  if (op_.dropout == 0) return v;
  const double factor = f32_of(1 / f32_of(1 - value_of(Encoding::f32, op_.dropout)));
  const PlaneData& keep = stages_.input("keep");
  return code_at(keep.plane, keep.bytes, at) != 0 ? n(f32_of(v * factor)) : 0;
}

// Whether no order and no width of a sum rounds O there: probabilities known, and all terms multiples of one
// power of two that is at most 2^10 below their sum.
bool Core::exact_row(int64_t row, const Place& at, int64_t e) const {
  double least = std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t j = 0; j < n_.kv; ++j) {
    if (cast_s_.off(row * n_.kv + j) > 0x1p-40) return false;
    const double term = cast_s_.at(row * n_.kv + j) * v_.at((keys_of(at) + j) * n_.depth + e);
    if (term == 0) continue;
    if (!std::isfinite(term)) return false;
    int exponent;
    double rest = std::fabs(std::frexp(term, &exponent));
    for (; rest != 0; --exponent) rest = 2 * rest - std::trunc(2 * rest);
    least = std::min(least, std::ldexp(1.0, exponent));
    total += std::fabs(term);
  }
  return total <= 1024 * least;
}

// Whether exponentials of at most 1 times V, summed as codes of S before they are divided, may leave
// binary32.
bool Core::may_overflow(const Place& at, int64_t e) const {
  double total = 0;
  for (int64_t j = 0; j < n_.kv; ++j) total += std::fabs(v_.at((keys_of(at) + j) * n_.depth + e));
  if (op_.dropout != 0) total /= 1 - value_of(Encoding::f32, op_.dropout);
  return total * largest_weight_ >= 0x1p127;
}

// Whether an element of O has no bound: the quotient of S and its exponential part ways where one of them is
// no longer a finite number.
bool Core::is_open(int64_t row, const Place& at, int64_t e, double v) const {
  if (!std::isnan(v) && may_overflow(at, e)) return true;
  // Fused kernels leave rows of padding out: 0 times a NaN or an infinity does not reach them.
  if (padding(at)) return !std::isfinite(v);
  const double total = totals_[static_cast<size_t>(row)];
  // A NaN of the sum reaches every element at the end, dropped ones too; a sum that overflows once it is
  // scaled makes its reciprocal 0.
  if (std::isnan(total)) return !std::isnan(v);
  if (total * scale_of_s_ >= 0x1p127) return true;
  // What rounds a quotient to a NaN need not do so to the exponential.
  const int64_t first = row * n_.kv;
  for (int64_t j = 0; j < n_.kv; ++j)
    if (std::isnan(cast_s_.at(first + j)) && !std::isnan(s_.at(first + j))) return true;
  return false;
}

// N20.11.
void Core::make_result() {
  o_.resize(static_cast<size_t>(n_.rows() * n_.depth));
  const double inverse = stages_.scale_inverse("s");
  const bool usable = std::isfinite(inverse) && inverse > 0;
  scale_of_s_ = 1 / inverse;
  largest_weight_ = stages_.largest_code(AttentionSlot::s);
  if (bounded_ && !usable) {
    for (int64_t i = 0; i < static_cast<int64_t>(o_.size()); ++i) o_.put_open(i);
    return;
  }
  for (int64_t row = 0; row < n_.rows(); ++row) {
    const Place at = query(row);
    for (int64_t e = 0; e < n_.depth; ++e) {
      Sum sum;
      for (int64_t j = 0; j < n_.kv; ++j)
        sum.add(cast_s_.at(row * n_.kv + j), cast_s_.off(row * n_.kv + j),
                v_.at((keys_of(at) + j) * n_.depth + e), 0);
      double v = sum.value;
      if (change_.normalised != Normalised::before_cast) v = f32_of(v / totals_[static_cast<size_t>(row)]);
      if (bounded_ && is_open(row, at, e, v)) {
        o_.put_open(result_of(at) + e);
        continue;
      }
      const bool exact = bounded_ && n(v) == v && exact_row(row, at, e);
      o_.put(result_of(at) + e, n(v), exact ? 0 : sum.error(1, v, least_step()));
    }
  }
}

bool Core::forward() {
  if (!stages_.take_inputs(q_, k_, v_)) return false;
  make_logits();
  stages_.put("p", logits_);
  s_.resize(static_cast<size_t>(n_.rows() * n_.kv));
  exact_.assign(s_.size(), 0), exact_off_.assign(s_.size(), 0);
  totals_.assign(static_cast<size_t>(n_.rows()), 0);
  for (int64_t row = 0; row < n_.rows(); ++row) softmax_row(row);
  if (change_.normalised == Normalised::after_product) {
    Values plane = s_;
    for (int64_t i = 0; i < static_cast<int64_t>(plane.size()); ++i) plane.put(i, n(s_.at(i)), s_.off(i));
    stages_.put("s", plane);
  } else {
    stages_.put("s", s_);
  }
  auto cast = stages_.cast(AttentionSlot::s, s_);
  if (!cast) return false;
  cast_s_ = std::move(*cast);
  make_result();
  stages_.put("o", o_);
  return stages_.put_result(o_);
}

// N20.12.
void Core::make_gradient_of_v(const Values& d_o) {
  dv_.resize(static_cast<size_t>(n_.repeated_rows() * n_.depth));
  for (int64_t head = 0; head < n_.batch * n_.heads; ++head)
    for (int64_t j = 0; j < n_.kv; ++j)
      for (int64_t e = 0; e < n_.depth; ++e) {
        Sum sum;
        for (int64_t i = 0; i < n_.q; ++i) {
          const int64_t row = head * n_.q + i;
          sum.add(cast_s_.at(row * n_.kv + j), cast_s_.off(row * n_.kv + j),
                  d_o.at(result_of(query(row)) + e), 0);
        }
        dv_.put((head * n_.kv + j) * n_.depth + e, n(sum.value), sum.error(1, sum.value, least_step()));
      }
}

// N20.13.
void Core::make_gradient_of_s(const Values& d_o) {
  ds_.resize(static_cast<size_t>(n_.rows() * n_.kv));
  for (int64_t row = 0; row < n_.rows(); ++row) {
    const Place at = query(row);
    for (int64_t j = 0; j < n_.kv; ++j) {
      Sum sum;
      for (int64_t e = 0; e < n_.depth; ++e)
        sum.add(d_o.at(result_of(at) + e), 0, v_.at((keys_of(at) + j) * n_.depth + e), 0);
      const double v = op_.dropout == 0 ? n(sum.value) : dropped(n(sum.value), row * n_.kv + j);
      ds_.put(row * n_.kv + j, v,
              sum.magnitude == 0 ? 0 : kOfLogits * sum.magnitude + kNominal * std::fabs(v));
    }
  }
}

// N20.14; N20.18: kernels take the sum of dS S from dO and O, which has been cast.
void Core::make_gradient_of_logits(const Values& d_o) {
  dp_.resize(ds_.size());
  for (int64_t row = 0; row < n_.rows(); ++row) {
    const Place at = query(row);
    double total = 0, total_off = 0;
    for (int64_t j = 0; j < n_.kv; ++j) {
      const size_t s = static_cast<size_t>(row * n_.kv + j);
      const double ds = ds_.at(row * n_.kv + j);
      total = f32_of(total + f32_of(ds * exact_[s]));
      total_off += exact_[s] * ds_.off(row * n_.kv + j) + exact_off_[s] * std::fabs(ds) +
                   kNominal * std::fabs(ds * exact_[s]);
    }
    for (int64_t e = 0; e < n_.depth; ++e)
      total_off += std::fabs(d_o.at(result_of(at) + e)) * stages_.result_off(result_of(at) + e);
    for (int64_t j = 0; j < n_.kv; ++j) {
      const int64_t k = row * n_.kv + j;
      const double s = exact_[static_cast<size_t>(k)], apart = f32_of(ds_.at(k) - total);
      double v = !seen(at, j) ? 0 : n(f32_of(s * apart));
      if (change_.logit_gradient == LogitGradient::ds ||
          (change_.logit_gradient == LogitGradient::ds_masked && seen(at, j)))
        v = ds_.at(k);
      const double off = (exact_off_[static_cast<size_t>(k)] + kNominal * s) * std::fabs(apart) +
                         s * (ds_.off(k) + total_off);
      dp_.put(k, v, !seen(at, j) ? 0 : off + kNominal * std::fabs(v));
    }
  }
}

// N20.15.
void Core::make_gradients() {
  const bool before = op_.bias == AttentionBias::pre_scale;
  const double scale = std::pow(alpha_, change_.scale_times);
  const auto weight = [&](int64_t k) { return before ? n(f32_of(dp_.at(k) * alpha_)) : dp_.at(k); };
  const auto put = [&](Values& to, int64_t at, const Sum& sum) {
    double v = n(sum.value);
    if (!before)
      for (int t = 0; t < change_.scale_times; ++t) v = n(f32_of(v * alpha_));
    to.put(at, v, sum.error(std::fabs(scale), v, least_step()));
  };
  dq_.resize(static_cast<size_t>(n_.rows() * n_.depth));
  for (int64_t row = 0; row < n_.rows(); ++row)
    for (int64_t e = 0; e < n_.depth; ++e) {
      Sum sum;
      for (int64_t j = 0; j < n_.kv; ++j)
        sum.add(weight(row * n_.kv + j), dp_.off(row * n_.kv + j),
                k_.at((keys_of(query(row)) + j) * n_.depth + e), 0);
      put(dq_, row * n_.depth + e, sum);
    }
  dk_.resize(static_cast<size_t>(n_.repeated_rows() * n_.depth));
  for (int64_t head = 0; head < n_.batch * n_.heads; ++head)
    for (int64_t j = 0; j < n_.kv; ++j)
      for (int64_t e = 0; e < n_.depth; ++e) {
        Sum sum;
        for (int64_t i = 0; i < n_.q; ++i)
          sum.add(weight((head * n_.q + i) * n_.kv + j), dp_.off((head * n_.q + i) * n_.kv + j),
                  q_.at((head * n_.q + i) * n_.depth + e), 0);
        put(dk_, (head * n_.kv + j) * n_.depth + e, sum);
      }
}

bool Core::backward() {
  const auto d_o = stages_.take_gradient();
  if (!d_o) return false;
  make_gradient_of_v(*d_o);
  stages_.put("dv", dv_);
  make_gradient_of_s(*d_o);
  stages_.put("ds", ds_);
  make_gradient_of_logits(*d_o);
  stages_.put("dp", dp_);
  auto cast = stages_.cast(AttentionSlot::dp, dp_);
  if (!cast) return false;
  dp_ = std::move(*cast);
  make_gradients();
  stages_.put("dq", dq_);
  stages_.put("dk", dk_);
  return stages_.put_gradients(dq_, dk_, dv_);
}

}  // namespace

std::optional<std::vector<PlaneData>> attention_planes(const Problem& p, const std::vector<PlaneData>& inputs,
                                                       const AttentionChange& change, const RunLine& run,
                                                       const std::vector<PlaneData>* observed) {
  for (const Plane& plane : input_planes(p)) {  // another layout has others
    const PlaneData* given = find_plane(inputs, plane.name);
    if (!given || given->bytes.size() != plane.bytes()) return {};
  }
  Core core(p, inputs, change, run, observed);
  if (!core.forward()) return {};
  if (p.as<Attention>()->backward && !core.backward()) return {};
  return core.planes();
}

}  // namespace assay
