// What scenarios share: modules with their weights set, and texts that expectations compare.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "training/modules/module.h"

namespace assay::training {

// Parameters of seeded normal data, the weights of one module differing from those of another seed. Before
// the weights are quantized.
void fill_parameters(Module& module, uint64_t seed);

// A step under this recipe, everything else by default; null: no quantization.
StepOptions under(RecipePtr recipe);

// Each role's text, "None" for a null one.
std::vector<std::string> texts(const std::vector<RolePtr>& roles);
// "TF": rows and not columns.
std::string text(const Usages& usages);

}  // namespace assay::training
