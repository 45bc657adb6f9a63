#include "training/recipes/delayed.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "reference/subject.h"
#include "training/recipes/factories.h"

namespace assay::training {
namespace {

std::vector<F32Bits> bits(const Array& a) {
  std::vector<F32Bits> out(static_cast<size_t>(a.count()));
  std::memcpy(out.data(), a.bytes().data(), out.size() * sizeof(F32Bits));
  return out;
}
void write(const std::vector<F32Bits>& v, Array& to) {
  std::memcpy(to.bytes().data(), v.data(), v.size() * sizeof(F32Bits));
}

constexpr F32Bits kOne = 0x3F800000, kTwo = 0x40000000, kFour = 0x40800000;

TEST(AmaxBuffers, ReducesEachGroupOnceAndOnlyWhereTheRecipeSaysSo) {
  const auto subject = make_reference_subject();
  Session session(*subject);
  auto group = std::make_shared<ProcessGroup>();
  group->name = "dp", group->size = 2;
  group->all_reduce_max = [](std::span<F32Bits> v) { std::fill(v.begin(), v.end(), kFour); };
  AmaxBuffers buffers;
  std::vector<DelayedStatePtr> states;
  for (const bool reduce : {true, true, false}) {
    states.push_back(
        RecipeState::create(
            session,
            make_recipe("DelayedScaling", json::object({{"amax_history_len", 2}, {"reduce_amax", reduce}})),
            Mode::forward, 1)
            ->delayed());
    write({kTwo, 0}, *states.back()->amax_history);
    buffers.add(states.back(), group);
    buffers.add(states.back(), group);
  }
  EXPECT_EQ(buffers.registered(true), 3u);
  buffers.reduce_and_update(session, true);
  EXPECT_EQ(session.collectives.size(), 1u);
  EXPECT_EQ(bits(*states[0]->scale)[0], 0x42E00000u);  // 448 / 4
  EXPECT_EQ(bits(*states[1]->amax_history), (std::vector<F32Bits>{0, kFour}));
  EXPECT_EQ(bits(*states[2]->scale)[0], 0x43600000u);  // 448 / 2
}

TEST(DelayedScaling, AScaleAlgorithmSeesTheAmaxOfTheWholeHistory) {
  const auto subject = make_reference_subject();
  Session session(*subject);
  std::vector<F32Bits> seen;
  register_scale_algorithm("delayed_test", [&](std::span<const F32Bits> amax, std::span<const F32Bits>, int,
                                               const DelayedScaling&) {
    seen.assign(amax.begin(), amax.end());
    return std::vector<F32Bits>(amax.size(), kFour);
  });
  const auto recipe =
      make_recipe("DelayedScaling",
                  json::object({{"amax_history_len", 2}, {"scaling_factor_compute_algo", "delayed_test"}}));
  const auto state = RecipeState::create(session, recipe, Mode::forward, 2)->delayed();
  write({kOne, kFour, kTwo, kTwo}, *state->amax_history);
  update_amax_and_scale(session, *state->amax_history, *state->scale, state->dtype, state->settings());
  EXPECT_EQ(seen, (std::vector<F32Bits>{kTwo, kFour}));
  EXPECT_EQ(bits(*state->scale), (std::vector<F32Bits>{kFour, kFour}));
  EXPECT_EQ(bits(*state->amax_history), (std::vector<F32Bits>{0, 0, kOne, kFour}));
}

TEST(CustomRecipeState, WhatIsNoQuantizerFailsAtItsFirstUse) {
  const auto subject = make_reference_subject();
  Session session(*subject);
  auto recipe = custom_recipe("mxfp8_factory");
  recipe->qfactory = std::make_shared<const QFactory>(
      QFactory{"wrong", [](const RolePtr&) { return NotAQuantizer{"a number"}; }});
  const auto made = RecipeState::create(session, recipe, Mode::forward, 1, std::vector<RolePtr>(1))
                        ->make_quantizers(session);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0]->class_name(), "a number");
  try {
    made[0]->quantize(session, zeros({32, 32}, DType::bfloat16));
    FAIL();
  } catch (const SemanticError& e) {
    EXPECT_EQ(e.error_class, ErrorClass::attribute_error);
  }
}

// A scale of one format says nothing of another.
TEST(DelayedScaling, AStateOfAnotherFormatIsNotTakenOver) {
  const auto subject = make_reference_subject();
  Session session(*subject);
  const auto state = [&](const char* format) {
    return RecipeState::create(session, make_recipe("DelayedScaling", json::object({{"fp8_format", format}})),
                               Mode::backward, 1)
        ->delayed();
  };
  const DelayedStatePtr e4m3 = state("E4M3"), e5m2 = state("HYBRID"), again = state("HYBRID");
  EXPECT_FALSE(e4m3->inherit(*e5m2));
  EXPECT_FALSE(e5m2->inherit(*e4m3));
  EXPECT_TRUE(e5m2->inherit(*again));
  EXPECT_EQ(e5m2->scale, again->scale);
}

}  // namespace
}  // namespace assay::training
