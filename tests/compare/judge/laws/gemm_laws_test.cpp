// Laws of a gemm: what the reference makes of every sum obeys them, and a lost tail of K, scales of another
// block and a wrong element do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "compare/judge/claims.h"
#include "contract/line.h"
#include "fixtures/suite.h"
#include "tests/compare/fakes.h"
#include "tests/source_path.h"

namespace assay {
namespace {

using Change = std::function<void(std::vector<PlaneData>&)>;

// The kinds of laws that d breaks when it is made of changed inputs; `evaluated`: those that were looked at.
std::set<std::string> broken(const std::string& line, const Change& of_inputs, const Change& of_outputs = {},
                             std::vector<std::string>* evaluated = nullptr) {
  const Problem p = fakes::problem(line);
  const auto reference = make_reference_subject();
  const std::vector<PlaneData> inputs = *make_inputs(p, *reference);
  std::vector<PlaneData> changed = inputs;
  if (of_inputs) of_inputs(changed);
  Execution e = execute(*reference, p, changed, {});
  if (of_outputs) of_outputs(e.planes);
  std::set<std::string> out;
  for (const Breach& b : check_laws(p, inputs, e.planes, "fake", evaluated)) out.insert(b.claim);
  return out;
}

PlaneData& plane(std::vector<PlaneData>& planes, const std::string& name) {
  return *std::find_if(planes.begin(), planes.end(),
                       [&](const PlaneData& p) { return p.plane.name == name; });
}

const char* const kSums[] = {"a=fp8_current b=fp8_current {} pow2=1 sum=f32_sequential",
                             "a=fp8_current b=fp8_current {} pow2=1 sum=exact",
                             "a=fp8_current b=fp8_current {} pow2=1 sum=hopper_fp8_split",
                             "a=fp8_current b=fp8_current {} pow2=1 sum=hopper_fp8_fast",
                             "a=fp8_block b=fp8_block {} sum=hopper_fp8_split",
                             "a=fp8_block b=fp8_block {} a.block=128x128 sum=hopper_fp8_split",
                             "a=identity b=identity {} sum=hopper_f16",
                             "a=identity b=identity {} f16 sum=hopper_f16",
                             "a=identity b=identity {} f32 sum=hopper_tf32",
                             "a=mxfp8 b=mxfp8 {} sum=f32_sequential"};

std::string line_of(std::string keys, const std::string& sizes, const std::string& rest) {
  return "gemm " + keys.replace(keys.find("{}"), 2, sizes) + " out=f32 " + rest;
}

TEST(GemmLaws, EverySumIsWithinItsBoundAndIntegersAreExact) {
  for (const std::string keys : kSums)
    for (const char* op : {"op=TN", "op=NN", "op=NT"})
      for (const char* fill : {"normal", "wide", "outliers", "denormal", "exact_sums"}) {
        std::vector<std::string> evaluated;
        const std::string line = line_of(keys, "17x13x300", std::string(op) + " fill=" + fill);
        EXPECT_TRUE(broken(line, {}, {}, &evaluated).empty()) << line;
        EXPECT_FALSE(evaluated.empty()) << line;
        if (std::string(fill) == "exact_sums") {
          EXPECT_EQ(evaluated, std::vector<std::string>{"integer"}) << line;
        }
      }
  for (const char* line : {"gemm a=nvfp4 b=mxfp4 17x13x64 op=NT",
                           "gemm a=nvfp4 b=nvfp4 17x13x64 row_scaled=1 beta=0.5 alpha=-3 bias=f32",
                           "gemm a=nvfp4 b=nvfp4 16x13x64 b.row_scaled=1 out=f16 fill=wide",
                           "gemm a=fp8_delayed b=fp8_block 17x13x129 op=NN out=e4m3 alpha=100 b.pow2=0",
                           "gemm a=fp8_current b=fp8_current 17x13x0 bias=bf16"}) {
    std::vector<std::string> evaluated;
    EXPECT_TRUE(broken(line, {}, {}, &evaluated).empty()) << line;
    EXPECT_FALSE(evaluated.empty()) << line;
  }
}

// The last element of K is lost; an element of d is one code off.
TEST(GemmLaws, ALostTailAndAWrongElementAreSeen) {
  const auto lose_tail = [](std::vector<PlaneData>& in) {
    PlaneData& a = plane(in, "a.data");
    for (int64_t m = 0; m < a.plane.logical.rows; ++m)
      set_code(a.plane, a.bytes, (m + 1) * a.plane.logical.cols - 1, 0);
  };
  for (const std::string keys : kSums) {
    EXPECT_EQ(broken(line_of(keys, "17x13x129", "fill=exact_sums"), lose_tail),
              std::set<std::string>{"integer"})
        << keys;
    EXPECT_EQ(broken(line_of(keys, "17x13x129", "fill=exact_sums"), {},
                     [](auto& out) { plane(out, "d").bytes[4 * 20] ^= std::byte{1}; }),
              std::set<std::string>{"integer"})
        << keys;
  }
  EXPECT_TRUE(
      broken("gemm a=identity b=identity 17x13x129 sum=hopper_f16 out=f32", lose_tail).contains("bound"));
  EXPECT_TRUE(broken("gemm a=mxfp8 b=mxfp8 17x13x129 out=f32", lose_tail).contains("bound"));
  EXPECT_TRUE(broken("gemm a=mxfp8 b=mxfp8 17x13x129 out=e5m2", lose_tail).contains("bound"));
}

// Scales of the block beside it, and of the row beside it (a transposed tensor of scales).
TEST(GemmLaws, ScalesOfAnotherBlockAreSeen) {
  const auto shift = [](std::vector<PlaneData>& in) {
    PlaneData& s = plane(in, "a.scale_inv");
    std::rotate(s.bytes.begin(), s.bytes.begin() + info(s.plane.encoding).bytes(), s.bytes.end());
  };
  const auto transpose = [](std::vector<PlaneData>& in) {
    PlaneData& s = plane(in, "b.scale_inv");
    const PlaneData was = s;
    for (int64_t r = 0; r < s.plane.logical.rows; ++r)
      for (int64_t c = 0; c < s.plane.logical.cols; ++c) {
        const int64_t i = r * s.plane.logical.cols + c;  // read as if it were [cols, rows]
        set_code(s.plane, s.bytes, index_of(s.plane, r, c),
                 code_at(was.plane, was.bytes,
                         index_of(s.plane, i % s.plane.logical.rows, i / s.plane.logical.rows)));
      }
  };
  for (const char* line : {"gemm a=mxfp8 b=mxfp8 17x13x256 out=f32 fill=wide",
                           "gemm a=fp8_block b=fp8_block 17x13x300 out=f32 fill=wide",
                           "gemm a=fp8_block b=fp8_block 17x13x300 out=f32 fill=wide sum=hopper_fp8_split",
                           "gemm a=nvfp4 b=nvfp4 17x13x64 out=f32 fill=wide"}) {
    EXPECT_TRUE(broken(line, shift).contains("bound")) << line;
    EXPECT_TRUE(broken(line, transpose).contains("bound")) << line;
  }
}

// A scale, a product or a partial sum that overflows, where the exact sum does not: infinite and NaN are
// right. What does not overflow is judged as before.
TEST(GemmLaws, WhatOverflowsOnTheWayIsNoBreach) {
  const std::string one = "gemm a=identity b=identity 1x1x", huge = "7180000071800000";  // 2^100, twice
  const std::string quarters =
      one +
      "4 f32 out=f32 a.fill=literal:5f8000005f8000005f8000005f800000 b.fill=literal:";  // products of 2^127
  for (const std::string& line :
       {std::string(
            "gemm a=nvfp4 b=identity 33x20x48 bf16 fill=every_code seed=1"),  // fl(scale_inv * amax): N10.15
        std::string("gemm a=identity b=nvfp4 1x1x1 f32 out=f32 a.fill=zeros b.fill=literal:7f000000"),
        one + "2 f32 out=f32 a.fill=literal:" + huge +
            " b.fill=literal:71800000f1800000",  // inf + -inf: N16.2
        quarters + "5f0000005f000000df000000df000000",
        std::string("gemm a=fp8_block b=fp8_block 1x1x1 sum=hopper_fp8_split out=f32 b.block=128x128 "
                    "a.fill=literal:7f00@0.0 b.fill=literal:3d80@0.0"),  // N16.7
        std::string("gemm a=fp8_block b=fp8_block 4x4x300 sum=hopper_fp8_split out=f32 fill=every_code"),
        one + "9 f32 sum=hopper_tf32 out=f32 a.fill=every_code b.fill=every_code"})
    EXPECT_TRUE(broken(line, {}).empty()) << line;

  const auto flip = [](auto& out) { plane(out, "d").bytes[0] ^= std::byte{1}; };
  const std::set<std::string> integer = {"integer"};
  EXPECT_EQ(
      broken(one + "2 f32 sum=exact out=f32 a.fill=literal:" + huge + " b.fill=literal:71800000f1800000", {},
             flip),
      integer);  // it is 0
  EXPECT_EQ(broken(quarters + "5f000000df0000005f000000df000000", {}, flip),
            integer);  // no partial sum overflows
  // One row of a overflows on the way, the other does not.
  std::string rows;
  for (int i = 0; i < 32; ++i) rows += i < 16 ? "7f000000" : "7a800000";
  const std::string nvfp4 = "gemm a=nvfp4 b=identity 2x1x16 f32 out=f32 b.fill=ties a.fill=literal:" + rows;
  EXPECT_TRUE(broken(nvfp4, {}).empty());
  EXPECT_EQ(broken(nvfp4, {}, [](auto& out) { plane(out, "d").bytes[5] ^= std::byte{1}; }),
            std::set<std::string>{"bound"});
}

// N16.4: a sum of zero is +0, and one that is cut to zero keeps its sign.
TEST(GemmLaws, ZerosOfAStep) {
  const auto reference = make_reference_subject();
  const auto d = [&](const std::string& fills) {
    const Problem p = fakes::problem("gemm a=identity b=identity 1x1x2 f32 sum=hopper_tf32 out=f32 " + fills);
    const Execution e = execute(*reference, p, *make_inputs(p, *reference), {});
    return code_at(e.planes[0].plane, e.planes[0].bytes, 0);
  };
  EXPECT_EQ(d("a.fill=literal:9a00000000000000 b.fill=literal:1280000012800000"), 0u);  // -2^-75 * 2^-90
  EXPECT_EQ(d("a.fill=literal:1a00000000000000 b.fill=literal:1280000012800000"), 0u);
  EXPECT_EQ(d("a.fill=literal:9a0000001a000000 b.fill=literal:1280000012800000"), 0u);  // they cancel
  EXPECT_EQ(d("a.fill=literal:8000000080000000 b.fill=literal:1280000012800000"), 0u);  // -0 + -0
}

// The kernels skip these lines, so that no run of theirs would look at the reference's other sums.
TEST(GemmLaws, SuiteOfTheOtherSums) {
  const auto suite = load_suite(source_path("fixtures/suites/tensor_core.cases"));
  ASSERT_TRUE(suite) << suite.error().text();
  const Subjects subjects = fakes::with("fake", nullptr);
  std::set<GemmSum> sums;
  for (const SuiteEntry& e : suite->entries) {
    const Verdict v = judge_case(e, subjects, {"reference"}, {}).at(0);
    EXPECT_EQ(v.outcome, Outcome::passed)
        << to_line(e.problem) << (v.breaches.empty() ? v.reason : ": " + v.breaches[0].message);
    EXPECT_TRUE(std::any_of(v.claims.begin(), v.claims.end(), [](const std::string& c) {
      return c == "bound" || c == "integer";
    })) << to_line(e.problem);
    sums.insert(e.problem.as<Gemm>()->sum);
  }
  EXPECT_EQ(sums.size(), 5u);
}

}  // namespace
}  // namespace assay
