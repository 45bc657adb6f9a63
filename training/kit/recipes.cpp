#include "training/kit/recipes.h"

#include <stdexcept>
#include <utility>

#include "training/formats/hybrid.h"
#include "training/recipes/factories.h"

namespace assay::training {

using std::string;
using std::string_view;

QuantizerPtr quantizer_of(string_view format, const RolePtr& role) {
  static constexpr std::pair<string_view, string_view> kFactories[] = {
      {"fp8_current", "current_scaling_factory"},
      {"fp8_block", "float8_block_scaling_factory"},
      {"mxfp8", "mxfp8_factory"},
      {"nvfp4", "nvfp4_factory"},
      {"identity", "high_precision_factory"},
  };
  for (const auto& [name, factory] : kFactories)
    if (name == format) return std::get<QuantizerPtr>(factory_named(factory)->call(role));
  throw std::logic_error("no format " + string(format));
}

RecipePtr built_in(string_view format) {
  static constexpr std::pair<string_view, string_view> kRecipes[] = {
      {"fp8_current", "Float8CurrentScaling"},
      {"fp8_block", "Float8BlockScaling"},
      {"mxfp8", "MXFP8BlockScaling"},
      {"nvfp4", "NVFP4BlockScaling"},
      {"delayed", "DelayedScaling"},
  };
  for (const auto& [name, recipe] : kRecipes)
    if (name == format) return make_recipe(recipe);
  return nullptr;
}

std::shared_ptr<CustomRecipe> recipe_around(string name, std::function<QuantizerLike(const RolePtr&)> factory) {
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
    if (row == col && !named) return quantizer_of(row, role);
    return std::make_shared<HybridQuantizer>(quantizer_of(row, role), quantizer_of(col, role), source);
  });
}

}  // namespace assay::training
