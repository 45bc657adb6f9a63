// Which word, recipe, factory and quantizer class belong to a format. The words, recipes and formats are the
// rows of contract/recipes.def; the factory and the class are added here. Whoever goes from one of them to
// another reads these rows instead of keeping a list.
#pragma once
#include <span>
#include <string_view>

#include "training/formats/quantizer.h"
#include "training/recipes/recipe.h"
#include "training/recipes/role.h"

namespace assay::training {

struct FormatRow {
  std::string_view word;       // "current": what lines and witness records call the recipe
  std::string_view format;     // "fp8_current", a row of contract/formats.def
  std::string_view recipe;     // "Float8CurrentScaling"
  std::string_view factory;    // "current_scaling_factory": makes what the recipe makes, slot by slot
  std::string_view quantizer;  // "Float8CurrentScalingQuantizer"
};

// identity, which has no recipe, then the formats of contract/recipes.def in their order. Formats that only a
// custom recipe's factory makes are not among them.
std::span<const FormatRow> format_rows();
// Every recipe: those of contract/recipes.def in their order, then "custom", which has a recipe class and
// nothing else.
std::span<const FormatRow> recipe_rows();

// The row of a format ("fp8_block"), and that of a quantizer's class, formats that only a factory makes
// included; null for any other word or class, such as a hybrid's.
const FormatRow* row_of_format(std::string_view format);
const FormatRow* row_of_quantizer(const Quantizer&);

// What the factory of this format makes for one role. Delayed scaling has no such quantizer, because its
// factory makes a request. std::logic_error for a word that is no format.
QuantizerPtr base_quantizer(std::string_view format, const RolePtr&);
// The recipe of this format as it is made without arguments; null for identity, for a format that only a
// factory makes, and for a word that is no format.
RecipePtr built_in_recipe(std::string_view format);
// Whether the original has no recipe for this format, so that a user brings it by a factory ("mxfp6").
bool only_by_factory(std::string_view format);
// The recipe that quantizes by this format alone: the built-in one, or a CustomRecipe of the format's factory
// where there is none. Null for identity and for a word that is no format.
RecipePtr recipe_of_format(std::string_view format);

}  // namespace assay::training
