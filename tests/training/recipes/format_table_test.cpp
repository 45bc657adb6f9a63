#include "training/recipes/format_table.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "contract/format.h"
#include "training/recipes/factories.h"

namespace assay::training {
namespace {

TEST(FormatTable, EveryWordLeadsToWhatItNames) {
  const auto role = std::make_shared<const QuantizerRole>(QuantizerRole{"linear", "input", ""});
  for (const FormatRow& row : format_rows()) {
    EXPECT_TRUE(format_named(row.format)) << row.format;
    EXPECT_EQ(row_of_format(row.format), &row);
    EXPECT_TRUE(factory_named(row.factory)) << row.factory;
    const RecipePtr recipe = built_in_recipe(row.format);
    EXPECT_EQ(recipe ? recipe->class_name() : "", row.recipe);
    if (row.format == "fp8_delayed") continue;  // its factory makes a request
    const QuantizerPtr q = base_quantizer(row.format, role);
    EXPECT_EQ(q->class_name(), row.quantizer);
    EXPECT_EQ(row_of_quantizer(*q), &row);
    EXPECT_EQ(q->compatible_recipe(), row.recipe.empty() ? "CustomRecipe" : row.recipe);
  }
}

TEST(FormatTable, BeginsWithIdentityAndEndsWithCustom) {
  EXPECT_EQ(format_rows().front().format, "identity");
  EXPECT_EQ(recipe_rows().front().word, "delayed");
  EXPECT_EQ(recipe_rows().back().recipe, "CustomRecipe");
  EXPECT_EQ(format_rows().size(), recipe_rows().size());
  EXPECT_EQ(row_of_format("mxfp4"), nullptr);
}

}  // namespace
}  // namespace assay::training
