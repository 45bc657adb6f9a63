#include "training/recipes/producers.h"

#include <gtest/gtest.h>

namespace assay::training {

namespace {

RolePtr role(std::string module_type, std::string tensor_type, std::string name) {
  return std::make_shared<const QuantizerRole>(
      QuantizerRole{std::move(module_type), std::move(tensor_type), std::move(name)});
}

// "linear/input/x linear/weight/x -"
std::string text(const std::vector<RolePtr>& roles) {
  std::string all;
  for (const RolePtr& r : roles)
    all += (all.empty() ? "" : " ") + (r ? r->module_type + "/" + r->tensor_type + "/" + r->name : "-");
  return all;
}

}  // namespace

TEST(Roles, CompareAndPrintByValue) {
  const QuantizerRole a{"linear", "input", "x"};
  QuantizerRole b = a;
  EXPECT_EQ(hash_of(a), hash_of(b));
  b.name = "y";
  EXPECT_NE(hash_of(a), hash_of(b));
  EXPECT_NE(hash_of({"a", "b", ""}), hash_of({"b", "a", ""}));
  EXPECT_EQ(to_text(a), "module_type=linear|tensor_type=input|name=x");
  EXPECT_TRUE(same_role(nullptr, nullptr));
  EXPECT_FALSE(same_role(nullptr, role("", "", "")));  // no role is not an empty one
  EXPECT_TRUE(same_role(role("dpa", "qkv", "c"), role("dpa", "qkv", "c")));
}

TEST(Producers, AModuleAndAnOperationOfOneNameDiffer) {
  EXPECT_EQ(text(role_list(*module_named("GroupedLinear"), "g", Mode::backward, 4)),
            "grouped_linear/grad_output/g - grouped_linear/grad_output/g -");
  EXPECT_EQ(text(*Operation{"GroupedLinear", "g", 3}.get_quantizer_roles("backward")),
            "linear/grad_output/g linear/grad_output/g linear/grad_output/g");
  EXPECT_FALSE(operation_named("LayerNormLinear"));
  EXPECT_FALSE(module_named("BasicLinear"));
}

TEST(Producers, RepeatedSlotsHoldTheVerySameRole) {
  const RolePtr output = role("dpa", "qkv", "core");
  const auto roles = role_list(Producer::linear, "x", Mode::forward, 6, {output, nullptr});
  EXPECT_EQ(roles[0], roles[3]);
  EXPECT_EQ(roles[2], output);
  EXPECT_EQ(roles[5], output);
}

TEST(Producers, TheFirstLayersOutputIsCalledAfterTheSecond) {
  EXPECT_EQ(
      text(role_list(Producer::layernorm_mlp, "m", Mode::forward, 6)),
      "linear/input/m.fc1 linear/weight/m.fc1 linear/input/m.fc2 linear/input/m.fc2 linear/weight/m.fc2 -");
  EXPECT_EQ(text(role_list(Producer::layernorm_mlp, "m", Mode::backward, 4)),
            "linear/grad_output/m.fc1 - linear/grad_output/m.fc2 linear/grad_output/m.fc1");
}

TEST(Producers, AttentionHintsWhereNothingIsConfiguredAndNeverRepeats) {
  EXPECT_EQ(text(role_list(Producer::dot_product_attention, "c", Mode::backward, 20)),
            "//c.dpa_grad_input //c.dpa_grad_input dpa/do/c dpa/do/c dpa/dp/c dpa/dp/c");
  EXPECT_EQ(text(role_list(Producer::dot_product_attention, "", Mode::forward, 4,
                           {nullptr, role("linear", "grad_output", "p")})),
            "dpa/qkv/ dpa/qkv/ dpa/qkv/ //dpa_output");
}

TEST(Producers, OperationsOfOtherModesAndClassesHaveNoList) {
  EXPECT_FALSE((Operation{"BasicLinear", ""}.get_quantizer_roles("sideways")));
  EXPECT_FALSE((Operation{"Quantize", ""}.get_quantizer_roles("forward")));
  Operation quantize{"Quantize", ""};
  quantize.quantize_backward = false;
  EXPECT_EQ(quantize.num_quantizers("forward"), 1u);
  EXPECT_EQ(quantize.num_quantizers("backward"), 0u);
}

}  // namespace assay::training
