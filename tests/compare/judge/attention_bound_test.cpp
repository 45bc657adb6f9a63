// hand:attention_bound. The bound of an attention whose bits are not pinned (N20.18, N20.20 to N20.23):
// kernels that round as N20.20 allows lie inside, and an element is judged right up to the bound that the
// clause's formula gives for it, worked out here from the planes alone, and wrong from the next code on.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "compare/arithmetic/attention_bound.h"
#include "compare/arithmetic/attention_core.h"
#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/judge/cases.h"
#include "compare/process/plain_run.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// ---- casts (N20.22) -------------------------------------------------------------------------------

double cast(Encoding e, double x, double scale) { return value_of(e, element_code(e, x * scale)) / scale; }

struct Drawn {
  double x, now, kernel, off;  // what E casts, its result, the kernel's, and the bound
};

// A probability and what a kernel makes of it: cast as it is, or as an exponential relative to a maximum that
// is not above the row's.
Drawn draw(std::mt19937& random, Encoding element, double scale, double keep_factor, bool by_exponential) {
  const auto uniform = [&] { return std::uniform_real_distribution<>(0, 1)(random); };
  const NominalRounding n(Encoding::bf16);
  const double total = 1 + 20 * uniform() * uniform(), e = uniform(), below = uniform() < 0.5 ? 1 : uniform();
  Drawn d{};
  const double y = e / total * keep_factor;
  d.x = bf16_of(y);
  d.now = cast(element, d.x, scale);
  const double off = n.step(y, 0) + std::fabs(y - d.x);
  const KernelCast kernel{element, 1 / scale, true, false, total, keep_factor};
  d.off = kernel.off(d.x, off, d.now, n);
  if (!by_exponential) d.kernel = cast(element, bf16_of(y), scale);
  else d.kernel = cast(element, std::min(1.0, e / below), scale) * std::min(below, 1.0) / total * keep_factor;
  if (by_exponential && e > below)  // no exponential is above 1
    d.kernel = cast(element, e, scale) / total * keep_factor;
  return d;
}

TEST(AttentionBound, HoldsCastsOfKernels) {
  std::mt19937 random(1);
  for (const Encoding element : {Encoding::e4m3, Encoding::e5m2})
    for (const double scale : {1.0, 0.25, 448.0, 256.0, 1000.0, 1e5, 3e6})
      for (const double keep_factor : {1.0, 1.25, 10.0})
        for (const bool by_exponential : {false, true}) {
          double nearest = 0;
          for (int i = 0; i < 20000; ++i) {
            const Drawn d = draw(random, element, scale, keep_factor, by_exponential);
            ASSERT_LE(std::fabs(d.kernel - d.now), d.off)
                << d.x << ' ' << d.now << ' ' << d.kernel << " scale " << scale << " r " << keep_factor;
            if (d.off > 0) nearest = std::max(nearest, std::fabs(d.kernel - d.now) / d.off);
          }
          // Not wider than it has to be: some kernel comes near.
          if (by_exponential) {
            EXPECT_GT(nearest, 0.6) << scale << ' ' << keep_factor;
          }
        }
}

// A value far below the least code is rounded to F16, and then to a code: either may take it up to the next
// one. E has 0.
TEST(AttentionBound, HoldsTwoRoundingsOfATinyValue) {
  const NominalRounding n(Encoding::f16);
  double nearest = 0;
  for (const Encoding element : {Encoding::e4m3, Encoding::e5m2})
    for (int power = 4; power < 20; ++power)
      for (const double x : {0x1.8p-26, 0x1p-25, 0x1.1p-25, 0x1.8p-25, 0x1.4p-24}) {
        const double scale = std::ldexp(1.0, power),
                     kernel = cast(element, value_of(Encoding::f16, element_code(Encoding::f16, x)), scale);
        const double off = KernelCast{element, 1 / scale, false, false, 1, 1}.off(0, x, 0, n);
        ASSERT_LE(kernel, off) << x << " scale 2^" << power;
        nearest = std::max(nearest, kernel / off);
      }
  EXPECT_GT(nearest, 0.6);
}

TEST(AttentionBound, WhatNoCastRoundsIsExact) {
  const NominalRounding n(Encoding::bf16);
  KernelCast kernel{Encoding::e4m3, 1.0 / 256, true, false, 4, 1};
  EXPECT_EQ(kernel.off(0.25, 0, 0.25, n), 0);
  EXPECT_EQ(kernel.off(0, 0, 0, n), 0);
  EXPECT_GT(kernel.off(0.3, 0, 0.296875, n), 0);
  kernel.inverse = 1.0 / 1024;  // 0.25 is 256 of 448, but an exponential of 1 saturates
  EXPECT_GE(kernel.off(0.25, 0, 0.25, n), 0.25 * (1 - 448.0 / 1024));
  EXPECT_LE(kernel.off(0.25, 0, 0.25, n), 0.25 * (1 - 448.0 / 1024) + 0.25 * (0x1p-4 + 0x1p-8) + 0x1p-20);
  EXPECT_TRUE(std::isinf(kernel.off(0.25, 0, INFINITY, n)));
  EXPECT_TRUE(std::isinf(kernel.off(0.25, 0, NAN, n)));
}

TEST(AttentionBound, OverflowOfSomeOrdersClaimsNothing) {
  const NominalRounding n(Encoding::f16);
  EXPECT_FALSE(n.may_overflow(65504, 1));
  EXPECT_TRUE(n.may_overflow(65504, 17));
  EXPECT_TRUE(n.may_overflow(65530, 17));
  EXPECT_FALSE(n.may_overflow(65540, 17));
  BoundedSum sum;
  sum.add(3e38, 0, 1, 0), sum.add(3e38, 0, 1, 0), sum.add(-3e38, 0, 1, 0);
  EXPECT_TRUE(std::isinf(sum.error(kOfSums)));
  BoundedSum beyond;
  beyond.add(INFINITY, 0, 2, 0.5);
  EXPECT_EQ(beyond.error(kOfSums), 0);
  beyond.add(INFINITY, 0, 2, 3);  // perhaps 0 times an infinity
  EXPECT_TRUE(std::isinf(beyond.error(kOfSums)));
}

// ---- planes (N20.21, N20.23) ----------------------------------------------------------------------

using Planes = std::vector<PlaneData>;

struct Line {
  explicit Line(const std::string& text)
      : problem(fakes::problem(text)),
        reference(make_reference_subject()),
        inputs(*make_inputs(problem, *reference)),
        want(*plain_run(*reference, problem, inputs)) {}

  // Gives an input one value everywhere.
  void fill(const std::string& name, double value) {
    for (PlaneData& p : inputs)
      for (int64_t i = 0; p.plane.name == name && i < p.plane.logical.count(); ++i)
        set_code(p.plane, p.bytes, i, element_code(p.plane.encoding, value));
    want = *plain_run(*reference, problem, inputs);
  }
  void set(const std::string& name, int64_t i, uint32_t code) {
    for (PlaneData& p : inputs)
      if (p.plane.name == name) set_code(p.plane, p.bytes, i, code);
    want = *plain_run(*reference, problem, inputs);
  }
  const PlaneData& plane(const std::string& name) const {
    const PlaneData* found = find_plane(want, name);
    return found ? *found : *find_plane(inputs, name);
  }
  double at(const std::string& name, int64_t i) const {
    const PlaneData& p = plane(name);
    return value_of(p.plane.encoding, code(name, i));
  }
  uint32_t code(const std::string& name, int64_t i) const {
    const PlaneData& p = plane(name);
    return code_at(p.plane, p.bytes, i);
  }
  // Whether element i of a plane may have this code, beside planes that are the reference's, or `alone`.
  bool inside(const std::string& name, int64_t i, uint32_t code, bool alone = false) const {
    return count_inside(name, i, {code}, alone) == 1;
  }
  // How many elements of a plane from i on may have these codes.
  int64_t count_inside(const std::string& name, int64_t i, const std::vector<uint32_t>& codes,
                       bool alone = false) const {
    Planes got;
    for (const PlaneData& p : want) {  // those before it, and itself
      if (!alone || p.plane.name == name) got.push_back(p);
      if (p.plane.name == name) break;
    }
    for (size_t k = 0; k < codes.size(); ++k)
      set_code(got.back().plane, got.back().bytes, i + static_cast<int64_t>(k), codes[k]);
    const auto run = [&](const Problem& p, const Planes& in) -> std::optional<Planes> {
      auto made = plain_run(*reference, p, in);
      if (!made) return {};
      return std::move(*made);
    };
    const auto near = attention_planes(problem, inputs, {}, run, &got);
    int64_t count = 0;
    for (size_t k = 0; near && k < codes.size(); ++k)
      count +=
          code_at(got.back().plane, find_plane(*near, name)->bytes, i + static_cast<int64_t>(k)) == codes[k];
    return count;
  }

  Problem problem;
  std::unique_ptr<Subject> reference;
  Planes inputs, want;
};

// The largest magnitude that the element may have lies at `bound` beyond what the reference has, and no code
// farther.
void expect_bound(const Line& line, const std::string& name, int64_t i, double bound) {
  const PlaneData& p = line.plane(name);
  const Encoding n = p.plane.encoding;
  const uint32_t code = code_at(p.plane, p.bytes, i);
  const double value = value_of(n, code);
  uint32_t last = code;
  while (std::fabs(value_of(n, last + 1) - value) <= bound) ++last;
  EXPECT_TRUE(line.inside(name, i, last)) << name << ' ' << i << ": " << last - code << " codes apart";
  EXPECT_FALSE(line.inside(name, i, last + 1))
      << name << ' ' << i << ": " << last + 1 - code << " codes apart";
}

constexpr double kHalf = 0x1p-8;  // u of bf16
double rounded_bound(double y, double b) {
  return b + kHalf * (std::fabs(y) + b) + std::fabs(y - bf16_of(y));
}

// Of one head: logits by the planes that came, S by binary64.
struct Row {
  std::vector<double> s, share;  // S_j, and min(S_j, 1 - S_j)
  double total = 0, largest = 0;
};
Row row_of(const Line& line, int64_t row, int64_t kv) {
  Row r;
  double most = -INFINITY;
  for (int64_t j = 0; j < kv; ++j) {
    most = std::max(most, line.at("p", row * kv + j));
    r.largest = std::max(r.largest, std::fabs(line.at("p", row * kv + j)));
  }
  for (int64_t j = 0; j < kv; ++j) r.s.push_back(std::exp(line.at("p", row * kv + j) - most));
  for (const double e : r.s) r.total += e;
  for (double& e : r.s) {
    e /= r.total;
    r.share.push_back(std::min(e, 1 - e));
  }
  return r;
}

TEST(AttentionBound, Logits) {
  const Line line("attention identity 3x8 bf16 kv=5 softmax_scale=0.3 backward=1 seed=3");
  for (const int64_t row : {0, 2})
    for (const int64_t j : {0, 3}) {
      double y = 0, terms = 0;
      for (int64_t e = 0; e < 8; ++e) {
        const double term = line.at("q", row * 8 + e) * line.at("k", j * 8 + e);
        y += term, terms += std::fabs(term);
      }
      const double alpha = static_cast<double>(0.3f);
      expect_bound(line, "p", row * 5 + j, rounded_bound(y * alpha, 0x1p-10 * terms * alpha));
    }
}

TEST(AttentionBound, Probabilities) {
  const Line line("attention identity 3x8 bf16 kv=5 seed=3");
  for (const int64_t row : {0, 2}) {
    const Row r = row_of(line, row, 5);
    for (const size_t j : {0u, 3u}) {
      const double s = (std::expm1(2 * 0x1p-22 * r.largest) + 0x1p-20) * r.share[j];
      expect_bound(line, "s", row * 5 + static_cast<int64_t>(j),
                   s + kHalf * r.s[j] + std::fabs(r.s[j] - bf16_of(r.s[j])));
    }
  }
}

// Row 3 of a window of the own key and the one before it, over two keys: E gives each key a half.
TEST(AttentionBound, WhatSeesNoKeyMayBeZero) {
  const Line line("attention identity 4x8 bf16 kv=2 mask=causal window=1,0 seed=3");
  ASSERT_EQ(line.at("s", 3 * 2), 0.5);
  const auto code = [](double v) { return element_code(Encoding::bf16, v); };
  EXPECT_TRUE(line.inside("s", 3 * 2, code(0)));
  EXPECT_FALSE(line.inside("s", 3 * 2, code(-0.01)));
  EXPECT_FALSE(line.inside("s", 3 * 2, code(1.25)));
  EXPECT_TRUE(line.inside("o", 3 * 8, code(0), true));  // S did not come
  EXPECT_FALSE(line.inside("o", 3 * 8, code(0)));       // halves came
  EXPECT_TRUE(line.inside("s", 1 * 2, line.code("s", 1 * 2)));
  EXPECT_FALSE(line.inside("s", 1 * 2, code(0)));
}

// What S may be off where it came: it, and the exponential in its place, are rounded.
double off_of_rounded(double s) { return 2 * kHalf * s; }

// Two keys whose logits are 0 and -87.5: the exponential of the second, 2^-126.2, is 0 in E. A kernel that
// met the second key first has multiplied it by E(-87.5), or by two factors that are not flushed.
TEST(AttentionBound, WhatAnExponentialFlushesMayBeKept) {
  const auto code = [](double v) { return element_code(Encoding::bf16, v); };
  const auto line = [&](bool first_kept, double logit) {
    Line out("attention identity 1x8 bf16 kv=2 bias=post_scale dropout=0.5 exp=ex2 seed=3");
    out.fill("q", 0), out.fill("v", 1);
    out.set("bias", 0, code(0)), out.set("bias", 1, code(logit));
    out.set("keep", 0, first_kept), out.set("keep", 1, 1);
    return out;
  };
  const double flushed = std::exp(-87.5);
  const Line of_second = line(false, -87.5), of_both = line(true, -87.5), far = line(false, -300);
  ASSERT_EQ(of_both.at("s", 1), 0);
  ASSERT_EQ(of_both.at("o", 0), 2);
  ASSERT_EQ(of_second.at("o", 0), 0);
  for (const bool alone : {false, true}) {  // S came, or not
    EXPECT_TRUE(of_second.inside("o", 0, code(2 * flushed), alone));
    EXPECT_FALSE(of_second.inside("o", 0, code(64 * flushed), alone));
    EXPECT_FALSE(of_both.inside("o", 0, of_both.code("o", 0) + 1, alone));
    EXPECT_FALSE(far.inside("o", 0, 1, alone));
  }
}

// The logit is -87.26, and E rounds it to -87.5, whose exponential is 0: that of -87.26 is not.
TEST(AttentionBound, WhatOnlyERoundsToAFlushedLogitMayBeKept) {
  const auto code = [](double v) { return element_code(Encoding::bf16, v); };
  Line line("attention identity 1x8 bf16 kv=2 softmax_scale=1 exp=ex2 seed=3");
  for (const char* name : {"q", "k", "v"}) line.fill(name, 0);
  line.set("q", 0, code(1)), line.set("q", 1, code(1));
  line.set("k", 8, code(-87)), line.set("k", 9, code(-0.259766));
  line.set("v", 8, code(1));
  ASSERT_EQ(line.at("o", 0), 0);
  EXPECT_TRUE(line.inside("o", 0, code(std::exp(-87.26)), true));
  EXPECT_FALSE(line.inside("o", 0, code(16 * std::exp(-87.26)), true));
}

// A kernel that keeps subnormal exponentials has multiples of 2^-149; an infinity of V is claimed where no
// such number is near.
TEST(AttentionBound, SubnormalExponentialsMayBeKept) {
  const auto code = [](double v) { return element_code(Encoding::bf16, v); };
  const auto line = [&](double logit, double v) {
    Line out("attention identity 1x8 bf16 kv=2 bias=post_scale dropout=0.5 exp=ex2 seed=3");
    out.fill("q", 0), out.fill("v", v);
    out.set("bias", 0, code(0)), out.set("bias", 1, code(logit));
    out.set("keep", 0, 0), out.set("keep", 1, 1);
    return out;
  };
  EXPECT_TRUE(line(-103.5, 0x1p30).inside("o", 0, code(0x1p-118)));
  EXPECT_TRUE(line(-101, 0x1p30).inside("o", 0, code(2 * 10 * 0x1p-119)));
  EXPECT_FALSE(line(-300, 0x1p30).inside("o", 0, code(0x1p-118)));
  Line far = line(-300, 1);
  far.set("v", 8, 0x7F80);  // an infinity: 0 times it is a NaN
  EXPECT_FALSE(far.inside("o", 0, code(5)));
}

// The bound of O, from that of each probability behind its cast.
double bound_of_result(const Line& line, int64_t row, int64_t e, int64_t kv, int64_t depth,
                       const std::function<double(double)>& cast_s,
                       const std::function<double(double)>& off) {
  double y = 0, b = 0, magnitude = 0;
  for (int64_t j = 0; j < kv; ++j) {
    const double s = line.at("s", row * kv + j), v = line.at("v", j * depth + e), one = off(s);
    y += cast_s(s) * v, magnitude += std::fabs(cast_s(s) * v), b += one * std::fabs(v);
  }
  return rounded_bound(y, b + 0x1p-7 * (magnitude + b));
}

TEST(AttentionBound, ResultOfRoundedProbabilities) {
  const Line line("attention identity 3x8 bf16 kv=5 seed=3");
  for (const int64_t e : {0, 5})
    expect_bound(line, "o", 8 + e,
                 bound_of_result(
                     line, 1, e, 5, 8, [](double s) { return s; }, off_of_rounded));
}

// Casts under a scale that no code exceeds, and under one where exponentials of 1 saturate.
TEST(AttentionBound, ResultOfCastProbabilities) {
  for (const double scale : {256.0, 1024.0}) {
    const Line line("attention identity/fp8_delayed 3x8 bf16 kv=5 seed=3 s.scale=" + std::to_string(scale));
    const double most = 448 / scale;
    const auto cast_s = [&](double s) { return cast(Encoding::e4m3, s, scale); };
    const auto off = [&](double s) {
      const double high = std::min(s, most), low = std::min(high, s * std::min(1.0, most)), now = cast_s(s);
      const double away = std::max(std::fabs(now - high), std::fabs(now - low)), b = off_of_rounded(s);
      return away + b + (0x1p-4 + kHalf) * (high + b) + 0x1p-10 / scale;
    };
    for (const int64_t e : {0, 5})
      expect_bound(line, "o", 8 + e, bound_of_result(line, 1, e, 5, 8, cast_s, off));
  }
}

TEST(AttentionBound, Gradients) {
  const Line line("attention identity 3x8 bf16 kv=5 softmax_scale=0.3 backward=1 seed=3");
  for (const int64_t e : {0, 5}) {
    double y = 0, b = 0, magnitude = 0, dq = 0, of_dq = 0;
    for (int64_t i = 0; i < 3; ++i) {
      const double s = line.at("s", i * 5 + 2), d_o = line.at("do", i * 8 + e);
      y += s * d_o, magnitude += std::fabs(s * d_o), b += off_of_rounded(s) * std::fabs(d_o);
    }
    expect_bound(line, "dv", 2 * 8 + e, rounded_bound(y, b + 0x1p-7 * (magnitude + b)));
    for (int64_t j = 0; j < 5; ++j) {
      const double term = line.at("dp", 5 + j) * line.at("k", j * 8 + e);
      dq += term, of_dq += std::fabs(term);
    }
    const double alpha = static_cast<double>(0.3f), now = line.at("dq", 8 + e),
                 off = 0x1p-7 * of_dq * alpha + kHalf * std::fabs(dq) * alpha;
    expect_bound(line, "dq", 8 + e,
                 off + kHalf * (std::fabs(dq * alpha) + off) + std::fabs(dq * alpha - now));
  }
}

// Under MXFP8 a kernel also gets dO in 16 bits, and may take D from it: 1.0625, of which the cast makes 1.
TEST(AttentionBound, MxfpTakesTheSumFromEitherGradient) {
  Line line("attention mxfp8 128x32 bf16 kv=128 softmax_scale=0.3 backward=1 seed=3");
  line.fill("v", 1);
  line.fill("do", 1.0625);
  constexpr int64_t kKeys = 128, kDepth = 32, kRow = 5;
  double sum = 0;
  for (int64_t e = kRow * kDepth; e < (kRow + 1) * kDepth; ++e) sum += line.at("do", e) * line.at("o", e);
  const Row r = row_of(line, kRow, kKeys);
  const auto made = [&](double of_sum) {
    std::vector<uint32_t> codes;
    for (int64_t j = 0; j < kKeys; ++j) {
      const double ds = line.at("ds", kRow * kKeys + j);
      codes.push_back(element_code(Encoding::bf16, r.s[static_cast<size_t>(j)] * (ds - of_sum)));
    }
    return codes;
  };
  EXPECT_EQ(line.count_inside("dp", kRow * kKeys, made(sum)), kKeys);
  EXPECT_LT(line.count_inside("dp", kRow * kKeys, made(0)), kKeys);
}

}  // namespace
}  // namespace assay
