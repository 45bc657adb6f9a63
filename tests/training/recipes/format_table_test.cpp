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
  EXPECT_EQ(row_of_format("e4m3"), nullptr);
}

// Formats without a recipe are no recipe's rows, and yet their words, factories and classes are found.
TEST(FormatTable, AFormatOfAFactoryAloneHasARowAndACustomRecipe) {
  size_t found = 0;
  for (const FormatInfo& f : assay::kFormats) {
    const FormatRow* row = row_of_format(f.name);
    ASSERT_TRUE(row) << f.name << " has no quantizer in the training layer";
    if (!only_by_factory(f.name)) continue;
    ++found;
    EXPECT_EQ(row->factory, std::string(f.name) + "_factory");
    const QuantizerPtr q = base_quantizer(f.name, nullptr);
    EXPECT_EQ(row_of_quantizer(*q), row);
    EXPECT_EQ(q->compatible_recipe(), "CustomRecipe");
    EXPECT_EQ(q->line(Direction::row)->format, f.id);
    EXPECT_EQ(built_in_recipe(f.name), nullptr);
    ASSERT_TRUE(recipe_of_format(f.name)) << f.name;
    EXPECT_TRUE(recipe_of_format(f.name)->custom());
  }
  EXPECT_EQ(found, 2u) << "mxfp6 and mxfp4";
  EXPECT_EQ(recipe_of_format("identity"), nullptr);
  EXPECT_EQ(recipe_of_format("mxfp8")->class_name(), "MXFP8BlockScaling");
}

}  // namespace
}  // namespace assay::training
