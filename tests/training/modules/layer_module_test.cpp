#include "training/modules/layer_module.h"

#include <gtest/gtest.h>

#include "reference/subject.h"
#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/base/ranks.h"
#include "training/kit/records.h"

namespace assay::training {

namespace {

LayerModuleSettings settings_of(bool decoder) {
  LayerModuleSettings s;
  s.name = "m";
  s.hidden_size = s.ffn_hidden_size = 64;
  s.heads = 2;
  s.head_size = 32;
  s.decoder = decoder;
  s.softmax_scale = 0x3B000000;  // 2^-9: probabilities that differ
  return s;
}

struct LayerModules : testing::Test {
  std::unique_ptr<Subject> subject = make_reference_subject();
  Session session{*subject};
  ArrayPtr x = drawn({16, 64}, DType::bfloat16, 1), dy = drawn({16, 64}, DType::bfloat16, 2);

  void fill(Module& m) {
    uint64_t seed = 10;
    for (Parameter& p : m.parameters)
      write_back(session, p, drawn(shape_of(p.value), DType::float32, seed++));
  }
};

}  // namespace

// The gradient of a decoder's context comes from its cross attention alone, and goes to the record.
TEST_F(LayerModules, ADecoderReadsItsContext) {
  LayerModule layer(session, settings_of(true));
  fill(layer);
  const auto step = [&](uint64_t seed) {
    layer.set_context(drawn({16, 64}, DType::bfloat16, seed));
    return layer.step(session, x, dy, StepOptions{});
  };
  const StepRecord one = step(3), other = step(4);
  ASSERT_NE(output_of(one, "inter_attention.dgrad.context"), nullptr);
  EXPECT_FALSE(equal_bytes(*output_of(one, "output"), *output_of(other, "output")));
  EXPECT_TRUE(
      equal_bytes(*output_of(one, "self_attention.output"), *output_of(other, "self_attention.output")));
}

// Attention and MLP both leave a sum over the ranks in forward, and one in backward.
TEST_F(LayerModules, EveryPartOfAParallelLayerIsParallel) {
  std::vector<std::string> trace(2);
  run_ranks(
      2, "tp",
      [&](int rank, const GroupPtr& group) {
        Session own(*subject);
        LayerModuleSettings s = settings_of(false);
        s.heads = 1;
        s.set_parallel_mode = true;
        LayerModule layer(own, s);
        StepOptions options;
        options.tp_group = group;
        for (const Collective& c : layer.step(own, x, dy, options).collectives)
          trace[static_cast<size_t>(rank)] += c.what + "(" + c.who + ") ";
      },
      shared(trace));
  EXPECT_EQ(trace[0],
            "all_reduce(proj.output) all_reduce(fc2.output) all_reduce(fc1.dgrad) all_reduce(qkv.dgrad) ");
  EXPECT_EQ(trace[1], trace[0]);
}

// Who trains the layer writes its parameters, and finds gradients there, or in main_grad.
TEST_F(LayerModules, ParametersAreTheLayers) {
  LayerModule layer(session, settings_of(false));
  fill(layer);
  const StepRecord before = layer.step(session, x, dy, StepOptions{});
  Parameter& weight = layer.parameter("layernorm_mlp.fc2_weight");
  ASSERT_NE(weight.grad, nullptr);
  EXPECT_TRUE(equal_bytes(*weight.grad, *output_of(before, "layernorm_mlp.fc2_weight.grad")));
  weight.value = drawn(shape_of(weight.value), DType::bfloat16, 99);
  weight.main_grad = f32_array(shape_of(weight.value), std::vector<float>(64 * 64, 0.0F));
  const StepRecord after = layer.step(session, x, dy, StepOptions{});
  EXPECT_FALSE(equal_bytes(*output_of(before, "output"), *output_of(after, "output")));
  EXPECT_TRUE(equal_bytes(*weight.main_grad, *output_of(after, "layernorm_mlp.fc2_weight.grad")));
  EXPECT_EQ(weight.main_grad->dtype, DType::float32);
}

// Without a gradient of the input the layer gives none, though its residual could.
TEST_F(LayerModules, AnInputThatNeedsNoGradientGetsNone) {
  LayerModule layer(session, settings_of(false));
  fill(layer);
  StepOptions options;
  options.input_requires_grad = false;
  const Forward done = layer.forward(session, x, options);
  EXPECT_TRUE(absent(done.backward(session, dy)));
  EXPECT_NE(layer.parameter("self_attention.qkv_weight").grad, nullptr);
}

}  // namespace assay::training
