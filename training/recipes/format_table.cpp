#include "training/recipes/format_table.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include "contract/format.h"
#include "training/formats/formats.h"
#include "training/recipes/factories.h"

namespace assay::training {

namespace {

using std::string_view;

// What contract/recipes.def does not say.
struct Maker {
  FormatId format;
  string_view factory, quantizer, recipe;
};
template <class Q> constexpr Maker maker(FormatId format, string_view factory) {
  return {format, factory, Q::kClass, Q::kRecipe};
}
constexpr Maker kMakers[] = {
    maker<Float8Quantizer>(FormatId::fp8_delayed, "delayed_scaling_factory"),
    maker<Float8CurrentScalingQuantizer>(FormatId::fp8_current, "current_scaling_factory"),
    maker<MXFP8Quantizer>(FormatId::mxfp8, "mxfp8_factory"),
    maker<Float8BlockQuantizer>(FormatId::fp8_block, "float8_block_scaling_factory"),
    maker<NVFP4Quantizer>(FormatId::nvfp4, "nvfp4_factory"),
};

// A recipe that has no row above, or a row of another recipe's quantizer, does not compile: a constant
// expression cannot throw.
constexpr FormatRow row_of_recipe(string_view word, string_view format_word, string_view recipe,
                                  FormatId format) {
  for (const Maker& m : kMakers)
    if (m.format == format && m.recipe == recipe) return {word, format_word, recipe, m.factory, m.quantizer};
  throw std::logic_error("a recipe without a factory and a quantizer");
}

template <FormatId F> constexpr FormatRow row_of_mx() {
  return {"", info(F).name, "", MxNames<F>::kFactory, MxNames<F>::kQuantizer};
}
constexpr auto kMxRows = []<size_t... I>(std::index_sequence<I...>) {
  return std::array{row_of_mx<kMxFormats[I]>()...};
}
(std::make_index_sequence<kMxFormats.size()>{});

constexpr FormatRow kRows[] = {
    {"identity", "identity", "", "high_precision_factory", IdentityQuantizer::kClass},
#define RECIPE(word, te_class, format) row_of_recipe(#word, #format, te_class, FormatId::format),
#define SETTING(recipe, tensors, keys)
#include "contract/recipes.def"
#undef SETTING
#undef RECIPE
    {"custom", "", "CustomRecipe", "", ""},
};

const FormatRow* row_with(string_view FormatRow::*column, string_view value) {
  for (const std::span<const FormatRow> rows : {format_rows(), std::span<const FormatRow>(kMxRows)})
    if (const auto at =
            std::find_if(rows.begin(), rows.end(), [&](const FormatRow& r) { return r.*column == value; });
        at != rows.end())
      return &*at;
  return nullptr;
}

}  // namespace

std::span<const FormatRow> format_rows() { return std::span(kRows).first(std::size(kRows) - 1); }
std::span<const FormatRow> recipe_rows() { return std::span(kRows).subspan(1); }

const FormatRow* row_of_format(string_view format) { return row_with(&FormatRow::format, format); }
const FormatRow* row_of_quantizer(const Quantizer& q) {
  return row_with(&FormatRow::quantizer, q.class_name());
}

QuantizerPtr base_quantizer(string_view format, const RolePtr& role) {
  const FormatRow* row = row_of_format(format);
  if (!row) throw std::logic_error("no format " + std::string(format));
  return std::get<QuantizerPtr>(factory_named(row->factory)->call(role));
}

RecipePtr built_in_recipe(string_view format) {
  const FormatRow* row = row_of_format(format);
  return row && !row->recipe.empty() ? make_recipe(row->recipe) : nullptr;
}

bool only_by_factory(string_view format) {
  return std::ranges::any_of(kMxRows, [&](const FormatRow& r) { return r.format == format; });
}

RecipePtr recipe_of_format(string_view format) {
  return only_by_factory(format) ? custom_recipe(row_of_format(format)->factory) : built_in_recipe(format);
}

}  // namespace assay::training
