// What a line's role=, recipe= and factory= stand for, against the quantizers that this layer makes of them.
#include "training/recipes/line_factory.h"
#include "training/formats/formats.h"

#include <gtest/gtest.h>

#include "contract/line.h"
#include "contract/recipes.h"
#include "reference/subject.h"
#include "training/recipes/factories.h"
#include "training/recipes/recipe_state.h"

namespace assay::training {
namespace {

std::string resolved(std::string_view line) {
  const auto out = resolve_factory(line);
  return out ? *out : out.error().text();
}

// contract/recipes.def says what the built-in states do: every row, both directions, and again where the role
// alone is given.
TEST(LineRecipes, EveryRowIsWhatItsRecipeStateMakes) {
  const auto subject = make_reference_subject();
  size_t compared = 0;
  for (const RecipeInfo& r : recipes())
    for (const char* text :
         {"linear/input", "linear/weight", "linear/grad_output", "grouped_linear/input",
          "grouped_linear/weight", "grouped_linear/grad_output", "dpa/qkv", "dpa/s", "dpa/do", "dpa/dp"}) {
      const auto role = parse_role(text);
      ASSERT_TRUE(role) << text;
      if (!settings_of(r, role->tensor)) continue;
      Session session(*subject);
      const auto named = std::make_shared<const QuantizerRole>(
          QuantizerRole{std::string(role->module), std::string(role->tensor), ""});
      const auto state = RecipeState::create(session, make_recipe(r.te_class),
                                             role->backward ? Mode::backward : Mode::forward, 1,
                                             std::vector<RolePtr>{named});
      const auto quantizers = state->make_quantizers(session);  // the state owns what they are views of
      const std::string head = "quantize " + std::string(info(r.format).name) + " 128x256 bf16 role=" + text;
      for (const std::string& line : {head + " recipe=" + std::string(r.word), head}) {
        const auto p = parse_line(line);
        ASSERT_TRUE(p) << line << ": " << p.error().text();
        for (Direction d : kDirections)
          EXPECT_EQ(*p->quantizer(d), *quantizers[0]->line(d)) << line << " " << name_of(d);
      }
      ++compared;
    }
  EXPECT_EQ(compared, 10u + 8u + 8u + 6u + 6u);  // of delayed, current, mxfp8, block and nvfp4
}

TEST(LineFactory, AFactorysAnswerBecomesKeys) {
  struct Row {
    const char *line, *means;
  };
  for (const Row& r : {
           Row{"quantize mxfp8 64x256 bf16 seed=7", "quantize mxfp8 64x256 bf16 seed=7"},
           Row{"quantize auto 64x256 bf16 role=grouped_linear/input "
               "factory=nvfp4_row_scaled_fwd_mxfp8_bwd_factory fill=wide",
               "quantize nvfp4/mxfp8 64x256 bf16 col_source=row_dequantized row.row_scaled=1 fill=wide"},
           Row{"quantize auto 64x256 bf16 role=linear/input factory=nvfp4_row_scaled_fwd_mxfp8_bwd_factory",
               "quantize mxfp8 64x256 bf16"},
           Row{"quantize auto 64x256 bf16 role=linear/grad_output/fc1 factory=nvfp4_factory seed=3",
               "quantize nvfp4 64x256 bf16 round=sr col.rht=1 seed=3"},
           Row{"quantize auto 64x256 bf16 role=linear/grad_output factory=nvfp4_factory round=rne",
               "quantize nvfp4 64x256 bf16 col.rht=1 round=rne"},
           Row{"quantize auto 64x256 bf16 role=linear/grad_output factory=nvfp4_factory col.round=rne rht=0",
               "quantize nvfp4 64x256 bf16 round=sr col.round=rne rht=0"},
           Row{"quantize auto 64x256 bf16 role=linear/weight factory=nvfp4_1d_weight_factory "
               "col_source=original",
               "quantize nvfp4 64x256 bf16 col_source=original"},
           Row{"quantize auto 64x256 bf16 role=linear/weight factory=mxfp8_fwd_nvfp4_bwd_factory dir=row",
               "quantize mxfp8 64x256 bf16 dir=row"},
           Row{"quantize auto 64x256 bf16 role=linear/input factory=mxfp8_fwd_nvfp4_bwd_factory dir=col",
               "quantize nvfp4 64x256 bf16 dir=col rht=1"},
           Row{"quantize auto 64x256 bf16 role=linear/input factory=mxfp8_fwd_nvfp4_bwd_factory dir=both",
               "quantize mxfp8/nvfp4 64x256 bf16 col.rht=1"},
           Row{"quantize auto 64x256 bf16 role=linear/input factory=mxfp8_factory dir=row",
               "quantize mxfp8 64x256 bf16 dir=row"},
           Row{"quantize auto 64x256 f32 role=linear/input factory=fp8_current_identity",
               "quantize fp8_current/identity 64x256 f32"},
           Row{"quantize auto 64x256 f32 role=linear/weight factory=float8_block_scaling_factory",
               "quantize fp8_block 64x256 f32 block=128x128"},
           Row{"split auto 64x64 bf16 role=grouped_linear/grad_output factory=current_scaling_factory "
               "groups=16,48",
               "split fp8_current 64x64 bf16 element=e5m2 groups=16,48"},
       }) {
    EXPECT_EQ(resolved(r.line), r.means);
    EXPECT_TRUE(read_line(r.line)) << r.line << ": " << read_line(r.line).error().text();
  }
  const auto p =
      read_line("quantize auto 64x256 bf16 role=linear/grad_output factory=nvfp4_factory col.round=rne");
  ASSERT_TRUE(p);
  EXPECT_EQ(to_line(*p), "quantize nvfp4 64x256 bf16 row.round=sr col.rht=1");
}

// Every answer of every factory that is a quantizer of a line says what Quantizer::line says.
TEST(LineFactory, WhatIsReadIsWhatTheFactoryMade) {
  size_t compared = 0;
  for (const std::string& name : factory_names())
    for (const char* text : {"linear/input", "linear/weight", "linear/grad_output", "grouped_linear/input",
                             "dpa/qkv", "dpa/do"}) {
      const auto role = parse_role(text);
      const auto made = factory_named(name)->call(std::make_shared<const QuantizerRole>(
          QuantizerRole{std::string(role->module), std::string(role->tensor), ""}));
      const auto p = read_line("quantize auto 64x256 bf16 role=" + std::string(text) + " factory=" + name);
      const QuantizerPtr* q = std::get_if<QuantizerPtr>(&made);
      const auto* pair = q ? dynamic_cast<const HybridQuantizer*>(q->get()) : nullptr;
      const bool sayable = q && (pair || (*q)->line(Direction::row));
      ASSERT_EQ(static_cast<bool>(p), sayable) << name << " " << text << (p ? "" : ": " + p.error().text());
      if (!sayable) continue;
      auto row = pair ? pair->rowwise_quantizer->line(Direction::row) : (*q)->line(Direction::row),
           col = pair ? pair->columnwise_quantizer->line(Direction::col) : (*q)->line(Direction::col);
      EXPECT_EQ(p->row, row) << name << " " << text;
      EXPECT_EQ(p->col, col) << name << " " << text;
      EXPECT_EQ(p->col_source, pair && pair->columnwise_source == "rowwise_dequantized"
                                   ? ColSource::row_dequantized
                                   : ColSource::original)
          << name << " " << text;
      ++compared;
    }
  EXPECT_GT(compared, 100u);
}

// Roles that no slot table has: boundaries that a consumer described, hints that belong to no module, a
// user's own producer, and no role at all.
TEST(LineFactory, EveryRoleThatAFactoryCanBeAskedWithIsALine) {
  struct Row {
    const char *role, *factory, *means;
  };
  for (const Row& r : {
           Row{"none", "mxfp8_fwd_nvfp4_bwd_factory", "quantize mxfp8 64x256 bf16"},
           Row{"none", "high_precision_fwd_mxfp8_bwd_factory", "quantize identity/mxfp8 64x256 bf16"},
           Row{"none", "nvfp4_row_scaled_fwd_high_precision_bwd_factory", "quantize nvfp4 64x256 bf16"},
           Row{"linear/output", "current_scaling_factory", "quantize fp8_current 64x256 bf16"},
           Row{"linear/grad_input", "current_scaling_factory", "quantize fp8_current 64x256 bf16"},
           Row{"linear/grad_input", "hybrid_fp8_current", "quantize fp8_current 64x256 bf16 element=e5m2"},
           Row{"linear/output", "mxfp8_fwd_nvfp4_bwd_factory", "quantize mxfp8 64x256 bf16"},
           Row{"dpa/o", "nvfp4_linear_fp8_dpa_factory", "quantize fp8_current 64x256 bf16"},
           Row{"dpa/dqkv", "nvfp4_linear_fp8_dpa_factory", "quantize fp8_current 64x256 bf16 element=e5m2"},
           Row{"dpa/dqkv/core", "mxfp8_factory", "quantize mxfp8 64x256 bf16"},
           Row{"//core.dpa_grad_input", "nvfp4_linear_fp8_dpa_factory",
               "quantize fp8_current 64x256 bf16 element=e5m2"},
           Row{"//core.dpa_output", "nvfp4_linear_fp8_dpa_factory", "quantize fp8_current 64x256 bf16"},
           Row{"conv/grad_output", "current_scaling_factory",
               "quantize fp8_current 64x256 bf16 element=e5m2"},  // keyed on the tensor alone
           Row{"conv/grad_output", "nvfp4_factory",
               "quantize nvfp4 64x256 bf16 col.rht=1"},  // linear modules alone: the rest is an input
       }) {
    const std::string line =
        std::string("quantize auto 64x256 bf16 role=") + r.role + " factory=" + r.factory;
    EXPECT_EQ(resolved(line), r.means) << line;
    EXPECT_TRUE(read_line(line)) << line;
  }
  // The name reaches the factory whole, whatever it holds; without a factory a role must still be one of the
  // tables.
  register_factory("line_factory_test_named", [](const RolePtr& role) -> QuantizerLike {
    if (role && role->name == "decoder/fc1") return std::make_shared<MXFP8Quantizer>(Encoding::e5m2);
    return std::make_shared<MXFP8Quantizer>();
  });
  EXPECT_EQ(
      resolved("quantize auto 64x256 bf16 role=linear/input/decoder/fc1 factory=line_factory_test_named"),
      "quantize mxfp8 64x256 bf16 element=e5m2");
  EXPECT_FALSE(read_line("quantize mxfp8 64x256 bf16 role=linear/output"));
  EXPECT_FALSE(read_line("quantize mxfp8 64x256 bf16 role=none"));
}

TEST(LineFactory, WhatNoLineCanSayIsAnError) {
  register_factory("line_factory_test_none",
                   [](const RolePtr&) -> QuantizerLike { return std::monostate{}; });
  register_factory("line_factory_test_number",
                   [](const RolePtr&) -> QuantizerLike { return NotAQuantizer{"a number"}; });
  register_factory("line_factory_test_raises", [](const RolePtr&) -> QuantizerLike {
    throw SemanticError(ErrorClass::type_error, "no such slot");
  });
  register_factory("line_factory_test_rows", [](const RolePtr&) -> QuantizerLike {
    auto q = std::make_shared<MXFP8Quantizer>();
    q->columnwise_usage = false;
    return q;
  });
  register_factory("line_factory_test_casts", [](const RolePtr&) -> QuantizerLike {
    return std::make_shared<IdentityQuantizer>(DType::float32);
  });
  const auto with = [](std::string_view factory, std::string_view more = "") {
    return resolved("quantize auto 64x256 bf16 role=linear/input factory=" + std::string(factory) +
                    std::string(more));
  };
  EXPECT_EQ(with("delayed_scaling_factory"),
            "column 53: delayed_scaling_factory for linear/input requests delayed scaling, whose scale comes "
            "from a history that a line does not have (write fp8_delayed with scale=)");
  EXPECT_EQ(with("line_factory_test_none"),
            "column 53: line_factory_test_none for linear/input returns nothing (use the format identity for "
            "a tensor that "
            "is not quantized)");
  EXPECT_EQ(with("line_factory_test_number"),
            "column 53: line_factory_test_number for linear/input returns a number and no quantizer");
  EXPECT_EQ(with("line_factory_test_raises"),
            "column 53: line_factory_test_raises for linear/input raises TypeError: no such slot");
  EXPECT_EQ(with("line_factory_test_rows"), "quantize mxfp8 64x256 bf16 dir=row");
  EXPECT_EQ(with("line_factory_test_rows", " dir=both"),
            "column 80: line_factory_test_rows for linear/input makes no columns (leave dir= out)");
  EXPECT_NE(with("line_factory_test_casts")
                .find("returns IdentityQuantizer of a dtype, which casts: no line can express that"),
            std::string::npos);
  EXPECT_NE(with("nvfp4_ref_rht_2d_factory").find("returns NVFP4QuantizerRef: no line can express that"),
            std::string::npos);
  EXPECT_EQ(with("mxfp8_factroy"),
            "column 53: unknown factory 'mxfp8_factroy' (did you mean 'mxfp8_factory'?)");
  EXPECT_NE(with("zzzzzzzzzzzz").find("(one of high_precision_factory, "), std::string::npos);
  EXPECT_NE(
      with("mxfp8_fwd_high_precision_bwd_factory", " dir=col").find("makes columns from dequantized rows"),
      std::string::npos);
  EXPECT_EQ(with("mxfp8_factory", " recipe=mxfp8"),
            "column 67: expected recipe= or factory=, found both (leave one out)");
  EXPECT_EQ(with("mxfp8_factory", " factory=nvfp4_factory"), "column 67: key 'factory' is given twice");
  EXPECT_EQ(resolved("quantize auto 8x8 bf16 factory=mxfp8_factory"),
            "column 24: factory= needs the role of the tensor (role=linear/input)");
  EXPECT_EQ(
      resolved("quantize auto 8x8 bf16 role=linear factory=mxfp8_factory"),
      "column 29: expected a role <module>/<tensor>[/<name>] or none, found 'linear' (role=linear/input)");
  EXPECT_EQ(resolved("quantize mxfp8 8x8 bf16 role=linear/input factory=mxfp8_factory"),
            "column 10: factory= chooses the format: expected auto, found 'mxfp8' (quantize auto 64x256 bf16 "
            "role=linear/input factory=mxfp8_factory)");
  EXPECT_NE(resolved("dequantize auto 8x8 bf16 role=linear/input factory=mxfp8_factory")
                .find("expected a quantize or a split with factory="),
            std::string::npos);
  const auto bad = read_line("quantize auto 64x256 bf16 role=linear/input factory=mxfp8_factory pow2=1");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().text().find("in 'quantize mxfp8 64x256 bf16 pow2=1'"), std::string::npos)
      << bad.error().text();
}

}  // namespace
}  // namespace assay::training
