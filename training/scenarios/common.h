// What scenarios share: modules with their weights set, recipes around a factory of one's own, and texts that expectations compare.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "training/modules/module.h"

namespace assay::training {

// Parameters of seeded normal data, the weights of one module differing from those of another seed. Before the weights are quantized.
void fill_parameters(Module& module, uint64_t seed);

// A step under this recipe, everything else by default; null: no quantization.
StepOptions under(RecipePtr recipe);

// A custom recipe around a factory that nobody registered.
std::shared_ptr<CustomRecipe> recipe_around(std::string name, std::function<QuantizerLike(const RolePtr&)> factory);

// Each role's text, "None" for a null one.
std::vector<std::string> texts(const std::vector<RolePtr>& roles);
// "TF": rows and not columns.
std::string text(const Usages& usages);

}  // namespace assay::training
