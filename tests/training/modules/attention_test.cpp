#include "training/modules/attention.h"

#include <gtest/gtest.h>

#include "reference/subject.h"
#include "training/recipes/factories.h"

namespace assay::training {

namespace {

struct Attention : testing::Test {
  std::unique_ptr<Subject> subject = make_reference_subject();
  Session session{*subject};
  DotProductAttention core{session, "core"};

  void build(std::string_view factory) { core.state.init_fp8_metadata(session, {custom_recipe(factory)}); }
  std::string local() {
    std::string names;
    for (const RecipePtr& r : core.local_recipes())
      names += (names.empty() ? "" : " ") + std::string(r->class_name());
    return names;
  }
  ErrorClass refusal() {
    try {
      core.quantizers();
    } catch (const SemanticError& e) {
      return e.error_class;
    }
    return ErrorClass::attribute_error;  // none was thrown
  }
};

}  // namespace

TEST_F(Attention, TheCoreReadsOneSlotOfEachGroup) {
  build("nvfp4_linear_fp8_dpa_factory");
  const AttentionQuantizers q = core.quantizers();
  EXPECT_EQ(q.qkv, core.state.quantizers(Mode::forward)[2]);
  EXPECT_EQ(q.o, core.state.quantizers(Mode::forward)[3]);
  EXPECT_EQ(q.s, core.state.quantizers(Mode::forward)[8]);
  EXPECT_EQ(q.dqkv, core.state.quantizers(Mode::backward)[0]);
  EXPECT_EQ(q.do_, core.state.quantizers(Mode::backward)[3]);
  EXPECT_EQ(q.dp, core.state.quantizers(Mode::backward)[5]);
}

TEST_F(Attention, TheCoreSetsTheUsagesItWants) {
  build("nvfp4_linear_fp8_dpa_factory");
  AttentionQuantizers q = core.quantizers();
  EXPECT_EQ(q.qkv->usages(), (Usages{true, false}));
  EXPECT_EQ(q.dp->usages(), (Usages{true, false}));
  EXPECT_TRUE(q.s->internal);
  EXPECT_FALSE(q.o->internal);
  EXPECT_FALSE(q.qkv->optimize_for_gemm);
  build("mxfp8_factory");
  q = core.quantizers();
  EXPECT_EQ(q.dqkv->usages(), (Usages{true, true}));
  EXPECT_TRUE(q.do_->optimize_for_gemm);
  EXPECT_FALSE(q.o->optimize_for_gemm);
  EXPECT_EQ(q.s, nullptr);  // the kernel keeps S and dP to itself
  EXPECT_EQ(q.dp, nullptr);
}

// O and dQKV become NVFP4 once they are named after linear consumers, and the core has no kernel for that.
TEST_F(Attention, LinearConsumersOfTheCoreMakeItRefuseTheMixedFactory) {
  MultiheadAttention mha(session, {"mha", false, false});
  mha.wire_boundary_roles({true, true, true});
  mha.core_attention.state.init_fp8_metadata(session, {custom_recipe("nvfp4_linear_fp8_dpa_factory")});
  core = std::move(mha.core_attention);
  EXPECT_EQ(core.state.quantizers(Mode::forward)[3]->class_name(), "NVFP4Quantizer");
  EXPECT_EQ(refusal(), ErrorClass::type_error);
}

TEST_F(Attention, OnlyPerTensorAndMxfp8QuantizersAreTaken) {
  EXPECT_EQ(refusal(), ErrorClass::runtime_error);  // nothing was built
  for (const char* factory : {"high_precision_factory", "float8_block_scaling_factory", "nvfp4_factory",
                              "high_precision_fwd_mxfp8_bwd_factory"}) {
    build(factory);
    EXPECT_EQ(refusal(), ErrorClass::type_error) << factory;
    EXPECT_THROW(core.capability(), SemanticError) << factory;
  }
  for (const char* factory : {"delayed_scaling_factory", "current_scaling_factory", "mxfp8_factory"}) {
    build(factory);
    EXPECT_NO_THROW(core.quantizers()) << factory;
  }
  EXPECT_EQ(core.capability(), (AttentionCapability{false, true}));
}

TEST_F(Attention, LocalRecipesFollowTheQuantizersAndAreInferredOnce) {
  EXPECT_EQ(local(), "");
  build("nvfp4_linear_fp8_dpa_factory");
  EXPECT_EQ(local(), "Float8CurrentScaling DelayedScaling");
  EXPECT_EQ(local(), "Float8CurrentScaling DelayedScaling");
  EXPECT_EQ(core.inferences(), 1);
  core.state.recipe->fp8_mha = true;
  EXPECT_TRUE(core.local_recipes()[0]->fp8_mha);
  EXPECT_EQ(static_cast<const DelayedScaling&>(*core.local_recipes()[1]).amax_history_len, 1);
  EXPECT_TRUE(core.local_recipes()[1]->fp8_mha);
  EXPECT_EQ(core.inferences(), 2);
  build("mxfp8_factory");
  EXPECT_EQ(local(), "MXFP8BlockScaling");
  build("delayed_scaling_factory");
  EXPECT_EQ(local(), "DelayedScaling");
  EXPECT_EQ(static_cast<const DelayedScaling&>(*core.local_recipes()[0]).amax_history_len,
            1024);                   // as requested
  build("current_scaling_factory");  // nothing asks for delayed scaling
  EXPECT_EQ(local(), "");
  EXPECT_EQ(core.inferences(), 5);
  core.state.init_fp8_metadata(session, {make_recipe("MXFP8BlockScaling")});
  EXPECT_EQ(local(), "");
}

TEST_F(Attention, AFactoryIsAskedOnlyWhereTheNeighboursMayBeQuantized) {
  int calls = 0;
  const auto recipe = std::make_shared<CustomRecipe>();
  recipe->qfactory = std::make_shared<const QFactory>(QFactory{
      "counting", [&](const RolePtr& role) { return ++calls, factory_named("mxfp8_factory")->call(role); }});
  recipe->fp8_dpa = true;
  MultiheadAttention mha(session, {"mha", true, true});
  mha.prepare(session, {recipe}, false);
  EXPECT_EQ(calls, 0);
  recipe->fp8_mha = true;
  mha.prepare(session, quantization_off(), false);
  EXPECT_EQ(calls, 0);
  mha.prepare(session, {recipe}, false);
  EXPECT_EQ(calls, 15);
  mha.prepare(session, {recipe}, false);
  EXPECT_EQ(calls, 15);
}

TEST_F(Attention, PartsOfAnUnnamedModuleGetNamesOfTheirOwn) {
  MultiheadAttention mha(session, {std::nullopt, true, false});
  EXPECT_EQ(mha.name, "Layer_1");
  std::string names;
  for (const auto& [attribute, state] : mha.members())
    names += std::string(attribute) + "=" + state->name + " ";
  EXPECT_EQ(names, "query_layer=Layer_2 key_value=Layer_3 core_attention=Layer_4 proj=Layer_5 ");
}

}  // namespace assay::training
