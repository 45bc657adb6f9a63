// Factories: functions from a role to a quantizer, for CustomRecipe. Those of TE custom_recipes/ and of its
// test suites are here by their names; a user's may be added.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "training/formats/quantizer.h"
#include "training/recipes/recipe.h"

namespace assay::training {

// The factory called `name` ("nvfp4_factory", "hybrid_fp8_current"); null for any other name. One object per
// name.
QFactoryPtr factory_named(std::string_view name);
// Adds a factory. ValueError where the name is taken.
QFactoryPtr register_factory(std::string name, std::function<QuantizerLike(const RolePtr&)> call);
// All names: the built-in ones, then those that were added.
std::vector<std::string> factory_names();

// A factory of the suites: linear forward slots get rows of `row` and columns of `col`, gradients `grad`
// (nothing: `col`), all others `row`. The three make a new quantizer at each call and are asked with the
// slot's role.
using MakeQuantizer = std::function<QuantizerPtr(const RolePtr&)>;
QFactoryPtr hybrid_custom_recipe(std::string name, MakeQuantizer row, MakeQuantizer col,
                                 MakeQuantizer grad = nullptr);

}  // namespace assay::training
