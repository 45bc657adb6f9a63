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
// N20.18: what lies so near to a value that n or a code has is that value behind the next rounding.
constexpr double kSame = 0x1p-40;

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
                                 : f32_of(1 / std::sqrt(static_cast<double>(n_.depth)))),
        keep_factor_(f32_of(1 / f32_of(1 - value_of(Encoding::f32, op_.dropout)))) {}

  bool forward();
  bool backward();
  std::vector<PlaneData> planes() { return stages_.take(); }

 private:
  struct Place {
    int64_t b, h, i;
  };
  Place query(int64_t row) const { return {row / (n_.heads * n_.q), row / n_.q % n_.heads, row % n_.q}; }
  using Sum = BoundedSum;
  double n(double v) const { return stages_.nominal(v); }
  double step(double y, double off = 0) const { return stages_.rounding().step(y, off); }
  // Puts `kept`, which E rounds to n from y; a kernel rounds a value within `off` of y (N20.18).
  void put(Values& to, int64_t at, double y, double off, double kept) const;
  int64_t shared(int64_t h) const { return change_.kv_head(h, n_.repeats()); }
  int64_t keys_of(const Place& at) const { return (at.b * n_.kv_heads + shared(at.h)) * n_.kv; }
  int64_t result_of(const Place& at) const { return ((at.i * n_.batch + at.b) * n_.heads + at.h) * n_.depth; }
  bool padding(const Place& at) const { return at.i >= q_length(p_, at.b); }
  bool seen(const Place& at, int64_t j) const;

  void make_logits();
  void softmax_row(int64_t row);
  double probability(double e, double total, bool sees_a_key) const;
  void put_probability(int64_t row, int64_t j, double cast, double error);
  void doubt_probabilities();
  void make_result();
  bool exact_row(int64_t row, const Place& at, int64_t e) const;
  bool may_overflow(const Place& at, int64_t e) const;
  bool is_open(int64_t row, const Place& at, int64_t e, double v) const;
  bool is_dropped(int64_t at) const;
  double dropped(double v, int64_t at) const;
  void make_gradient_of_v(const Values& d_o);
  void make_gradient_of_s(const Values& d_o);
  double sum_off(const Values& d_o, const Place& at, double total) const;
  void make_gradient_of_logits(const Values& d_o);
  void make_gradients();

  const Problem& p_;
  const Attention& op_;
  AttentionSizes n_;
  const AttentionChange& change_;
  AttentionStages stages_;
  bool bounded_;
  double alpha_, keep_factor_;
  Values q_, k_, v_, logits_, s_, cast_s_, o_, dv_, ds_, dp_, dq_, dk_;
  std::vector<double> exact_, exact_off_;       // S before it is rounded to n, and how far it may be
  Exponentials exponentials_;                   // Z of each row; how far a kernel's S may be from s_
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
      double v = sum.value, scale = 1, lost = 0;  // by roundings that a kernel need not do
      const double add = bias ? value_of(bias->plane.encoding,
                                         code_at(bias->plane, bias->bytes, (at.h * n_.q + at.i) * n_.kv + j))
                              : 0;
      const auto to_n = [&](double y) {
        lost += std::fabs(y - n(y)) + step(y);
        return n(y);
      };
      if (op_.bias == AttentionBias::pre_scale) v = to_n(f32_of(to_n(v) + add));
      for (int t = 0; t < change_.scale_times; ++t)
        v = f32_of(v * alpha_), scale *= std::fabs(alpha_), lost *= std::fabs(alpha_);
      if (op_.bias == AttentionBias::post_scale) v = f32_of(to_n(v) + add);
      const double of_bias = std::fabs(add) * (bias ? 1 + scale : 0);
      put(logits_, row * n_.kv + j, v, sum.error(kOfLogits) * scale + kOfLogits * of_bias + lost, n(v));
    }
  }
}

void Core::put(Values& to, int64_t at, double y, double off, double kept) const {
  if (std::isnan(off)) off = std::isfinite(y) ? std::numeric_limits<double>::infinity() : 0;
  if (off == 0) to.put(at, kept, 0);
  else if (bounded_ && stages_.rounding().may_overflow(y, off)) to.put_open(at);
  else to.put(at, kept, stages_.rounding().after(y, off, kept));
}

// N20.21: how far a kernel's exponential of x may be from E's where one of the two may be below 2^-126, and
// so 0; x may be off by half of `twice` on both sides. A kernel may keep multiples of 2^-149.
double flushed_off(double x, double twice) {
  constexpr double kLeast = 0x1p-149;
  const double least = std::exp(x - twice) * (1 - kOfExponential), most = std::exp(x + twice);
  return least < kFlushed && !(most < kLeast / 4) ? most + kLeast * std::exp(twice) : 0;
}

// N20.6, N20.7 of one row; N20.21: with logits off by t at most, S_j is off by a share of itself and of what
// the others have.
void Core::softmax_row(int64_t row) {
  const Place at = query(row);
  const int64_t first = row * n_.kv;
  double most = -std::numeric_limits<double>::infinity(), off = 0, total = 0, wide = 0, largest = 0;
  std::vector<double> e(static_cast<size_t>(n_.kv));
  int64_t count = 0;
  bool nan = false, equal = true;
  for (int64_t j = 0; j < n_.kv; ++j) {
    const bool visible = seen(at, j);
    const double x = visible ? logits_.at(first + j) : kMasked;
    nan |= std::isnan(x);
    if (visible) {
      off = std::max(off, logits_.off(first + j)), equal &= count++ == 0 || x == most;
      largest = std::max(largest, std::fabs(x));
    }
    most = std::max(most, x);
    e[static_cast<size_t>(j)] = x;
  }
  if (nan) most = std::numeric_limits<double>::quiet_NaN();
  const double twice = 2 * (off + kOfArgument * largest);
  std::vector<double> flushed(e.size());
  for (size_t j = 0; j < e.size(); ++j) {
    if (seen(at, static_cast<int64_t>(j))) flushed[j] = flushed_off(e[j] - most, twice);
    e[j] = exponential(op_.exp, f32_of(e[j] - most));
    total = f32_of(total + e[j]), wide += e[j];
  }
  exponentials_.totals[static_cast<size_t>(row)] = total;
  const bool halves = equal && count > 0 && (count & (count - 1)) == 0 && off == 0;
  const double share = std::expm1(twice) + kOfExponential;
  for (int64_t j = 0; j < n_.kv; ++j) {
    const size_t at_j = static_cast<size_t>(first + j);
    const double p = padding(at) ? 0 : probability(e[static_cast<size_t>(j)], total, count > 0);
    const double rest = std::max(0.0, wide - e[static_cast<size_t>(j)]) / wide;
    // Where no key is seen, fused kernels write zeros.
    const double error = halves || padding(at) ? 0
                         : count == 0          ? p
                                      : share * std::min(p, rest) + flushed[static_cast<size_t>(j)] / total;
    exact_[at_j] = p;
    // A sum of exponentials that all of a row share may be off as well.
    exact_off_[at_j] = error + (halves ? 0 : kOfArgument * largest * p);
    if (change_.normalised == Normalised::before_cast) put_probability(row, j, p, error);
    else put_probability(row, j, e[static_cast<size_t>(j)], error * total);
  }
}

double Core::probability(double e, double total, bool sees_a_key) const {
  using Unseeing = AttentionChange::Unseeing;
  if (sees_a_key || change_.unseeing == Unseeing::equal) return f32_of(e / total);
  return change_.unseeing == Unseeing::zero ? 0 : std::numeric_limits<double>::quiet_NaN();
}

// N20.10, N20.21: what the cast of S takes, of an unrounded probability or exponential.
void Core::put_probability(int64_t row, int64_t j, double cast, double error) {
  const int64_t at = row * n_.kv + j;
  const bool rounds = change_.normalised != Normalised::after_product;
  const double kept = rounds ? dropped(n(cast), at) : cast, y = cast * keep_factor_;
  int exponent;
  const bool whole = std::frexp(keep_factor_, &exponent) == 0.5;  // a power of two rounds nothing
  const bool stands = error < kSame / 2 && n(cast) == cast && (cast == 0 || cast >= kFlushed) && whole;
  double off = is_dropped(at) ? 0 : error * keep_factor_;
  if (!stands && !is_dropped(at)) {
    // S, or the exponential in its place, and with dropout the product are rounded.
    off += std::max(kFlushed, step(cast)) * keep_factor_ + std::fabs(y - kept);
    if (op_.dropout != 0) off += step(y);
  }
  if (std::isnan(off)) off = std::isfinite(cast) ? std::numeric_limits<double>::infinity() : 0;
  s_.put(at, kept, off);
  exponentials_.off[static_cast<size_t>(at)] = off;
}

// Of a row of S that came: it is rounded from what a kernel goes on from.
void Core::doubt_probabilities() {
  if (!s_.observed) return;
  for (int64_t i = 0; i < static_cast<int64_t>(s_.size()); ++i) {
    double& off = exponentials_.off[static_cast<size_t>(i)];
    if (off < kSame) off *= 2;
    else if (!std::isinf(off))
      off = 2 * std::max(kFlushed, step(s_.at(i) / keep_factor_)) * keep_factor_ +
            (op_.dropout == 0 ? 0 : step(s_.at(i)));
  }
}

bool Core::is_dropped(int64_t at) const {
  if (op_.dropout == 0) return false;
  const PlaneData& keep = stages_.input("keep");
  return code_at(keep.plane, keep.bytes, at) == 0;
}

double Core::dropped(double v, int64_t at) const {
  if (op_.dropout == 0) return v;
  return is_dropped(at) ? 0 : n(f32_of(v * keep_factor_));
}

// Whether no order and no width of a sum rounds O there: probabilities known, and all terms multiples of one
// power of two that is at most 2^10 below their sum. make_result() looks at what exponentials below 2^-126
// may add.
bool Core::exact_row(int64_t row, const Place& at, int64_t e) const {
  double least = std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t j = 0; j < n_.kv; ++j) {
    if (cast_s_.off(row * n_.kv + j) > kSame) return false;
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
  return total * keep_factor_ * largest_weight_ >= 0x1p127;
}

// Whether an element of O has no bound: the quotient of S and its exponential part ways where one of them is
// no longer a finite number.
bool Core::is_open(int64_t row, const Place& at, int64_t e, double v) const {
  if (!std::isnan(v) && may_overflow(at, e)) return true;
  // Fused kernels leave rows of padding out: 0 times a NaN or an infinity does not reach them.
  if (padding(at)) return !std::isfinite(v);
  const double total = exponentials_.totals[static_cast<size_t>(row)];
  // A NaN of the sum reaches every element at the end, dropped ones too; a sum that overflows once it is
  // scaled makes its reciprocal 0.
  if (std::isnan(total)) return !std::isnan(v);
  return total * scale_of_s_ >= 0x1p127;
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
      if (n_.kv == 0 && !padding(at) && change_.unseeing == AttentionChange::Unseeing::nan)
        v = std::numeric_limits<double>::quiet_NaN();  // 0 / 0, where no exponential is summed
      if (change_.normalised != Normalised::before_cast)
        v = f32_of(v / exponentials_.totals[static_cast<size_t>(row)]);
      if (bounded_ && is_open(row, at, e, v)) {
        o_.put_open(result_of(at) + e);
        continue;
      }
      const bool exact = bounded_ && n(v) == v && sum.off <= step(v) / 4 && exact_row(row, at, e);
      put(o_, result_of(at) + e, v, exact ? 0 : sum.error(kOfSums), n(v));
    }
  }
}

bool Core::forward() {
  if (!stages_.take_inputs(q_, k_, v_)) return false;
  make_logits();
  stages_.put("p", logits_);
  s_.resize(static_cast<size_t>(n_.rows() * n_.kv));
  exact_.assign(s_.size(), 0), exact_off_.assign(s_.size(), 0);
  exponentials_ = {std::vector<double>(static_cast<size_t>(n_.rows())), std::vector<double>(s_.size()),
                   keep_factor_};
  for (int64_t row = 0; row < n_.rows(); ++row) softmax_row(row);
  if (change_.normalised == Normalised::after_product) {
    Values plane = s_;
    for (int64_t i = 0; i < static_cast<int64_t>(plane.size()); ++i) plane.put(i, n(s_.at(i)), s_.off(i));
    stages_.put("s", plane);
  } else {
    stages_.put("s", s_);
  }
  doubt_probabilities();
  auto cast = stages_.cast_probabilities(s_, exponentials_);
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
        put(dv_, (head * n_.kv + j) * n_.depth + e, sum.value, sum.error(kOfSums), n(sum.value));
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
      const int64_t k = row * n_.kv + j;
      double off = sum.error(kOfLogits) * keep_factor_;
      // n(sum) is multiplied by 1 / (1 - dropout), and a kernel may round or not.
      if (op_.dropout != 0) off += (std::fabs(sum.value - n(sum.value)) + step(sum.value)) * keep_factor_;
      put(ds_, k, sum.value * keep_factor_, is_dropped(k) || sum.magnitude == 0 ? 0 : off,
          dropped(n(sum.value), k));
    }
  }
}

// N20.14, N20.23: kernels take the sum of dS S from dO and O, before the cast of O or behind it, and under
// MXFP8 before that of dO. How far that may be from `total`.
double Core::sum_off(const Values& d_o, const Place& at, double total) const {
  constexpr double kOpen = std::numeric_limits<double>::infinity();
  if (!std::isfinite(total)) return kOpen;
  double out = 0;
  for (const Values* o : {&std::as_const(o_), &stages_.result()}) {
    Sum sum;
    bool known = true;
    double by_result = 0, of_cast = 0;
    for (int64_t e = 0; e < n_.depth; ++e) {
      const double weight = d_o.at(result_of(at) + e), off = o->off(result_of(at) + e);
      sum.add(weight, 0, o->at(result_of(at) + e), off);
      by_result += weight * o->at(result_of(at) + e);
      known = known && off == 0;
      if (const Values* given = stages_.gradient_before_cast())
        of_cast += (given->at(result_of(at) + e) - weight) * o->at(result_of(at) + e);
    }
    // What is known of O need not be what S and V give, whose casts it has; what follows from them is as far
    // off as a kernel's.
    out =
        std::max(out, sum.error(kOfLogits) + (known ? std::fabs(by_result - total) : 0) + std::fabs(of_cast));
    if (std::isnan(sum.off) || !std::isfinite(by_result) || !std::isfinite(of_cast)) return kOpen;
  }
  return out;
}

// N20.14, N20.23.
void Core::make_gradient_of_logits(const Values& d_o) {
  dp_.resize(ds_.size());
  for (int64_t row = 0; row < n_.rows(); ++row) {
    const Place at = query(row);
    double total = 0, total_off = 0;
    for (int64_t j = 0; j < n_.kv; ++j) {
      const size_t s = static_cast<size_t>(row * n_.kv + j);
      const double ds = ds_.at(row * n_.kv + j);
      total = f32_of(total + f32_of(ds * exact_[s]));
      total_off +=
          exact_[s] * ds_.off(row * n_.kv + j) + (exact_off_[s] + step(exact_[s]) + kOfSums * exact_[s]) *
                                                     (std::fabs(ds) + ds_.off(row * n_.kv + j));
    }
    total_off += sum_off(d_o, at, total);
    for (int64_t j = 0; j < n_.kv; ++j) {
      const int64_t k = row * n_.kv + j;
      const double s = exact_[static_cast<size_t>(k)], apart = f32_of(ds_.at(k) - total);
      double y = s * apart, v = !seen(at, j) ? 0 : n(f32_of(y));
      if (change_.logit_gradient == LogitGradient::ds ||
          (change_.logit_gradient == LogitGradient::ds_masked && seen(at, j)))
        y = v = ds_.at(k);
      const double s_off = exact_off_[static_cast<size_t>(k)] + step(s), apart_off = ds_.off(k) + total_off;
      const double off = s_off * (std::fabs(apart) + apart_off) + s * apart_off +
                         kOfArgument * s * (std::fabs(ds_.at(k)) + std::fabs(total));
      if (bounded_ && seen(at, j) && !std::isfinite(total_off)) dp_.put_open(k);
      else put(dp_, k, y, !seen(at, j) ? 0 : off, v);
    }
  }
}

// N20.15, N20.23.
void Core::make_gradients() {
  const bool before = op_.bias == AttentionBias::pre_scale;
  const double scale = std::pow(std::fabs(alpha_), change_.scale_times);
  // What the sums take of dP after its cast, and how far a kernel's may be from it.
  const auto add = [&](Sum& sum, int64_t k, double x) {
    const double dp = dp_.at(k), w = before ? n(f32_of(dp * alpha_)) : dp;
    const double off =
        before ? std::fabs(alpha_) * dp_.off(k) + std::fabs(w - dp * alpha_) + step(dp * alpha_) : dp_.off(k);
    sum.add(w, dp == 0 && dp_.off(k) == 0 ? 0 : off, x, 0);
  };
  const auto keep = [&](Values& to, int64_t at, const Sum& sum) {
    if (before) return put(to, at, sum.value, sum.error(kOfSums), n(sum.value));
    double v = n(sum.value), y = sum.value;
    for (int t = 0; t < change_.scale_times; ++t) v = n(f32_of(v * alpha_)), y *= alpha_;
    const double off = sum.error(kOfSums) * scale;
    put(to, at, y, off == 0 ? 0 : off + step(y), v);  // a kernel may round before alpha as well
  };
  dq_.resize(static_cast<size_t>(n_.rows() * n_.depth));
  for (int64_t row = 0; row < n_.rows(); ++row)
    for (int64_t e = 0; e < n_.depth; ++e) {
      Sum sum;
      for (int64_t j = 0; j < n_.kv; ++j)
        add(sum, row * n_.kv + j, k_.at((keys_of(query(row)) + j) * n_.depth + e));
      keep(dq_, row * n_.depth + e, sum);
    }
  dk_.resize(static_cast<size_t>(n_.repeated_rows() * n_.depth));
  for (int64_t head = 0; head < n_.batch * n_.heads; ++head)
    for (int64_t j = 0; j < n_.kv; ++j)
      for (int64_t e = 0; e < n_.depth; ++e) {
        Sum sum;
        for (int64_t i = 0; i < n_.q; ++i)
          add(sum, (head * n_.q + i) * n_.kv + j, q_.at((head * n_.q + i) * n_.depth + e));
        keep(dk_, (head * n_.kv + j) * n_.depth + e, sum);
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
