#include "training/kit/recipes.h"

#include <utility>

#include "training/formats/hybrid.h"
#include "training/recipes/format_table.h"

namespace assay::training {

using std::string;
using std::string_view;

std::shared_ptr<CustomRecipe> recipe_around(string name,
                                            std::function<QuantizerLike(const RolePtr&)> factory) {
  const auto recipe = std::make_shared<CustomRecipe>();
  recipe->qfactory = std::make_shared<const QFactory>(QFactory{std::move(name), std::move(factory)});
  return recipe;
}

RecipePtr by_tensor(ByTensor quantizer) {
  return recipe_around("by tensor", [quantizer = std::move(quantizer)](const RolePtr& role) {
    return quantizer(role ? role->tensor_type : "", role);
  });
}

RecipePtr per_gemm(GemmFormats f, string_view hybrids, const string& source) {
  return by_tensor([f, hybrids, source](const string& tensor, const RolePtr& role) -> QuantizerLike {
    const auto [row, col] = tensor == "weight"        ? std::pair(f.fprop, f.dgrad)
                            : tensor == "grad_output" ? std::pair(f.dgrad, f.wgrad)
                                                      : std::pair(f.fprop, f.wgrad);
    const bool named = !tensor.empty() && hybrids.find(tensor) != string_view::npos;
    if (row == col && !named) return base_quantizer(row, role);
    return std::make_shared<HybridQuantizer>(base_quantizer(row, role), base_quantizer(col, role), source);
  });
}

}  // namespace assay::training
