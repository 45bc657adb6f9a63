// What the kernels' side tells of an element (assay trace): the clauses that it goes through, and values that
// the reference has too.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "fast/subject_host.h"
#include "fixtures/inputs.h"
#include "fixtures/suite.h"
#include "reference/subject.h"
#include "tests/fast/run.h"
#include "tests/source_path.h"

namespace assay {
namespace {

// The directions of a line that have steps: a line without quantizers, or whose quantizers are its operands',
// has them under row.
bool has_steps(const Problem& p, Direction d) {
  return d == Direction::row ? p.row || !p.col : p.col.has_value();
}

// The first step of `kernels` that has no step of the reference with its value, each looked for behind the
// one before it. Empty where all have one. The sides report at different grain and may cite different clauses
// for one value.
std::string without_partner(const std::vector<TraceStep>& kernels, const std::vector<TraceStep>& reference) {
  auto at = reference.begin();
  for (const TraceStep& step : kernels) {
    at = std::find_if(at, reference.end(),
                      [&](const TraceStep& r) { return r.bits == step.bits && r.encoding == step.encoding; });
    if (at == reference.end()) return step.clause + " " + step.what;
  }
  return "";
}

TEST(Trace, EveryValueOfTheSmokeSuiteIsOneOfTheReference) {
  const auto host = make_host_subject(), reference = make_reference_subject();
  const auto suite = load_suite(source_path("fixtures/suites/smoke.cases"));
  ASSERT_TRUE(suite) << suite.error().text();
  size_t steps = 0;
  for (const SuiteEntry& e : suite->entries) {
    const Problem& p = e.problem;
    const auto inputs = make_inputs(p, *reference);
    ASSERT_TRUE(inputs) << e.text << ": " << inputs.error().text();
    for (const Direction d : kDirections) {
      if (!has_steps(p, d)) continue;
      const std::vector<TraceStep> kernels = host->trace(p, views(*inputs), d, 0, 0);
      if (kernels.empty()) continue;  // the op has no steps there, or the tensor no elements
      steps += kernels.size();
      EXPECT_EQ(without_partner(kernels, reference->trace(p, views(*inputs), d, 0, 0)), "") << e.text;
    }
  }
  EXPECT_GT(steps, 10000u);
}

struct Row {
  const char *line, *clauses;
};
// numerics.md says what each choice takes the place of.
constexpr Row kRows[] = {
    {"quantize identity 4x33 bf16 dir=row", "N7.1"},
    {"quantize mxfp8 4x33 bf16 dir=row", "N5.1 N5.2 N5.3 N5.4 N1.2 N5.5 N5.5"},
    {"quantize mxfp8 4x33 bf16 dir=row mx_scale=floor", "N5.1 N17.6 N5.4 N1.2 N5.5 N5.5"},
    {"quantize mxfp8 4x33 bf16 dir=row mx_scale=down", "N5.1 N5.2 N17.6 N5.4 N1.2 N5.5 N5.5"},
    {"quantize mxfp8 4x33 bf16 dir=row mx_scale=nearest", "N5.1 N5.2 N17.6 N5.4 N1.2 N5.5 N5.5"},
    {"quantize mxfp8 64x64 bf16 dir=row block=32x32", "N5.8 N5.2 N5.3 N5.4 N1.2 N5.5 N5.5"},
    {"quantize mxfp8 4x33 f32 dir=row nan_amax=propagate", "N5.7 N5.2 N5.3 N5.4 N1.2 N5.5 N5.5"},
    {"quantize mxfp8 4x33 f32 dir=row neg_zero=plus", "N5.1 N5.2 N5.3 N5.4 N1.2 N5.6 N5.5"},
    {"quantize mxfp8 4x33 f32 dir=row neg_zero=minus", "N5.1 N5.2 N5.3 N5.4 N1.2 N17.4 N5.5"},
    {"quantize mxfp8 4x33 f32 dir=row element_ties=away", "N5.1 N5.2 N5.3 N5.4 N1.2 N5.5 N17.1"},
    {"quantize mxfp8 4x33 f32 dir=row pre_round=bf16", "N5.1 N5.2 N5.3 N5.4 N1.2 N5.5 N17.3 N5.5"},
    {"quantize mxfp6 4x33 bf16 dir=row element=e3m2", "N5.1 N18.2 N5.3 N5.4 N1.2 N18.3 N18.3"},
    {"quantize mxfp4 4x33 bf16 dir=row", "N5.1 N15.2 N5.3 N5.4 N1.2 N15.3 N15.3"},
    {"quantize fp8_block 4x33 bf16 dir=row", "N9.1 N3.3 N3.7 N1.2 N9.3 N9.3"},
    {"quantize fp8_current 4x33 bf16 dir=row", "N3.1 N3.3 N3.7 N1.2 N3.8 N3.8"},
    {"quantize fp8_current 4x33 bf16 dir=row row_scaled=1", "N3.1 N3.3 N3.7 N1.2 N3.8 N3.8"},
    {"quantize fp8_current 4x33 bf16 dir=row scale_order=decode_first", "N3.1 N17.5 N17.5 N1.2 N3.8 N3.8"},
    {"quantize fp8_current 4x33 bf16 dir=row scale_order=decode_divide", "N3.1 N17.5 N17.5 N1.2 N3.8 N3.8"},
    {"quantize fp8_current 4x33 bf16 dir=row scale_division=reciprocal", "N3.1 N17.14 N3.7 N1.2 N3.8 N3.8"},
    {"quantize fp8_current 4x33 bf16 dir=row scale_division=in_source", "N3.1 N17.14 N17.14 N1.2 N3.8 N3.8"},
    {"quantize fp8_delayed 4x33 bf16 dir=row scale=3", "N3.11 N3.7 N1.2 N3.8 N3.8"},
    {"quantize fp8_delayed 4x33 bf16 dir=row scale=3 scale_order=decode_first", "N17.5 N17.5 N1.2 N3.8 N3.8"},
    {"quantize fp8_delayed 4x33 bf16 dir=row scale=3 scale_order=decode_divide", "N17.5 N1.2 N3.8 N3.8"},
    {"quantize nvfp4 16x48 bf16 dir=row", "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row row_scaled=1",
     "N10.9 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row amax=3",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=decode",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=unit",
     "N10.1 N10.2 N10.7 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=quotient_first",
     "N10.1 N10.2 N10.7 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=given_product",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=decode_first",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=decode_product",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=decode scale_division=reciprocal",
     "N10.1 N17.14 N10.7 N17.14 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=quotient_first scale_division=in_source",
     "N10.1 N17.14 N10.7 N10.4 N17.14 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=decode scale_division=in_source",
     "N10.1 N17.14 N10.7 N17.14 N10.4 N17.14 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=unit scale_division=in_source",
     "N10.1 N10.2 N10.7 N10.4 N17.14 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_floor=least_normal",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N17.9 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_floor=one",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N17.9 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_floor=eighth",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N17.9 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row scale_round=away_240",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N17.11 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row multiplier=quotient",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N17.10 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row multiplier=decode_reciprocal",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N10.5 N10.6 N10.6 N17.10 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row multiplier=divide_product",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N10.5 N10.6 N10.6 N17.10 N1.2 N17.10 N17.10"},
    {"quantize nvfp4 16x48 bf16 dir=row multiplier=divide_twice",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N10.5 N10.6 N10.6 N17.10 N1.2 N17.10 N17.10"},
    {"quantize nvfp4 16x48 bf16 dir=row multiplier=product_reciprocal",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N10.5 N10.6 N10.6 N17.10 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row multiplier=bf16_quotient",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row four_over_six=mae",
     "N10.1 N10.2 N10.7 N10.4 N10.10 N10.10 N10.11 N10.11 N10.11 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row four_over_six=mse four_over_six_error=fast",
     "N10.1 N10.2 N10.7 N10.4 N10.10 N10.10 N10.12 N10.12 N10.11 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row round=sr",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N12.2 N12.3"},
    {"quantize nvfp4 16x48 bf16 dir=both col.rht=1",
     "N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.3 "
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=both col_source=row_dequantized",
     "N13.1 N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"cast e2m1 5x100 f32 round=sr", "N1.2 N12.3 N12.3"},
    {"cast e2m1 5x100 f32 round=sr sr_rule=fma", "N1.2 N12.3 N12.3"},
    {"cast e4m3 5x100 bf16", "N1.2 N2.1"},
    {"cast f32 5x100 e4m3", "N2.8 N2.1"},
    {"cast e8m0 5x100 bf16 round=rp", "N1.2 N2.7"},
    {"cast e4m3 5x100 f32 round=rz", "N1.2 N2.6"},
    {"dequantize identity 4x33 bf16 dir=row", "N7.1"},
    {"dequantize mxfp8 4x33 bf16 dir=row", "N2.8 N5.9 N5.9 N5.9"},
    {"dequantize fp8_block 4x33 bf16 dir=row", "N2.8 N9.5 N9.5 N9.5"},
    {"dequantize fp8_current 4x33 bf16 dir=row", "N2.8 N3.10 N3.10 N3.10"},
    {"dequantize nvfp4 16x48 bf16 dir=row", "N2.8 N10.15 N10.15 N10.15 N10.15 N10.15"},
    {"hadamard nvfp4 16x32 bf16",
     "N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.1 N11.3"},
    {"scale_chain nvfp4 100x2 f32", "N10.16 N10.2 N10.7 N10.16 N10.5 N10.6 N10.6 N10.8"},
    {"scale_chain mxfp8 100x1 f32", "N5.1 N5.2 N5.3 N5.4"},
    {"scale_chain fp8_current 100x1 f32", "N3.1 N3.3 N3.7"},
    {"gemm a=mxfp8 b=nvfp4 5x7x40 op=TN", "N16.2 N16.8"},
    {"gemm a=nvfp4 b=nvfp4 5x7x40 a.row_scaled=1 out=f32 alpha=3 beta=2 bias=f32",
     "N16.2 N16.9 N16.8 N16.8 N16.8 N16.8"},
    {"quantize nvfp4 32x64 bf16 dir=row round=sr draw=te_t1d",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N12.4 N12.3"},
    {"quantize fp8_current/identity 4x33 bf16 col_source=row_dequantized", "N13.1 N7.1"},
    {"quantize mxfp8 4x33 bf16 dir=row zero_amax=divided nan_code=negative fill=zeros",
     "N5.1 N5.2 N5.3 N5.4 N1.2 N5.5 N17.16"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=product_first",
     "N10.1 N10.2 N10.7 N10.4 N17.8 N10.6 N10.8 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row multiplier=divide_quotient",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N17.10 N1.2 N17.10 N17.10"},
    {"quantize nvfp4 16x48 bf16 dir=row nvfp4_scale=given_product multiplier=product_reciprocal",
     "N10.1 N10.2 N10.7 N17.8 N10.4 N17.8 N10.6 N17.10 N1.2 N10.9 N10.9"},
    {"quantize nvfp4 16x48 bf16 dir=row neg_zero=drop round=sr fill=zeros",
     "N10.1 N10.2 N10.7 N10.4 N10.5 N10.6 N10.6 N10.8 N1.2 N10.9 N12.2 N12.3"},
    {"quantize mxfp8 4x33 bf16 dir=row neg_zero=drop fill=zeros", "N5.1 N5.2 N5.3 N5.4 N1.2 N5.5 N5.5"},
    {"quantize mxfp8 4x33 bf16 dir=row mx_inf=nan fill=nonfinite", "N5.1 N5.2 N5.3 N5.4 N1.2 N5.5 N5.5"},
    {"quantize nvfp4 16x48 bf16 dir=row block=16x16 four_over_six=mae",
     "N10.1 N10.2 N10.7 N10.4 N10.10 N10.10 N10.11 N10.11 N10.11 N10.8 N1.2 N10.9 N10.9"},
    {"quantize fp8_delayed 4x33 bf16 dir=row row_scaled=1 scale=3", "N3.11 N3.7 N1.2 N3.8 N3.8"},
    {"scale_chain fp8_block 64x1 f32", "N3.1 N3.3 N3.7"},
    {"scale_chain mxfp4 64x1 f32", "N5.1 N15.2 N5.3 N5.4"},
    {"scale_chain mxfp6 64x1 f32 element=e2m3", "N5.1 N18.2 N5.3 N5.4"},
    {"dequantize fp8_block 4x33 bf16 dir=row scales=gemm", "N2.8 N5.9 N5.9 N5.9"},
    {"dequantize nvfp4 16x48 bf16 dir=row row_scaled=1", "N2.8 N10.15 N10.15 N10.15 N10.15 N10.15"},
};

TEST(Trace, NamesTheClausesOfEveryChoice) {
  const auto host = make_host_subject(), reference = make_reference_subject();
  for (const Row& row : kRows) {
    const Problem p = parsed(row.line);
    const auto inputs = make_inputs(p, *reference);
    ASSERT_TRUE(inputs) << row.line << ": " << inputs.error().text();
    const Direction d = p.col ? Direction::col : Direction::row;
    const std::vector<TraceStep> steps = host->trace(p, views(*inputs), d, 3, 0);
    std::string clauses;
    for (const TraceStep& step : steps) clauses += (clauses.empty() ? "" : " ") + step.clause;
    EXPECT_EQ(clauses, row.clauses) << row.line;
    EXPECT_EQ(without_partner(steps, reference->trace(p, views(*inputs), d, 3, 0)), "") << row.line;
  }
}

}  // namespace
}  // namespace assay
