// Modules over several steps: weights that FSDP2 shards and an optimizer updates, regions that are
// recomputed, and a state dict that is loaded into quantized weights.
#include <array>

#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/base/ranks.h"
#include "training/dispatch/in_place.h"
#include "training/formats/formats.h"
#include "training/kit/trained_module.h"
#include "training/modules/linear.h"
#include "training/modules/wire.h"
#include "training/recipes/delayed.h"
#include "training/recipes/format_table.h"
#include "training/scenarios/common.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr int kRanks = 2;

void expect_same_arrays(ScenarioRun& run, const std::vector<NamedArray>& got,
                        const std::vector<NamedArray>& want, const string& what) {
  run.expect_equal(static_cast<int64_t>(got.size()), static_cast<int64_t>(want.size()), what + ": how many");
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i)
    run.expect_equal(got[i].array, want[i].array, what + ": " + want[i].name);
}

// ---- FSDP2 and an optimizer ------------------------------------------------------------------

// Everything that five steps of two layers leave on every rank.
struct Trajectory {
  std::vector<NamedArray> outputs, gradients, masters, shards;
};

void wire(Wire& w, Trajectory& t) { w(t.outputs, t.gradients, t.masters, t.shards); }

Trajectory trajectory(ScenarioRun& run, const RecipePtr& recipe, bool reshard, Arch arch = Arch::sm100) {
  constexpr int64_t kRows = 64, kIn = 128,
                    kWide = 256;  // a shard has 128 rows, a whole tile of square blocks
  std::array<Trajectory, kRanks> all;
  run_ranks(
      kRanks, "mesh",
      [&](int rank, const GroupPtr& mesh) {
        Trajectory& out = all[static_cast<size_t>(rank)];
        Session session = run.session(arch);
        const auto layer = [&](int64_t in, uint64_t seed) {
          ModuleSettings s;
          s.in = in;
          s.out = kWide;
          auto module = make_module(session, s);
          fill_parameters(*module, seed);
          return module;
        };
        const auto first = layer(kIn, 640), second = layer(kWide, 650);
        TrainedSettings settings;
        settings.quantized_weights = recipe;
        settings.mesh = mesh;
        settings.reshard = reshard;
        TrainedModule a(session, *first, settings), b(session, *second, settings);
        for (uint64_t step = 0; step < 5; ++step) {
          const uint64_t seed = 1000 * (step + 1) + static_cast<uint64_t>(rank);
          const ArrayPtr hidden = a.forward(gradient({kRows, kIn}, DType::bfloat16, seed), under(recipe));
          out.outputs.push_back({"output", clone(b.forward(hidden, under(recipe)))});
          const ArrayPtr back = b.backward(gradient({kRows, kWide}, DType::bfloat16, seed + 500));
          out.gradients.push_back({"dgrad", clone(a.backward(back))});
          for (const auto& [module, name] : {std::pair{first.get(), "first."}, {second.get(), "second."}})
            for (const Parameter& p : module->parameters)
              out.gradients.push_back({name + p.name, clone(p.grad)});
          a.update();
          b.update();
        }
        for (TrainedModule* m : {&a, &b})
          for (NamedArray& n : m->state())
            (n.name.find(".master") != n.name.npos || n.name.find(".exp_avg") != n.name.npos ? out.masters
                                                                                             : out.shards)
                .push_back({n.name, clone(n.array ? n.array : zeros({0}, DType::uint8))});
      },
      shared(all));
  Trajectory out;
  for (Trajectory& t : all) {
    const auto append = [](std::vector<NamedArray>& to, std::vector<NamedArray>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(out.outputs, t.outputs);
    append(out.gradients, t.gradients);
    append(out.masters, t.masters);
    append(out.shards, t.shards);
  }
  return out;
}

void s64(ScenarioRun& run) {
  for (const string_view format : {"fp8_current", "mxfp8", "fp8_block"}) {
    run.about(string(format));
    const RecipePtr vanilla = built_in_recipe(format), hybrid = per_gemm({format, format, format});
    const Trajectory want = trajectory(run, vanilla, true);
    for (const auto& [name, recipe, reshard] : {std::tuple{"vanilla, kept", vanilla, false},
                                                {"hybrid, resharded", hybrid, true},
                                                {"hybrid, kept", hybrid, false}}) {
      const Trajectory got = trajectory(run, recipe, reshard);
      run.about(string(format) + ", " + name + ", against vanilla, resharded");
      expect_same_arrays(run, got.outputs, want.outputs, "outputs of five steps");
      expect_same_arrays(run, got.gradients, want.gradients, "gradients");
      expect_same_arrays(run, got.masters, want.masters, "masters and moments");
      if (recipe == vanilla) expect_same_arrays(run, got.shards, want.shards, "shards");
    }
    run.about(string(format));
    run.expect_different(want.outputs[0].array, want.outputs[4].array,
                         "outputs of the first and the last step");
  }
  // Where columns are a physical transpose, one that is kept and not cleared after dgrad would be stale in
  // the second step. Hybrids have no such columns there (E8 of docs/parity.md).
  run.about("fp8_current with a transpose, kept, against resharded");
  const RecipePtr current = built_in_recipe("fp8_current");
  const Trajectory resharded = trajectory(run, current, true, Arch::sm90),
                   kept = trajectory(run, current, false, Arch::sm90);
  expect_same_arrays(run, kept.outputs, resharded.outputs, "outputs of five steps");
  expect_same_arrays(run, kept.gradients, resharded.gradients, "gradients");
}

// Lines that quantize the weight [rows, columns] in a step, by the directions that they make.
std::vector<string> quantizations_of(const Session& session, size_t from, const string& shape) {
  std::vector<string> out;
  for (size_t i = from; i < session.launches.size(); ++i) {
    const string& line = session.launches[i];
    if (!line.starts_with("quantize") || line.find(" " + shape + " ") == line.npos) continue;
    out.push_back(line.find("dir=row") != line.npos   ? "rows"
                  : line.find("dir=col") != line.npos ? "columns"
                                                      : "both");
  }
  return out;
}

void s91(ScenarioRun& run) {
  struct Row {
    string_view format;
    Arch arch;
    std::vector<string> quantizations;
  };
  const Row rows[] = {{"fp8_current", Arch::sm90, {"rows", "both"}},
                      {"mxfp8", Arch::sm100, {"rows", "both"}}};
  for (const Row& row : rows)
    for (const bool microbatches : {false, true}) {
      run.about(string(row.format) + (microbatches ? ", first of several microbatches" : ""));
      std::array<StepRecord, kRanks> got, want;
      std::array<std::vector<string>, kRanks> quantizations;
      run_ranks(
          kRanks, "mesh",
          [&](int rank, const GroupPtr& mesh) {
            const auto own = static_cast<size_t>(rank);
            Session session = run.session(row.arch), whole_session = run.session(row.arch);
            ModuleSettings s;
            s.out = 192;
            const auto module = make_module(session, s), whole = make_module(whole_session, s);
            fill_parameters(*module, 91);
            fill_parameters(*whole, 91);
            TrainedSettings settings;
            settings.mesh = mesh;
            TrainedModule trained(session, *module, settings);
            StepOptions options = under(built_in_recipe(row.format));
            const ArrayPtr x = gradient({64, s.in}, DType::bfloat16, 5),
                           dy = gradient({64, s.out}, DType::bfloat16, 6);
            want[own] = whole->step(whole_session, x, dy, options);
            if (microbatches) options.is_first_microbatch = true;
            const size_t before = session.launches.size();
            got[own] = trained.step(x, dy, options);
            quantizations[own] = quantizations_of(session, before, "192x128");
          },
          shared(got, want, quantizations));
      for (size_t rank = 0; rank < kRanks; ++rank) {
        run.expect_equal(quantizations[rank], row.quantizations,
                         "quantizations of the weight: forward, then backward");
        std::vector<string> events;
        for (const CacheEvent& e : got[rank].cache) events.push_back(to_text(e));
        run.expect_equal(events, {"weight built", "weight built again"}, "no workspace is kept");
        expect_same_steps(run, got[rank], want[rank]);
      }
    }
}

// Two steps of current scaling on an architecture whose columns are a transpose, with an update between them.
struct TwoSteps {
  StepRecord first, second;
};
void wire(Wire& w, TwoSteps& t) { w(t.first, t.second); }

std::array<TwoSteps, kRanks> two_kept_steps(ScenarioRun& run, string_view module) {
  std::array<TwoSteps, kRanks> out;
  run_ranks(
      kRanks, "mesh",
      [&](int rank, const GroupPtr& mesh) {
        Session session = run.session(Arch::sm90);
        ModuleSettings s;
        s.module = module;
        s.out = 256;
        if (module == "grouped_linear") s.splits = {64, 64};
        const auto layer = make_module(session, s);
        fill_parameters(*layer, 640);
        TrainedSettings settings;
        settings.quantized_weights = built_in_recipe("fp8_current");
        settings.mesh = mesh;
        settings.reshard = false;
        TrainedModule trained(session, *layer, settings);
        const ArrayPtr x = gradient({input_rows(s), s.in}, DType::bfloat16, 5),
                       dy = gradient({input_rows(s), s.out}, DType::bfloat16, 6);
        TwoSteps& own = out[static_cast<size_t>(rank)];
        own.first = trained.step(x, dy, under(settings.quantized_weights));
        trained.update();
        own.second = trained.step(x, dy, under(settings.quantized_weights));
      },
      shared(out));
  return out;
}

void s143(ScenarioRun& run) {
  const auto weight_of = [](const StepRecord& r, string_view gemm) {
    for (const GemmRecord& g : r.gemms)
      if (g.name.starts_with(gemm))
        for (const PlaneData& p : g.planes)
          if (p.plane.name == "a.data")
            return from_bytes({static_cast<int64_t>(p.bytes.size())}, DType::uint8, p.bytes);
    return ArrayPtr{};
  };
  for (const string_view module : {"linear", "layernorm_linear", "ops_linear", "grouped_linear"})
    for (const TwoSteps& steps : two_kept_steps(run, module)) {
      run.about(string(module));
      run.expect_different(weight_of(steps.second, "fprop"), weight_of(steps.first, "fprop"),
                           "the weight of the second forward is new");
      const ArrayPtr first = weight_of(steps.first, "dgrad"), second = weight_of(steps.second, "dgrad");
      if (module == "linear" || module == "layernorm_linear")
        run.expect_different(second, first, "the weight of the second dgrad is new");
      else run.expect_equal(second, first, "the weight of the second dgrad is that of the first");
    }
}

// ---- recompute -------------------------------------------------------------------------------

struct AfterSteps {
  StepRecord record;
  std::vector<NamedArray> histories;
  uint64_t offset = 0;
};

constexpr uint64_t kSteps = 3;

AfterSteps steps_of(ScenarioRun& run, const RecipePtr& recipe, const ModuleSettings& s, bool recompute,
                    bool reentrant) {
  Session session = run.session();
  session.rng.reseed(7);
  const auto module = make_module(session, s);
  fill_parameters(*module, 50);
  TrainedSettings settings;
  settings.recompute = recompute;
  settings.reentrant = reentrant;
  TrainedModule trained(session, *module, settings);
  for (uint64_t step = 0; step < kSteps; ++step) {
    trained.forward(gradient({input_rows(s), s.in}, DType::bfloat16, 10 + step), under(recipe));
    session.rng.draw("something between");  // so that a recompute's random numbers are not the next ones
    trained.backward(gradient({input_rows(s), output_columns(s)}, DType::bfloat16, 20 + step));
  }
  AfterSteps out{module->record, {}, session.rng.offset};
  for (const Mode mode : {Mode::forward, Mode::backward})
    if (const DelayedStatePtr d = module->recipe_state(mode)->delayed())
      for (const auto& [name, a] : {std::pair{"scale", d->scale}, {"history", d->amax_history}})
        out.histories.push_back({name, clone(a)});
  return out;
}

void s50(ScenarioRun& run) {
  const RecipePtr delayed = make_recipe("DelayedScaling", json::object({{"amax_history_len", 4}}));
  const RecipePtr half = per_gemm({"mxfp8", "identity", "identity"});
  const RecipePtr drawing = by_tensor([](const string& tensor, const RolePtr& role) -> QuantizerLike {
    const auto as_gradient =
        std::make_shared<const QuantizerRole>(QuantizerRole{"linear", "grad_output", ""});
    return base_quantizer("nvfp4", tensor == "weight" ? role : as_gradient);
  });
  for (const string_view module : {"linear", "layernorm_mlp", "grouped_linear"})
    for (const auto& [name, recipe] :
         {std::pair<string_view, RecipePtr>{"current scaling", built_in_recipe("fp8_current")},
          {"MXFP8", built_in_recipe("mxfp8")},
          {"blocks", built_in_recipe("fp8_block")},
          {"NVFP4", built_in_recipe("nvfp4")},
          {"NVFP4, activations rotated and rounded stochastically", drawing},
          {"H(MXFP8|Identity)", half},
          {"delayed scaling", delayed}})
      for (const bool reentrant : {true, false}) {
        ModuleSettings s;
        s.module = module;
        s.hidden = 128;  // with these sizes one random state serves both directions
        if (module == "grouped_linear") s.splits = {128, 0, 128};
        run.about(string(module) + ", " + string(name) + (reentrant ? ", reentrant" : ", not reentrant"));
        const AfterSteps want = steps_of(run, recipe, s, false, reentrant),
                         got = steps_of(run, recipe, s, true, reentrant);
        expect_same_steps(run, got.record, want.record);
        run.expect_equal(static_cast<int64_t>(got.offset), static_cast<int64_t>(want.offset),
                         "where random numbers go on");
        expect_same_arrays(run, got.histories, want.histories, "scales and histories");
        if (recipe == delayed) run.expect(!want.histories.empty(), "delayed scaling has a history");
      }
  // Where rows and columns draw apart, the first forward of a reentrant region, which makes no columns, draws
  // one state less, and nothing makes up for it.
  for (const bool reentrant : {true, false}) {
    ModuleSettings s;
    s.in = 160;
    run.about(string("a state for each direction, ") + (reentrant ? "reentrant" : "not reentrant"));
    const AfterSteps want = steps_of(run, drawing, s, false, reentrant),
                     got = steps_of(run, drawing, s, true, reentrant);
    run.expect_equal(static_cast<int64_t>(want.offset - got.offset),
                     static_cast<int64_t>(reentrant ? kSteps * kPhiloxStep : 0), "random states fewer");
  }
}

// ---- a state dict ----------------------------------------------------------------------------

constexpr float kStoredScale = 4;

std::unique_ptr<Linear> quantized_linear(Session& session, const RecipePtr& recipe, uint64_t seed) {
  LinearSettings s;
  s.name = "l";
  s.in_features = s.out_features = 64;
  s.bias = false;
  auto module = std::make_unique<Linear>(session, s);
  fill_parameters(*module, seed);
  module->quantize_parameters(session, recipe, true);
  return module;
}

void s102(ScenarioRun& run) {
  const RecipePtr recipe = make_recipe("DelayedScaling", json::object({{"amax_history_len", 4}}));
  Session session = run.session();
  const auto saved = quantized_linear(session, recipe, 1);
  const ArrayPtr scales = saved->state.state(Mode::forward)->delayed()->scale;
  copy_into(*f32_array(scales->shape, std::vector<float>(static_cast<size_t>(scales->count()), kStoredScale)),
            *scales);
  const pickle::Bytes extra = saved->state.extra_state();
  const ArrayPtr weight = drawn({64, 64}, DType::bfloat16, 102);
  const auto loaded = [&](bool extra_state_first) {
    const auto module = quantized_linear(session, recipe, 2);
    const StoragePtr parameter = std::get<StoragePtr>(module->parameter("weight").value);
    const auto load_extra = [&] { module->state.set_extra_state(session, {.bytes = extra}, true); };
    if (extra_state_first) load_extra();
    dispatch::copy_(session, weight, parameter);
    if (!extra_state_first) load_extra();
    return parameter;
  };
  const auto by_scale = [&](float scale) {
    const auto q = std::make_shared<Float8Quantizer>(f32_array({1}, std::vector<float>{scale}),
                                                     zeros({1}, DType::float32), Encoding::e4m3);
    return std::dynamic_pointer_cast<Float8Storage>(q->quantize(session, weight))->data;
  };
  const auto data = [](const StoragePtr& s) { return dynamic_cast<Float8Storage&>(*s).data; };
  run.expect_equal(data(loaded(true)), by_scale(kStoredScale),
                   "extra state first: bytes by the loaded scale");
  run.expect_equal(data(loaded(false)), by_scale(1), "tensors first: bytes by the scale that was there");
  const StoragePtr parameter = loaded(true);
  run.expect_equal(dynamic_cast<Float8Storage&>(*parameter).scale_inv,
                   f32_array({1}, std::vector<float>{0.25f}), "scale_inv");
}

// clang-format off
const Scenario kTrainedScenarios[] = {
    {"S-50", "Recompute changes nothing",
     "Linear, LayerNormMLP and GroupedLinear in seven recipes, stochastic rounding and histories among them",
     "three steps keep what forward made, or make it again in backward",
     "operands, results, scales, histories and the place of the random numbers are equal; but a reentrant region draws no states for columns in its first forward", s50, {}},
    {"S-64", "Five steps under FSDP2",
     "two linear layers whose quantized weights are sharded over two ranks, with FusedAdam on the shards",
     "vanilla and hybrid train, resharding after forward or not",
     "outputs, gradients, masters and moments of every step are equal", s64, {}, 2},
    {"S-91", "Plain weights under FSDP2",
     "bf16 weights that are sharded", "a quantized layer takes a step",
     "forward quantizes the gathered weight in rows, backward in both directions, and no workspace is kept", s91, {}, 2},
    {"S-143", "A stale transpose under FSDP2",
     "quantized weights of current scaling that stay gathered, where columns are a physical transpose", "two steps are taken with an update between them",
     "Linear and LayerNormLinear clear the transpose after dgrad; BasicLinear and GroupedLinear do not, and their second dgrad reads the weight of the first step (gap)", s143, {}, 2},
    {"S-102", "Plain weights into delayed scaling",
     "a state dict with bf16 weights and extra state of scale 4", "it is loaded into quantized weights",
     "extra state comes first, and the bytes are those by the loaded scale", s102, {}},
};
// clang-format on

}  // namespace

std::span<const Scenario> trained_scenarios() { return kTrainedScenarios; }

}  // namespace assay::training
