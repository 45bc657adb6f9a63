// Stories (scenarios, cells of the parity matrix), the matrix they print, and the comparison of witness
// records.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "compare/commands/training_cases.h"
#include "compare/commands/training_cases/scenario.h"
#include "compare/report/parity_table.h"
#include "compare/witness/records/records.h"
#include "fixtures/json.h"
#include "reference/subject.h"
#include "training/base/ranks.h"
#include "training/formats/formats.h"
#include "training/formats/hybrid.h"
#include "training/parity/cells.h"
#include "training/parity/judge.h"
#include "training/parity/trained_cells.h"
#include "training/recipes/factories.h"

namespace assay {
namespace {

json::Value parsed(const char* text) { return *json::parse(text); }

TEST(Witness, EqualRecordsHaveNoDifferenceInAnyOrderOfMembers) {
  EXPECT_EQ(
      first_difference(parsed(R"({"a": 1, "b": [true, null]})"), parsed(R"({"b": [true, null], "a": 1.0})")),
      "");
}

TEST(Witness, ADifferenceIsNamedByItsPlace) {
  EXPECT_EQ(first_difference(parsed(R"({"a": [1, {"b": "row"}]})"), parsed(R"({"a": [1, {"b": "col"}]})")),
            R"(then.a[1].b: expected "row", found "col")");
  EXPECT_EQ(first_difference(parsed(R"({"a": 1})"), parsed(R"({})")), "then.a: expected 1, found nothing");
  EXPECT_EQ(first_difference(parsed(R"({})"), parsed(R"({"a": 1})")), "then.a: expected nothing, found 1");
  EXPECT_EQ(first_difference(parsed("[1, 2]"), parsed("[1]")), "then: expected 2 elements, found 1");
  EXPECT_EQ(first_difference(parsed("null"), parsed("false")), "then: expected null, found false");
}

Verdict passed(const std::string& excluded = "") {
  Verdict v;
  v.excluded = excluded;
  if (!excluded.empty()) v.reason = "excluded by " + excluded;
  return v;
}
Verdict failed(std::string message) {
  Verdict v;
  v.outcome = Outcome::failed;
  Breach b;
  b.message = std::move(message);
  v.breaches.push_back(b);
  return v;
}

TEST(MatrixText, CountsEachOutcomeAndBreaksWideTables) {
  ParityTable m;
  m.add("linear", "mxfp8", "parity linear mxfp8", passed());
  m.add("linear", "mxfp8", "parity linear mxfp8 phase=cached", passed());
  m.add("linear", "mxfp8", "parity linear mxfp8 flavour=te", passed("E12"));
  m.add("linear", "nvfp4", "parity linear nvfp4", failed("dgrad: b.data"));
  const std::string wide = m.text(150), narrow = m.text(25);
  EXPECT_NE(wide.find("linear  2 + 1 E12  1 FAILED"), std::string::npos) << wide;
  EXPECT_NE(narrow.find("linear  2 + 1 E12\n"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("linear  1 FAILED\n"), std::string::npos) << narrow;
}

TEST(MatrixHtml, SaysWhatIsExcludedAndWhatFailedAndEscapes) {
  ParityTable m;
  m.add("linear <a>", "mxfp8", "parity linear mxfp8 flavour=te", passed("E12"));
  m.add("linear <a>", "nvfp4", "parity linear nvfp4", failed("dgrad: b.data"));
  const std::string page = m.html();
  EXPECT_NE(page.find("linear &lt;a&gt;"), std::string::npos);
  EXPECT_NE(page.find(">1 E12</a></td>"), std::string::npos);
  EXPECT_NE(page.find(">1 FAILED</a></td>"), std::string::npos);
  EXPECT_NE(page.find("dgrad: b.data"), std::string::npos);
  for (const char* address : {"http:", "https:"})
    EXPECT_EQ(page.find(address), std::string::npos) << "one file, no network";
}

TEST(TakeStories, TakesItsWordsAndLeavesLines) {
  std::vector<std::string> what = {"smoke", "S-01", "parity linear mxfp8"};
  const auto cases = take_training_cases(what, "", "");
  ASSERT_TRUE(cases);
  ASSERT_EQ(cases->size(), 2u);
  EXPECT_EQ((*cases)[0].entry.text, "S-01");
  EXPECT_EQ((*cases)[1].row, "linear input,weight");
  EXPECT_EQ(what, std::vector<std::string>{"smoke"});
}

TEST(TakeStories, TheSuiteRanksHasEveryScenarioOfSeveral) {
  std::vector<std::string> word = {"ranks"}, all = {"scenarios"};
  const auto ranks = take_training_cases(word, "", ""), scenarios = take_training_cases(all, "", "");
  ASSERT_TRUE(ranks && scenarios);
  std::set<std::string> found, expected;
  for (const TrainingCase& c : *ranks) found.insert(c.entry.text);
  for (const TrainingCase& c : *scenarios)
    if (c.ranks > 1) expected.insert(c.entry.text);
  std::vector<std::string> matrix = {"roles"};
  const auto cells = take_training_cases(matrix, "", "");
  ASSERT_TRUE(cells);
  for (const TrainingCase& c : *cells)
    if (c.ranks > 1) expected.insert(c.entry.text);
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(std::ranges::any_of(*cells, [](const TrainingCase& c) { return c.ranks > 1; }));
  for (const char* id : {"S-58", "S-59", "S-66", "S-96"}) EXPECT_TRUE(found.contains(id)) << id;
  EXPECT_FALSE(found.contains("S-01"));
}

TEST(TakeStories, AScenarioThatMiscountsItsRanksFails) {
  const auto two = [](training::ScenarioRun& run) {
    training::run_ranks(2, "dp", [](int, const training::GroupPtr&) {});
    run.expect(true, "it ran");
  };
  const auto reference = make_reference_subject();
  const auto outcome_of = [&](int ranks) {
    const training::Scenario s{"X-1", "", "", "", "", two, {}, ranks};
    return case_of(s).judge(*reference, *reference, {});
  };
  EXPECT_EQ(outcome_of(2).outcome, Outcome::passed);
  EXPECT_NE(outcome_of(2).ranks.find("\"size\": 2"), std::string::npos) << outcome_of(2).ranks;
  for (const int wrong : {1, 3}) {
    ASSERT_EQ(outcome_of(wrong).outcome, Outcome::failed);
    EXPECT_NE(outcome_of(wrong).breaches[0].message.find("found 2"), std::string::npos);
  }
}

TEST(TakeStories, AnUnknownOneIsAnError) {
  std::vector<std::string> scenario = {"S-00"}, cell = {"parity linear mxfp9"};
  EXPECT_FALSE(take_training_cases(scenario, "", ""));
  EXPECT_FALSE(take_training_cases(cell, "", ""));
}

TEST(TakeStories, ShardsAreDisjointAndGiveAllCases) {
  const auto texts = [](const std::string& filter, const std::string& shard) {
    std::vector<std::string> what = {"scenarios", "roles"}, out;
    const auto cases = take_training_cases(what, filter, shard);
    EXPECT_TRUE(cases);
    for (const TrainingCase& c : *cases) out.push_back(c.entry.text);
    return out;
  };
  for (const std::string filter : {"", "mxfp8", "/^parity .*nvfp4/"}) {
    const auto whole = texts(filter, "");
    std::vector<std::string> dealt(whole.size());
    for (size_t k = 0; k < 7; ++k) {
      const auto part = texts(filter, std::to_string(k + 1) + "/7");
      for (size_t n = 0; n < part.size(); ++n) dealt.at(n * 7 + k) = part[n];
    }
    EXPECT_EQ(dealt, whole) << filter;
    EXPECT_GT(whole.size(), 20u) << filter;
  }
  for (const std::string& cell : texts("/^parity .*nvfp4/", ""))
    EXPECT_TRUE(cell.starts_with("parity ")) << cell;
}

TEST(TakeStories, AWrongShardOrPatternIsAnError) {
  std::vector<std::string> what = {"scenarios"};
  EXPECT_FALSE(take_training_cases(what, "", "8/7"));
  EXPECT_FALSE(take_training_cases(what, "/(/", ""));
}

TEST(TakeStories, EveryCellHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const training::Cell& c : training::parity_cells())
    EXPECT_TRUE(names.insert(training::to_text(c)).second) << training::to_text(c);
  EXPECT_GT(names.size(), 800u);
}

TEST(TakeStories, TheChoiceHoldsEveryValidPair) {
  const auto& all = training::all_trained_cells();
  const auto& chosen = training::chosen_trained_cells();
  EXPECT_EQ(training::pairs_left_out(chosen), 0u);
  EXPECT_GT(training::pairs_left_out({chosen.begin() + 1, chosen.end()}), 0u);  // no cell is idle
  EXPECT_EQ(training::left_out_cells().size() + chosen.size(), all.size());
  EXPECT_LT(chosen.size(), 60u);
  std::vector<std::string> what = {"roles", "roles left-out"}, whole = {"roles all"};
  EXPECT_EQ(take_training_cases(what, "", "")->size(), take_training_cases(whole, "", "")->size());
  for (const training::Cell& c : all) {
    const auto again = training::parity_cell(training::to_text(c));
    ASSERT_TRUE(again) << training::to_text(c);
    EXPECT_EQ(*again, c);
  }
}

// The reference, but columns that are quantized alone have one wrong byte: what a hybrid's own launch would
// do.
class WrongAlone final : public Subject {
 public:
  std::string_view name() const override { return "wrong alone"; }
  Support supports(const Problem& p) const override { return reference_->supports(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& environment) override {
    const Served served = reference_->run(p, inputs, outputs, environment);
    if (p.as<Quantize>() && !p.row && p.col)
      for (const Buffer& b : outputs)
        if (b.plane->name == "col.data" && b.bytes.size() > 77) b.bytes[77] ^= std::byte{1};
    return served;
  }

 private:
  std::unique_ptr<Subject> reference_ = make_reference_subject();
};

training::CellResult judged(std::string_view text, Subject& subject) {
  if (const auto c = training::parity_cell(text)) return training::judge_cell(*c, subject, {});
  ADD_FAILURE() << "no cell " << text;
  return {};
}

TEST(Parity, AWrongByteIsExcusedByNoCause) {
  WrongAlone subject;
  for (const char* text :
       {"parity linear mxfp8", "parity linear mxfp8 flavour=te", "parity layernorm_mlp fp8_block",
        "parity linear nvfp4 roles=input,weight,grad_output", "parity linear mxfp8|nvfp4",
        "parity linear mxfp8 phase=row ranks=2 sequence=1", "parity linear mxfp8 phase=column ranks=2",
        "parity linear mxfp8 phase=quantized_init ranks=2 fsdp=reshard optimizer=adam",
        "parity mha fp8_block", "parity mha mxfp8 core=fp8_dpa", "parity cross_mha mxfp8 core=fp8_dpa"}) {
    const training::CellResult r = judged(text, subject);
    EXPECT_EQ(r.outcome, training::CellResult::Outcome::failed) << text << ": " << r.exclusions;
    EXPECT_NE(r.first.find("data"), std::string::npos) << text << ": " << r.first;
  }
}

TEST(Parity, ExclusionsAreTheCausesThatTheyName) {
  const std::unique_ptr<Subject> reference = make_reference_subject();
  const std::pair<const char*, const char*> kCells[] = {
      {"parity linear mxfp8", ""},
      {"parity linear mxfp8 flavour=te", "E12"},
      {"parity linear nvfp4 roles=input,weight,grad_output", "E2"},
      {"parity linear mxfp8 roles=input,weight,grad_output tokens=160", "E13"},
      {"parity layernorm_mlp fp8_current", "E1"},
      {"parity linear fp8_current arch=sm90", "E8"},
      {"parity linear mxfp8 phase=column ranks=2 sequence=1", "E14"},
      {"parity linear fp8_current phase=column ranks=2 sequence=1", ""},
      {"parity linear nvfp4 phase=quantized_init ranks=2 fsdp=keep", "E15"},
      {"parity grouped_linear mxfp8 phase=quantized_init packed=1", "E10"},
      {"parity mha fp8_delayed roles=plain core=fp8_mha phase=trajectory", ""},
      {"parity mha mxfp8 core=fp8_dpa", ""},
      {"parity mha mxfp8 roles=qkv core=fp8_dpa", "E5"},
      {"parity mha fp8_delayed roles=plain core=fp8_dpa", "E16"},
      {"parity mha fp8_current roles=weight core=fp8_mha", "E17"},
      {"parity layernorm_mha fp8_current core=fp8_mha", "E5 E17"}};
  for (const auto& [text, codes] : kCells) EXPECT_EQ(judged(text, *reference).exclusions, codes) << text;
}

training::CellResult judged_factory(const std::string& text, Subject& subject) {
  const auto cell = training::parity_cell(text);
  if (cell) {
    EXPECT_EQ(training::to_text(*cell), text);
    return training::judge_cell(*cell, subject, {});
  }
  ADD_FAILURE() << text << ": " << cell.error().text();
  return {};
}
std::string refusal(const std::string& text) {
  const auto cell = training::parity_cell(text);
  return cell ? "accepted" : cell.error().text();
}

// MXFP8 rows and NVFP4 columns as the base factories make them, with a chance to replace what one role gets.
training::QuantizerLike mxfp8_over_nvfp4(const training::RolePtr& role) {
  using namespace training;
  const auto nvfp4 = [&] { return std::get<QuantizerPtr>(factory_named("nvfp4_factory")->call(role)); };
  if (role && role->tensor_type == "grad_output") return nvfp4();
  return std::make_shared<HybridQuantizer>(std::make_shared<MXFP8Quantizer>(), nvfp4());
}

TEST(ParityFactory, AFactorysCellsAreHeldToTheRecipesOfItsFormats) {
  training::register_factory("training_cases_test_hybrid", mxfp8_over_nvfp4);
  const std::unique_ptr<Subject> reference = make_reference_subject();
  for (const char* module :
       {"linear", "layernorm_linear", "grouped_linear", "ops_linear", "ops_grouped_linear"}) {
    const auto cell =
        training::parity_cell(std::string("parity ") + module + " factory=training_cases_test_hybrid");
    ASSERT_TRUE(cell) << module;
    EXPECT_EQ(cell->formats, (training::GemmFormats{"mxfp8", "nvfp4", "nvfp4"})) << module;
    const training::CellResult r = training::judge_cell(*cell, *reference, {});
    EXPECT_EQ(r.outcome, training::CellResult::Outcome::bitwise) << module << ": " << r.first;
    EXPECT_GT(r.compared, 10000) << module;
  }
  // One format: what the matrix excludes is excluded by the same causes, and columns from dequantized rows
  // are held to that override.
  EXPECT_EQ(
      judged_factory("parity linear factory=mxfp8_factory flavour=te tokens=160", *reference).exclusions, "");
  EXPECT_EQ(judged_factory("parity linear factory=hybrid_mxfp8 flavour=te", *reference).exclusions, "E12");
  EXPECT_EQ(judged_factory("parity linear factory=mxfp8_fwd_high_precision_bwd_factory override=dequantized",
                           *reference)
                .outcome,
            training::CellResult::Outcome::bitwise);
  WrongAlone wrong;
  const training::CellResult r = judged_factory("parity linear factory=training_cases_test_hybrid", wrong);
  EXPECT_EQ(r.outcome, training::CellResult::Outcome::failed);
  EXPECT_NE(r.first.find("data"), std::string::npos) << r.first;
}

// Vanilla of a format without a recipe is its own factory's plain quantizer, which hybrid's route splits into
// pairs.
TEST(ParityFactory, AFormatWithoutARecipeIsHeldToItsOwnFactory) {
  using Outcome = training::CellResult::Outcome;
  training::register_factory(
      "training_cases_test_mxfp6_backward", [](const training::RolePtr& role) -> training::QuantizerLike {
        if (role && role->tensor_type == "grad_output") return std::make_shared<training::MXFP6Quantizer>();
        return std::make_shared<training::HybridQuantizer>(std::make_shared<training::MXFP8Quantizer>(),
                                                           std::make_shared<training::MXFP6Quantizer>());
      });
  const std::unique_ptr<Subject> reference = make_reference_subject();
  for (const char* cell :
       {"parity linear factory=mxfp6_factory", "parity linear factory=mxfp4_factory phase=quantized_init",
        "parity grouped_linear factory=mxfp6_factory", "parity linear factory=mxfp6_factory phase=column",
        "parity layernorm_linear factory=training_cases_test_mxfp6_backward"}) {
    const training::CellResult r = judged_factory(cell, *reference);
    EXPECT_EQ(r.outcome, Outcome::bitwise) << cell << ": " << r.first << " " << r.reason;
    EXPECT_GT(r.compared, 10000) << cell;
  }
  WrongAlone wrong;
  EXPECT_EQ(judged_factory("parity linear factory=mxfp6_factory", wrong).outcome, Outcome::failed);
  EXPECT_EQ(refusal("parity linear factory=mxfp6_factory flavour=te"),
            "expected formats that TransformerEngine has kernels for, found mxfp6 (leave flavour=te out)");
  EXPECT_EQ(refusal("parity grouped_linear factory=mxfp4_factory phase=quantized_init packed=1"),
            "expected formats that TransformerEngine has recipes for in packed grouped weights, found mxfp4 "
            "(leave packed=1 out)");
}

// Multi-head attention under a factory: hybrids in its layers, the core's slots as the built-in recipe has
// them.
TEST(ParityFactory, AttentionUnderAFactoryIsHeldToItsRecipe) {
  training::register_factory(
      "training_cases_test_attention", [](const training::RolePtr& role) -> training::QuantizerLike {
        using namespace training;
        if (role && (role->module_type == "dpa" || role->name.find("dpa_") != std::string::npos))
          return factory_named("nvfp4_linear_fp8_dpa_factory")->call(role);
        const auto made = [&] {
          return std::get<QuantizerPtr>(factory_named("current_scaling_factory")->call(role));
        };
        return std::make_shared<HybridQuantizer>(made(), made());
      });
  const std::unique_ptr<Subject> reference = make_reference_subject();
  const std::pair<const char*, const char*> kCells[] = {
      {"parity mha factory=training_cases_test_attention", ""},
      {"parity mha factory=training_cases_test_attention core=fp8_dpa", "E16"},
      {"parity layernorm_mha factory=training_cases_test_attention core=fp8_mha", "E5 E17"},
      {"parity mha factory=mxfp8_factory core=fp8_dpa", ""},
      {"parity transformer_layer factory=hybrid_mxfp8 core=fp8_dpa", "E13"},
      {"parity mha factory=hybrid_mxfp8 core=fp8_dpa phase=quantized_init", ""}};
  for (const auto& [text, codes] : kCells) {
    const training::CellResult r = judged_factory(text, *reference);
    EXPECT_NE(r.outcome, training::CellResult::Outcome::failed) << text << ": " << r.first;
    EXPECT_EQ(r.exclusions, codes) << text;
  }
  EXPECT_EQ(
      refusal("parity mha factory=current_scaling_factory core=fp8_dpa"),
      "expected a request for delayed scaling for dpa/s, as the built-in recipe of current scaling has it, "
      "found Float8CurrentScalingQuantizer (nvfp4_linear_fp8_dpa_factory shows one)");
  EXPECT_EQ(
      refusal("parity mha factory=nvfp4_factory core=fp8_mha"),
      "expected a format that a built-in recipe has for attention's core too, fp8_current or mxfp8, found "
      "nvfp4 (fprop | dgrad | wgrad) (leave core= out: the core then runs in 16 bits)");
  EXPECT_EQ(refusal("parity mha factory=mxfp8_nvfp4").substr(0, 44),
            "expected one format for all GEMMs of mha, fo");
  EXPECT_EQ(refusal("parity linear factory=mxfp8_factory core=fp8_dpa"),
            "linear has no core of attention: there is no core=fp8_dpa (core= is only for mha, layernorm_mha "
            "and transformer_layer)");
  EXPECT_NE(refusal("parity mha factory=mxfp8_factory core=fp8"), "accepted");
  EXPECT_NE(refusal("parity cross_mha factory=mxfp8_factory"), "accepted");
}

// Every setting is the recipe's, and yet the columns are others: only the bytes of the factory's own
// quantizers show it.
TEST(ParityFactory, TheFactorysOwnQuantizersRun) {
  training::register_factory(
      "training_cases_test_from_rows", [](const training::RolePtr& role) -> training::QuantizerLike {
        const auto mxfp8 = [] { return std::make_shared<training::MXFP8Quantizer>(); };
        return std::make_shared<training::HybridQuantizer>(
            mxfp8(), mxfp8(), role && role->tensor_type == "weight" ? "rowwise_dequantized" : "original");
      });
  const std::unique_ptr<Subject> reference = make_reference_subject();
  const training::CellResult r =
      judged_factory("parity linear factory=training_cases_test_from_rows", *reference);
  EXPECT_EQ(r.outcome, training::CellResult::Outcome::failed);
  EXPECT_TRUE(r.first.starts_with("dgrad: a.")) << r.first;
}

TEST(ParityFactory, ASettingThatTheRecipeHasNotIsAFailedCell) {
  training::register_factory(
      "training_cases_test_e5m2_weights", [](const training::RolePtr& role) -> training::QuantizerLike {
        auto made = mxfp8_over_nvfp4(role);
        if (role && role->tensor_type == "weight")
          dynamic_cast<training::MXFP8Quantizer&>(
              *dynamic_cast<training::HybridQuantizer&>(*std::get<training::QuantizerPtr>(made))
                   .rowwise_quantizer)
              .dtype = Encoding::e5m2;
        return made;
      });
  const std::unique_ptr<Subject> reference = make_reference_subject();
  const training::CellResult r =
      judged_factory("parity linear factory=training_cases_test_e5m2_weights phase=cached", *reference);
  EXPECT_EQ(r.outcome, training::CellResult::Outcome::failed);
  EXPECT_EQ(r.first, "settings of rows of linear/weight/m, which fprop reads");
  EXPECT_EQ(r.expected, "mxfp8");
  EXPECT_EQ(r.found, "mxfp8 element=e5m2");
  // The suites' own: a weight's columns without the recipe's 16x16 blocks, a gradient in E5M2.
  EXPECT_EQ(judged_factory("parity linear factory=mxfp8_fwd_nvfp4_bwd_factory", *reference).first,
            "settings of columns of linear/weight/m, which dgrad reads");
  EXPECT_EQ(judged_factory("parity linear factory=fp8_mxfp8", *reference).found, "mxfp8 element=e5m2");
}

TEST(ParityFactory, WhatNoVanillaRecipeStandsBesideIsRefused) {
  training::register_factory("training_cases_test_operands",
                             [](const training::RolePtr& role) -> training::QuantizerLike {
                               if (role && role->tensor_type == "weight")
                                 return std::make_shared<training::NVFP4Quantizer>();
                               return std::make_shared<training::MXFP8Quantizer>();
                             });
  EXPECT_EQ(refusal("parity linear factory=training_cases_test_operands"),
            "expected one format for both operands of fprop, found mxfp8 for rows of linear/input/m and "
            "nvfp4 for rows of linear/weight/m (vanilla has a recipe per GEMM, not per operand)");
  EXPECT_NE(refusal("parity linear factory=delayed_scaling_factory")
                .find("for rows of linear/input/m, which fprop reads; delayed_scaling_factory returns a "
                      "request for delayed scaling (exclusion E4"),
            std::string::npos);
  EXPECT_NE(refusal("parity linear factory=nvfp4_ref_rht_2d_factory").find("returns NVFP4QuantizerRef"),
            std::string::npos);
  EXPECT_NE(refusal("parity layernorm_mlp factory=mxfp8_nvfp4")
                .find("found mxfp8|nvfp4 (fprop | dgrad | wgrad) (E6"),
            std::string::npos);
  EXPECT_NE(refusal("parity linear factory=mxfp8_nvfp4 phase=trajectory")
                .find("expected one format for a trajectory, found mxfp8|nvfp4"),
            std::string::npos);
  EXPECT_NE(refusal("parity linear factory=mxfp8_factory phase=quantized_init")
                .find("expected a hybrid for a weight that stays quantized, found MXFP8Quantizer, which"),
            std::string::npos);
  EXPECT_EQ(refusal("parity linear factory=hybrid_mxfp8 phase=quantized_init"), "accepted");
  EXPECT_EQ(refusal("parity ops_linear factory=mxfp8_factory phase=quantized_init"), "accepted");
  EXPECT_EQ(refusal("parity linear factory=mxfp8_factroy"),
            "column 23: unknown factory 'mxfp8_factroy' (did you mean 'mxfp8_factory'?)");
  EXPECT_EQ(refusal("parity linaer factory=mxfp8_factory"),
            "column 8: unknown module 'linaer' (did you mean 'linear'?)");
  EXPECT_EQ(refusal("parity linear factory=mxfp8_factory tokens=100"),
            "column 44: tokens: expected a multiple of 32 up to 1024, found '100' (tokens=96)");
  EXPECT_NE(refusal("parity linear factory=mxfp8_factory phase=train phase=row").find("given twice"),
            std::string::npos);
  EXPECT_NE(refusal("parity grouped_linear factory=mxfp8_factory phase=row").find("not run over ranks"),
            std::string::npos);
}

TEST(TakeStories, TheMatrixOfAFactoryHasEveryModuleAndSaysWhatItLeavesOut) {
  std::vector<std::string> what = {"roles factory=mxfp8_nvfp4"};
  const auto cases = take_training_cases(what, "", "");
  ASSERT_TRUE(cases) << cases.error().text();
  EXPECT_EQ(cases->size(),
            3u * 11 + 3 * 9 + 1 + 3 * 3 * 2);  // modules with and without ranks, packed weights, attention
  std::set<std::string> rows, names;
  size_t left_out = 0;
  const std::unique_ptr<Subject> reference = make_reference_subject();
  for (const TrainingCase& s : *cases) {
    rows.insert(s.row);
    EXPECT_TRUE(names.insert(s.entry.text).second) << s.entry.text;
    if (s.entry.text.find("layernorm_mlp") == std::string::npos &&
        s.entry.text.find("mha") == std::string::npos &&
        s.entry.text.find("transformer_layer") == std::string::npos &&
        s.entry.text.find("trajectory") == std::string::npos)
      continue;
    const Verdict v = s.judge(*reference, *reference, {});
    EXPECT_EQ(v.outcome, Outcome::unsupported) << s.entry.text;
    EXPECT_NE(v.reason.find("mxfp8|nvfp4"), std::string::npos) << v.reason;
    ++left_out;
  }
  EXPECT_EQ(rows.size(), 6u + 9);  // attention with each core
  EXPECT_EQ(left_out, 11u + 5 + 18);
  for (const char* word : {"roles factory=delayed_scaling_factory", "roles factory=nope", "roles mxfp8"}) {
    std::vector<std::string> refused = {word};
    EXPECT_FALSE(take_training_cases(refused, "", "")) << word;
  }
}

}  // namespace
}  // namespace assay
