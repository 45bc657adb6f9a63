#include "training/scenarios/steps.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "contract/planes.h"
#include "training/base/data.h"
#include "training/formats/hybrid.h"
#include "training/modules/grouped_linear.h"
#include "training/modules/layernorm_linear.h"
#include "training/modules/layernorm_mlp.h"
#include "training/modules/linear.h"
#include "training/modules/ops_grouped_linear.h"
#include "training/modules/ops_linear.h"
#include "training/scenarios/common.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

bool grouped(string_view module) { return module.find("grouped") != string_view::npos; }

std::vector<int64_t> splits_of(const BenchSettings& s) { return s.splits.empty() ? std::vector<int64_t>{round_up(s.rows, 64), 0, 64} : s.splits; }

std::unique_ptr<Module> make_module(Session& session, const BenchSettings& s) {
  const auto common = [&](auto settings) {
    settings.name = "m";
    settings.in_features = s.in;
    settings.out_features = s.out;
    settings.bias = s.bias;
    settings.params_dtype = s.dtype;
    return settings;
  };
  LinearSettings linear = common(LinearSettings{});
  linear.parallel_mode = s.parallel;
  linear.sequence_parallel = s.parallel != ParallelMode::none;
  linear.save_original_input = s.save_original_input;
  if (s.module == "linear") return std::make_unique<Linear>(session, linear);
  if (s.module == "layernorm_linear") return std::make_unique<LayerNormLinear>(session, LayerNormLinearSettings{linear, {}});
  if (s.module == "ops_linear") return std::make_unique<OpsLinear>(session, common(OpsLinearSettings{}));
  if (s.module == "layernorm_mlp") {
    LayerNormMLPSettings mlp;
    mlp.name = "m";
    mlp.hidden_size = s.in;
    mlp.ffn_hidden_size = s.hidden;
    mlp.bias = s.bias;
    mlp.params_dtype = s.dtype;
    mlp.activation = s.activation;
    mlp.sequence_parallel = mlp.set_parallel_mode = s.parallel != ParallelMode::none;
    return std::make_unique<LayerNormMLP>(session, mlp);
  }
  const std::vector<int64_t> splits = splits_of(s);
  if (s.module == "grouped_linear") {
    GroupedLinearSettings settings = common(GroupedLinearSettings{});
    settings.num_gemms = splits.size();
    settings.save_original_input = s.save_original_input;
    auto m = std::make_unique<GroupedLinear>(session, settings);
    m->m_splits = splits;
    return m;
  }
  if (s.module != "ops_grouped_linear") throw std::logic_error("no module " + string(s.module));
  OpsGroupedLinearSettings settings = common(OpsGroupedLinearSettings{});
  settings.num_groups = splits.size();
  auto m = std::make_unique<OpsGroupedLinear>(session, settings);
  m->m_splits = splits;
  return m;
}

// The bytes of a plane as an array, for comparisons.
ArrayPtr array_of(const PlaneData& p) { return from_bytes({static_cast<int64_t>(p.bytes.size())}, DType::uint8, p.bytes); }

std::vector<const GemmRecord*> gemms_of(const StepRecord& r, string_view kind) {
  std::vector<const GemmRecord*> out;
  for (const GemmRecord& g : r.gemms)
    if (g.name.find(kind) != string::npos) out.push_back(&g);
  return out;
}

}  // namespace

QuantizerPtr quantizer_of(string_view format, const RolePtr& role) {
  static constexpr std::pair<string_view, string_view> kFactories[] = {{"fp8_current", "current_scaling_factory"},
                                                                       {"fp8_block", "float8_block_scaling_factory"},
                                                                       {"mxfp8", "mxfp8_factory"},
                                                                       {"nvfp4", "nvfp4_factory"},
                                                                       {"identity", "high_precision_factory"}};
  for (const auto& [name, factory] : kFactories)
    if (name == format) return std::get<QuantizerPtr>(factory_named(factory)->call(role));
  throw std::logic_error("no format " + string(format));
}

RecipePtr built_in(string_view format) {
  static constexpr std::pair<string_view, string_view> kRecipes[] = {
      {"fp8_current", "Float8CurrentScaling"}, {"fp8_block", "Float8BlockScaling"}, {"mxfp8", "MXFP8BlockScaling"}, {"nvfp4", "NVFP4BlockScaling"},
      {"delayed", "DelayedScaling"}};
  for (const auto& [name, recipe] : kRecipes)
    if (name == format) return make_recipe(recipe);
  return nullptr;
}

RecipePtr by_tensor(ByTensor quantizer) {
  return recipe_around("by tensor", [quantizer = std::move(quantizer)](const RolePtr& role) { return quantizer(role ? role->tensor_type : "", role); });
}

RecipePtr per_gemm(GemmFormats f, string_view hybrids, const string& source) {
  return by_tensor([f, hybrids, source](const string& tensor, const RolePtr& role) -> QuantizerLike {
    const auto [row, col] = tensor == "weight" ? std::pair(f.fprop, f.dgrad) : tensor == "grad_output" ? std::pair(f.dgrad, f.wgrad)
        : std::pair(f.fprop, f.wgrad);
    if (row == col && (tensor.empty() || hybrids.find(tensor) == string_view::npos)) return quantizer_of(row, role);
    return std::make_shared<HybridQuantizer>(quantizer_of(row, role), quantizer_of(col, role), source);
  });
}

Bench::Bench(const ScenarioRun& run, BenchSettings s, Arch arch) : session(run.session_on(s.on ? *s.on : run.subject, arch)), module(make_module(session, s)) {
  session.rng.reseed(7);
  fill_parameters(*module, 100);
  const std::vector<int64_t> splits = splits_of(s);
  const int64_t rows = grouped(s.module) ? std::accumulate(splits.begin(), splits.end(), int64_t{0}) : s.rows;
  x = gradient({rows, s.in}, s.dtype, 10);
  dy = gradient({rows, s.module == "layernorm_mlp" ? s.in : s.out}, s.dtype, 20);
}

StepRecord step_of(const ScenarioRun& run, const BenchSettings& settings, const StepOptions& options) { return Bench(run, settings).step(options); }

StepOptions under(RecipePtr recipe, Fusions fusions) {
  StepOptions options = under(std::move(recipe));
  options.fusions = fusions;
  return options;
}

ArrayPtr output_of(const StepRecord& r, string_view name) {
  for (const NamedArray& o : r.outputs)
    if (o.name == name) return o.array;
  return nullptr;
}

ArrayPtr result_of(const StepRecord& r, string_view gemm) {
  for (const GemmRecord& g : r.gemms)
    if (g.name == gemm) return g.out;
  return nullptr;
}

std::vector<string> differing_outputs(const StepRecord& got, const StepRecord& want) {
  std::vector<string> out;
  for (const NamedArray& w : want.outputs)
    if (const ArrayPtr g = output_of(got, w.name); !g || !equal_bytes(*g, *w.array)) out.push_back(w.name);
  return out;
}

void expect_same_gemms(ScenarioRun& run, const StepRecord& got, const StepRecord& want, string_view kind) {
  const std::vector<const GemmRecord*> a = gemms_of(got, kind), b = gemms_of(want, kind);
  if (!run.expect(!b.empty() && a.size() == b.size(), "GEMMs of " + string(kind), std::to_string(b.size()), std::to_string(a.size()))) return;
  for (size_t i = 0; i < a.size(); ++i) {
    const string& name = b[i]->name;
    run.expect_equal(a[i]->name, name, "name of a GEMM");
    run.expect_equal(a[i]->line, b[i]->line, name + ": settings");
    if (!run.expect_equal(static_cast<int64_t>(a[i]->planes.size()), static_cast<int64_t>(b[i]->planes.size()), name + ": operand planes")) continue;
    for (size_t p = 0; p < a[i]->planes.size(); ++p) run.expect_equal(array_of(a[i]->planes[p]), array_of(b[i]->planes[p]),
        name + ": " + b[i]->planes[p].plane.name);
    run.expect_equal(a[i]->out, b[i]->out, name + ": result");
  }
}

void expect_same_output(ScenarioRun& run, const StepRecord& got, const StepRecord& want, string_view name) {
  if (run.expect(output_of(want, name) != nullptr, string(name) + " of the other route", "present", "absent")) run.expect_equal(output_of(got, name),
      output_of(want, name), name);
}

void expect_same_outputs(ScenarioRun& run, const StepRecord& got, const StepRecord& want, std::initializer_list<string_view> but) {
  run.expect_equal(static_cast<int64_t>(got.outputs.size()), static_cast<int64_t>(want.outputs.size()), "outputs");
  for (const NamedArray& o : want.outputs)
    if (std::find(but.begin(), but.end(), o.name) == but.end()) expect_same_output(run, got, want, o.name);
}

void expect_same_steps(ScenarioRun& run, const StepRecord& got, const StepRecord& want, std::initializer_list<string_view> but) {
  for (const string_view kind : {"fprop", "dgrad", "wgrad"}) expect_same_gemms(run, got, want, kind);
  expect_same_outputs(run, got, want, but);
}

void expect_same_traces(ScenarioRun& run, const StepRecord& got, const StepRecord& want) {
  const auto texts = [](const StepRecord& r) {
    std::vector<string> out;
    for (const RngDraw& d : r.draws) out.push_back(d.who + " " + std::to_string(d.offset) + (d.used ? "" : " unused"));
    out.push_back("generator at " + std::to_string(r.rng_offset));
    for (const Collective& c : r.collectives) out.push_back(c.what + " of " + c.who + " over " + c.group);
    for (const CacheEvent& e : r.cache) out.push_back(e.weight + " " + e.what);
    return out;
  };
  run.expect_equal(texts(got), texts(want), "draws, reductions and workspaces");
}

}  // namespace assay::training
