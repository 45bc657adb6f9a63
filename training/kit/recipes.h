// Custom recipes for steps that are compared: around a factory, by tensor, and with a format for each GEMM.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "training/formats/quantizer.h"
#include "training/recipes/recipe.h"

namespace assay::training {

// The formats that a built-in recipe quantizes by from the first step on. Delayed scaling needs a history and
// is not one of them.
inline constexpr std::string_view kFormats[] = {"fp8_current", "mxfp8", "fp8_block", "nvfp4"};

// A custom recipe around a factory that is not registered.
std::shared_ptr<CustomRecipe> recipe_around(std::string name,
                                            std::function<QuantizerLike(const RolePtr&)> factory);
// A custom recipe that is asked by tensor type; "" where a boundary has no role.
using ByTensor = std::function<QuantizerLike(const std::string& tensor, const RolePtr& role)>;
RecipePtr by_tensor(ByTensor);

// Formats of the three GEMMs; "identity" stands for no quantization. The weight is H(fprop | dgrad), the
// input H(fprop | wgrad), the gradient H(dgrad | wgrad).
struct GemmFormats {
  std::string_view fprop, dgrad, wgrad;
  bool operator==(const GemmFormats&) const = default;
  bool one() const { return fprop == dgrad && dgrad == wgrad; }
};
// The custom recipe of these formats. A tensor that one format serves is a hybrid only where `hybrids` names
// it
// ("input,weight"), and plain elsewhere.
RecipePtr per_gemm(GemmFormats, std::string_view hybrids = "input,weight",
                   const std::string& source = "original");

}  // namespace assay::training
