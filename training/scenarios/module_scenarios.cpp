// Scenarios of whole modules: where vanilla's fused producers part from hybrids and where nothing does,
// weight workspaces, what backward takes from forward, and observers.
#include <algorithm>
#include <tuple>

#include "contract/line.h"
#include "training/base/data.h"
#include "training/formats/hybrid.h"
#include "training/formats/observer.h"
#include "training/modules/linear.h"
#include "training/recipes/format_table.h"
#include "training/scenarios/common.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr F32Bits kOne = 0x3F800000;

// A hybrid of one format for input and weight against vanilla, module by module. `differ`: the outputs that
// vanilla's fused producers change; none elsewhere.
void same_format(ScenarioRun& run, string_view format,
                 const std::function<std::vector<string>(const ModuleSettings&)>& differ) {
  for (const string_view module : kModules)
    for (const bool bias : {false, true}) {
      const ModuleSettings s{
          .module = module, .rows = bias ? 160 : 64, .bias = bias};  // bias gradients of more than one chunk
      run.about(string(module) + " " + string(format) + (bias ? " with bias" : ""));
      const StepRecord vanilla = step_of(run, s, under(built_in_recipe(format))),
                       hybrid = step_of(run, s, under(per_gemm({format, format, format})));
      const std::vector<string> expected = differ(s);
      run.expect_equal(differing_outputs(hybrid, vanilla), expected, "outputs that differ");
      if (expected.empty()) expect_same_steps(run, hybrid, vanilla);
      expect_same_traces(run, hybrid, vanilla);
      const Fusions none{false, false, false};
      expect_same_steps(run, step_of(run, s, under(per_gemm({format, format, format}), none)),
                        step_of(run, s, under(built_in_recipe(format), none)));
    }
}

// S-44. Under current scaling an activation's kernels take the amax before they round. Forward's reaches
// fc2's input. Backward's reaches all that is behind fc1's gradient, but a plain gradient quantizer fuses
// under a custom recipe too, unless there is a bias.
void current_scaling_everywhere(ScenarioRun& run) {
  same_format(run, "fp8_current", [](const ModuleSettings& s) {
    if (s.module != "layernorm_mlp") return std::vector<string>{};
    if (!s.bias) return std::vector<string>{"output", "fc2_weight.grad"};
    return std::vector<string>{
        "output",          "dgrad",          "layer_norm_weight.grad", "layer_norm_bias.grad",
        "fc1_weight.grad", "fc2_weight.grad"};
  });
  const auto judge = [&](Activation activation, bool forward, bool backward) {
    const ModuleSettings s{.module = "layernorm_mlp", .activation = activation};
    run.about("layernorm_mlp " + string(name_of(activation)));
    const StepRecord vanilla = step_of(run, s, under(built_in_recipe("fp8_current"))),
                     hybrid = step_of(run, s, under(per_gemm({"fp8_current", "fp8_current", "fp8_current"})));
    for (const string_view gemm : {"fc1.fprop", "fc2.dgrad"}) expect_same_gemms(run, hybrid, vanilla, gemm);
    for (const auto& [gemm, differs] : {std::pair<string, bool>("fc2.fprop", forward),
                                        {"fc2.wgrad", forward},
                                        {"fc1.dgrad", backward},
                                        {"fc1.wgrad", backward}})
      if (differs) run.expect_different(result_of(hybrid, gemm), result_of(vanilla, gemm), gemm + " (E1)");
      else expect_same_gemms(run, hybrid, vanilla, gemm);
    for (const string_view bias : {"fc1_bias.grad", "fc2_bias.grad"})
      expect_same_output(run, hybrid, vanilla, bias);
  };
  judge(Activation::srelu, true, true);
  // Where the largest value needs no rounding nothing differs.
  judge(Activation::relu, false, false);
  judge(Activation::gelu, false, false);
}

// S-45. MXFP8's fused kernel sums the gradient of fc1's bias before the activation's backward is rounded (E1
// and E13).
void block_formats_everywhere(ScenarioRun& run) {
  for (const string_view f : {"mxfp8", "fp8_block", "nvfp4"})
    same_format(run, f, [f](const ModuleSettings& s) {
      return f == "mxfp8" && s.bias && s.module == "layernorm_mlp" ? std::vector<string>{"fc1_bias.grad"}
                                                                   : std::vector<string>{};
    });
}

StoragePtr& workspace_of(Bench& bench) {
  return dynamic_cast<Linear&>(*bench.module).state.fp8_workspaces["weight"];
}

std::vector<string> cache_of(const StepRecord& r) {
  std::vector<string> out;
  for (const CacheEvent& e : r.cache) out.push_back(e.what);
  return out;
}

// S-46. A module that keeps its weight's workspace, beside one that keeps nothing.
struct WorkspaceKind {
  string name;
  Arch arch;
  RecipePtr recipe;
  bool serves_both;  // rows serve both directions, or the cache does not look: an inference's workspace
                     // passes for training
};

class WorkspaceBench {
 public:
  WorkspaceBench(ScenarioRun& run, const WorkspaceKind& kind)
      : run(run),
        kind(kind),
        bench(run, {}, kind.arch),
        weight(bench.module->parameter("weight")),
        train(under(kind.recipe)) {
    train.is_first_microbatch = true;
  }
  ScenarioRun& run;
  const WorkspaceKind& kind;
  Bench bench;
  Parameter& weight;
  StepOptions train;

  const StoragePtr& workspace() { return workspace_of(bench); }
  StepRecord step(std::optional<F32Bits> skip = std::nullopt) {
    bench.session.rng.reseed(7);
    train.skip_weight_update = skip;
    return bench.step(train);
  }
  // The step of a module that keeps nothing, from the same weights, and the workspace that it made.
  std::pair<StepRecord, StoragePtr> fresh() {
    Bench other(run, {}, kind.arch);
    copy_into(*std::get<ArrayPtr>(weight.value),
              *std::get<ArrayPtr>(other.module->parameter("weight").value));
    StepOptions o = under(kind.recipe);
    o.is_first_microbatch = true;
    const StepRecord r = other.step(o);
    return {r, workspace_of(other)};
  }
};

// An inference builds a workspace, and the training step after it takes or replaces it.
StepRecord first_microbatch(WorkspaceBench& w) {
  ScenarioRun& run = w.run;
  StepOptions infer = w.train;
  infer.grad_enabled = false;
  w.bench.module->forward(w.bench.session, w.bench.x, infer);
  run.expect_equal(cache_of(w.bench.module->record), {"built and kept"}, "an inference");
  const StoragePtr inferred = w.workspace();
  run.expect_equal(text(inferred->present()), w.kind.name == "CS" ? "TT" : "TF", "an inference's directions");
  const StepRecord first = w.step();
  run.expect_equal(
      cache_of(first),
      w.kind.serves_both ? std::vector<string>{"updated"} : std::vector<string>{"invalid", "built and kept"},
      "the training step after it");
  run.expect(w.kind.serves_both == (w.workspace() == inferred),
             "a workspace that lacks a direction is dropped");
  const auto [want, made] = w.fresh();
  expect_same_steps(run, first, want);
  run.expect_equal(*w.workspace(), *made, "workspace after the first microbatch");
  return first;
}

// The weight moves on, the second microbatch does not.
void frozen_workspace(WorkspaceBench& w, const StepRecord& first) {
  ScenarioRun& run = w.run;
  const StoragePtr kept = w.workspace();
  w.weight.value = drawn({96, 128}, DType::bfloat16, 500);
  const std::vector<NamedArray> before = snapshot(kept);
  const auto keeps_bytes = [&](const string& when) {
    run.expect(w.workspace() == kept, when + ": the same object");
    const std::vector<NamedArray> now = snapshot(kept);
    for (size_t i = 0; i < before.size(); ++i)
      run.expect_equal(now[i].array, before[i].array, when + ": " + before[i].name);
  };
  w.train.is_first_microbatch = false;
  const StepRecord second = w.step();
  run.expect_equal(cache_of(second), {"reused"}, "a second microbatch");
  expect_same_steps(run, second, first);
  keeps_bytes("a second microbatch");
  run.expect_equal(cache_of(w.step(kOne)), {"update skipped"}, "noop of a second microbatch");
  keeps_bytes("noop of a second microbatch");
  w.train.is_first_microbatch = true;
  run.expect_equal(cache_of(w.step(kOne)), {"update skipped"}, "noop of a first microbatch");
  keeps_bytes("noop of a first microbatch");
}

// A first microbatch refreshes the workspace in place, with a noop flag of zero as without one.
void refreshed_workspace(WorkspaceBench& w) {
  ScenarioRun& run = w.run;
  const StoragePtr kept = w.workspace();
  const std::vector<Field> buffers = kept->fields();
  std::vector<ArrayPtr> addresses;
  for (const Field& f : buffers) addresses.push_back(*f.slot);
  for (const auto& [skip, seed] :
       {std::pair<std::optional<F32Bits>, uint64_t>(std::nullopt, 600), {F32Bits{0}, 700}}) {
    w.weight.value = drawn({96, 128}, DType::bfloat16, seed);
    const string when = skip ? "noop 0" : "the next first microbatch";
    const StepRecord next = w.step(skip);
    run.expect_equal(cache_of(next), {"updated"}, when);
    run.expect(w.workspace() == kept, when + ": the same object");
    const auto [want, made] = w.fresh();
    expect_same_steps(run, next, want);
    run.expect_equal(*kept, *made, when + ": workspace");
    if (w.kind.name == "2D blocks") continue;  // its columns are made in each backward
    for (size_t i = 0; i < buffers.size(); ++i)
      run.expect(*buffers[i].slot == addresses[i], when + ": " + buffers[i].name + " stays where it is");
  }
}

// The cache does not look whether a workspace of 1x128 blocks has columns, and nothing can make them of rows.
void one_dimensional_workspace(ScenarioRun& run) {
  run.about("1D blocks");
  const auto one_dimensional = std::make_shared<Float8BlockScaling>();
  one_dimensional->w_block_scaling_dim = 1;
  Bench bench(run, {});
  StepOptions o = under(one_dimensional);
  o.grad_enabled = false;
  o.is_first_microbatch = true;
  bench.module->forward(bench.session, bench.x, o);
  o.grad_enabled = true;
  const Forward f = bench.module->forward(bench.session, bench.x, o);
  run.expect_error(ErrorClass::assertion_error, "backward of a workspace that an inference built",
                   [&] { f.backward(bench.session, bench.dy); });
}

void weight_workspaces(ScenarioRun& run) {
  const WorkspaceKind kinds[] = {
      {"CS", Arch::sm100, built_in_recipe("fp8_current"), true},
      {"CS with a transpose", Arch::sm90, built_in_recipe("fp8_current"), false},
      {"MX", Arch::sm100, built_in_recipe("mxfp8"), false},
      {"2D blocks", Arch::sm100, built_in_recipe("fp8_block"), true},
      {"NVFP4", Arch::sm100, built_in_recipe("nvfp4"), false},
      {"H(MX|NVFP4)", Arch::sm100, per_gemm({"mxfp8", "nvfp4", "nvfp4"}), false},
      {"H(BLK|CS)", Arch::sm100, per_gemm({"fp8_block", "fp8_current", "fp8_current"}), false}};
  for (const WorkspaceKind& kind : kinds) {
    run.about(kind.name);
    WorkspaceBench w(run, kind);
    const StepRecord first = first_microbatch(w);
    frozen_workspace(w, first);
    refreshed_workspace(w);
  }
  one_dimensional_workspace(run);
}

// S-82. Chains of Hopper's tensor cores longer than 128, where the split accumulator changes bits. Where the
// judged subject has no such sum the reference runs the steps.
void split_accumulators(ScenarioRun& run) {
  Subject& on =
      run.subject.supports(*parse_line("gemm a=fp8_current b=fp8_current 160x160x160 sum=hopper_fp8_fast"))
              .yes
          ? run.subject
          : run.reference;
  const ScenarioRun steps_on(on, run.reference, run.environment);
  for (const string_view module : {"linear", "layernorm_linear", "layernorm_mlp", "ops_linear"}) {
    run.about(string(module));
    const ModuleSettings s{.module = module, .rows = 160, .in = 160, .out = 160};
    const auto recipe_of = [] { return std::make_shared<Float8CurrentScaling>(); };
    const auto change = [](Float8CurrentScaling& r) {
      r.fp8_gemm_fprop.use_split_accumulator = !r.fp8_gemm_fprop.use_split_accumulator;
      r.fp8_gemm_dgrad.use_split_accumulator = !r.fp8_gemm_dgrad.use_split_accumulator;
      r.fp8_gemm_wgrad.use_split_accumulator = !r.fp8_gemm_wgrad.use_split_accumulator;
    };
    const auto step = [&](bool changed_before, bool changed_between) {
      Bench bench(steps_on, s);
      bench.session.gemm_model = GemmModel::hopper;
      const auto recipe = recipe_of();
      if (changed_before) change(*recipe);
      const Forward f = bench.module->forward(bench.session, bench.x, under(recipe));
      if (changed_between) change(*recipe);
      f.backward(bench.session, bench.dy);
      return bench.module->record;
    };
    const StepRecord plain = step(false, false), changed = step(true, false);
    expect_same_steps(run, step(false, true), plain);
    expect_same_steps(run, step(true, true), changed);
    for (const string_view name : {"output", "dgrad"})
      run.expect_different(output_of(changed, name), output_of(plain, name),
                           string(name) + " of the other setting");
    for (size_t i = 0; i < plain.gemms.size(); ++i)
      run.expect(plain.gemms[i].line != changed.gemms[i].line, plain.gemms[i].name + ": its line says so",
                 "another sum", plain.gemms[i].line);
  }
}

// The amaxes of another rank, larger than any here.
GroupPtr two_ranks() {
  const auto group = std::make_shared<ProcessGroup>();
  group->name = "tp";
  group->size = 2;
  group->all_reduce_max = [](std::span<F32Bits> amaxes) {
    for (F32Bits& a : amaxes) a = std::max<F32Bits>(a, 0x45000000);  // 2048
  };
  return group;
}

// S-83
void observers(ScenarioRun& run) {
  struct Kind {
    string name;
    GemmFormats formats;
  };
  const Kind kinds[] = {
      {"CS", {"fp8_current", "fp8_current", "fp8_current"}}, {"MX", {"mxfp8", "mxfp8", "mxfp8"}},
      {"BLK", {"fp8_block", "fp8_block", "fp8_block"}},      {"NVFP4", {"nvfp4", "nvfp4", "nvfp4"}},
      {"ID", {"identity", "identity", "identity"}},          {"H(MX|NVFP4)", {"mxfp8", "nvfp4", "nvfp4"}}};
  for (const Kind& kind : kinds)
    for (const string_view module : kModules)
      for (const ParallelMode parallel : {ParallelMode::none, ParallelMode::column, ParallelMode::row})
        for (const bool kept : {false, true}) {  // weights kept quantized
          const bool grouped = module.find("grouped") != string_view::npos;
          if (parallel != ParallelMode::none && (kept || grouped || module.starts_with("ops"))) continue;
          // one launch and state for all experts, which an observer of each cannot have (TE
          // module/_split_quantization.py)
          if (grouped && kind.name.find("NVFP4") != string::npos) continue;
          run.about(kind.name + " " + string(module) +
                    (parallel == ParallelMode::none     ? ""
                     : parallel == ParallelMode::column ? " column"
                                                        : " row") +
                    (kept ? ", quantized weights" : ""));
          const RecipePtr plain =
              per_gemm(kind.formats, kept ? "weight" : "");  // a custom recipe keeps no native weight
          int64_t seen = 0;
          const RecipePtr watched = by_tensor([&](const string&, const RolePtr& role) -> QuantizerLike {
            return std::make_shared<ObserverQuantizer>(
                std::get<QuantizerPtr>(static_cast<const CustomRecipe&>(*plain).qfactory->call(role)),
                [&seen](const Observation& o) {
                  seen += o.call == "quantize" && o.x != nullptr && o.quantizer != nullptr;
                });
          });
          const auto step = [&](const RecipePtr& recipe) {
            Bench bench(run, {.module = module, .parallel = parallel});
            if (kept) bench.module->quantize_parameters(bench.session, recipe, true);
            StepOptions o = under(recipe);
            if (parallel != ParallelMode::none) o.tp_group = two_ranks();
            StepRecord r = bench.step(o);
            o.grad_enabled = false;  // rows alone: usages change from call to call
            bench.module->forward(bench.session, bench.x, o);
            return std::tuple(std::move(r), bench.module->record, bench.session.launches);
          };
          const auto [want, want_evaluated, want_launches] = step(plain);
          const auto [got, got_evaluated, got_launches] = step(watched);
          run.expect(seen >= 3, "the observer is told of input, weight and gradient",
                     "3 quantizations or more", std::to_string(seen));
          expect_same_steps(run, got, want);
          expect_same_traces(run, got, want);
          const auto usages = [](const StepRecord& r) {
            std::vector<string> out;
            for (const NamedUsages& u : r.usages) out.push_back(u.name + " " + text(u.usages));
            return out;
          };
          run.expect_equal(usages(got), usages(want), "usages");
          expect_same_gemms(run, got_evaluated, want_evaluated, "fprop");
          expect_same_traces(run, got_evaluated, want_evaluated);
          run.expect_equal(usages(got_evaluated), usages(want_evaluated), "usages of an evaluation");
          if (!grouped)
            run.expect_equal(got_launches, want_launches,
                             "launches");  // sums of bias gradients are cast at other times
        }
}

constexpr Scenario kModuleScenarios[] = {
    {"S-44", "Current scaling in every module", "six modules with input and weight H(CS|CS)",
     "a step runs against vanilla, and against vanilla without fused producers",
     "LayerNormMLP differs in output and fc2's wgrad, with bias also behind fc1's gradient (E1); all else, "
     "and all without fused producers, is equal",
     current_scaling_everywhere, ""},
    {"S-45", "Block formats in every module",
     "six modules with input and weight hybrids of MXFP8, blockwise FP8 or NVFP4",
     "a step runs against vanilla, and against vanilla without fused producers",
     "equal, but for the gradient of fc1's bias under MXFP8 (E1, E13)", block_formats_everywhere, ""},
    {"S-46", "Weight workspaces", "Linear with cached weights, in seven settings of format and architecture",
     "an inference, microbatches and noop flags follow one another while the weight changes",
     "an inference builds rows alone, which training rebuilds where rows do not serve both; later "
     "microbatches reuse the object; a first one and a noop flag of 0 refresh it in place; "
     "noop 1 keeps its bytes; 1D blocks fail in backward",
     weight_workspaces, ""},
    {"S-82", "The split accumulator is forward's", "modules under current scaling on Hopper's tensor cores",
     "the recipe's split-accumulator settings change between forward and backward",
     "backward multiplies as forward resolved, bit for bit; the other setting gives other bits",
     split_accumulators, ""},
    {"S-83", "Observers change nothing",
     "six modules in six formats, every quantizer wrapped by an observer, with and without tensor parallel "
     "groups",
     "a step and an evaluation run",
     "bytes, usages, launches, draws and reductions are those of the step and evaluation without observers, "
     "which saw every tensor",
     observers, ""},
};

}  // namespace

std::span<const Scenario> module_scenarios() { return kModuleScenarios; }

}  // namespace assay::training
