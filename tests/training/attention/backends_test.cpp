#include "training/attention/backends.h"

#include <gtest/gtest.h>

namespace assay::training {

namespace {
RecipePtr recipe(std::string_view name, bool mha = false) {
  return make_recipe(name, json::object({{"fp8_dpa", true}, {"fp8_mha", mha}}));
}
constexpr AttentionBackends kNone{}, kFused{false, true, false}, kUnfused{false, false, true},
    kFlash{true, false, false};
}  // namespace

TEST(AttentionBackends, FollowTheLibrarysVersionAtItsEdges) {
  AttentionRequest r;
  r.cudnn = {9, 14, 0};
  EXPECT_EQ(fp8_attention_backends(*recipe("Float8CurrentScaling"), r), kFused);
  r.cudnn = {9, 13, 9};
  EXPECT_EQ(fp8_attention_backends(*recipe("Float8CurrentScaling"), r), kNone);
  r.deterministic = true;
  r.cudnn = {9, 18, 0};
  EXPECT_EQ(fp8_attention_backends(*recipe("DelayedScaling"), r), kFused);
  r.cudnn = {9, 17, 9};
  EXPECT_EQ(fp8_attention_backends(*recipe("DelayedScaling"), r), kNone);
  r.deterministic = false;
  for (const auto& [version, left] : {std::pair{std::array{9, 21, 0}, kFused},
                                      {{9, 20, 9}, kNone},
                                      {{9, 23, 0}, kNone},
                                      {{9, 23, 1}, kNone},
                                      {{9, 23, 2}, kFused}}) {
    r.cudnn = version;
    EXPECT_EQ(fp8_attention_backends(*recipe("MXFP8BlockScaling"), r), left)
        << version[1] << "." << version[2];
  }
  EXPECT_EQ(fp8_attention_backends(*recipe("MXFP8BlockScaling", true), r), kNone);
  for (const char* layout : {"thd_thd_thd", "t3hd", "thd_t2hd"}) {
    r.qkv_layout = layout;
    EXPECT_EQ(fp8_attention_backends(*recipe("MXFP8BlockScaling"), r), kNone) << layout;
    EXPECT_EQ(fp8_attention_backends(*recipe("DelayedScaling"), r), kFused) << layout;
  }
}

TEST(AttentionBackends, LaterBlackwellsAreBlackwells) {
  AttentionRequest r;
  for (const auto& [capability, left] :
       {std::pair{std::array{9, 0}, kNone}, {{10, 0}, kFused}, {{10, 3}, kFused}, {{12, 0}, kNone}}) {
    r.compute_capability = capability;
    EXPECT_EQ(fp8_attention_backends(*recipe("Float8CurrentScaling"), r), left) << capability[0];
  }
}

TEST(AttentionBackends, TheUnfusedCoreStandsInOnlyWithItsSwitch) {
  AttentionRequest r;
  EXPECT_EQ(fp8_attention_backends(*recipe("NVFP4BlockScaling"), r), kNone);
  r.emulate = true;
  EXPECT_EQ(fp8_attention_backends(*recipe("NVFP4BlockScaling"), r), kUnfused);
  EXPECT_EQ(fp8_attention_backends(*recipe("DelayedScaling"), r), kFused);
  EXPECT_TRUE(runs_in_fp8(kUnfused, true));
  EXPECT_FALSE(runs_in_fp8(kUnfused, false));  // chosen with the switch, run without it
  EXPECT_TRUE(runs_in_fp8(kFused, false));
  r.return_max_logit = true;
  EXPECT_EQ(fp8_attention_backends(*recipe("DelayedScaling"), r), kNone);
}

TEST(AttentionBackends, FlashAttentionServesInferenceOfPerTensorScaling) {
  AttentionRequest r;
  r.compute_capability = {9, 0};
  r.flash_attention_3 = true;
  EXPECT_EQ(fp8_attention_backends(*recipe("DelayedScaling"), r), kFused);
  r.is_training = false;
  EXPECT_EQ(fp8_attention_backends(*recipe("DelayedScaling"), r), kFlash);
  EXPECT_EQ(fp8_attention_backends(*recipe("Float8CurrentScaling"), r), kFlash);
  EXPECT_EQ(fp8_attention_backends(*recipe("MXFP8BlockScaling"), r), kNone);
}

}  // namespace assay::training
