// The recipes that attention's core works by: the autocast's own, another one that a switch names, or a pair
// of which the second serves S and dP alone (TE attention/dot_product_attention).
#pragma once
#include <vector>

#include "training/attention/switches.h"
#include "training/recipes/recipe.h"

namespace assay::training {

// One recipe for all slots, or a pair: the first for every GEMM but the last, the second, always delayed
// scaling, for the last one, which holds S and dP. The last of the list is the module's own recipe. A custom
// recipe never reads the switches and stands alone.
//
// With the switch "F16" quantized attention is turned off in the user's object itself, as the original does:
// fp8_dpa and fp8_mha of `user` are false afterwards. Never throws; `user` is not null.
std::vector<RecipePtr> attention_recipes(const RecipePtr& user, const AttentionSwitches&);

}  // namespace assay::training
