// What the topics of attention share.
#pragma once
#include <optional>
#include <string_view>

#include "compare/witness/records/given.h"
#include "fixtures/json.h"
#include "training/base/session.h"
#include "training/recipes/recipe.h"

namespace assay {

// The recipe that "recipe", "fp8_dpa" and "fp8_mha" of a record mean, with the fields that the recording
// process gave it. ValidationError where the recipe refuses them.
training::RecipePtr attention_recipe_in(const Given& given, bool fp8_dpa = false);

// The groups of attention_core.cpp; nothing of another group. Records of "emulation" carry what was recorded
// as "recorded", because products lie between the steps.
std::optional<json::Value> witness_attention_core(std::string_view group, const Given& given,
                                                  training::Session& session);

}  // namespace assay
