// Multi-head attention as one module that takes steps: whose scale stands on each tensor that travels between
// its parts, how often is cast, and a core that runs again in backward.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/modules/attention_module.h"
#include "training/modules/layer_module.h"
#include "training/modules/layernorm_mlp.h"
#include "training/modules/transformer_layer.h"
#include "training/recipes/delayed.h"
#include "training/recipes/format_table.h"
#include "training/scenarios/common.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

// A tensor of 128 tokens and 4 heads of 32.
ModuleSettings settings_of(string_view module, bool checkpoint_core = false) {
  ModuleSettings s;
  s.module = module;
  s.hidden = 128;
  s.checkpoint_core = checkpoint_core;
  return s;
}

RecipePtr recipe_of(string_view name, string_view field) {
  json::Value fields = json::object();
  if (!field.empty()) fields.set(string(field), true);
  return make_recipe(name, fields);
}

AttentionModule& attention(Bench& bench) { return dynamic_cast<AttentionModule&>(*bench.module); }

// ---- S-150

// A scale of a module's delayed scaling, by list and slot.
void set_scale(const ModuleState& state, Mode mode, size_t slot, float value) {
  const ArrayPtr& scale = state.state(mode)->delayed()->scale;
  copy_into(*f32_array({1}, std::span(&value, 1)),
            *slice(scale, 0, static_cast<int64_t>(slot), static_cast<int64_t>(slot) + 1));
}

string value_of(const std::vector<std::byte>& bytes) {
  float v = 0;
  std::memcpy(&v, bytes.data(), std::min(bytes.size(), sizeof v));
  return std::to_string(v);
}
string scale_in(const StepRecord& record, string_view gemm, string_view plane) {
  for (const GemmRecord& g : record.gemms)
    if (g.name == gemm)
      for (const PlaneData& p : g.planes)
        if (p.plane.name == plane) return value_of(p.bytes);
  return "no such plane";
}

// Every quantizer has a scale of its own, so that the decode scale of a tensor says whose cast it was.
void expect_edges(ScenarioRun& run, bool mha) {
  Bench bench(run, settings_of("mha"));
  AttentionModule& m = attention(bench);
  const RecipePtr recipe = recipe_of("DelayedScaling", mha ? "fp8_mha" : "fp8_dpa");
  bench.step(under(recipe));
  const ModuleState &qkv = m.wiring.projection, &core = m.wiring.core_attention.state, &proj = m.wiring.proj;
  run.about(mha ? "fp8_mha" : "fp8_dpa");
  for (const ModuleState* state : {&qkv, &core, &proj})
    run.expect(
        f32_bits(
            *state->state(Mode::forward)->delayed()->scale)[state == &core ? attention_slot("S").slot : 1] !=
            0x3F800000,
        "the first step updates the scales of " + state->name);
  set_scale(qkv, Mode::forward, 2, 0x1p-1F);
  set_scale(core, Mode::forward, attention_slot("QKV").slot, 0x1p-2F);
  set_scale(core, Mode::forward, attention_slot("O").slot, 0x1p-3F);
  set_scale(proj, Mode::forward, 0, 0x1p-4F);
  set_scale(proj, Mode::backward, 1, 0x1p-5F);
  set_scale(core, Mode::backward, attention_slot("dO").slot, 0x1p-6F);
  set_scale(core, Mode::backward, attention_slot("dQKV").slot, 0x1p-7F);
  set_scale(qkv, Mode::backward, 0, 0x1p-8F);
  const StepRecord& r = bench.step(under(recipe));
  const auto expect = [&](string_view gemm, string_view plane, double scale, string_view what) {
    run.expect_equal(scale_in(r, gemm, plane), std::to_string(scale), what);
  };
  expect("core.fprop", "q_scale_inv", mha ? 2 : 4,
         "Q, K, V: the projection's output under fp8_mha, else the core's");
  expect("core.fprop", "v_scale_inv", mha ? 2 : 4, "V shares the scale of Q");
  expect("proj.fprop", "b.scale_inv", 8, "O: cast by the core, not by the output projection");
  expect("core.dgrad", "do_scale_inv", 32, "dO: cast behind the output projection's dgrad, not by the core");
  expect("qkv.dgrad", "b.scale_inv", mha ? 128 : 256,
         "dQKV: the core's under fp8_mha, else the projection's");
  expect("qkv.wgrad", "b.scale_inv", mha ? 128 : 256, "and in wgrad");
}

int64_t casts(const Session& session) {
  return std::count_if(session.launches.begin(), session.launches.end(),
                       [](const string& line) { return line.starts_with("quantize "); });
}

void s150(ScenarioRun& run) {
  expect_edges(run, true);
  expect_edges(run, false);
  struct Row {
    string_view recipe, field;
    int64_t casts;
    string_view which;
  };
  constexpr Row kRows[] = {
      {"DelayedScaling", "fp8_mha", 10, "x, W, QKV; S, O; W | dy, dO; dP, dQKV"},
      {"DelayedScaling", "fp8_dpa", 11, "x, W; QKV, S, O; W | dy, dO; dP, dQKV; dQKV again"},
      {"Float8CurrentScaling", "fp8_mha", 10, "x, W; QKV, S, O; W | dy; dO, dP; dQKV"},
      {"MXFP8BlockScaling", "fp8_dpa", 10, "x, W; Q, K, V; O, W | dy; dO; dQKV"},
      {"MXFP8BlockScaling", "", 6, "x, W; O, W | dy; dQKV"}};
  for (const Row& row : kRows) {
    Bench bench(run, settings_of("mha"));
    run.about(string(row.recipe) + " " + string(row.field));
    bench.step(under(recipe_of(row.recipe, row.field)));
    run.expect_equal(casts(bench.session), row.casts, row.which);
  }
}

// ---- S-151

std::vector<NamedArray> delayed_states(const Module& module) {
  std::vector<NamedArray> out;
  for (const Mode mode : {Mode::forward, Mode::backward})
    for (const RecipeStatePtr& state : module.recipe_states(mode))
      if (const DelayedStatePtr d = state->delayed()) {
        out.push_back({"history", clone(d->amax_history)});
        out.push_back({"scale", clone(d->scale)});
      }
  return out;
}

// The first forward runs the core as well, so it is in the record twice; the second one must be as the first.
StepRecord without_second_core(ScenarioRun& run, const StepRecord& r) {
  StepRecord out = r;
  const auto named = [](const GemmRecord& g) { return g.name == "core.fprop"; };
  const auto first = std::find_if(out.gemms.begin(), out.gemms.end(), named);
  const auto second = std::find_if(first + 1, out.gemms.end(), named);
  if (!run.expect(second != out.gemms.end(), "the core runs a second time")) return out;
  run.expect_equal(second->out, first->out, "O of the second forward");
  run.expect_equal(second->line, first->line, "settings of the second forward, its scale of S among them");
  out.gemms.erase(second);
  return out;
}

void s151(ScenarioRun& run) {
  for (const string_view name : {"DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling"})
    for (const string_view field : {"fp8_mha", "fp8_dpa", ""}) {
      Bench kept(run, settings_of("mha")), again(run, settings_of("mha", true));
      const RecipePtr recipe = recipe_of(name, field);
      for (int step = 0; step < 3; ++step) {
        run.about(string(name) + " " + string(field) + ", step " + std::to_string(step));
        const StepRecord& want = kept.step(under(recipe));
        const StepRecord got = without_second_core(run, again.step(under(recipe)));
        expect_same_steps(run, got, want);
        const std::vector<NamedArray> a = delayed_states(*again.module), b = delayed_states(*kept.module);
        run.expect_equal(static_cast<int64_t>(a.size()), static_cast<int64_t>(b.size()), "delayed states");
        for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
          run.expect_equal(a[i].array, b[i].array, b[i].name + " " + std::to_string(i));
        // Other data in the next step, so that scales move on.
        for (Bench* bench : {&kept, &again})
          bench->x =
              drawn(bench->x->shape, DType::bfloat16, 70 + static_cast<uint64_t>(step), FillKind::outliers);
      }
    }
}

// ---- S-152

// The sum beside a residual, element by element: of two bf16 numbers it is exact in binary64, and its
// rounding to binary32 comes before that to bf16.
ArrayPtr residual(Session& session, const ArrayPtr& a, const ArrayPtr& b) {
  const std::vector<float> left = floats(session, a), right = floats(session, b);
  std::vector<float> sum(left.size());
  for (size_t i = 0; i < sum.size(); ++i)
    sum[i] = static_cast<float>(static_cast<double>(left[i]) + static_cast<double>(right[i]));
  return cast(session, f32_array(a->shape, sum), DType::bfloat16);
}

void take_values(Module& part, const Module& layer, const string& prefix) {
  for (Parameter& mine : part.parameters)
    for (const Parameter& p : layer.parameters)
      if (p.name == prefix + mine.name) mine.value = clone(std::get<ArrayPtr>(p.value));
}

void expect_gradients(ScenarioRun& run, const StepRecord& layer, const Module& part, const string& prefix) {
  for (const Parameter& p : part.parameters) {
    const string name = prefix + p.name + ".grad";
    run.expect_equal(output_of(layer, name), p.grad, name);
  }
}

// The parts of a layer in a session of their own, one after another.
void expect_parts(ScenarioRun& run, const RecipePtr& recipe) {
  Bench bench(run, settings_of("transformer_layer"));
  Bench apart(run, settings_of("transformer_layer"));  // its session and its data
  const LayerModuleSettings& s = dynamic_cast<LayerModule&>(*bench.module).settings;
  AttentionModuleSettings of_attention;
  of_attention.name = "m.self_attention";
  of_attention.hidden_size = s.hidden_size;
  of_attention.heads = s.heads;
  of_attention.head_size = s.head_size;
  of_attention.input_layernorm = true;
  of_attention.softmax_scale = s.softmax_scale;
  LayerNormMLPSettings of_mlp;
  of_mlp.name = "m.layernorm_mlp";
  of_mlp.hidden_size = s.hidden_size;
  of_mlp.ffn_hidden_size = s.ffn_hidden_size;
  of_mlp.activation = s.activation;
  Session& session = apart.session;
  AttentionModule attention(session, of_attention);
  LayerNormMLP mlp(session, of_mlp);
  take_values(attention, *bench.module, "self_attention.");
  take_values(mlp, *bench.module, "layernorm_mlp.");
  const StepRecord& layer = bench.step(under(recipe));

  const auto array = [](const Tensorlike& t) { return std::get<ArrayPtr>(t); };
  const Forward first = attention.forward(session, apart.x, under(recipe));
  const ArrayPtr hidden = residual(session, apart.x, array(first.out));
  const Forward second = mlp.forward(session, hidden, under(recipe));
  run.expect_equal(output_of(layer, "output"), residual(session, hidden, array(second.out)), "output");
  const ArrayPtr d = residual(session, apart.dy, array(second.backward(session, apart.dy)));
  run.expect_equal(output_of(layer, "dgrad"), residual(session, d, array(first.backward(session, d))),
                   "dgrad");
  expect_gradients(run, layer, attention, "self_attention.");
  expect_gradients(run, layer, mlp, "layernorm_mlp.");
  run.expect_equal(static_cast<int64_t>(layer.gemms.size()),
                   static_cast<int64_t>(attention.record.gemms.size() + mlp.record.gemms.size()), "GEMMs");
}

void s152(ScenarioRun& run) {
  const std::pair<string_view, string_view> kRecipes[] = {{"", ""},
                                                          {"DelayedScaling", "fp8_mha"},
                                                          {"Float8CurrentScaling", "fp8_dpa"},
                                                          {"MXFP8BlockScaling", "fp8_dpa"}};
  for (const auto& [name, field] : kRecipes) {
    run.about(name.empty() ? "no recipe" : string(name) + " " + string(field));
    expect_parts(run, name.empty() ? nullptr : recipe_of(name, field));
  }
  Bench bench(run, settings_of("transformer_layer"));
  TransformerLayer named(bench.session, "m");
  const std::vector<string> names = named.names();
  const StepRecord& r = bench.step(under(recipe_of("MXFP8BlockScaling", "")));
  for (const RoleList* roles : {&r.forward_roles, &r.backward_roles})
    for (const RolePtr& role : roles->value())
      if (role && !role->name.empty())
        run.expect(std::any_of(names.begin(), names.end(),
                               [&](const string& n) { return role->name.starts_with(n); }),
                   "the layer has no part " + role->name);
}

const Scenario kScenarios[] = {
    {"S-150",
     "Whose cast stands at each edge of multi-head attention",
     "multi-head attention whose quantizers have scales of their own, under each family of recipes",
     "a step runs",
     "Q, K, V, O, dO and dQKV have the scale of the part that cast them, and nothing is cast twice",
     s150,
     {}},
    {"S-151",
     "A core of attention that is recomputed",
     "multi-head attention whose core runs again in backward, and one whose core does not",
     "three steps run, with scales that move between forward and backward",
     "the second forward is the first one, and operands, outputs, gradients, histories and scales are equal",
     s151,
     {}},
    {"S-152",
     "A transformer layer is its parts",
     "a layer, and its attention and its MLP in another session with the same weights",
     "a step of the layer runs, and the parts run one after another beside sums of their residuals",
     "output, input gradient and every parameter's gradient are equal, and parts are named after the layer",
     s152,
     {}},
};

}  // namespace

std::span<const Scenario> multihead_scenarios() { return kScenarios; }

}  // namespace assay::training
