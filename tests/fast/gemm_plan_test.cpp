// How cuBLASLt is asked: what each sum becomes, and the reason for every refusal.
#include "fast/gemm_plan.h"

#include <gtest/gtest.h>

#include "contract/line.h"

namespace assay {
namespace {

Problem gemm(const std::string& line) {
  auto p = parse_line(line);
  EXPECT_TRUE(p) << line << ": " << (p ? "" : p.error().text());
  return *p;
}
std::string refusal(const std::string& line) {
  const auto plan = lt_plan(gemm(line));
  return plan ? "" : plan.error().text();
}

TEST(GemmPlan, KernelsSumInSequenceOnly) {
  EXPECT_TRUE(kernel_sums(gemm("gemm a=mxfp8 b=mxfp8 4x4x32")).yes);
  EXPECT_TRUE(kernel_sums(gemm("quantize mxfp8 4x32 bf16")).yes);
  EXPECT_NE(
      kernel_sums(gemm("gemm a=mxfp8 b=mxfp8 4x4x32 sum=exact")).why.find("exact sum is the reference's"),
      std::string::npos);
  for (const char* line : {"gemm a=fp8_current b=fp8_current 4x4x32 sum=hopper_fp8_split",
                           "gemm a=fp8_current b=fp8_current 4x4x32 sum=hopper_fp8_fast",
                           "gemm a=identity b=identity 4x4x32 sum=hopper_f16",
                           "gemm a=identity b=identity 4x4x32 f32 sum=hopper_tf32 out=f32"})
    EXPECT_NE(kernel_sums(gemm(line)).why.find("--subject cublaslt"), std::string::npos) << line;
}

TEST(GemmPlan, WhatEachSumBecomes) {
  const auto split =
      lt_plan(gemm("gemm a=fp8_current b=fp8_delayed 256x384x512 sum=hopper_fp8_split b.element=e5m2 op=NT"));
  ASSERT_TRUE(split);
  EXPECT_EQ(*split, (LtPlan{256,
                            384,
                            512,
                            {Encoding::e4m3, LtScale::tensor},
                            {Encoding::e5m2, LtScale::tensor},
                            Encoding::bf16,
                            false,
                            false,
                            1,
                            0,
                            false,
                            {36}}));
  const auto fast =
      lt_plan(gemm("gemm a=fp8_current b=fp8_current 256x384x512 sum=hopper_fp8_fast out=e4m3 alpha=-0.5"));
  ASSERT_TRUE(fast);
  EXPECT_TRUE(fast->fast_accumulation);
  EXPECT_EQ(fast->alpha, -0.5f);
  const auto blocks = lt_plan(
      gemm("gemm a=fp8_block b=fp8_block 256x384x512 sum=hopper_fp8_split a.block=128x128 op=NN out=f32"));
  ASSERT_TRUE(blocks);
  EXPECT_EQ(blocks->a, (LtOperand{Encoding::e4m3, LtScale::block_128x128}));
  EXPECT_EQ(blocks->b, (LtOperand{Encoding::e4m3, LtScale::vector_128}));
  EXPECT_FALSE(blocks->fast_accumulation);
  const auto halves =
      lt_plan(gemm("gemm a=identity b=identity 64x8x16 f16 sum=hopper_f16 op=NN out=f16 bias=f16"));
  ASSERT_TRUE(halves);
  EXPECT_EQ(*halves, (LtPlan{64,
                             8,
                             16,
                             {Encoding::f16, LtScale::none, false, true},
                             {Encoding::f16, LtScale::none},
                             Encoding::f16,
                             false,
                             false,
                             1,
                             0,
                             true,
                             {35, 36}}));
  const auto tf32 =
      lt_plan(gemm("gemm a=identity b=identity 4x1x4 f32 sum=hopper_tf32 op=NT out=f32 beta=2"));
  ASSERT_TRUE(tf32);
  EXPECT_TRUE(tf32->tf32 && tf32->a.transpose && tf32->b.transpose);
  EXPECT_EQ(tf32->beta, 2.0f);
  const auto brains = lt_plan(gemm("gemm a=mxfp8 b=nvfp4 64x8x32 sum=hopper_f16 op=NT"));  // N16.12
  ASSERT_TRUE(brains);
  EXPECT_EQ(*brains, (LtPlan{64,
                             8,
                             32,
                             {Encoding::bf16, LtScale::none, true, true},
                             {Encoding::bf16, LtScale::none, true, true},
                             Encoding::bf16,
                             false,
                             false,
                             1,
                             0,
                             false,
                             {35, 36}}));
  EXPECT_TRUE(lt_plan(gemm("gemm a=identity b=identity 0x8x0 sum=hopper_f16")));  // nothing to ask for
}

TEST(GemmPlan, Refusals) {
  struct Row {
    const char *line, *why;
  };
  for (const Row& r :
       {Row{"cast e4m3 4x4 f32", "cuBLASLt only multiplies: gemm, found cast"},
        Row{"gemm a=mxfp8 b=mxfp8 64x64x64", "cuBLASLt sums on tensor cores"},
        Row{"gemm a=nvfp4 b=nvfp4 64x64x64 sum=exact", "cuBLASLt sums on tensor cores"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split element=e5m2",
            "no two operands of e5m2"},
        Row{"gemm a=fp8_block b=fp8_block 64x64x64 sum=hopper_fp8_split out=e4m3",
            "no e4m3 from blockwise scales"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split out=e5m2",
            "e5m2 where one operand is e5m2 only"},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 out=e4m3", "e4m3 from FP8 operands only"},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 out=f16", "bf16 or f32 here, found out=f16"},
        Row{"gemm a=identity b=identity 64x64x64 f32 sum=hopper_tf32 out=bf16",
            "TF32 into f32 only, found out=bf16"},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 bias=f32",
            "bias has the encoding of d, bf16, found f32"},
        Row{"gemm a=nvfp4 b=nvfp4 64x64x64 sum=hopper_f16 a.row_scaled=1", "row_scaled=1 is the reference's"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split a.row_scaled=1",
            "both operands or in neither"},
        Row{"gemm a=fp8_delayed b=fp8_current 64x64x64 sum=hopper_fp8_fast b.row_scaled=1",
            "both operands or in neither"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split row_scaled=1 out=e4m3",
            "no e4m3 from a scale for each row"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split row_scaled=1 element=e5m2",
            "no two operands of e5m2"},
        Row{"gemm a=fp8_current b=fp8_current 60x64x64 sum=hopper_fp8_split row_scaled=1",
            "M a multiple of 8, found 60x64x64"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x0 sum=hopper_fp8_split", "no K of 0"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x40 sum=hopper_fp8_split",
            "K a multiple of 16, found 64x64x40"},
        Row{"gemm a=fp8_current b=fp8_current 60x64x64 sum=hopper_fp8_split",
            "M a multiple of 8, found 60x64x64"},
        Row{"gemm a=fp8_current b=fp8_current 8x64x64 sum=hopper_fp8_split out=e4m3", "M a multiple of 16"},
        Row{"gemm a=identity b=identity 62x64x64 f32 sum=hopper_tf32 out=f32", "M a multiple of 4"},
        Row{"gemm a=identity b=identity 64x64x12 sum=hopper_f16", "K a multiple of 8"},
        Row{"gemm a=fp8_block b=fp8_block 64x4x64 sum=hopper_fp8_split", "N of 8 under blockwise scales"},
        Row{"gemm a=fp8_block b=fp8_block 64x2x64 sum=hopper_fp8_split b.block=128x128",
            "N of 4 under blockwise scales"},
        Row{"gemm a=fp8_block b=fp8_block 4x8x64 sum=hopper_fp8_split out=f32", "M a multiple of 8 and N"}})
    EXPECT_NE(refusal(r.line).find(r.why), std::string::npos) << r.line << ": '" << refusal(r.line) << "'";
  // At the edge of what is refused.
  for (const char* line :
       {"gemm a=fp8_block b=fp8_block 64x4x64 sum=hopper_fp8_split b.block=128x128",
        "gemm a=identity b=identity 64x64x64 sum=hopper_f16 alpha=3",
        "gemm a=fp8_current b=fp8_current 8x1x16 sum=hopper_fp8_fast row_scaled=1 out=f16",
        "gemm a=fp8_current b=fp8_current 4x1x16 sum=hopper_fp8_split out=f32",
        "gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_fast a.element=e5m2 out=e5m2"})
    EXPECT_EQ(refusal(line), "");
}

TEST(GemmPlan, OuterVectors) {  // N16.6
  const auto plan =
      lt_plan(gemm("gemm a=fp8_current b=fp8_current 256x384x512 sum=hopper_fp8_fast row_scaled=1 "
                   "b.element=e5m2 op=NN out=f32"));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->a, (LtOperand{Encoding::e4m3, LtScale::outer_vector}));
  EXPECT_EQ(plan->b, (LtOperand{Encoding::e5m2, LtScale::outer_vector}));
  EXPECT_TRUE(plan->fast_accumulation);
}

TEST(GemmPlan, SaysWhichBitsAreNotPinned) {  // N16.13
  struct Row {
    const char *line, *why;
  };
  for (const Row& r :
       {Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split row_scaled=1",
            "scales of a row and of a column"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split row_scaled=1 alpha=3 bias=bf16",
            "scales of a row and of a column"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split alpha=3",
            "alpha is no power of two"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_fast bias=bf16",
            "between the product and the sum"},
        Row{"gemm a=fp8_block b=fp8_block 64x64x64 sum=hopper_fp8_split beta=1",
            "between the product and the sum"},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 alpha=2 beta=1",
            "between the product and the sum"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split alpha=inf",
            "alpha is no power of two"},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 beta=3", "beta is no power of two"},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 beta=inf", "beta is no power of two"},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 bias=bf16 beta=1", "c or the bias first"},
        Row{"gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split alpha=-0.5", ""},
        Row{"gemm a=fp8_block b=fp8_block 64x64x64 sum=hopper_fp8_split out=f32", ""},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 alpha=3", ""},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 beta=-0.5", ""},
        Row{"gemm a=identity b=identity 64x64x64 sum=hopper_f16 bias=bf16", ""}}) {
    const auto plan = lt_plan(gemm(r.line));
    ASSERT_TRUE(plan) << r.line << ": " << plan.error().text();
    if (*r.why == 0) EXPECT_EQ(plan->unpinned, "") << r.line;
    else EXPECT_NE(plan->unpinned.find(r.why), std::string::npos) << r.line << ": '" << plan->unpinned << "'";
  }
}

TEST(GemmPlan, ChoosesAKernelWhoseOrderIsKnown) {
  const LtPlan plan = *lt_plan(gemm("gemm a=fp8_current b=fp8_current 64x64x64 sum=hopper_fp8_split"));
  LtConfig known;
  known.algorithm = 66, known.stages = 36;
  std::vector<LtConfig> offered(5, known);
  offered[0].algorithm = 21, offered[1].stages = 35, offered[2].split_k = 2, offered[3].reduction = 2,
  offered[4].split_k = 1;
  EXPECT_EQ(lt_choice(plan, offered), 4u);
  offered.pop_back();
  EXPECT_FALSE(lt_choice(plan, offered));
  offered.push_back(known);
  offered.push_back(known);
  EXPECT_EQ(lt_choice(plan, offered), 4u);
  EXPECT_EQ(to_text(known),
            "algo 66 tile 0 splitk 0 reduction 0 swizzle 0 custom 0 stages 36 inner 0 cluster 0");
}

}  // namespace
}  // namespace assay
