// Laws of a gemm: what the reference makes of every sum obeys them, and a lost tail of K, scales of another block and a wrong element do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "compare/claims.h"
#include "contract/line.h"
#include "fixtures/suite.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

using Change = std::function<void(std::vector<PlaneData>&)>;

// The kinds of laws that d breaks when it is made of changed inputs; `evaluated`: those that were looked at.
std::set<std::string> broken(const std::string& line, const Change& of_inputs, const Change& of_outputs = {}, std::vector<std::string>* evaluated = nullptr) {
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
  return *std::find_if(planes.begin(), planes.end(), [&](const PlaneData& p) { return p.plane.name == name; });
}

const char* const kSums[] = {
    "a=fp8_current b=fp8_current {} pow2=1 sum=f32_sequential", "a=fp8_current b=fp8_current {} pow2=1 sum=exact", "a=fp8_current b=fp8_current {} pow2=1 sum=hopper_fp8_split",
    "a=fp8_current b=fp8_current {} pow2=1 sum=hopper_fp8_fast", "a=fp8_block b=fp8_block {} sum=hopper_fp8_split", "a=fp8_block b=fp8_block {} a.block=128x128 sum=hopper_fp8_split",
    "a=identity b=identity {} sum=hopper_f16", "a=identity b=identity {} f16 sum=hopper_f16", "a=identity b=identity {} f32 sum=hopper_tf32", "a=mxfp8 b=mxfp8 {} sum=f32_sequential"};

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
  for (const char* line : {"gemm a=nvfp4 b=mxfp4 17x13x64 op=NT", "gemm a=nvfp4 b=nvfp4 17x13x64 row_scaled=1 beta=0.5 alpha=-3 bias=f32", "gemm a=nvfp4 b=nvfp4 16x13x64 b.row_scaled=1 out=f16 fill=wide",
                           "gemm a=fp8_delayed b=fp8_block 17x13x129 op=NN out=e4m3 alpha=100 b.pow2=0", "gemm a=fp8_current b=fp8_current 17x13x0 bias=bf16"}) {
    std::vector<std::string> evaluated;
    EXPECT_TRUE(broken(line, {}, {}, &evaluated).empty()) << line;
    EXPECT_FALSE(evaluated.empty()) << line;
  }
}

// The last element of K is lost; an element of d is one code off.
TEST(GemmLaws, ALostTailAndAWrongElementAreSeen) {
  const auto lose_tail = [](std::vector<PlaneData>& in) {
    PlaneData& a = plane(in, "a.data");
    for (int64_t m = 0; m < a.plane.logical.rows; ++m) set_code(a.plane, a.bytes, (m + 1) * a.plane.logical.cols - 1, 0);
  };
  for (const std::string keys : kSums) {
    EXPECT_EQ(broken(line_of(keys, "17x13x129", "fill=exact_sums"), lose_tail), std::set<std::string>{"integer"}) << keys;
    EXPECT_EQ(broken(line_of(keys, "17x13x129", "fill=exact_sums"), {}, [](auto& out) { plane(out, "d").bytes[4 * 20] ^= std::byte{1}; }), std::set<std::string>{"integer"}) << keys;
  }
  EXPECT_TRUE(broken("gemm a=identity b=identity 17x13x129 sum=hopper_f16 out=f32", lose_tail).contains("bound"));
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
        const int64_t i = r * s.plane.logical.cols + c;   // read as if it were [cols, rows]
        set_code(s.plane, s.bytes, index_of(s.plane, r, c),
                 code_at(was.plane, was.bytes, index_of(s.plane, i % s.plane.logical.rows, i / s.plane.logical.rows)));
      }
  };
  for (const char* line : {"gemm a=mxfp8 b=mxfp8 17x13x256 out=f32 fill=wide", "gemm a=fp8_block b=fp8_block 17x13x300 out=f32 fill=wide", "gemm a=fp8_block b=fp8_block 17x13x300 out=f32 fill=wide sum=hopper_fp8_split",
                           "gemm a=nvfp4 b=nvfp4 17x13x64 out=f32 fill=wide"}) {
    EXPECT_TRUE(broken(line, shift).contains("bound")) << line;
    EXPECT_TRUE(broken(line, transpose).contains("bound")) << line;
  }
}

// The kernels skip these lines, so that no run of theirs would look at the reference's other sums.
TEST(GemmLaws, SuiteOfTheOtherSums) {
  const auto suite = load_suite(ASSAY_SOURCE_DIR "/fixtures/suites/tensor_core.cases");
  ASSERT_TRUE(suite) << suite.error().text();
  const Subjects subjects = fakes::with("fake", nullptr);
  std::set<GemmSum> sums;
  for (const SuiteEntry& e : suite->entries) {
    const Verdict v = judge_case(e, subjects, {"reference"}, {}).at(0);
    EXPECT_EQ(v.outcome, Outcome::passed) << to_line(e.problem) << (v.breaches.empty() ? v.reason : ": " + v.breaches[0].message);
    EXPECT_TRUE(std::any_of(v.claims.begin(), v.claims.end(), [](const std::string& c) { return c == "bound" || c == "integer"; })) << to_line(e.problem);
    sums.insert(e.problem.as<Gemm>()->sum);
  }
  EXPECT_EQ(sums.size(), 5u);
}

}  // namespace
}  // namespace assay
