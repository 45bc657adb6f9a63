// When a recipe is asked and when its state is made anew: calls of a factory, what is kept from step to step,
// buffers of delayed scaling that outlive a state, and what is refused.
#include "training/base/data.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"
#include "training/modules/linear.h"
#include "training/modules/ops_linear.h"
#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"
#include "training/scenarios/common.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

RolePtr role(string module_type, string tensor_type, string name) {
  return std::make_shared<const QuantizerRole>(
      QuantizerRole{std::move(module_type), std::move(tensor_type), std::move(name)});
}
QuantizerLike quantizer(QuantizerPtr q) { return q; }
template <class R> std::shared_ptr<R> copy_of(const std::shared_ptr<R>& recipe) {
  return std::make_shared<R>(*recipe);
}

// A Linear in a process of its own, 64 rows of 128 to 96.
struct LinearBench : Bench {
  explicit LinearBench(const ScenarioRun& run) : Bench(run, {}), linear(static_cast<Linear&>(*module)) {}
  Linear& linear;
  // A step without quantization.
  void pause() { step(under(nullptr)); }
  const std::vector<QuantizerPtr>& quantizers() const { return linear.state.quantizers(Mode::forward); }
};

// ---- S-07 ---------------------------------------------------------------------------------------

void factory_calls(ScenarioRun& run) {
  LinearBench bench(run);
  std::vector<string> calls;
  const RecipePtr recipe = recipe_around("counting", [&](const RolePtr& r) {
    calls.push_back(r ? r->tensor_type : "None");
    return quantizer(std::make_shared<MXFP8Quantizer>());
  });
  const StepRecord first = bench.step(under(recipe));
  run.expect_equal(calls, {"input", "weight", "None", "grad_output", "None"},
                   "calls of the first step, in slot order");
  const std::vector<QuantizerPtr> made = bench.quantizers();
  run.expect(made[0] != made[1] && made[1] != made[2] && made[0] != made[2],
             "each call's object serves one slot");

  const auto expect_none = [&](const StepOptions& options, const string& after) {
    bench.step(options);
    run.expect_equal(static_cast<int64_t>(calls.size()), 5, "calls after " + after);
    run.expect(bench.quantizers() == made, "the same quantizers after " + after);
  };
  StepOptions options = under(recipe);
  expect_none(options, "a second step");
  options.is_first_microbatch = true;
  expect_none(options, "a microbatch that keeps its weight");
  options.is_first_microbatch = false;
  expect_none(options, "a microbatch that uses the kept weight");
  options = under(recipe);
  options.grad_enabled = false;
  expect_none(options, "an evaluation");
  run.about("a last step");
  expect_same_steps(run, bench.step(under(recipe)), first);
}

// ---- S-08 ---------------------------------------------------------------------------------------

void recipe_changes(ScenarioRun& run) {
  const auto a = custom_recipe("mxfp8_factory"), b = custom_recipe("current_scaling_factory");
  const StepRecord of_a = step_of(run, {}, under(a)), of_b = step_of(run, {}, under(b));
  run.expect_different(output_of(of_a, "output"), output_of(of_b, "output"), "outputs of the two factories");

  LinearBench bench(run);
  bench.step(under(a));
  std::vector<QuantizerPtr> before = bench.quantizers();
  // A step: whether quantizers were made for it, and whose bytes come out.
  const auto step = [&](const string& what, const RecipePtr& recipe, bool rebuilt, const StepRecord& want) {
    run.about(what);
    const StepRecord got = bench.step(under(recipe));
    run.expect_equal(string(bench.quantizers() == before ? "kept" : "made anew"),
                     rebuilt ? "made anew" : "kept", "quantizers");
    before = bench.quantizers();
    expect_same_steps(run, got, want);
  };
  step("another factory", b, true, of_b);
  const auto equal = copy_of(b);
  step("another object with equal fields", equal, false, of_b);
  run.expect(bench.linear.recipe_state(Mode::forward)->recipe() == b,
             "the state is the first object's still");
  b->qfactory = a->qfactory;
  step("the same object with another factory: a known gap of the original", b, false, of_b);
  bench.pause();
  step("the same object with another factory, after a step without quantization", b, false, of_b);
  step("the object that kept the old factory", equal, true, of_b);
  step("the changed object, which is now another recipe", b, true, of_a);
  const auto aligned = copy_of(b);
  aligned->quantization_alignment = 32;
  step("a recipe that differs in its alignment alone", aligned, true, of_a);
  const auto again = copy_of(aligned);
  bench.pause();
  step("another object with equal fields, after a step without quantization", again, true, of_a);
  bench.pause();
  step("the same object, after a step without quantization", again, false, of_a);
  bench.linear.state.set_output_quantizer_role(role("linear", "input", "next"));
  step("a new role of the output", again, false, of_a);
  bench.pause();
  step("a new role of the output, after a step without quantization", again, true, of_a);

  run.about("from a custom to a built-in recipe");
  StepOptions keeping = under(again);
  keeping.is_first_microbatch = true;
  bench.step(keeping);
  run.expect_equal(static_cast<int64_t>(bench.linear.state.fp8_workspaces.size()), 1, "kept weights before");
  const StepRecord& changed = bench.step(under(make_recipe("Float8CurrentScaling")));
  run.expect_equal(static_cast<int64_t>(bench.linear.state.fp8_workspaces.size()), 0, "kept weights after");
  run.expect(changed.warnings.size() == 1 &&
                 changed.warnings[0].text.find("CustomRecipe to Float8CurrentScaling") != string::npos,
             "a warning names both classes", "one", std::to_string(changed.warnings.size()));

  const auto other = custom_recipe("current_scaling_factory");
  ModuleSettings ops;
  ops.module = "ops_linear";
  const StepRecord ops_a = step_of(run, ops, under(a)), ops_b = step_of(run, ops, under(other));
  run.expect_different(output_of(ops_a, "output"), output_of(ops_b, "output"),
                       "outputs of the two factories in an operation");
  Bench op(run, ops);
  op.step(under(a));
  run.about("an operation: one custom recipe after another");
  expect_same_steps(run, op.step(under(other)), ops_a);
  run.about("an operation: another class in between");
  op.step(under(make_recipe("MXFP8BlockScaling")));
  expect_same_steps(run, op.step(under(other)), ops_b);
}

// ---- S-09 ---------------------------------------------------------------------------------------

void buffers_outlive_roles(ScenarioRun& run) {
  const auto request = recipe_around("requests", [](const RolePtr&) -> QuantizerLike {
    DelayedScalingRequest r;
    r.amax_history_len = 4;
    return r;
  });
  const std::pair<string, RecipePtr> recipes[] = {
      {"DelayedScaling", make_recipe("DelayedScaling", json::object({{"amax_history_len", 4}}))},
      {"requests in a custom recipe", request}};
  for (const auto& [name, recipe] : recipes) {
    LinearBench bench(run), twin(run);
    for (int i = 0; i < 2; ++i) {
      bench.step(under(recipe));
      twin.step(under(recipe));
    }
    const Mode modes[] = {Mode::forward, Mode::backward};
    RecipeStatePtr states[2];
    ArrayPtr scales[2], histories[2], scale_bytes[2], history_bytes[2];
    for (const Mode mode : modes) {
      const size_t m = static_cast<size_t>(mode);
      states[m] = bench.linear.recipe_state(mode);
      if (!run.expect(states[m]->delayed() != nullptr, name + ": the state holds delayed scaling")) return;
      scales[m] = states[m]->delayed()->scale;
      histories[m] = states[m]->delayed()->amax_history;
      scale_bytes[m] = clone(scales[m]);
      history_bytes[m] = clone(histories[m]);
      run.about(name);
      run.expect_different(histories[m], zeros(histories[m]->shape, DType::float32),
                           "the history holds amaxes");
    }
    const RolePtr next = role("linear", "input", "next");
    bench.linear.state.set_output_quantizer_role(next);
    bench.linear.state.set_output_quantizer_role(role("linear", "input", "next"));
    run.expect(bench.linear.state.output_quantizer_role() == next, "an equal role is not even stored");
    bench.linear.state.init_fp8_metadata(bench.session, quantization_off());
    bench.linear.state.init_fp8_metadata(bench.session, {recipe});
    for (const Mode mode : modes) {
      run.about(name + (mode == Mode::forward ? " forward" : " backward"));
      const size_t m = static_cast<size_t>(mode);
      const RecipeStatePtr now = bench.linear.recipe_state(mode);
      run.expect(now != states[m], "the state is a new one");
      run.expect_equal(texts(*now->roles()),
                       texts(bench.linear.state.get_quantizer_roles(mode, now->num_quantizers())),
                       "its roles are the new ones");
      run.expect(now->delayed()->scale == scales[m] && now->delayed()->amax_history == histories[m],
                 "its buffers are the same objects");
      run.expect_equal(now->delayed()->scale, scale_bytes[m], "scales");
      run.expect_equal(now->delayed()->amax_history, history_bytes[m], "history");
      for (const QuantizerPtr& q : bench.linear.state.quantizers(mode)) {
        const auto& delayed = static_cast<const Float8Quantizer&>(*q);
        run.expect(share_memory(*delayed.scale, *scales[m]) && share_memory(*delayed.amax, *histories[m]),
                   "a quantizer looks into them");
      }
      states[m] = now;
    }
    run.about(name + ", the step after");
    expect_same_steps(run, bench.step(under(recipe)), twin.step(under(recipe)));
    // A role that is set again as it is costs nothing, even across a pause.
    bench.linear.state.set_output_quantizer_role(role("linear", "input", "next"));
    bench.linear.state.init_fp8_metadata(bench.session, quantization_off());
    bench.linear.state.init_fp8_metadata(bench.session, {recipe});
    run.expect(bench.linear.recipe_state(Mode::forward) == states[0], "an equal role makes no new state");
  }

  // Requests are looked at again when a state is made, but a state that fits is taken over with what it was
  // made for.
  const auto margins = [](int margin, int64_t length) {
    return recipe_around("margin", [=](const RolePtr&) -> QuantizerLike {
      DelayedScalingRequest r;
      r.margin = margin;
      r.amax_history_len = length;
      return r;
    });
  };
  LinearBench bench(run);
  bench.step(under(margins(0, 4)));
  const ArrayPtr scale = bench.linear.recipe_state(Mode::forward)->delayed()->scale;
  bench.step(under(margins(3, 4)));
  run.about("another margin requested");
  run.expect(bench.linear.recipe_state(Mode::forward)->delayed()->scale == scale, "the buffers stay");
  run.expect_equal(bench.linear.recipe_state(Mode::forward)->delayed()->settings().margin, 0,
                   "and so does the margin they were made for");
  bench.step(under(margins(3, 8)));
  run.about("another length requested");
  run.expect(bench.linear.recipe_state(Mode::forward)->delayed()->scale != scale, "new buffers");
  run.expect_equal(bench.linear.recipe_state(Mode::forward)->delayed()->settings().margin, 3,
                   "with the margin that is requested now");
}

// ---- S-10 ---------------------------------------------------------------------------------------

void refused_role_lists(ScenarioRun& run) {
  Session session = run.session();
  run.about("role lists");
  const std::vector<RolePtr> two(2, role("linear", "input", "x"));
  for (const char* class_name : {"DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling",
                                 "Float8BlockScaling", "NVFP4BlockScaling"})
    run.expect_error(ErrorClass::value_error, string(class_name) + ": two roles for three slots",
                     [&] { RecipeState::create(session, make_recipe(class_name), Mode::forward, 3, two); },
                     {"3", "2"});
  ModuleState module(session, Producer::dot_product_attention, "core");
  module.num_gemms = 4;  // twelve slots, of which attention describes nine
  run.expect_error(ErrorClass::assertion_error, "a module that lists too few",
                   [&] { module.init_fp8_metadata(session, {make_recipe("MXFP8BlockScaling")}); },
                   {"core", "12", "9"});
}

void refused_custom_recipes(ScenarioRun& run) {
  Session session = run.session();
  run.about("a custom recipe");
  const auto without = std::make_shared<CustomRecipe>();
  run.expect_error(ErrorClass::value_error, "without a factory",
                   [&] { RecipeState::create(session, without, Mode::forward, 1); }, {"qfactory"});
  for (const int alignment : {0, -1})
    run.expect_error(ErrorClass::value_error, "alignment " + std::to_string(alignment),
                     [&] {
                       make_recipe("CustomRecipe", json::object({{"qfactory", "mxfp8_factory"},
                                                                 {"quantization_alignment", alignment}}));
                     },
                     {"quantization_alignment"});
  run.expect_equal(align_size(*make_recipe("CustomRecipe", json::object({{"qfactory", "mxfp8_factory"},
                                                                         {"quantization_alignment", 1}}))),
                   1, "alignment 1 is allowed");
}

// What a factory returns for the second slot of a Linear.
void refused_returns(ScenarioRun& run) {
  run.about("a custom recipe");
  struct Return {
    string_view what;
    QuantizerLike value;
    ErrorClass error;
    string_view mentions;
  };
  DelayedScalingRequest other;
  other.margin = 1;
  // What is neither a quantizer nor None stays in its slot, and fails at its first use.
  const Return returns[] = {
      {"None", {}, ErrorClass::value_error, "slot 1"},
      {"a request of no known kind", QuantizerRequest{}, ErrorClass::attribute_error, "QuantizerRequest"},
      {"a number", NotAQuantizer{"a number"}, ErrorClass::attribute_error, "a number"},
      {"another request", other, ErrorClass::value_error, "slot 1"}};
  for (const Return& r : returns) {
    const RecipePtr recipe = recipe_around("bad", [&](const RolePtr& slot) -> QuantizerLike {
      if (slot && slot->tensor_type == "weight") return r.value;
      return DelayedScalingRequest{};
    });
    LinearBench bench(run);
    for (const char* attempt : {"", ", tried again"})
      run.expect_error(r.error, "a factory that returns " + string(r.what) + attempt,
                       [&] { bench.step(under(recipe)); }, {r.mentions});
    const StepRecord& after = bench.step(under(make_recipe("MXFP8BlockScaling")));
    run.expect(output_of(after, "output") != nullptr, "another recipe works after " + string(r.what));
  }
  run.expect_error(ErrorClass::value_error, "None for a named role",
                   [&] {
                     LinearBench bench(run);
                     bench.step(under(recipe_around("none", [](const RolePtr&) { return QuantizerLike{}; })));
                   },
                   {"slot 0", "tensor_type=input"});
  LinearBench identity(run);
  run.expect(output_of(identity.step(under(custom_recipe("high_precision_factory"))), "output") != nullptr,
             "Identity is how a factory quantizes nothing");
}

void warned_boundaries(ScenarioRun& run) {
  run.about("a quantized output or grad input whose consumer has no name");
  for (const bool custom : {true, false}) {
    LinearBench bench(run);
    StepOptions options =
        under(custom ? RecipePtr(custom_recipe("mxfp8_factory")) : make_recipe("MXFP8BlockScaling"));
    options.fp8_output = options.fp8_grad = true;
    for (int call = 1; call <= 2; ++call)
      run.expect_equal(static_cast<int64_t>(bench.step(options).warnings.size()), custom ? 2 : 0,
                       string(custom ? "custom" : "built-in") + ": warnings of a call");
    bench.linear.state.set_output_quantizer_role(role("linear", "input", "next"));
    run.expect_equal(static_cast<int64_t>(bench.step(options).warnings.size()), custom ? 1 : 0,
                     string(custom ? "custom" : "built-in") + ": with a role for the output");
  }
}

void operation_without_roles(ScenarioRun& run) {
  Session session = run.session();
  run.about("an operation that gives no roles");
  OperationState op({"Quantize", "q", 1});
  std::vector<string> asked;
  op.reset_recipe_state(session, recipe_around("asked", [&](const RolePtr& r) {
                          asked.push_back(r ? to_text(*r) : "None");
                          return quantizer(std::make_shared<MXFP8Quantizer>());
                        }));
  run.expect_equal(asked, {"QuantizerRole()", "QuantizerRole()"},
                   "what the factory is asked for, forward and backward");
  run.expect_equal(static_cast<int64_t>(session.warnings.size()), 2, "warnings");
  for (const Warning& w : session.warnings) run.expect_equal(w.category, "UserWarning", "their category");
}

// A weight that was quantized under one recipe, used under another.
void refused_weights(ScenarioRun& run) {
  const std::pair<string_view, RecipePtr> weights[] = {
      {"DelayedScaling", make_recipe("DelayedScaling")},
      {"Float8CurrentScaling", make_recipe("Float8CurrentScaling")},
      {"MXFP8BlockScaling", make_recipe("MXFP8BlockScaling")},
      {"Float8BlockScaling", make_recipe("Float8BlockScaling")},
      {"NVFP4BlockScaling", make_recipe("NVFP4BlockScaling")},
      {"CustomRecipe", custom_recipe("high_precision_factory")},
      {"CustomRecipe", custom_recipe("hybrid_mxfp8")}};
  for (const auto& [made_for, recipe] : weights)
    for (const auto& [active, used] : weights) {
      run.about("a weight of " + string(made_for) + " under " + string(active));
      LinearBench bench(run);
      bench.module->quantize_parameters(bench.session, recipe);
      StepOptions options = under(used);
      options.grad_enabled = false;  // the check comes before anything is multiplied
      if (made_for != active) {
        run.expect_error(ErrorClass::runtime_error, "is refused", [&] { bench.step(options); },
                         {"Recipe mismatch", active, "weight"});
      } else if (recipe == used) {
        run.expect(output_of(bench.step(options), "output") != nullptr, "is used");
      }
    }
  run.about("a native weight that a custom recipe made");
  LinearBench bench(run);
  bench.module->quantize_parameters(bench.session, custom_recipe("mxfp8_factory"));
  run.expect_error(ErrorClass::runtime_error,
                   "is refused by that very recipe: its class belongs to a built-in one",
                   [&] { bench.step(under(custom_recipe("mxfp8_factory"))); },
                   {"Recipe mismatch", "CustomRecipe", "weight"});
}

void refusals(ScenarioRun& run) {
  refused_role_lists(run);
  refused_custom_recipes(run);
  refused_returns(run);
  warned_boundaries(run);
  operation_without_roles(run);
  refused_weights(run);
}

constexpr Scenario kRecipeScenarios[] = {
    {"S-07", "A factory is asked once per slot", "a Linear under a factory that counts",
     "it trains, caches its weight, evaluates",
     "input, weight, None, grad_output, None in the first step and nothing afterwards; quantizers and bytes "
     "stay",
     factory_calls, ""},
    {"S-08", "Which change of a recipe makes quantizers anew",
     "a Linear and an operation under custom recipes",
     "the factory, the object, a field or a role changes, with and without a step of no quantization in "
     "between",
     "another factory does; an equal object, a factory that was replaced in place, a late role do not (known "
     "gaps); bytes tell which is in force",
     recipe_changes, ""},
    {"S-09", "Scales and histories outlive their state",
     "delayed scaling, built-in and requested, with two steps in its history",
     "a boundary role changes and the state is made anew",
     "scale and history are the same objects with the same values, the next step equals a twin's; an equal "
     "role does nothing",
     buffers_outlive_roles, ""},
    {"S-10", "What recipes and states refuse", "wrong lists, factories, requests, alignments and weights",
     "a state is made or a step runs",
     "each raises its class of error again at every try and names the slot; no list warns and gives empty "
     "roles",
     refusals, ""},
};

}  // namespace

std::span<const Scenario> recipe_scenarios() { return kRecipeScenarios; }

}  // namespace assay::training
