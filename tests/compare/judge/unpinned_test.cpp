// N16.13: a subject whose order of roundings is not known is judged by the bound. The one here multiplies,
// adds and fuses in an order that is drawn for each element: what it makes of right operands is accepted, and
// what it makes of wrong ones is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "compare/arithmetic/gemm_bounds.h"
#include "compare/commands/check.h"
#include "compare/commands/diff.h"
#include "compare/commands/explain.h"
#include "compare/commands/record.h"
#include "compare/commands/run.h"
#include "compare/commands/trace.h"
#include "compare/debug/shrink.h"
#include "compare/debug/trace.h"
#include "compare/judge/cases.h"
#include "compare/judge/claims.h"
#include "compare/packs/pack.h"
#include "compare/packs/replay.h"
#include "compare/report/report.h"
#include "compare/subjects/pack_subject.h"
#include "contract/line.h"
#include "fast/gemm_plan.h"
#include "fast/subject_host.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

const char kWhy[] = "nobody knows in which order it rounds";

// Values rounded to an encoding, by the reference's own cast.
std::vector<uint32_t> cast(Subject& reference, Encoding to, const std::vector<float>& values) {
  if (to == Encoding::f32 || values.empty()) {
    std::vector<uint32_t> out;
    for (const float v : values) out.push_back(std::bit_cast<uint32_t>(v));
    return out;
  }
  const Problem p =
      fakes::problem("cast " + std::string(info(to).name) + " 1x" + std::to_string(values.size()) + " f32");
  std::vector<PlaneData> inputs = *make_inputs(p, reference);
  for (size_t i = 0; i < values.size(); ++i)
    set_code(inputs[0].plane, inputs[0].bytes, static_cast<int64_t>(i), std::bit_cast<uint32_t>(values[i]));
  const Execution e = execute(reference, p, inputs, {});
  std::vector<uint32_t> out;
  for (size_t i = 0; i < values.size(); ++i)
    out.push_back(code_at(e.planes[0].plane, e.planes[0].bytes, static_cast<int64_t>(i)));
  return out;
}

float value(const PlaneData& p, int64_t row, int64_t col) {
  return static_cast<float>(
      value_of(p.plane.encoding, code_at(p.plane, p.bytes, index_of(p.plane, row, col))));
}

// Multiplies as the reference does, of operands that `spoil` has changed, and rounds what follows the sum in
// orders of its own.
class AnyOrder final : public Subject {
 public:
  using Spoil = std::function<void(std::vector<PlaneData>&)>;
  explicit AnyOrder(uint64_t seed = 1) : seed_(seed), reference_(make_reference_subject()) {}
  std::string_view name() const override { return "fake"; }
  Support supports(const Problem& p) const override { return reference_->supports(p); }
  std::optional<std::string> unpinned(const Problem& p) const override {
    return p.as<Gemm>() && known != Known::yes ? std::optional<std::string>(kWhy) : std::nullopt;
  }

  Served run(const Problem& p, std::span<const ConstBuffer> in, std::span<const Buffer> out,
             const Environment&) override {
    std::vector<PlaneData> inputs;
    for (const ConstBuffer& b : in) inputs.push_back({*b.plane, {b.bytes.begin(), b.bytes.end()}});
    if (of_inputs) of_inputs(inputs);
    const PlaneData sums = accumulated(p, inputs);
    const auto given = [&](const char* name, int64_t row, int64_t col) {
      const PlaneData& plane = *find_plane(inputs, name);
      return value(plane, plane.plane.logical.rows == 1 && plane.plane.logical.cols == 1 ? 0 : row,
                   plane.plane.logical.cols == 1 ? 0 : col);
    };
    const Gemm& g = *p.as<Gemm>();
    const bool scaled = info(g.a.quantizer.format).per_tensor_fp8();
    std::mt19937_64 draw(seed_);
    const auto pick = [&](size_t n) { return static_cast<size_t>(draw() % n); };

    // Each element's product, with one factor kept apart where it may be fused, and its terms.
    struct Element {
      float product, apart = 1;
      bool fused = false, cast_first = false, bias_first = false, term_fused = false, terms_first = false,
           c_first = false;
    };
    std::vector<Element> elements;
    std::vector<float> early;
    const Shape shape = p.x.shape;
    const float beta = g.reads_c() ? std::bit_cast<float>(g.beta) : 0;
    for (int64_t n = 0; n < shape.rows; ++n)
      for (int64_t m = 0; m < shape.cols; ++m) {
        std::vector<float> leaves = {value(sums, n, m)};
        if (scaled) leaves.insert(leaves.end(), {given("a.scale_inv", m, 0), given("b.scale_inv", n, 0)});
        if (g.multiplies()) leaves.push_back(std::bit_cast<float>(g.alpha));
        while (leaves.size() > 2) {
          const size_t i = pick(leaves.size());
          const float x = leaves[i];
          leaves.erase(leaves.begin() + static_cast<std::ptrdiff_t>(i));
          float& y = leaves[pick(leaves.size())];
          y *= x;
        }
        Element e{leaves[0]};
        e.cast_first = g.reads_c() && pick(3) == 0;
        e.bias_first = g.bias && pick(2) == 0;
        e.term_fused = pick(2) == 0;
        e.terms_first = pick(3) == 0;
        e.c_first = pick(2) == 0;
        if (leaves.size() == 2 && (g.reads_c() || g.bias) && !e.cast_first && pick(2) == 0)
          e.apart = leaves[1], e.fused = true;
        else if (leaves.size() == 2) e.product *= leaves[1];
        elements.push_back(e);
        const float bias = g.bias ? given("bias", 0, m) : 0;
        early.push_back(e.cast_first ? e.bias_first ? e.product + bias : e.product : 0);
      }
    const std::vector<uint32_t> cast_early = cast(*reference_, p.x.source, early);

    std::vector<float> values;
    for (int64_t n = 0; n < shape.rows; ++n)
      for (int64_t m = 0; m < shape.cols; ++m) {
        const size_t i = values.size();
        const Element& e = elements[i];
        const float bias = g.bias ? given("bias", 0, m) : 0, c = g.reads_c() ? given("c", n, m) : 0;
        const auto plus_c = [&](float v) { return e.term_fused ? std::fma(beta, c, v) : v + beta * c; };
        float v;
        if (e.cast_first) {
          v = plus_c(static_cast<float>(value_of(p.x.source, cast_early[i])));
          if (g.bias && !e.bias_first) v += bias;
        } else if (!g.reads_c() && !g.bias) {
          v = e.product;
        } else if (e.terms_first || e.fused) {
          const float terms = !g.bias ? beta * c : !g.reads_c() ? bias : plus_c(bias);
          v = e.fused ? std::fma(e.product, e.apart, terms) : e.product + terms;
        } else {
          v = g.reads_c() && e.c_first ? plus_c(e.product) : e.product;
          if (g.bias) v += bias;
          if (g.reads_c() && !e.c_first) v = plus_c(v);
        }
        values.push_back(v);
      }
    const std::vector<uint32_t> codes = cast(*reference_, p.x.source, values);
    for (size_t i = 0; i < codes.size(); ++i)
      set_code(*out[0].plane, out[0].bytes, static_cast<int64_t>(i), codes[i]);
    if (of_output) of_output(out[0]);
    return {"orders of its own", 1};
  }

  enum class Known { no, yes } known = Known::no;
  Spoil of_inputs;
  std::function<void(const Buffer&)> of_output;

 private:
  // The sums in f32, without what follows them.
  PlaneData accumulated(const Problem& p, const std::vector<PlaneData>& inputs) {
    Problem bare = p;
    Gemm& g = *bare.as<Gemm>();
    g.alpha = 0x3F800000, g.beta = 0, g.bias.reset();
    bare.x.source = Encoding::f32;
    std::vector<PlaneData> planes;
    for (const Plane& plane : input_planes(bare)) {
      planes.push_back({plane, find_plane(inputs, plane.name)->bytes});
      if (plane.name.ends_with("scale_inv") && info(g.a.quantizer.format).per_tensor_fp8())
        for (int64_t i = 0; i < plane.padded.count(); ++i)
          set_code(plane, planes.back().bytes, i, 0x3F800000);
    }
    return execute(*reference_, bare, planes, {}).planes[0];
  }
  uint64_t seed_;
  std::unique_ptr<Subject> reference_;
};

Subjects subjects_of(std::unique_ptr<AnyOrder> subject) {
  Subjects s;
  s.owned.push_back(std::make_unique<fakes::Spoiled>("reference", nullptr));
  s.owned.push_back(std::move(subject));
  return s;
}
Verdict judged(const std::string& line, uint64_t seed, const AnyOrder::Spoil& of_inputs = {},
               const std::function<void(const Buffer&)>& of_output = {}) {
  auto subject = std::make_unique<AnyOrder>(seed);
  subject->of_inputs = of_inputs;
  subject->of_output = of_output;
  return judge_case(entry_of(fakes::problem(line)), subjects_of(std::move(subject)), {"fake"}, {})[0];
}
std::string first_of(const Verdict& v) {
  return v.breaches.empty() ? v.reason : v.breaches[0].claim + ": " + v.breaches[0].message;
}
PlaneData& plane(std::vector<PlaneData>& planes, const std::string& name) {
  return *std::find_if(planes.begin(), planes.end(),
                       [&](const PlaneData& p) { return p.plane.name == name; });
}
bool by_law(const Verdict& v, const std::string& law) {
  return v.outcome == Outcome::failed && !v.breaches.empty() && v.breaches[0].claim == law &&
         v.breaches[0].plane == "d";
}

const std::string kFp8 = "gemm a=fp8_current b=fp8_current 21x18x160 row_scaled=1 sum=hopper_fp8_split ";

TEST(Unpinned, EveryOrderIsAccepted) {
  int64_t inside = 0, lines = 0;
  for (const std::string operands :
       {"gemm a=fp8_current b=fp8_current 21x18x160 row_scaled=1 sum=hopper_fp8_split",
        "gemm a=fp8_current b=fp8_current 21x18x130 row_scaled=1 sum=hopper_fp8_fast op=NT",
        "gemm a=fp8_current b=fp8_delayed 21x18x160 a.row_scaled=1 sum=hopper_fp8_split op=NN",
        "gemm a=fp8_delayed b=fp8_current 21x18x160 sum=hopper_fp8_split",
        "gemm a=fp8_block b=fp8_block 21x18x160 sum=hopper_fp8_split",
        "gemm a=identity b=identity 21x18x96 sum=hopper_f16",
        "gemm a=identity b=identity 21x18x96 f32 sum=hopper_tf32",
        "gemm a=fp8_delayed b=fp8_delayed 21x18x16 a.scale=3 b.scale=5 sum=hopper_fp8_split"})
    for (const std::string epilogue :
         {"", "alpha=0.3", "alpha=-7e-5 beta=1", "bias=f32", "beta=0.7 bias=bf16",
          "alpha=1e-30 beta=-3 bias=f32", "alpha=4 beta=0.5"})
      for (const char* keys :
           {"out=f32 fill=normal", "out=f32 fill=wide", "out=bf16 fill=normal", "out=bf16 fill=outliers",
            "out=f16 fill=normal", "out=f32 fill=exact_sums"}) {  // the last of the last: codes are integers,
                                                                  // so that nothing but the order rounds
        const std::string line = operands + " " + epilogue + " " + keys;
        const Verdict v = judged(line, static_cast<uint64_t>(++lines));
        EXPECT_EQ(v.outcome, Outcome::passed) << line << ": " << first_of(v);
        EXPECT_EQ(v.unpinned, kWhy);
        EXPECT_THAT(v.claims, Not(Contains("parity"))) << line;
        EXPECT_THAT(v.claims, Contains("repeat")) << line;
        EXPECT_TRUE(std::find(v.claims.begin(), v.claims.end(), "bound") != v.claims.end() ||
                    std::find(v.claims.begin(), v.claims.end(), "integer") != v.claims.end())
            << line;
        inside += v.inside;
      }
  EXPECT_GT(inside, lines * 20);  // the orders are others, or nothing was shown
}

// The pinned order is one of them, so what the reference makes lies inside too; FP8 outputs saturate, NaN and
// infinities are the same in every order.
TEST(Unpinned, TheReferenceIsInside) {
  const auto reference = make_reference_subject();
  for (const std::string operands :
       {"gemm a=fp8_current b=fp8_current 21x18x160 row_scaled=1 sum=hopper_fp8_split",
        "gemm a=nvfp4 b=nvfp4 16x18x64 row_scaled=1",
        "gemm a=mxfp8 b=fp8_current 21x18x64 b.row_scaled=1 op=NT",
        "gemm a=nvfp4 b=nvfp4 16x18x64 row_scaled=1 sum=hopper_f16",
        "gemm a=fp8_block b=fp8_block 21x18x160 sum=hopper_fp8_split"})
    for (const std::string epilogue :
         {"", "alpha=0.3 bias=bf16", "out=f32 beta=0.7 alpha=3", "out=e4m3 alpha=0.01"})
      for (const char* fill : {"normal", "wide", "nonfinite", "edges", "exact_sums"}) {
        const Problem p = fakes::problem(operands + " " + epilogue + " fill=" + fill);
        const auto inputs = *make_inputs(p, *reference);
        std::vector<std::string> evaluated;
        const auto broken = check_laws(p, inputs, execute(*reference, p, inputs, {}).planes, "reference",
                                       &evaluated, GemmOrder::any);
        EXPECT_TRUE(broken.empty()) << to_line(p) << ": " << broken[0].where << " " << broken[0].message;
      }
}

TEST(Unpinned, WrongOperandsAreSeen) {
  const auto lose_tail = [](std::vector<PlaneData>& in) {
    PlaneData& a = plane(in, "a.data");
    for (int64_t m = 0; m < a.plane.logical.rows; ++m)
      set_code(a.plane, a.bytes, (m + 1) * a.plane.logical.cols - 1, 0);
  };
  const auto swap_scales = [](std::vector<PlaneData>& in) {
    std::swap(plane(in, "a.scale_inv").bytes, plane(in, "b.scale_inv").bytes);
  };
  const auto shift_scales = [](std::vector<PlaneData>& in) {
    PlaneData& s = plane(in, "b.scale_inv");
    std::rotate(s.bytes.begin(), s.bytes.begin() + 4, s.bytes.end());
  };
  const auto first_scale = [](std::vector<PlaneData>& in) {  // one for the tensor
    PlaneData& s = plane(in, "a.scale_inv");
    for (size_t i = 4; i < s.bytes.size(); ++i) s.bytes[i] = s.bytes[i % 4];
  };
  const auto transpose = [](std::vector<PlaneData>& in) {  // [cols, rows] read as [rows, cols]
    PlaneData& s = plane(in, "b.scale_inv");
    const PlaneData was = s;
    const Shape l = s.plane.logical;
    for (int64_t i = 0; i < l.count(); ++i)
      set_code(s.plane, s.bytes, index_of(s.plane, i / l.cols, i % l.cols),
               code_at(was.plane, was.bytes, index_of(s.plane, i % l.rows, i / l.rows)));
  };
  for (const std::string epilogue : {"", "alpha=0.3", "beta=1 bias=bf16 alpha=0.3"}) {
    const std::string square =
        "gemm a=fp8_current b=fp8_current 20x20x160 row_scaled=1 sum=hopper_fp8_split " + epilogue;
    EXPECT_TRUE(by_law(judged(square, 3, swap_scales), "bound")) << epilogue;
    EXPECT_TRUE(by_law(judged(kFp8 + epilogue, 3, shift_scales), "bound")) << epilogue;
    EXPECT_TRUE(by_law(judged(kFp8 + epilogue, 3, first_scale), "bound")) << epilogue;
    EXPECT_TRUE(by_law(judged("gemm a=fp8_block b=fp8_block 21x18x300 sum=hopper_fp8_split fill=wide " +
                                  (epilogue.empty() ? "alpha=0.7" : epilogue),
                              3, transpose),
                       "bound"))
        << epilogue;
    EXPECT_TRUE(by_law(judged("gemm a=identity b=identity 21x18x129 sum=hopper_f16 out=f32 " +
                                  (epilogue.empty() ? "alpha=0.7" : epilogue),
                              3, lose_tail),
                       "bound"))
        << epilogue;
  }
  EXPECT_TRUE(by_law(judged(kFp8 + "pow2=1 out=f32 fill=exact_sums", 3, lose_tail), "integer"));
  EXPECT_TRUE(by_law(judged(kFp8 + "pow2=1 out=f32 fill=exact_sums alpha=0.3", 3, lose_tail), "bound"));
}

// An element that no order makes: beside the bound, a NaN, an infinity.
TEST(Unpinned, AWrongElementIsSeen) {
  for (const uint32_t wrong : {0x7FC0u, 0x7F80u, 0xFF80u, 0x4300u, 0x0000u}) {
    const Verdict v = judged(kFp8 + "out=bf16 alpha=0.3", 4, {},
                             [&](const Buffer& d) { set_code(*d.plane, d.bytes, 45, wrong); });
    ASSERT_TRUE(by_law(v, "bound")) << wrong << first_of(v);
    EXPECT_EQ(v.breaches[0].row * 21 + v.breaches[0].col, 45);
    EXPECT_EQ(v.breaches[0].got_code, wrong);
  }
  // Where NaN is what every order gives, a number is wrong.
  const std::string line =
      "gemm a=identity b=identity 21x18x8 f32 sum=hopper_tf32 out=f32 alpha=0.3 fill=nonfinite";
  EXPECT_EQ(judged(line, 4).outcome, Outcome::passed) << first_of(judged(line, 4));
  EXPECT_TRUE(by_law(judged(line, 4, {},
                            [](const Buffer& d) {
                              for (int64_t i = 0; i < d.plane->logical.count(); ++i)
                                if (is_nan(Encoding::f32, code_at(*d.plane, d.bytes, i)))
                                  return set_code(*d.plane, d.bytes, i, 0x3F800000);
                            }),
                     "bound"));
}

// Where no step of any order rounds there is one value, and the bit beside it is wrong.
TEST(Unpinned, IntegersAreExactInEveryOrder) {
  for (const char* epilogue :
       {"", "alpha=2", "alpha=3", "beta=1", "beta=0.5 bias=f32", "alpha=0.5 beta=-2 bias=bf16"}) {
    const std::string line = kFp8 + "pow2=1 out=f32 fill=exact_sums " + epilogue;
    const Verdict v = judged(line, 5);
    EXPECT_EQ(v.outcome, Outcome::passed) << line << ": " << first_of(v);
    EXPECT_THAT(v.claims, Contains("integer")) << line;
    EXPECT_THAT(v.claims, Not(Contains("bound"))) << line;
    EXPECT_EQ(v.inside, 0) << line;
    for (const int64_t i : {0, 200, 377})
      EXPECT_TRUE(by_law(
          judged(line, 5, {},
                 [&](const Buffer& d) { set_code(*d.plane, d.bytes, i, code_at(*d.plane, d.bytes, i) ^ 1); }),
          "integer"))
          << line;
  }
  EXPECT_THAT(judged(kFp8 + "pow2=1 out=f32 fill=exact_sums alpha=0.3", 5).claims, Contains("bound"));
  // What is added is exact too, but the sum may be cast before.
  EXPECT_THAT(judged(kFp8 + "pow2=1 out=bf16 fill=exact_sums beta=1", 5).claims, Contains("bound"));
}

struct OneElement {
  Problem problem;
  std::vector<PlaneData> inputs;
  std::optional<GemmBounds::Interval> any() const {
    return GemmBounds(problem, inputs, GemmOrder::any).at(0, 0);
  }
};
// 1 * 1 + ... of K ones, whose scales are as given.
OneElement ones(const std::string& keys, float scale_a, float scale_b) {
  OneElement e{fakes::problem("gemm a=fp8_current b=fp8_current 1x1x16 sum=hopper_fp8_split out=f32 " + keys),
               {}};
  const auto reference = make_reference_subject();
  e.inputs = *make_inputs(e.problem, *reference);
  for (const char* name : {"a.data", "b.data"})
    for (std::byte& b : plane(e.inputs, name).bytes) b = std::byte{0x38};
  set_code(Encoding::f32, plane(e.inputs, "a.scale_inv").bytes, 0, std::bit_cast<uint32_t>(scale_a));
  set_code(Encoding::f32, plane(e.inputs, "b.scale_inv").bytes, 0, std::bit_cast<uint32_t>(scale_b));
  return e;
}

// Three factors that round, one after the other, in units of the last place; fewer that are powers of two;
// and no more than that.
TEST(Unpinned, TheBoundIsAsWideAsItsRoundings) {
  const float s = 0x1.555556p-2f, t = 0x1.99999ap-3f;
  const auto units = [](const GemmBounds::Interval& i) {
    return (i.high - i.low) / std::ldexp(1.0, std::ilogb(i.high) - 23);
  };
  const auto three = ones("alpha=0.3", s, t).any(), two = ones("", s, t).any(),
             one = ones("alpha=4", s, 2).any(), none = ones("alpha=4", 0.25f, 2).any();
  ASSERT_TRUE(three && two && one && none);
  const double exact = 16.0 * s * t;
  EXPECT_TRUE(two->holds(exact * (1 + 0x1p-24)) && two->holds(exact * (1 - 0x1p-24)));
  EXPECT_GE(units(*three), 3);
  EXPECT_LE(units(*three), 7);
  EXPECT_LE(units(*two), 5);
  EXPECT_TRUE(one->exact);  // 16 s 8: s alone has digits
  EXPECT_TRUE(none->exact);
  EXPECT_EQ(none->low, 32);
}

// Scales whose product vanishes in one order and not in another; a product that overflows in one says
// nothing.
TEST(Unpinned, ProductsThatVanishOrOverflow) {
  const auto small = ones("alpha=1.2676506e30", 0x1p-80f, 0x1p-80f).any();  // alpha: 2^100
  ASSERT_TRUE(small);
  EXPECT_TRUE(small->holds(0)) << "fl(a's scale * b's) is 0";
  EXPECT_TRUE(small->holds(std::ldexp(1.0, 4 - 160 + 100)));
  EXPECT_FALSE(small->holds(std::ldexp(1.0, 4 - 150 + 104)));
  EXPECT_FALSE(ones("alpha=1e-30", 0x1p80f, 0x1p80f).any());
  EXPECT_FALSE(ones("", INFINITY, 1).any());
  const auto nan = ones("", NAN, 1).any();
  ASSERT_TRUE(nan);
  EXPECT_TRUE(nan->nan && nan->holds(NAN) && !nan->holds(1));
}

// Nothing of d has a bound: a difference is not accepted unseen.
TEST(Unpinned, WhatHasNoBoundIsNotAccepted) {
  const OneElement e = ones("alpha=1e-30", 0x1p80f, 0x1p80f);
  const auto reference = make_reference_subject();
  std::vector<PlaneData> want = execute(*reference, e.problem, e.inputs, {}).planes, got = want;
  Verdict v;
  EXPECT_FALSE(judge_unpinned(e.problem, e.inputs, got, want, kWhy, *reference, v));  // equal all the same
  set_code(Encoding::f32, got[0].bytes, 0, 0x42000000);
  EXPECT_TRUE(judge_unpinned(e.problem, e.inputs, got, want, kWhy, *reference, v));
  EXPECT_TRUE(v.breaches.empty());
  EXPECT_EQ(v.inside, 1);
}

// An infinity beside what may overflow to the other one, and ends of which one overflows before alpha = 0:
// nothing is said.
TEST(Unpinned, WhatMayOverflowIsNoInfinity) {
  const std::string nine = "gemm a=identity b=identity 1x1x9 f32 sum=hopper_tf32 out=f32 ";
  const auto reference = make_reference_subject();
  const auto any = [&](const std::string& keys, uint32_t first, uint32_t last, uint32_t c) {
    const Problem p = fakes::problem(nine + keys);
    std::vector<PlaneData> inputs = *make_inputs(p, *reference);
    PlaneData &a = plane(inputs, "a.data"), &b = plane(inputs, "b.data");
    for (PlaneData* side : {&a, &b}) std::fill(side->bytes.begin(), side->bytes.end(), std::byte{});
    set_code(a.plane, a.bytes, 0, first);  // the first step: first * 2^100
    set_code(b.plane, b.bytes, 0, 0x71800000);
    set_code(a.plane, a.bytes, 8, last);  // the second: last * 1
    set_code(b.plane, b.bytes, 8, 0x3F800000);
    if (p.as<Gemm>()->reads_c()) set_code(Encoding::f32, plane(inputs, "c").bytes, 0, c);
    EXPECT_TRUE(
        check_laws(p, inputs, execute(*reference, p, inputs, {}).planes, "reference", nullptr, GemmOrder::any)
            .empty())
        << keys << first;
    return GemmBounds(p, inputs, GemmOrder::any).at(0, 0);
  };
  const uint32_t inf = 0x7F800000, one = 0x3F800000, minus_one = 0xBF800000, minus_huge = 0xF1800000;
  EXPECT_FALSE(any("alpha=0.3", minus_huge, inf, 0)) << "-inf of the first step and the infinity are NaN";
  EXPECT_FALSE(any("alpha=0.3 beta=1", minus_huge, one, inf)) << "and so are -inf of the sum and c";
  EXPECT_FALSE(any("alpha=1e30 beta=1", minus_one, one, inf)) << "-2^100 1e30 and c";
  ASSERT_TRUE(any("alpha=0.3", minus_one, inf, 0));
  EXPECT_TRUE(any("alpha=0.3", minus_one, inf, 0)->holds(HUGE_VAL));
  ASSERT_TRUE(any("alpha=0.3 beta=1", one, one, inf));
  EXPECT_TRUE(any("alpha=0.3 beta=1", one, one, inf)->holds(HUGE_VAL));

  OneElement e = ones("alpha=0", 0x1.4e5e2p110f, 1);  // 448 * 448 of it: just above the largest
  for (const char* name : {"a.data", "b.data"}) {
    std::vector<std::byte>& codes = plane(e.inputs, name).bytes;
    std::fill(codes.begin(), codes.end(), std::byte{0x01});
    codes[0] = std::byte{0x7E};
  }
  EXPECT_TRUE(check_laws(e.problem, e.inputs, execute(*reference, e.problem, e.inputs, {}).planes,
                         "reference", nullptr, GemmOrder::pinned)
                  .empty());
  EXPECT_FALSE(GemmBounds(e.problem, e.inputs).at(0, 0));
}

// The conditions of N16.13, one after the other; what cuBLASLt's sums do not take has none.
TEST(Unpinned, WhatIsNotPinned) {
  const std::string fp8 = "gemm a=fp8_current b=fp8_current 16x16x64 sum=hopper_fp8_split ",
                    blocks = "gemm a=fp8_block b=fp8_block 16x16x128 sum=hopper_fp8_split ",
                    plain = "gemm a=identity b=identity 16x16x64 sum=hopper_f16 ",
                    sequence = "gemm a=fp8_current b=fp8_current 16x16x64 ";
  for (const std::string& line :
       {fp8 + "row_scaled=1", fp8 + "alpha=0.3", fp8 + "alpha=1e-40", fp8 + "bias=bf16", fp8 + "beta=1",
        blocks + "alpha=3", blocks + "bias=bf16", plain + "alpha=2 beta=1", plain + "alpha=2 bias=f32",
        plain + "beta=0.7", plain + "beta=1 bias=f32", fp8 + "a.row_scaled=1 out=f32"})
    EXPECT_TRUE(has_unpinned_bits(*fakes::problem(line).as<Gemm>())) << line;
  for (const std::string& line : {fp8, fp8 + "alpha=2", fp8 + "alpha=-0.125", blocks, blocks + "alpha=4",
                                  plain, plain + "alpha=0.3", plain + "beta=1", plain + "beta=-0.5",
                                  plain + "bias=f32", sequence + "row_scaled=1 alpha=0.3 beta=0.7 bias=f32",
                                  sequence + "sum=exact row_scaled=1 alpha=0.3 beta=0.7 bias=f32"})
    EXPECT_FALSE(has_unpinned_bits(*fakes::problem(line).as<Gemm>())) << line;
}

// A recording that cuBLASLt calls unpinned must read back, and nothing else may call itself so.
TEST(Unpinned, WhatIsAskedOfCublasltAndTheClauseAgree) {
  size_t plans = 0, open = 0;
  for (const char* operands :
       {"a=fp8_current b=fp8_current 16x32x64", "a=fp8_current b=fp8_current 16x32x64 row_scaled=1",
        "a=fp8_delayed b=fp8_current 16x32x64", "a=fp8_block b=fp8_block 128x128x256",
        "a=fp8_block b=fp8_block 128x128x256 b.block=128x128", "a=identity b=identity 16x32x64",
        "a=identity b=identity 16x32x64 f32", "a=mxfp8 b=nvfp4 16x32x64"})
    for (const char* sum : {"hopper_fp8_split", "hopper_fp8_fast", "hopper_f16", "hopper_tf32"})
      for (const char* out : {"bf16", "f32", "e4m3"})
        for (const char* more : {"", " alpha=2", " alpha=0.3", " alpha=0x00000001", " beta=1", " beta=-0.7",
                                 " bias=bf16", " alpha=0.3 beta=2 bias=bf16"}) {
          const auto problem =
              parse_line(std::string("gemm ") + operands + " sum=" + sum + " out=" + out + more);
          if (!problem) continue;
          const auto plan = lt_plan(*problem);
          if (!plan) continue;
          ++plans;
          open += !plan->unpinned.empty();
          EXPECT_EQ(!plan->unpinned.empty(), has_unpinned_bits(*problem->as<Gemm>()))
              << to_line(*problem) << ": " << plan->unpinned;
        }
  EXPECT_GE(open, 20u);
  EXPECT_GE(plans - open, 20u);
}

class UnpinnedFiles : public testing::Test {
 protected:
  UnpinnedFiles() : dir_(fs::temp_directory_path() / ("assay_unpinned_" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~UnpinnedFiles() override { fs::remove_all(dir_); }
  std::string path(const std::string& name) { return dir_ / name; }
  std::string text(const std::string& name) { return read_text(name); }
  static std::string read_text(const std::string& name) {
    std::ifstream in(name);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }
  struct File {
    explicit File(const std::string& name) : file(std::fopen(name.c_str(), "w")) {}
    ~File() { std::fclose(file); }
    std::FILE* file;
  };
  fs::path dir_;
};

const std::string kLine = kFp8 + "alpha=0.3 out=f32";

TEST_F(UnpinnedFiles, ReportsSayWhy) {
  const Subjects subjects = subjects_of(std::make_unique<AnyOrder>(6));
  RunOptions o;
  o.entries = {entry_of(fakes::problem(kLine))};
  o.settings.subjects = {"fake"};
  o.report.jsonl = path("r.jsonl");
  o.report.junit = path("r.xml");
  o.report.verbose = true;
  {
    const File out(path("out")), err(path("err"));
    EXPECT_EQ(run_run(o, subjects, out.file, err.file), 0);
  }
  const std::string said = "bits not pinned (N16.13), judged by the bound: " + std::string(kWhy);
  EXPECT_THAT(text(path("out")), HasSubstr(said));
  EXPECT_THAT(text(path("out")), HasSubstr("judged by the bound (N16.13) 1: fake: " + std::string(kWhy)));
  EXPECT_THAT(text(path("r.jsonl")), HasSubstr("\"unpinned\": \"" + std::string(kWhy) + "\", \"inside\": "));
  EXPECT_THAT(text(path("r.jsonl")),
              HasSubstr("\"unpinned_reasons\": {\"fake: " + std::string(kWhy) + "\": 1}"));
  EXPECT_THAT(text(path("r.xml")), HasSubstr("<system-out>" + said));

  const Verdict wrong = judged(kLine, 6, {}, [](const Buffer& d) { set_code(*d.plane, d.bytes, 45, 0); });
  const std::string screen = failure_screen(o.entries[0], wrong, {});
  EXPECT_THAT(screen, HasSubstr("policy bound, any order (N16.13)"));
  EXPECT_THAT(screen, HasSubstr("bits     " + said));
  const auto back = verdict_from_json(to_json(wrong));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, wrong);
}

// A recording is judged as its subject was, wherever it is looked at; without the note it differs.
TEST_F(UnpinnedFiles, RecordingsKeepTheReason) {
  const auto record = [&](const Subjects& subjects, const std::string& name) {
    RecordOptions o;
    o.entries = {entry_of(fakes::problem(kLine)), entry_of(fakes::problem("cast e4m3 4x40 bf16"))};
    o.subject = "fake";
    o.output = path(name);
    o.jobs = 1;
    const File quiet("/dev/null");
    run_record(o, subjects, quiet.file, quiet.file);
  };
  const Subjects subjects = subjects_of(std::make_unique<AnyOrder>(7));
  record(subjects, "a.safetensors");
  const auto pack = read_pack(path("a.safetensors"));
  ASSERT_TRUE(pack) << pack.error().text();
  EXPECT_EQ(pack->cases[0].unpinned, kWhy);
  const Verdict replayed = judge_replay(*pack, pack->cases[0], subjects, "", {});
  EXPECT_EQ(replayed.outcome, Outcome::passed) << first_of(replayed);
  EXPECT_EQ(replayed.unpinned, kWhy);
  EXPECT_GT(replayed.inside, 0);

  Subjects recorded = fakes::with("nobody", nullptr);
  recorded.owned.push_back(
      make_pack_subject(std::make_shared<const Pack>(*read_pack(path("a.safetensors"))), "pack"));
  const Verdict v = judge_case(entry_of(fakes::problem(kLine)), recorded, {"pack"}, {})[0];
  EXPECT_EQ(v.outcome, Outcome::passed) << first_of(v);
  EXPECT_EQ(v.unpinned, kWhy);

  Pack without = *read_pack(path("a.safetensors"));
  without.cases[0].unpinned.clear();
  EXPECT_EQ(judge_replay(without, without.cases[0], subjects, "", {}).outcome, Outcome::failed);
  PackCase digest_alone = pack->cases[0];
  digest_alone.planes[0].tensor.reset();
  EXPECT_EQ(judge_replay(*pack, digest_alone, subjects, "", {}).outcome, Outcome::unsupported);

  std::ostringstream out, err;
  CheckOptions check;
  check.paths = {path("a.safetensors")};
  EXPECT_EQ(run_check(check, subjects, out, err), 0) << out.str() << err.str();
  EXPECT_THAT(out.str(), HasSubstr("1 passed, 0 failed"));

  auto bad = std::make_unique<AnyOrder>(7);
  bad->of_output = [](const Buffer& d) { set_code(*d.plane, d.bytes, 45, 0); };
  record(subjects_of(std::move(bad)), "b.safetensors");
  const auto wrong = read_pack(path("b.safetensors"));
  ASSERT_TRUE(wrong);
  EXPECT_TRUE(by_law(judge_replay(*wrong, wrong->cases[0], subjects, "", {}), "bound"));
  check.paths = {path("b.safetensors")};
  EXPECT_EQ(run_check(check, subjects, out, err), 1);
  std::ostringstream difference;
  EXPECT_EQ(run_diff({path("a.safetensors"), path("b.safetensors")}, difference, err), 1);
  EXPECT_THAT(difference.str(), HasSubstr("bits of d are not pinned (N16.13)"));
}

TEST_F(UnpinnedFiles, LookingCloserCallsNothingInsideTheBoundADivergence) {
  const Subjects subjects = subjects_of(std::make_unique<AnyOrder>(8));
  ShrinkOptions shrinking;
  shrinking.problem = fakes::problem(kLine);
  shrinking.subject = "fake";
  const auto shrunk = shrink(shrinking, subjects);
  ASSERT_FALSE(shrunk);
  EXPECT_THAT(shrunk.error().text(), HasSubstr("nothing to shrink"));

  TraceOptions tracing;
  tracing.problem = fakes::problem(kLine);
  tracing.subject = "fake";
  std::ostringstream out, err;
  EXPECT_EQ(run_trace(tracing, subjects, out, err), 0) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("<- inside the bound (N16.13)"));
  EXPECT_THAT(out.str(), HasSubstr(kWhy));

  ExplainOptions explaining;
  explaining.what = kLine;
  explaining.subject = "fake";
  explaining.json = path("d.json");
  explaining.html = path("d.html");
  {
    const File said(path("said"));
    EXPECT_EQ(run_explain(explaining, subjects, said.file, said.file), 0);
  }
  EXPECT_THAT(text(path("said")), HasSubstr("INSIDE THE BOUND"));
  EXPECT_THAT(text(path("d.json")), HasSubstr(kWhy));
  EXPECT_THAT(text(path("d.html")), HasSubstr("inside the bound"));
}

TEST_F(UnpinnedFiles, LookingCloserFindsWhatLiesOutside) {
  auto bad = std::make_unique<AnyOrder>(8);
  bad->of_output = [](const Buffer& d) {
    set_code(*d.plane, d.bytes, d.plane->padded.count() - 1, 0x7F000000);
  };
  const Subjects subjects = subjects_of(std::move(bad));
  TraceOptions tracing;
  tracing.problem = fakes::problem(kLine);
  tracing.subject = "fake";
  const auto traced = trace(tracing, subjects);
  ASSERT_TRUE(traced) << traced.error().text();
  EXPECT_EQ(std::pair(traced->row, traced->col), std::pair(int64_t{17}, int64_t{20}));
  EXPECT_FALSE(traced->inside);

  ShrinkOptions shrinking;
  shrinking.problem = fakes::problem(kLine);
  shrinking.subject = "fake";
  const auto shrunk = shrink(shrinking, subjects);
  ASSERT_TRUE(shrunk) << shrunk.error().text();
  EXPECT_EQ(shrunk->breach.claim, "bound");
  EXPECT_EQ(shrunk->bad.x.shape, (Shape{1, 1}));

  ExplainOptions explaining;
  explaining.what = kLine;
  explaining.subject = "fake";
  explaining.budget = 1;
  const File said(path("said"));
  EXPECT_EQ(run_explain(explaining, subjects, said.file, said.file), 1);
}

TEST(Unpinned, TheClauseOfItsBoundIsNamed) {
  Subjects subjects = fakes::with("fake", nullptr);
  subjects.owned.push_back(make_host_subject());
  const Verdict v = judge_case(entry_of(fakes::problem("attention identity 8x16 bf16 sums=online")), subjects,
                               {"host"}, {})[0];
  EXPECT_EQ(bound_clause(v), "N20.18");
  EXPECT_THAT(unpinned_text(v), HasSubstr("bits not pinned (N20.18), judged by the bound"));
}

}  // namespace
}  // namespace assay
