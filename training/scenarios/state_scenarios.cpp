// What a recipe state is made of once it exists: the length of a history, the power-of-two switch of scales,
// the usages of an operation's quantizers.
#include <cstring>

#include "training/base/data.h"
#include "training/formats/float8.h"
#include "training/modules/linear.h"
#include "training/modules/ops_grouped_linear.h"
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

// What a step's GEMM read of its input in one direction.
ArrayPtr operand(const StepRecord& record, string_view gemm, string_view plane) {
  for (const GemmRecord& g : record.gemms)
    if (g.name == gemm)
      if (const PlaneData* p = find_plane(g.planes, plane))
        return from_bytes({static_cast<int64_t>(p->bytes.size())}, DType::uint8, p->bytes);
  return nullptr;
}
// ---- S-79 ---------------------------------------------------------------------------------------

// An amax of 2^k is written as k; kEmpty is a zero in the history.
constexpr int kEmpty = -100;
using Exponents = std::vector<int>;

// bfloat16 data of random signs, zeros and fractions, whose largest magnitude is 2^k: that of the last
// element.
ArrayPtr with_amax(Dims shape, int k, uint64_t seed) {
  const ArrayPtr x = gradient(std::move(shape), DType::bfloat16, seed);
  const std::span<std::byte> bytes = x->bytes();
  for (size_t i = 0; i < bytes.size(); i += 2) {
    uint16_t bits;
    std::memcpy(&bits, &bytes[i], 2);
    const int exponent = (bits >> 7 & 0xFF) - 127;
    if (exponent >= k) bits = static_cast<uint16_t>((bits & 0x807F) | (126 + k) << 7);
    if (i + 2 == bytes.size()) bits = static_cast<uint16_t>((127 + k) << 7);
    std::memcpy(&bytes[i], &bits, 2);
  }
  return x;
}
uint32_t word(const Array& a, int64_t i) {
  uint32_t bits;
  std::memcpy(&bits, a.bytes().data() + i * 4, 4);
  return bits;
}
// One slot's history, newest place first.
Exponents history_of(const DelayedScalingRecipeState& s, int64_t slot) {
  Exponents out;
  for (int64_t row = 0; row < s.amax_history->shape[0]; ++row) {
    const uint32_t bits = word(*s.amax_history, row * s.amax_history->shape[1] + slot);
    out.push_back(bits == 0 ? kEmpty : static_cast<int>(bits >> 23) - 127);
  }
  return out;
}
string text(const Exponents& e) {
  string out;
  for (const int k : e) out += (out.empty() ? "" : " ") + (k == kEmpty ? string("-") : std::to_string(k));
  return out;
}
// The format's largest value, 1.75 * 2^top, over an amax of 2^k, and its reciprocal 4/7 * 2^(k - top) to
// nearest.
F32Bits scale_of(int top, int k) { return static_cast<F32Bits>(127 + top - k) << 23 | 0x600000; }
F32Bits scale_inv_of(int top, int k) { return 0x3F124925u - (static_cast<F32Bits>(top - k) << 23); }

// Four steps with amaxes 64, 16, 4, 1 under a history of 4 leave row 0 empty and 16, 4, 1 behind it: the
// place next to the front is the oldest.
constexpr int kBefore[] = {6, 4, 2, 0};
// Then the length changes, and two steps with amaxes 2 and 1/2 follow.
struct LengthRow {
  int64_t length;
  Exponents kept, after_first, after_second;
  int first, second;  // amaxes that the scales after these steps are made of
};
const LengthRow kLengths[] = {
    {4, {kEmpty, 4, 2, 0}, {kEmpty, 2, 0, 1}, {kEmpty, 0, 1, -1}, 4, 2},  // the same length: nothing changes
    {2, {kEmpty, 4}, {kEmpty, 1}, {kEmpty, -1}, 4, 1},  // the newest two are lost, the oldest stays
    {1, {kEmpty}, {kEmpty}, {kEmpty}, 1, -1},           // every amax is lost
    {6,
     {kEmpty, 4, 2, 0, kEmpty, kEmpty},
     {kEmpty, 2, 0, kEmpty, kEmpty, 1},
     {kEmpty, 0, kEmpty, kEmpty, 1, -1},
     4,
     2},  // zeros behind the newest
};

void history_length(ScenarioRun& run) {
  constexpr int64_t kRows = 32, kIn = 64, kOut = 32;
  const auto built_in = [](int64_t length) {
    return make_recipe("DelayedScaling", json::object({{"amax_history_len", length}}));
  };
  const auto requested = [](int64_t length) -> RecipePtr {
    return recipe_around("requests", [length](const RolePtr&) -> QuantizerLike {
      DelayedScalingRequest r;
      r.amax_history_len = static_cast<int>(length);
      return r;
    });
  };
  LinearSettings s;
  s.name = "x";
  s.in_features = kIn;
  s.out_features = kOut;
  for (const LengthRow& row : kLengths) {
    Session session = run.session();
    Linear linear(session, s);
    fill_parameters(linear, 1);
    const auto step = [&](int k, const RecipePtr& recipe) {
      return linear.step(session, with_amax({kRows, kIn}, k, 3), with_amax({kRows, kOut}, k, 4),
                         under(recipe));
    };
    for (const int k : kBefore) step(k, built_in(4));
    const RecipePtr recipe = built_in(row.length);
    linear.state.init_fp8_metadata(session, {recipe});

    const string what = "length 4 to " + std::to_string(row.length);
    struct Side {
      Mode mode;
      string_view name;
      int top;  // exponent of the format's largest value
    };
    constexpr Side kSides[] = {{Mode::forward, "input", 8}, {Mode::backward, "grad_output", 15}};
    const auto expect_state = [&](const Exponents& history, int k, string_view when) {
      for (const Side& side : kSides) {
        run.about(what + ", " + string(when) + ": " + string(side.name));
        const DelayedStatePtr state = linear.recipe_state(side.mode)->delayed();
        run.expect_equal(text(history_of(*state, 0)), text(history), "history");
        run.expect_equal(static_cast<int64_t>(word(*state->scale, 0)),
                         static_cast<int64_t>(scale_of(side.top, k)), "scale");
      }
    };
    // What the step cast with, read off the operands of its GEMMs.
    const auto expect_used = [&](const StepRecord& record, int k) {
      run.about(what);
      for (const auto& [gemm, top] : {std::pair("fprop", 8), std::pair("dgrad", 15)}) {
        const ArrayPtr scale_inv = operand(record, gemm, "b.scale_inv");
        run.expect_equal(scale_inv ? static_cast<int64_t>(word(*scale_inv, 0)) : -1,
                         static_cast<int64_t>(scale_inv_of(top, k)),
                         string(gemm) + ": the scale that was cast with");
      }
    };
    expect_state(row.kept, 6, "at the change");
    expect_used(step(1, recipe), 6);
    expect_state(row.after_first, row.first, "after the first step");
    expect_used(step(-1, recipe), row.first);
    expect_state(row.after_second, row.second, "after the second step");

    // Requests in a custom recipe: a state of another length is not taken over.
    run.about(what + ", requested");
    Linear custom(session, s);
    fill_parameters(custom, 1);
    for (const int k : kBefore)
      custom.step(session, with_amax({kRows, kIn}, k, 3), with_amax({kRows, kOut}, k, 4),
                  under(requested(4)));
    custom.state.init_fp8_metadata(session, {requested(row.length)});
    const DelayedStatePtr state = custom.recipe_state(Mode::forward)->delayed();
    if (!run.expect(state != nullptr, "the state holds delayed scaling")) continue;
    const bool kept = row.length == 4;
    run.expect_equal(text(history_of(*state, 0)),
                     text(kept ? row.kept : Exponents(static_cast<size_t>(row.length), kEmpty)), "history");
    run.expect_equal(static_cast<int64_t>(word(*state->scale, 0)),
                     static_cast<int64_t>(kept ? scale_of(8, 6) : 0x3F800000), "scale");
  }
}

// ---- S-80 ---------------------------------------------------------------------------------------

void power_of_two_scales(ScenarioRun& run) {
  const RecipePtr plain = make_recipe("Float8CurrentScaling"),
                  powers = make_recipe("Float8CurrentScaling", json::object({{"use_power_2_scales", true}}));
  for (const char* kind : {"linear", "ops_linear"}) {
    ModuleSettings settings;
    settings.module = kind;
    const bool module = settings.module == "linear";
    const StepRecord of_plain = step_of(run, settings, under(plain)),
                     of_powers = step_of(run, settings, under(powers));
    run.about(kind);
    run.expect_different(operand(of_powers, "fprop", "b.data"), operand(of_plain, "fprop", "b.data"),
                         "inputs that fprop reads with and without powers of two");

    Bench bench(run, settings);
    const auto step = [&](const string& what, const RecipePtr& recipe, const StepRecord& want, bool setting) {
      run.about(string(kind) + ": " + what);
      const StepRecord got = bench.step(under(recipe));
      for (const json::Value& q : got.forward_quantizers)
        run.expect_equal(*q.find("force_pow_2_scales"), json::Value(setting), "setting of a quantizer");
      expect_same_steps(run, got, want);
    };
    step("as it was made", plain, of_plain, false);
    step("another recipe of the class, powers of two on: a known gap of the original", powers, of_plain,
         false);
    const auto same =
        std::make_shared<Float8CurrentScaling>(static_cast<const Float8CurrentScaling&>(*plain));
    step("a copy of the first recipe", same, of_plain, false);
    same->use_power_2_scales = true;
    step("the same object, powers of two turned on", same, of_plain, false);
    if (module) {
      bench.step(under(nullptr));
      step("after a step without quantization", powers, of_plain, false);
      auto& linear = static_cast<Linear&>(*bench.module);
      linear.state.set_output_quantizer_role(
          std::make_shared<const QuantizerRole>(QuantizerRole{"linear", "input", "next"}));
      bench.step(under(nullptr));
      step("a rebuild by a new role", powers, of_powers, true);
      step("off again: the gap works both ways", plain, of_powers, true);
    }
    bench.step(under(make_recipe("MXFP8BlockScaling")));
    step("a rebuild by another class in between", plain, of_plain, false);
    bench.step(under(make_recipe("MXFP8BlockScaling")));
    step("and one to powers of two", powers, of_powers, true);

    // A custom recipe's factory is another object, so its switch is seen at once by a module.
    if (!module) continue;
    const auto factory = [](bool on) {
      return recipe_around("powers", [on](const RolePtr& r) -> QuantizerLike {
        auto q = std::make_shared<Float8CurrentScalingQuantizer>(
            r && r->tensor_type == "grad_output" ? Encoding::e5m2 : Encoding::e4m3);
        q->force_pow_2_scales = on;
        return std::static_pointer_cast<Quantizer>(q);
      });
    };
    step("a custom recipe without", factory(false), of_plain, false);
    step("another one with", factory(true), of_powers, true);
  }
}

// ---- S-81 ---------------------------------------------------------------------------------------

ArrayPtr flat(const ArrayPtr& a) { return a ? view(contiguous(a), {a->count()}) : nullptr; }

void configured_before_forward(ScenarioRun& run) {
  const std::pair<const char*, Arch> formats[] = {{"Float8CurrentScaling", Arch::sm90},
                                                  {"MXFP8BlockScaling", Arch::sm100},
                                                  {"Float8BlockScaling", Arch::sm90},
                                                  {"NVFP4BlockScaling", Arch::sm100}};
  struct Phase {
    string_view name;
    bool grad, weight_grad;
    string_view usages;  // of the input's and the gradient's quantizers
  };
  constexpr Phase kPhases[] = {{"train", true, true, "TT"},
                               {"evaluate", false, true, "TF"},
                               {"train again", true, true, "TT"},
                               {"train with a frozen weight", true, false, "TF"},
                               {"train once more", true, true, "TT"}};
  for (const auto& [class_name, arch] : formats)
    for (const char* kind : {"ops_linear", "ops_grouped_linear"}) {
      ModuleSettings settings;
      settings.module = kind;
      settings.rows = 128;
      settings.splits = {128};
      Bench bench(run, settings, arch);
      const bool grouped = string_view(kind) == "ops_grouped_linear";
      const RecipePtr recipe = make_recipe(class_name);
      const auto prepare = [&](const StepOptions& options) {
        if (grouped) static_cast<OpsGroupedLinear&>(*bench.module).prepare(bench.session, options);
        else static_cast<OpsLinear&>(*bench.module).prepare(bench.session, options);
      };
      const OperationState& state = grouped ? static_cast<OpsGroupedLinear&>(*bench.module).state
                                            : static_cast<OpsLinear&>(*bench.module).state;
      for (const Phase& phase : kPhases) {
        run.about(string(class_name) + ", " + kind + ", " + string(phase.name));
        bench.module->parameters[0].requires_grad = phase.weight_grad;
        StepOptions options = under(recipe);
        options.grad_enabled = phase.grad;
        prepare(options);
        const QuantizerPtr input = state.get_quantizer(Mode::forward, 0),
                           grad_output = state.get_quantizer(Mode::backward, 0);
        run.expect_equal(text(input->usages()), phase.usages,
                         "usages of the input's quantizer before forward");
        run.expect_equal(text(grad_output->usages()), phase.usages,
                         "usages of the gradient's quantizer before forward");
        // The operation before this one quantizes its output with it.
        const StoragePtr made = input->quantize(bench.session, bench.x);
        run.expect_equal(text(made->present()), phase.usages, "directions that the operation before makes");
        const std::vector<ArrayPtr> data = made->get_data_tensors();
        const StepRecord record = bench.step(options);
        const string suffix = grouped ? ".0" : "";
        run.expect_equal(flat(data[0]), operand(record, "fprop" + suffix, "b.data"), "rows that fprop reads");
        if (phase.grad && phase.weight_grad)
          run.expect_equal(flat(data[1]), operand(record, "wgrad" + suffix, "a.data"),
                           "columns that wgrad reads");
      }
    }
}

constexpr Scenario kStateScenarios[] = {
    {"S-79", "A history that is cut or lengthened",
     "delayed scaling with amaxes 64, 16, 4, 1 behind it in a history of 4",
     "the recipe's length becomes 4, 2, 1, 6, and two steps follow",
     "rows at the front stay by place, so cutting loses the newest; scales are those of what stayed; a "
     "requested state starts anew",
     history_length, ""},
    {"S-80", "Powers of two are not turned on within a class", "current scaling, as module and as operation",
     "use_power_2_scales changes in another recipe of the class and in the same object",
     "settings and bytes stay until another class or a new role rebuilds the state: a known gap; a custom "
     "recipe changes at once",
     power_of_two_scales, ""},
    {"S-81", "An operation's quantizers are ready before its forward",
     "operations that train, evaluate, train, freeze their weight, train",
     "the operation before quantizes with this one's input quantizer",
     "usages are already this step's, and the bytes are those that fprop and wgrad read",
     configured_before_forward, ""},
};

}  // namespace

std::span<const Scenario> state_scenarios() { return kStateScenarios; }

}  // namespace assay::training
