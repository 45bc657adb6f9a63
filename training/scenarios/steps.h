// How scenarios about modules run a step and compare two of them: quantizers by the name of a format, recipes that give each GEMM a format, and a module
// with data in a process of its own.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "training/modules/activations.h"
#include "training/recipes/factories.h"
#include "training/modules/module.h"
#include "training/scenarios/scenario.h"

namespace assay::training {

inline constexpr std::string_view kFormats[] = {"fp8_current", "mxfp8", "fp8_block", "nvfp4"};
inline constexpr std::string_view kModules[] = {"linear", "layernorm_linear", "layernorm_mlp", "grouped_linear", "ops_linear", "ops_grouped_linear"};

// A quantizer of one of kFormats or "identity" for a role, as the format's base factory makes it.
QuantizerPtr quantizer_of(std::string_view format, const RolePtr& role);
// The built-in recipe of a format; null for "identity".
RecipePtr built_in(std::string_view format);

// A custom recipe that is asked by tensor type; "" where a boundary has no role.
using ByTensor = std::function<QuantizerLike(const std::string& tensor, const RolePtr& role)>;
RecipePtr by_tensor(ByTensor);
// Formats of the three GEMMs: the weight is H(fprop | dgrad), the input H(fprop | wgrad), the gradient H(dgrad | wgrad). A tensor that one format serves is a hybrid
// only where `hybrids` names it ("input,weight"), and plain elsewhere.
struct GemmFormats {
  std::string_view fprop, dgrad, wgrad;
};
RecipePtr per_gemm(GemmFormats, std::string_view hybrids = "input,weight", const std::string& source = "original");

struct BenchSettings {
  std::string_view module = "linear";   // one of kModules
  int64_t rows = 64, in = 128, out = 96, hidden = 160;
  bool bias = true, save_original_input = false;
  DType dtype = DType::bfloat16;        // of parameters, input and gradient
  ParallelMode parallel = ParallelMode::none;
  Activation activation = Activation::srelu;   // a square has twice the bits of its root, so that its rounding shows
  Subject* on = nullptr;                // null: the one that is judged
  std::vector<int64_t> splits = {};     // of grouped modules; empty: {rows, 0, 64} with rows rounded up to 64
};

// A module whose parameters are set, its input and the gradient of its output, in a process of its own. Two benches of equal settings hold equal data.
class Bench {
 public:
  Bench(const ScenarioRun& run, BenchSettings settings, Arch arch = Arch::sm100);
  Session session;
  std::unique_ptr<Module> module;
  ArrayPtr x, dy;
  // Forward and backward.
  const StepRecord& step(const StepOptions& options) { return module->step(session, x, dy, options); }
};

// One step of a new bench.
StepRecord step_of(const ScenarioRun& run, const BenchSettings& settings, const StepOptions& options);
// Under this recipe with these producers fused or not.
StepOptions under(RecipePtr recipe, Fusions fusions);

// "output", "dgrad", "weight.grad"; null where a step has no such output.
ArrayPtr output_of(const StepRecord&, std::string_view name);
// What the GEMM "fc2.fprop" gave; null where there was none.
ArrayPtr result_of(const StepRecord&, std::string_view gemm);
// Names of the outputs whose bytes differ, in order.
std::vector<std::string> differing_outputs(const StepRecord& got, const StepRecord& want);
// Operands, settings and result of every GEMM of one kind: "fprop", "dgrad", "wgrad".
void expect_same_gemms(ScenarioRun&, const StepRecord& got, const StepRecord& want, std::string_view kind);
// One output, present on both sides.
void expect_same_output(ScenarioRun&, const StepRecord& got, const StepRecord& want, std::string_view name);
// All outputs, but those named.
void expect_same_outputs(ScenarioRun&, const StepRecord& got, const StepRecord& want, std::initializer_list<std::string_view> but = {});
// Everything that bytes come from: all GEMMs and all outputs but those named.
void expect_same_steps(ScenarioRun&, const StepRecord& got, const StepRecord& want, std::initializer_list<std::string_view> but = {});
// Draws of random states, reductions, and what became of weight workspaces.
void expect_same_traces(ScenarioRun&, const StepRecord& got, const StepRecord& want);

}  // namespace assay::training
