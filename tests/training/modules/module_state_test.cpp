#include "training/modules/module_state.h"
#include "training/formats/float8.h"

#include <gtest/gtest.h>

#include "reference/subject.h"
#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"

namespace assay::training {

namespace {

struct ModuleStates : testing::Test {
  std::unique_ptr<Subject> subject = make_reference_subject();
  Session session{*subject};

  static RolePtr role() { return std::make_shared<const QuantizerRole>(QuantizerRole{"dpa", "qkv", "core"}); }
};

ErrorClass error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const SemanticError& e) {
    return e.error_class;
  }
  ADD_FAILURE() << "expected an error, found none";
  return ErrorClass::attribute_error;
}

}  // namespace

TEST_F(ModuleStates, UnnamedModulesAreCountedThroughASession) {
  EXPECT_EQ(ModuleState(session, Producer::linear, std::nullopt).name, "Layer_1");
  EXPECT_EQ(ModuleState(session, Producer::linear, "").name, "");
  EXPECT_EQ(ModuleState(session, Producer::layernorm_mlp, std::nullopt).name, "Layer_2");
  Session other(*subject);
  EXPECT_EQ(ModuleState(other, Producer::linear, std::nullopt).name, "Layer_1");
}

TEST_F(ModuleStates, AnAutocastNeedsARecipe) {
  ModuleState state(session, Producer::linear, "m");
  EXPECT_EQ(error_of([&] { state.init_fp8_metadata(session, {}); }), ErrorClass::value_error);
}

TEST_F(ModuleStates, OperandsOfGroupedModulesAreEveryThirdAndEverySecondSlot) {
  ModuleState state(session, Producer::grouped_linear, "m", 3);
  EXPECT_EQ(state.quantizer(Mode::forward, 0), nullptr);
  state.init_fp8_metadata(session, {make_recipe("MXFP8BlockScaling")});
  const auto& forward = state.quantizers(Mode::forward);
  const auto& backward = state.quantizers(Mode::backward);
  ASSERT_EQ(forward.size(), 9u);
  ASSERT_EQ(backward.size(), 6u);
  EXPECT_EQ(state.operand(Mode::forward, 1), (std::vector<QuantizerPtr>{forward[1], forward[4], forward[7]}));
  EXPECT_EQ(state.operand(Mode::backward, 0),
            (std::vector<QuantizerPtr>{backward[0], backward[2], backward[4]}));
  EXPECT_EQ(ModuleState(session, Producer::layernorm_mlp, "m", 9).num_gemms, 2u);
}

TEST_F(ModuleStates, ListsOfACustomRecipeAreCheckedOncePerGeneration) {
  ModuleState state(session, Producer::grouped_linear, "m", 2);
  std::vector<std::string> operands;
  bool refuse = true;
  state.check_operand = [&](const std::vector<QuantizerPtr>& list, std::string_view operand) {
    operands.emplace_back(operand);
    EXPECT_EQ(list.size(), 2u);
    if (refuse && operand == "weight") throw SemanticError(ErrorClass::value_error, "unlike quantizers");
  };
  const RecipePtr recipe = custom_recipe("mxfp8_factory");
  EXPECT_EQ(error_of([&] { state.init_fp8_metadata(session, {recipe}); }), ErrorClass::value_error);
  EXPECT_EQ(error_of([&] { state.init_fp8_metadata(session, {recipe}); }),
            ErrorClass::value_error);  // a failure is not remembered
  refuse = false;
  operands.clear();
  state.init_fp8_metadata(session, {recipe});
  state.set_meta_tensor(session, Mode::forward, recipe);
  const std::vector<std::string> once = {"input", "weight", "grad_output"};
  EXPECT_EQ(operands, once);
  const uint64_t before = state.generation();
  operands.clear();
  state.init_fp8_metadata(session, {custom_recipe("current_scaling_factory")});
  EXPECT_EQ(operands, once);
  EXPECT_EQ(state.generation(), before + 2);
  operands.clear();
  state.init_fp8_metadata(session, {make_recipe("MXFP8BlockScaling")});  // built-in recipes make equal lists
  EXPECT_TRUE(operands.empty());
}

TEST_F(ModuleStates, BoundariesWithoutARoleWarnAtEveryCallOfACustomRecipe) {
  ModuleState state(session, Producer::linear, "m");
  state.init_fp8_metadata(session, {make_recipe("Float8CurrentScaling")});
  state.warn_unconfigured(session, true, true);
  EXPECT_TRUE(session.warnings.empty());
  state.init_fp8_metadata(session, {custom_recipe("current_scaling_factory")});
  session.warnings.clear();  // of the class that changed
  state.warn_unconfigured(session, true, true);
  state.warn_unconfigured(session, true, false);
  state.warn_unconfigured(session, false, false);
  ASSERT_EQ(session.warnings.size(), 3u);
  EXPECT_NE(session.warnings[0].text.find("output_quantizer_role"), std::string::npos);
  EXPECT_NE(session.warnings[1].text.find("grad_input_quantizer_role"), std::string::npos);
  state.set_output_quantizer_role(role());
  state.warn_unconfigured(session, true, false);
  EXPECT_EQ(session.warnings.size(), 3u);
}

TEST_F(ModuleStates, AnotherClassOfRecipeDropsWeightWorkspaces) {
  ModuleState state(session, Producer::linear, "m");
  const RecipePtr custom = custom_recipe("mxfp8_factory");
  state.init_fp8_metadata(session, {custom});
  state.fp8_workspaces["weight"] = nullptr;
  state.init_fp8_metadata(session, {custom_recipe("current_scaling_factory")});
  EXPECT_EQ(state.fp8_workspaces.size(), 1u);  // another factory, the same class
  EXPECT_TRUE(session.warnings.empty());
  state.init_fp8_metadata(session, quantization_off());
  EXPECT_EQ(state.fp8_workspaces.size(), 1u);
  state.init_fp8_metadata(session, {make_recipe("MXFP8BlockScaling")});
  EXPECT_TRUE(state.fp8_workspaces.empty());
  ASSERT_EQ(session.warnings.size(), 1u);
  EXPECT_EQ(session.warnings[0].category, "UserWarning");
}

TEST_F(ModuleStates, ConstructionWithQuantizedParametersMakesTheQuantizersThatTrainingUses) {
  ModuleState state(session, Producer::linear, "m");
  const RecipePtr recipe = make_recipe("MXFP8BlockScaling");
  state.init_fp8_metadata(session, {recipe, false, false, true});
  EXPECT_FALSE(state.fp8_initialized);
  const QuantizerPtr weight = state.quantizer(Mode::forward, 1);
  ASSERT_NE(weight, nullptr);
  state.init_fp8_metadata(session, {recipe});
  EXPECT_TRUE(state.fp8_initialized);
  EXPECT_EQ(state.quantizer(Mode::forward, 1), weight);
}

TEST_F(ModuleStates, OffKeepsQuantizersAndForgetsTheRecipeTest) {
  ModuleState state(session, Producer::linear, "m");
  const RecipePtr recipe = make_recipe("Float8BlockScaling");
  state.init_fp8_metadata(session, {recipe});
  const QuantizerPtr input = state.quantizer(Mode::forward, 0);
  state.init_fp8_metadata(session, quantization_off());
  EXPECT_FALSE(state.fp8_initialized);
  EXPECT_EQ(state.quantizer(Mode::forward, 0), input);
  state.init_fp8_metadata(session, {recipe});
  EXPECT_EQ(state.quantizer(Mode::forward, 0), input);
  state.init_fp8_metadata(session, quantization_off());
  state.set_output_quantizer_role(role());
  state.init_fp8_metadata(session, {recipe});
  EXPECT_NE(state.quantizer(Mode::forward, 0), input);
}

TEST_F(ModuleStates, ALongerHistoryKeepsWhatWasRecorded) {
  ModuleState state(session, Producer::linear, "m");
  const auto delayed = [](int64_t length) {
    const RecipePtr r = make_recipe("DelayedScaling");
    static_cast<DelayedScaling&>(*r).amax_history_len = length;
    return r;
  };
  state.init_fp8_metadata(session, {delayed(2)});
  const RecipeStatePtr kept = state.state(Mode::forward);
  kept->delayed()->amax_history->bytes()[0] = std::byte{0x40};
  state.init_fp8_metadata(session, {delayed(4)});
  EXPECT_EQ(state.state(Mode::forward), kept);
  EXPECT_EQ(kept->delayed()->amax_history->shape, (Dims{4, 3}));
  EXPECT_EQ(kept->delayed()->amax_history->bytes()[0], std::byte{0x40});
  const auto q = std::dynamic_pointer_cast<Float8Quantizer>(state.quantizer(Mode::forward, 0));
  EXPECT_TRUE(share_memory(*q->amax, *kept->delayed()->amax_history));
}

TEST_F(ModuleStates, OperationsMindTheClassOfARecipeOnly) {
  OperationState state(Operation{"GroupedLinear", "", 2});
  EXPECT_EQ(state.get_quantizer(Mode::forward, 0), nullptr);
  state.reset_recipe_state(session, custom_recipe("current_scaling_factory"));
  const QuantizerPtr input = state.get_quantizer(Mode::forward, 0);
  EXPECT_EQ(state.quantizers(Mode::forward).size(), 4u);
  EXPECT_EQ(state.quantizers(Mode::backward).size(), 2u);
  EXPECT_EQ(state.get_quantizer(Mode::backward, 2), nullptr);
  state.reset_recipe_state(session, custom_recipe("mxfp8_factory"));
  EXPECT_EQ(state.get_quantizer(Mode::forward, 0), input);
  state.reset_recipe_state(session, nullptr);
  EXPECT_EQ(state.state(Mode::forward), nullptr);
  state.reset_recipe_state(session, custom_recipe("mxfp8_factory"));
  EXPECT_EQ(state.get_quantizer(Mode::forward, 0)->class_name(), "MXFP8Quantizer");
  // Without a list of roles a custom recipe's state warns and asks with empty ones.
  session.warnings.clear();
  OperationState quantize(Operation{"Quantize", ""});
  quantize.reset_recipe_state(session, custom_recipe("mxfp8_factory"));
  EXPECT_EQ(session.warnings.size(), 2u);
}

// A reader that took the four bytes of another dtype for a float would scale by nonsense.
TEST_F(ModuleStates, AScaleInACheckpointIsOfFloat32) {
  ModuleState state(session, Producer::linear, "m");
  state.init_fp8_metadata(session, {make_recipe("DelayedScaling")});
  const pickle::Bytes right = state.extra_state();
  const auto renamed = [&](const std::string& name) {
    pickle::Value whole = pickle::loads(right);
    for (pickle::Entry& e : std::get<pickle::Dict>(whole.is).items)
      if (e.key == "scale_fwd") std::get<pickle::Object>(e.value.is).arguments[0].is = name;
    return pickle::dumps(whole);
  };
  EXPECT_EQ(renamed("float32"), right);
  EXPECT_TRUE(read_extra_state(right, true)->scale_fwd);
  EXPECT_EQ(error_of([&] { read_extra_state(renamed("int32"), true); }), ErrorClass::runtime_error);
}

}  // namespace assay::training
