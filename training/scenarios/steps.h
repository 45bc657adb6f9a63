// How scenarios about modules run a step of a module with data, and what they expect of two of them.
#pragma once
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "training/kit/modules.h"
#include "training/kit/recipes.h"
#include "training/kit/records.h"
#include "training/scenarios/scenario.h"

namespace assay::training {

// A module whose parameters are set, its input and the gradient of its output, in a process of its own. Two
// benches of equal settings hold equal data.
class Bench {
 public:
  Bench(const ScenarioRun& run, const ModuleSettings& settings, Arch arch = Arch::sm100);
  Session session;
  std::unique_ptr<Module> module;
  ArrayPtr x, dy;
  // Forward and backward.
  const StepRecord& step(const StepOptions& options) { return module->step(session, x, dy, options); }
};

// One step of a new bench.
StepRecord step_of(const ScenarioRun& run, const ModuleSettings& settings, const StepOptions& options);
// Under this recipe with these producers fused or not.
StepOptions under(RecipePtr recipe, Fusions fusions);

// Names of the outputs whose bytes differ, in order.
std::vector<std::string> differing_outputs(const StepRecord& got, const StepRecord& want);
// Operands, settings and result of every GEMM of one kind: "fprop", "dgrad", "wgrad".
void expect_same_gemms(ScenarioRun&, const StepRecord& got, const StepRecord& want, std::string_view kind);
// One output, present on both sides.
void expect_same_output(ScenarioRun&, const StepRecord& got, const StepRecord& want, std::string_view name);
// All outputs, but those named.
void expect_same_outputs(ScenarioRun&, const StepRecord& got, const StepRecord& want,
                         std::initializer_list<std::string_view> but = {});
// Everything that bytes come from: all GEMMs and all outputs but those named.
void expect_same_steps(ScenarioRun&, const StepRecord& got, const StepRecord& want,
                       std::initializer_list<std::string_view> but = {});
// Draws of random states, reductions, and what became of weight workspaces.
void expect_same_traces(ScenarioRun&, const StepRecord& got, const StepRecord& want);

}  // namespace assay::training
