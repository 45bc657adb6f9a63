// What a line says by the name of a tensor instead of keys:
//
//   quantize nvfp4 64x256 bf16 role=linear/grad_output recipe=nvfp4
//   quantize mxfp8/nvfp4 64x256 bf16 role=linear/weight
//   quantize auto 64x256 bf16 role=grouped_linear/input factory=mxfp8_factory
//
// role=<module>/<tensor>[/<name>] names one of the roles that the rows of contract/roles.def make, recipe= a
// built-in recipe (contract/recipes.def): its settings of that tensor become the defaults of the keys, and a
// key that is written wins. Without recipe= each direction takes those of the recipe of its own format. Both
// are only read: a Problem holds keys, so a line is printed with what they stood for. factory= is resolved
// before a line is read (training/recipes/line_factory.h).
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "contract/format.h"
#include "contract/line.h"
#include "contract/result.h"

namespace assay {

struct TensorRole {
  std::string_view module, tensor, name;  // "linear", "grad_output", "decoder.fc1" or empty
  bool backward;                          // the tensor belongs to the backward pass
};
// Reads "<module>/<tensor>[/<name>]"; views point into `text` and the tables. Errors name the nearest word.
Result<TensorRole> parse_role(std::string_view text);

struct RecipeInfo {
  std::string_view word, te_class;  // "block", "Float8BlockScaling"
  FormatId format;
};
std::span<const RecipeInfo> recipes();
// The recipe called `word`, or an error with the nearest word.
Result<RecipeInfo> recipe_named(std::string_view word);
// What the recipe's row says of this tensor type; nothing where it has none. May be empty: the format's own
// defaults.
std::optional<std::string_view> settings_of(const RecipeInfo& recipe, std::string_view tensor);
// The value that `settings` gives a key in one direction, or nothing.
std::optional<std::string_view> setting(std::string_view settings, std::string_view key, Direction d);

// The keys role, recipe and factory, for help: they are read and never printed, and so are no rows of
// line_keys().
std::span<const KeyInfo> role_keys();

}  // namespace assay
