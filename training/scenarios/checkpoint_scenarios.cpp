// Extra state of modules as bytes, and regions that are recomputed.
#include <span>
#include <string>

#include "training/base/f32.h"
#include "training/formats/formats.h"
#include "training/kit/extra_pieces.h"
#include "training/modules/linear.h"
#include "training/recipes/factories.h"
#include "training/scenarios/tables.h"
#include "training/state/checkpoint.h"
#include "training/state/extra_state.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr auto kTensor = ModuleState::ExtraState::Kind::tensor;

Linear linear(Session& session) {
  LinearSettings s;
  s.name = "linear";
  s.in_features = s.out_features = 128;
  return {session, s};
}
void start(Session& session, Linear& module, const RecipePtr& recipe) {
  module.state.init_fp8_metadata(session, {recipe, true, false, false, nullptr});
}
void fill(const ArrayPtr& a, float v) {
  copy_into(*f32_array(a->shape, std::vector<float>(static_cast<size_t>(a->count()), v)), *a);
}

RecipePtr delayed(int64_t length) {
  return make_recipe("DelayedScaling", json::object({{"amax_history_len", length}, {"margin", 2}}));
}

void s100(ScenarioRun& run) {
  Session session = run.session();
  for (const char* name :
       {"Float8CurrentScaling", "MXFP8BlockScaling", "Float8BlockScaling", "NVFP4BlockScaling"}) {
    Linear module = linear(session);
    start(session, module, make_recipe(name));
    run.expect(module.state.extra_state().empty(), name);
  }
  run.expect(linear(session).state.extra_state().empty(), "a module that never ran");

  run.about("delayed scaling");
  Linear module = linear(session);
  start(session, module, delayed(4));
  for (const Mode mode : {Mode::forward, Mode::backward}) {
    fill(module.state.state(mode)->delayed()->scale, mode == Mode::forward ? 3 : 5);
    fill(module.state.state(mode)->delayed()->amax_history, 7);
  }
  const pickle::Bytes bytes = module.state.extra_state();
  Linear other = linear(session);
  start(session, other, make_recipe("MXFP8BlockScaling"));
  const RecipeStatePtr before = other.state.state(Mode::forward);
  run.expect_error(ErrorClass::runtime_error, "not trusted",
                   [&] {
                     other.state.set_extra_state(session, {kTensor, bytes}, false);
                   },
                   {"refusing"});
  run.expect(other.state.state(Mode::forward) == before, "a refusal changes nothing");
  for (const size_t cut : {size_t{1}, bytes.size() / 2, bytes.size() - 1}) {
    const pickle::Bytes bad(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(cut));
    run.expect_error(ErrorClass::runtime_error, "bytes that end early", [&] {
      other.state.set_extra_state(session, {kTensor, bad}, true);
    });
    run.expect(other.state.state(Mode::forward) == before, "bad bytes lose nothing");
  }
  other.state.set_extra_state(session, {kTensor, bytes}, true);
  for (const Mode mode : {Mode::forward, Mode::backward}) {
    const DelayedStatePtr from = module.state.state(mode)->delayed(), to = other.state.state(mode)->delayed();
    run.expect_equal(to->scale, from->scale, "scales");
    run.expect_equal(to->amax_history, from->amax_history, "histories");
    run.expect(to->scale != from->scale, "in memory of their own");
  }
  run.expect(other.state.recipe && *other.state.recipe == *module.state.recipe, "the stored recipe");
  other.state.set_extra_state(session, {kTensor, {}}, false);
  other.state.set_extra_state(session, {ModuleState::ExtraState::Kind::nothing, {}}, false);
  run.expect_equal(other.state.state(Mode::forward)->delayed()->scale,
                   module.state.state(Mode::forward)->delayed()->scale, "nothing is ignored");

  run.about("custom recipes");
  Linear unnamed = linear(session);
  const auto custom = std::make_shared<CustomRecipe>();
  custom->qfactory = std::make_shared<QFactory>(
      QFactory{"<lambda>", [](const RolePtr&) {
                 return QuantizerLike(QuantizerPtr(std::make_shared<Float8CurrentScalingQuantizer>()));
               }});
  start(session, unnamed, custom);
  run.expect_error(ErrorClass::pickling_error, "a factory without a name",
                   [&] { unnamed.state.extra_state(); });
}

pickle::Bytes text_of(string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void s101(ScenarioRun& run) {
  using extra_pieces::dict, extra_pieces::recipe, extra_pieces::tensor;
  using pickle::Object;
  using pickle::Value;
  pickle::Bytes cut = dict({{"recipe", recipe("DelayedScaling")}});
  cut.pop_back();
  struct Case {
    const char* what;
    pickle::Bytes bytes;
    bool unsafe;
  };
  const Case cases[] = {
      {"nothing", {}, false},
      {"plain numbers", dict({{"n", {int64_t{1}}}}), false},
      {"current scaling", dict({{"recipe", recipe("Float8CurrentScaling")}}), false},
      {"MXFP8", dict({{"recipe", recipe("MXFP8BlockScaling")}}), false},
      {"blockwise", dict({{"recipe", recipe("Float8BlockScaling")}}), false},
      {"NVFP4", dict({{"recipe", recipe("NVFP4BlockScaling")}}), false},
      {"a custom recipe", dict({{"recipe", recipe("CustomRecipe")}}), false},
      {"a custom recipe with scales", dict({{"recipe", recipe("CustomRecipe")}, {"scale_fwd", tensor()}}),
       true},
      {"delayed scaling", dict({{"recipe", recipe("DelayedScaling")}}), true},
      {"an unknown recipe", dict({{"recipe", recipe("Unheard")}}), true},
      {"scales alone", dict({{"amax_history_bwd", tensor()}}), true},
      {"a global alone", dict({{"x", Value{Object{"os", "system", {}}}}}), true},
      {"cut off", cut, true},
      {"noise", pickle::Bytes{std::byte{0xFF}, std::byte{0x00}}, true},
      {"a recipe of a module that is called nearly so",
       dict({{"recipe", Value{Object{"transformer_engine.common.recipe.mine", "MXFP8BlockScaling", {}}}}}),
       true},
      {"a global without a name", text_of("\x80\x04}\x8c\x06recipe\x93."), true},
      {"an instance, which counts as no global", text_of("(ios\nsystem\n."), false},
      {"scales in quotes", text_of("S'scale_fwd'\n."), true},
      {"a quote that does not end", text_of("S'scale_fwd\n."), true},
  };
  for (const Case& c : cases) {
    run.about(c.what);
    run.expect(loads_extra_state(c.bytes, true) == c.unsafe, "what a trusted file does");
    if (c.unsafe)
      run.expect_error(ErrorClass::runtime_error, "another one is refused",
                       [&] { loads_extra_state(c.bytes, false); }, {"refusing"});
    else run.expect(!loads_extra_state(c.bytes, false), "another one is ignored");
  }
}

// A region that is not reentrant keeps numbers; whatever is taken first runs it again, as a whole.
void take_saved(ScenarioRun& run) {
  run.about("what a region saved");
  Session session = run.session();
  RecomputePhase phase;
  int runs = 0;
  const ArrayPtr first = zeros({1}, DType::float32), second = zeros({2}, DType::float32);
  Checkpoint checkpoint(session, phase,
                        [&](const RegionView&) {
                          ++runs;
                          return RegionResult{first, nullptr, {first, second}};
                        },
                        false, {});
  checkpoint.forward();
  run.expect(checkpoint.take(1) == second && runs == 2, "the first that is taken runs all again");
  run.expect(checkpoint.take(0) == first && runs == 2, "the next one is there by then");
  run.expect(checkpoint.take(1) == nullptr && runs == 2, "a second time there is none, as in the original");
  run.expect_error(ErrorClass::index_error, "a third tensor", [&] { checkpoint.take(2); });
  run.about("an output that requires no gradient");
  Checkpoint constant(session, phase,
                      [&](const RegionView&) {
                        return RegionResult{first, nullptr, {}};
                      },
                      true, {});
  constant.forward();
  run.expect_error(ErrorClass::runtime_error, "refused",
                   [&] { constant.backward(zeros({1}, DType::float32)); }, {"requires"});

  run.about("saved activations over ranks");
  const auto region = [&](const RegionView&) { return RegionResult{first, nullptr, {}}; };
  Checkpoint alone(session, phase, region, true, {}), many(session, phase, region, true, {}),
      other(session, phase, region, false, {});
  alone.distribute_saved(false);
  run.expect_error(ErrorClass::runtime_error, "without ranks", [&] { alone.forward(); }, {"ranks"});
  many.distribute_saved(true);
  run.expect(many.forward() == first && session.warnings.empty(), "with ranks");
  other.distribute_saved(false);
  run.expect(other.forward() == first && session.warnings.size() == 1, "a warning where it has no effect");
}

void s113(ScenarioRun& run) {
  take_saved(run);
  for (const bool reentrant : {true, false}) {
    run.about(reentrant ? "reentrant" : "not reentrant");
    Session session = run.session();
    RecomputePhase phase;
    RegionView around;
    around.quantization_on = true;
    around.amax_reduction_group = std::make_shared<ProcessGroup>();
    std::vector<RegionView> seen;
    std::vector<uint64_t> draws;
    Checkpoint checkpoint(
        session, phase,
        [&](const RegionView& v) {
          seen.push_back(v);
          seen.back().recompute_phase = phase.in_recompute();
          draws.push_back(session.rng.draw("region").offset);
          return RegionResult{zeros({1}, DType::float32), [](const ArrayPtr& g) { return g; }};
        },
        reentrant, around);
    checkpoint.forward();
    session.rng.draw("between");
    const uint64_t before = session.rng.offset;
    checkpoint.backward(zeros({1}, DType::float32));
    run.expect_equal(static_cast<int64_t>(seen.size()), 2, "runs of the region");
    run.expect(seen[0].grad_enabled == !reentrant && seen[1].grad_enabled, "gradients");
    run.expect(!seen[0].recompute_phase && seen[1].recompute_phase, "phases");
    run.expect(seen[0].quantization_on && seen[1].quantization_on, "the autocast of the call");
    run.expect(seen[0].amax_reduction_group != nullptr, "the group of the first forward");
    run.expect(seen[1].amax_reduction_group == nullptr, "no group in the recompute, as in the original");
    run.expect(draws[0] == draws[1], "the same random numbers");
    run.expect(session.rng.offset == before, "which go on as if nothing had run");
    run.expect(!phase.in_region() && !phase.in_recompute(), "nothing is left of the region");
    if (reentrant)
      run.expect_error(ErrorClass::runtime_error, "single gradients",
                       [&] { checkpoint.backward(zeros({1}, DType::float32), false); }, {"backward"});
  }
}

// clang-format off
const Scenario kCheckpointScenarios[] = {
    {"S-100", "Extra state as bytes",
     "modules of every recipe", "their extra state is written and read, whole and cut off",
     "recipes without state write nothing; scales and histories come back bit for bit; bad bytes lose nothing", s100, {}},
    {"S-101", "Bytes that may be unsafe",
     "fourteen byte strings", "a loader looks at their opcodes",
     "plain values and recipes without scales are ignored; everything else is refused unless it is trusted", s101, {}},
    {"S-113", "Recompute under a group",
     "a region within an autocast with a group of amax reductions", "it is run, and run again in backward",
     "the second run has the same random numbers and no group, as in the original", s113, {}},
};
// clang-format on

}  // namespace

std::span<const Scenario> checkpoint_scenarios() { return kCheckpointScenarios; }

}  // namespace assay::training
