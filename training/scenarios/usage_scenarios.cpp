// Which directions of a quantized weight survive from step to step: an evaluation must not take the columns
// away, and an optimizer must refresh both.
#include <algorithm>

#include "training/base/data.h"
#include "training/kit/recipes.h"
#include "training/modules/grouped_linear.h"
#include "training/modules/layernorm_linear.h"
#include "training/modules/linear.h"
#include "training/modules/ops_grouped_linear.h"
#include "training/modules/ops_linear.h"
#include "training/recipes/factories.h"
#include "training/scenarios/common.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr int64_t kRows = 32, kIn = 160, kOut = 32;  // two blocks of 128 columns, one of them cut short

struct Format {
  string_view name;
  RecipePtr recipe;
  Arch arch = Arch::sm100;
  std::optional<ErrorClass> refuses =
      std::nullopt;     // of a weight without columns that cannot make them from its rows
  bool hybrid = false;  // never makes a direction that it lacks, whatever it wants
  bool packs = true;    // has packed weights
};
std::vector<Format> formats() {
  using enum ErrorClass;
  return {
      {"current scaling with transposes", make_recipe("Float8CurrentScaling"), Arch::sm90},
      {"MXFP8", make_recipe("MXFP8BlockScaling"), Arch::sm100, runtime_error},
      {"blocks of 128x128", make_recipe("Float8BlockScaling"), Arch::sm90},
      {"blocks of 1x128", make_recipe("Float8BlockScaling", json::object({{"w_block_scaling_dim", 1}})),
       Arch::sm90, assertion_error},
      {"NVFP4 of 16x16", make_recipe("NVFP4BlockScaling")},
      {"NVFP4 of 1x16", make_recipe("NVFP4BlockScaling", json::object({{"disable_2d_quantization", true}})),
       Arch::sm100, runtime_error},
      {"H(MX|NVFP4)", custom_recipe("mxfp8_nvfp4"), Arch::sm100, runtime_error, true, false},
      {"H(MX|NVFP4) of dequantized rows", custom_recipe("mxfp8_fwd_nvfp4_bwd_factory"), Arch::sm100,
       runtime_error, true, false},
      {"Identity", custom_recipe("high_precision_factory"), Arch::sm100, std::nullopt, false, false},
  };
}

template <class M> std::unique_ptr<Module> of_two(std::unique_ptr<M> module) {
  module->m_splits = {kRows, kRows};
  return module;
}

std::unique_ptr<Module> linear(Session& s, UsagePolicy) {
  return std::make_unique<Linear>(
      s, LinearSettings{.name = "l", .in_features = kIn, .out_features = kOut, .bias = false});
}
std::unique_ptr<Module> layernorm_linear(Session& s, UsagePolicy) {
  return std::make_unique<LayerNormLinear>(
      s, LayerNormLinearSettings{{.name = "l", .in_features = kIn, .out_features = kOut, .bias = false}, {}});
}
std::unique_ptr<Module> grouped_linear(Session& s, UsagePolicy) {
  const GroupedLinearSettings settings{
      .name = "g", .num_gemms = 2, .in_features = kIn, .out_features = kOut, .bias = false};
  return of_two(std::make_unique<GroupedLinear>(s, settings));
}
std::unique_ptr<Module> ops_linear(Session& s, UsagePolicy policy) {
  return std::make_unique<OpsLinear>(
      s, OpsLinearSettings{.name = "o", .in_features = kIn, .out_features = kOut, .usage_policy = policy});
}
template <bool packed> std::unique_ptr<Module> ops_grouped_linear(Session& s, UsagePolicy policy) {
  OpsGroupedLinearSettings settings{.name = "o", .num_groups = 2, .in_features = kIn, .out_features = kOut};
  settings.usage_policy = policy;
  settings.single_grouped_weight = packed;
  return of_two(std::make_unique<OpsGroupedLinear>(s, settings));
}

struct Kind {
  string_view name;
  std::unique_ptr<Module> (*make)(Session&, UsagePolicy);
  int64_t rows = kRows;
  bool operation = false, packed = false;  // of te.ops; weights in one tensor
};
constexpr Kind kKinds[] = {
    {"Linear", linear},
    {"LayerNormLinear", layernorm_linear},
    {"GroupedLinear", grouped_linear, 2 * kRows},
    {"ops Linear", ops_linear, kRows, true},
    {"ops GroupedLinear", ops_grouped_linear<false>, 2 * kRows, true},
    {"ops GroupedLinear, packed", ops_grouped_linear<true>, 2 * kRows, true, true},
};

// Master weights of step `version`, one for each weight.
ArrayPtr master(uint64_t version, size_t weight) {
  return drawn({kOut, kIn}, DType::float32, 100 * version + weight, FillKind::wide);
}

bool is_weight(const Parameter& p) { return p.name.starts_with("weight"); }

// A module in training: its weights are quantized, and an optimizer writes versions of the masters into them.
struct Trained {
  Session session;
  std::unique_ptr<Module> module;
  int64_t rows;
  uint64_t version = 0;

  Trained(ScenarioRun& run, const Kind& kind, const Format& format, bool with_gradients = true,
          uint64_t from = 0, UsagePolicy policy = UsagePolicy::assign)
      : session(run.session(format.arch)),
        module(kind.make(session, policy)),
        rows(kind.rows),
        version(from) {
    size_t i = 0;
    for (Parameter& p : module->parameters)
      if (is_weight(p)) p.value = cast(session, master(version, i++), p.dtype);
    module->quantize_parameters(session, format.recipe, with_gradients);
  }
  std::vector<Parameter*> weights() const {
    std::vector<Parameter*> out;
    for (Parameter& p : module->parameters)
      if (is_weight(p)) out.push_back(&p);
    return out;
  }
  const StepRecord& step(const RecipePtr& recipe, bool with_gradients) {
    session.rng.reseed(7);
    StepOptions options = under(recipe);
    options.grad_enabled = with_gradients;
    return module->step(session, drawn({rows, kIn}, DType::bfloat16, 1),
                        gradient({rows, kOut}, DType::bfloat16, 2), options);
  }
  void optimize() {
    ++version;
    size_t i = 0;
    for (Parameter* p : weights()) write_back(session, *p, master(version, i++));
  }
  // Every buffer is what a quantizer of both directions makes of the masters, and the weights want `own`.
  void expect_fresh(ScenarioRun& run, const string& when, string_view own = "TT",
                    string_view stale = "none") {
    size_t i = 0;
    for (const Parameter* p : weights()) {
      run.expect_equal(stale_buffer(session, *p, master(version, i++)).value_or("none"), stale,
                       when + ": stale buffer of " + p->name);
      run.expect_equal(text(std::get<StoragePtr>(p->value)->quantizer->usages()), own,
                       when + ": the own usages of " + p->name);
    }
  }
};

void expect_equal_steps(ScenarioRun& run, const StepRecord& got, const StepRecord& want, const string& when) {
  run.expect_equal(static_cast<int64_t>(got.outputs.size()), static_cast<int64_t>(want.outputs.size()),
                   when + ": outputs");
  for (size_t i = 0; i < std::min(got.outputs.size(), want.outputs.size()); ++i)
    run.expect_equal(got.outputs[i].array, want.outputs[i].array, when + ": " + want.outputs[i].name);
}

template <class Each> void in_every_cell(ScenarioRun& run, Each each) {
  for (const Format& format : formats())
    for (const Kind& kind : kKinds) {
      if (kind.packed && !format.packs) continue;
      run.about(string(format.name) + ", " + string(kind.name));
      each(kind, format);
    }
}

void s53(ScenarioRun& run) {
  in_every_cell(run, [&](const Kind& kind, const Format& format) {
    Trained t(run, kind, format);
    t.expect_fresh(run, "after construction");
    t.step(format.recipe, true);
    t.optimize();
    t.expect_fresh(run, "after step 1");
    t.step(format.recipe, false);
    t.expect_fresh(run, "after the evaluation");
    t.step(format.recipe, true);
    t.optimize();
    t.expect_fresh(run, "after step 2");
    const StepRecord third = t.step(format.recipe, true);
    Trained fresh(run, kind, format, true, t.version);
    expect_equal_steps(run, third, fresh.step(format.recipe, true), "step 3 against new weights");
  });
}

// What training on a weight without columns comes to.
void expect_training(ScenarioRun& run, const Kind& kind, const Format& format, Trained& t, bool works,
                     const string& when) {
  if (!works) {
    run.expect_error(*format.refuses, when, [&] { t.step(format.recipe, true); }, {"column"});
    return;
  }
  const StepRecord got = t.step(format.recipe, true);
  Trained fresh(run, kind, format, true, t.version);
  expect_equal_steps(run, got, fresh.step(format.recipe, true), when);
}

void s54(ScenarioRun& run) {
  in_every_cell(run, [&](const Kind& kind, const Format& format) {
    Trained t(run, kind, format);
    for (int i = 0; i < 2; ++i) {
      t.step(format.recipe, false);
      t.expect_fresh(run, "evaluated first");
      if (i == 0) t.step(format.recipe, true);
      else expect_training(run, kind, format, t, true, "trained after evaluations");
      t.optimize();
      t.expect_fresh(run, "trained after an evaluation");
    }

    Trained rows(run, kind, format, false);
    rows.step(format.recipe, false);
    rows.optimize();
    rows.expect_fresh(run, "built without gradients", "TF");
    expect_training(run, kind, format, rows, !format.refuses, "trained, built without gradients");
    rows.expect_fresh(run, "trained, built without gradients", "TF");

    if (!kind.operation) return;
    Trained merged(run, kind, format, false, 0, UsagePolicy::merge);
    merged.step(
        nullptr,
        false);  // forgets its quantizers, so that fresh ones, which want both directions, meet the weight
    merged.step(format.recipe, false);
    merged.optimize();
    merged.expect_fresh(run, "usages merged", "TT", format.hybrid ? "columnwise: absent" : "none");
    expect_training(run, kind, format, merged, !format.hybrid, "usages merged");
  });
}

// Two recipes of one class that are not equal: modules make their quantizers anew.
struct Change {
  string_view name;
  RecipePtr first, second;
};
std::vector<Change> changes() {
  const auto mixed = [](const RolePtr& role) {
    return factory_named("mxfp8_fwd_nvfp4_bwd_factory")->call(role);
  };
  return {
      {"two factories", recipe_around("first", mixed), recipe_around("second", mixed)},
      {"two MXFP8 recipes", make_recipe("MXFP8BlockScaling"),
       make_recipe("MXFP8BlockScaling", json::object({{"margin", 1}}))},
      {"two NVFP4 recipes",
       make_recipe("NVFP4BlockScaling", json::object({{"disable_2d_quantization", true}})),
       make_recipe("NVFP4BlockScaling",
                   json::object({{"disable_2d_quantization", true}, {"disable_stochastic_rounding", true}}))},
  };
}

void s55(ScenarioRun& run) {
  for (const Change& change : changes())
    for (const Kind& kind : kKinds) {
      if (kind.packed && change.first->custom()) continue;
      for (const bool with_gradients : {true, false}) {
        run.about(string(change.name) + ", " + string(kind.name) +
                  (with_gradients ? "" : ", built without gradients"));
        const Format format{change.name, change.first};
        Trained t(run, kind, format, with_gradients);
        const string_view own = with_gradients ? "TT" : "TF";
        // Quantization that is off in between makes an operation forget its state, which a change within one
        // class does not.
        for (const RecipePtr& recipe : {change.first, change.second, RecipePtr(), change.first}) {
          t.step(recipe, with_gradients);
          t.expect_fresh(run, "after a step", own);
          t.optimize();
          t.expect_fresh(run, "after the optimizer", own);
        }
        for (const Parameter* p : t.weights())
          run.expect_equal(text(std::get<StoragePtr>(p->value)->present()), own,
                           "the directions of " + p->name);
      }
    }
}

constexpr Scenario kUsageScenarios[] = {
    {"S-53",
     "Training, evaluation, training",
     "a quantized weight in every module and format",
     "an evaluation runs between steps whose optimizer rewrites the weight",
     "no buffer is stale after any optimizer step, the weight keeps wanting both directions, and the last "
     "step equals one on a new weight",
     s53,
     {}},
    {"S-54",
     "Evaluation first",
     "a weight built with gradients, and one built without",
     "it is evaluated and then trained",
     "the first trains as if never evaluated; the second keeps its rows alone, and its dgrad raises where "
     "columns cannot be made from rows, unless usages are "
     "merged and the format can grow them",
     s54,
     {}},
    {"S-55",
     "Another recipe, the same usages",
     "a quantized weight",
     "the recipe object changes between steps, or quantization is off in between",
     "the weight wants and has the directions that it had, all of them fresh",
     s55,
     {}},
};

}  // namespace

std::span<const Scenario> usage_scenarios() { return kUsageScenarios; }

}  // namespace assay::training
