// Scenarios of a linear layer's three GEMMs: each has the format it was given, whatever the others have; what
// is refused; how the bias gradient is summed.
#include "training/base/data.h"
#include "training/formats/formats.h"
#include "training/formats/observer.h"
#include "training/modules/attention.h"
#include "training/modules/ops_linear.h"
#include "training/recipes/format_table.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using enum ErrorClass;

QuantizerPtr hybrid_of(string_view row, string_view col, const RolePtr& role) {
  return std::make_shared<HybridQuantizer>(base_quantizer(row, role), base_quantizer(col, role));
}

// Both sides of the row count that NVFP4's fused kernel needs (64), and partial blocks of 128.
constexpr int64_t kRows[] = {64, 96};

void about(ScenarioRun& run, const string& formats, int64_t rows) {
  run.about(formats + ", " + std::to_string(rows) + "x128x96");
}

// S-30
void cross_formats(ScenarioRun& run) {
  for (const int64_t rows : kRows) {
    const ModuleSettings s{.rows = rows};
    std::vector<StepRecord> plain;
    for (const string_view f : kFormats) plain.push_back(step_of(run, s, under(built_in_recipe(f))));
    for (size_t a = 0; a < std::size(kFormats); ++a)
      for (size_t b = 0; b < std::size(kFormats); ++b) {
        if (a == b && (kFormats[a] == "fp8_current" || kFormats[a] == "nvfp4")) continue;
        about(run, "H(" + string(kFormats[a]) + "|" + string(kFormats[b]) + ")", rows);
        const StepRecord r = step_of(run, s, under(per_gemm({kFormats[a], kFormats[b], kFormats[b]})));
        expect_same_gemms(run, r, plain[a], "fprop");
        expect_same_output(run, r, plain[a], "output");
        for (const string_view gemm : {"dgrad", "wgrad"}) expect_same_gemms(run, r, plain[b], gemm);
        for (const string_view out : {"dgrad", "weight.grad", "bias.grad"})
          expect_same_output(run, r, plain[b], out);
      }
  }
}

// S-31
void three_formats(ScenarioRun& run) {
  const ModuleSettings s{.rows = 96};
  std::vector<StepRecord> plain;
  for (const string_view f : kFormats) plain.push_back(step_of(run, s, under(built_in_recipe(f))));
  const auto judge = [&](const StepRecord& r, size_t f, size_t d, size_t w) {
    expect_same_gemms(run, r, plain[f], "fprop");
    expect_same_gemms(run, r, plain[d], "dgrad");
    expect_same_gemms(run, r, plain[w], "wgrad");
    expect_same_output(run, r, plain[f], "output");
    expect_same_output(run, r, plain[d], "dgrad");
    expect_same_output(run, r, plain[d], "bias.grad");
    expect_same_output(run, r, plain[w], "weight.grad");
  };
  const size_t n = std::size(kFormats);
  for (size_t f = 0; f < n; ++f)
    for (size_t d = 0; d < n; ++d)
      for (size_t w = 0; w < n; ++w) {
        if (f == d || f == w) continue;
        about(run, string(kFormats[f]) + "|" + string(kFormats[d]) + "|" + string(kFormats[w]), s.rows);
        // Where one format serves both gradients, a plain gradient quantizer does what the hybrid does.
        const GemmFormats formats{kFormats[f], kFormats[d], kFormats[w]};
        judge(step_of(run, s, under(per_gemm(formats))), f, d, w);
        if (d == w && kFormats[d] != "nvfp4")
          judge(step_of(run, s, under(per_gemm(formats, "input,weight,grad_output"))), f, d, w);
      }
}

// S-32, for an operation: what its neighbours in a chain quantize with makes its results, and only delayed
// scaling does.
void neighbours(ScenarioRun& run) {
  const auto between = [&](const QuantizerPtr& next, const QuantizerPtr& previous, const StepOptions& o,
                           bool bias = false) {
    Bench bench(run, {.module = "ops_linear", .bias = bias});
    auto& op = static_cast<OpsLinear&>(*bench.module);
    op.next_input_quantizer = next;
    op.previous_grad_output_quantizer = previous;
    return bench.step(o);
  };
  const RecipePtr recipe = built_in_recipe("fp8_current");
  Session session = run.session();
  std::vector<QuantizerPtr> others;
  for (const string_view name : {"CS", "MX", "BLK1", "FP4p", "ID", "H(MX|MX)"})
    others.push_back(quantizer_named(name));
  for (const QuantizerPtr& q : others)
    for (const bool output : {true, false})
      run.expect_error(
          runtime_error,
          string(q->class_name()) + (output ? " of the next operation" : " of the previous operation"),
          [&] { between(output ? q : nullptr, output ? nullptr : q, under(recipe)); },
          {"Float8Quantizer", output ? "next" : "previous", string(q->class_name())});
  // Delayed scaling reads the sums as the GEMM has them, in binary32.
  StepOptions wide = under(recipe);
  wide.autocast_dtype = DType::float32;
  const StepRecord plain = between(nullptr, nullptr, wide);
  for (const bool output : {true, false}) {
    const string_view name = output ? "output" : "dgrad";
    const auto q = std::dynamic_pointer_cast<Float8Quantizer>(quantizer_named("DS")),
               own = std::dynamic_pointer_cast<Float8Quantizer>(quantizer_named("DS"));
    const auto watched = std::make_shared<ObserverQuantizer>(
        q, [](const Observation&) {});  // an observer is the quantizer within
    const StepRecord got = between(output ? watched : nullptr, output ? nullptr : watched, under(recipe));
    const ArrayPtr want =
        own->quantize(session, output_of(plain, name))->dequantize(session, DType::bfloat16);
    run.expect_equal(output_of(got, name), want, "delayed scaling of a neighbour makes the " + string(name));
    run.expect_equal(q->amax, own->amax, "the neighbour's amax is that of the " + string(name));
    expect_same_outputs(run, got, between(nullptr, nullptr, under(recipe)), {name});
  }
  // A bias between the GEMM and the next operation is added before the result is rounded.
  const ArrayPtr with_bias = output_of(step_of(run, {.module = "linear"}, wide), "output");
  run.expect_equal(output_of(between(quantizer_named("DS"), nullptr, under(recipe), true), "output"),
                   quantizer_named("DS")->quantize(session, with_bias)->dequantize(session, DType::bfloat16),
                   "with a bias, what the GEMM and its bias give");
  // Neighbours have no say without quantization, nor in a backward pass that is kept plain.
  expect_same_outputs(run, between(others[0], others[0], under(nullptr)),
                      between(nullptr, nullptr, under(nullptr)));
  const auto kept = [] {
    const RecipePtr r = built_in_recipe("fp8_current");
    r->backward_override = "high_precision";
    return under(r);
  };
  expect_same_outputs(run, between(nullptr, others[0], kept()), between(nullptr, nullptr, kept()));
}

// S-32
void refusals(ScenarioRun& run) {
  struct Operand {
    string_view tensor;
    bool columns;
  };
  struct Pair {
    string_view gemm;
    Operand a, b;
  };
  constexpr Pair kGemms[] = {{"fprop", {"weight", false}, {"input", false}},
                             {"dgrad", {"weight", true}, {"grad_output", false}},
                             {"wgrad", {"input", true}, {"grad_output", true}}};
  std::vector<string_view> formats(std::begin(kFormats), std::end(kFormats));
  formats.push_back("identity");
  for (const Pair& gemm : kGemms)
    for (const Operand& odd : {gemm.a, gemm.b})
      for (const string_view f : formats)
        for (const string_view other : formats) {
          if (f == other) continue;
          const RecipePtr recipe = by_tensor([&](const string& tensor, const RolePtr& role) -> QuantizerLike {
            if (tensor != odd.tensor) return base_quantizer(f, role);
            return odd.columns ? hybrid_of(f, other, role) : hybrid_of(other, f, role);
          });
          run.about(string(odd.tensor) + " in " + string(other) + ", all else in " + string(f));
          run.expect_error(runtime_error, gemm.gemm, [&] { step_of(run, {.rows = 32}, under(recipe)); },
                           {"scaling_mode", "GEMM " + string(gemm.gemm)});
        }
  run.about("");
  const auto all = [](const QuantizerPtr& q) {
    return by_tensor([q](const string&, const RolePtr&) -> QuantizerLike { return q->copy(); });
  };
  run.expect_error(
      runtime_error, "E5M2 by E5M2",
      [&] { step_of(run, {}, under(all(std::make_shared<Float8CurrentScalingQuantizer>(Encoding::e5m2)))); },
      {"E5M2"});
  run.expect_error(
      runtime_error, "two operands of 128x128 blocks",
      [&] { step_of(run, {}, under(all(std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2)))); },
      {"128x128"});
  run.about("");
  for (const bool output : {true, false}) {
    const string which = output ? "output" : "grad input";
    const auto quantized = [&](const std::function<QuantizerPtr(const RolePtr&)>& boundary) {
      StepOptions o = under(by_tensor([boundary](const string& tensor, const RolePtr& role) {
        return tensor.empty() ? boundary(role) : base_quantizer("mxfp8", role);
      }));
      (output ? o.fp8_output : o.fp8_grad) = true;
      return step_of(run, {}, o);
    };
    run.expect_error(not_implemented_error, "a hybrid at the active " + which,
                     [&] { quantized([](const RolePtr& r) { return hybrid_of("mxfp8", "mxfp8", r); }); },
                     {"HybridQuantizer"});
    run.expect_error(not_implemented_error, "Identity at the active " + which,
                     [&] { quantized([](const RolePtr& r) { return base_quantizer("identity", r); }); },
                     {"IdentityQuantizer"});
    // A native one is what the boundary needs: its tensor is the one that quantizing the plain result gives.
    const StepRecord got = quantized([](const RolePtr&r) { return base_quantizer("mxfp8", r); }),
                     plain = step_of(run, {}, under(built_in_recipe("mxfp8")));
    const string_view name = output ? "output" : "dgrad";
    Session session = run.session();
    const ArrayPtr want =
        base_quantizer("mxfp8", nullptr)->quantize(session, output_of(plain, name))->dequantize(session);
    run.expect_equal(output_of(got, name), want, "a native quantizer at the active " + which);
    // Inert, a hybrid there is legal.
    const RecipePtr inert = by_tensor([](const string& tensor, const RolePtr& role) {
      return tensor.empty() ? hybrid_of("mxfp8", "nvfp4", role) : base_quantizer("mxfp8", role);
    });
    expect_same_steps(run, step_of(run, {}, under(inert)), plain);
  }
  neighbours(run);
  const auto attention = [&](const std::function<QuantizerPtr(const RolePtr&)>& make) {
    Session session = run.session();
    const auto recipe =
        recipe_around("attention", [make](const RolePtr& role) -> QuantizerLike { return make(role); });
    recipe->fp8_dpa = true;
    DotProductAttention dpa(session, "a");
    dpa.state.init_fp8_metadata(session, {recipe});
    dpa.quantizers();
  };
  for (const string_view f : {"fp8_current", "mxfp8"})
    attention([f](const RolePtr& r) { return base_quantizer(f, r); });
  for (const string_view f : {"fp8_block", "nvfp4", "identity"})
    run.expect_error(type_error, string(f) + " in attention",
                     [&] { attention([f](const RolePtr& r) { return base_quantizer(f, r); }); });
  run.expect_error(
      type_error, "a hybrid in attention",
      [&] { attention([](const RolePtr& r) { return hybrid_of("fp8_current", "fp8_current", r); }); },
      {"HybridQuantizer"});
}

// S-33. Data whose magnitudes span 2^20, in binary32, so that the order of a sum shows.
void bias_gradients(ScenarioRun& run) {
  const auto step = [&](int64_t rows, RecipePtr recipe, bool fused, bool wgrad = true) {
    Bench bench(run, {.rows = rows, .dtype = DType::float32});
    bench.dy = drawn({rows, 96}, DType::float32, 33, FillKind::wide);
    bench.module->parameter("weight").requires_grad = wgrad;
    return bench.step(under(std::move(recipe), {.bias_gradient = fused}));
  };
  const auto same_format = [](string_view f) { return per_gemm({f, f, f}, "input,weight,grad_output"); };
  // Current scaling sums the unquantized gradient in one go on both routes, MXFP8's fused kernel in chunks of
  // 128 rows; one chunk is the plain sum.
  for (const int64_t rows : {128, 160, 384})
    for (const string_view f : {"fp8_current", "mxfp8"}) {
      about(run, string(f), rows);
      const StepRecord vanilla = step(rows, built_in_recipe(f), true),
                       hybrid = step(rows, same_format(f), true);
      const bool chunks = f == "mxfp8" && rows > 128;
      expect_same_steps(run, hybrid, vanilla, {"bias.grad"});
      run.expect_equal(differing_outputs(hybrid, vanilla),
                       chunks ? std::vector<string>{"bias.grad"} : std::vector<string>{},
                       "outputs that differ (E13)");
      expect_same_steps(run, hybrid, step(rows, built_in_recipe(f), false));
    }
  // Without columns the fused kernel takes 32 sums of every 32nd row, so two such rows are enough.
  for (const int64_t rows : {32, 64}) {
    about(run, "mxfp8 without wgrad", rows);
    const StepRecord vanilla = step(rows, built_in_recipe("mxfp8"), true, false),
                     hybrid = step(rows, same_format("mxfp8"), true, false);
    run.expect_equal(differing_outputs(hybrid, vanilla),
                     rows > 32 ? std::vector<string>{"bias.grad"} : std::vector<string>{},
                     "outputs that differ (E13)");
    run.expect_equal(differing_outputs(hybrid, step(rows, built_in_recipe("mxfp8"), false, false)),
                     std::vector<string>{}, "outputs that differ from the plain sum");
  }
  // The sum does not depend on the format, so any hybrid gradient is the other route of delayed scaling.
  about(run, "delayed", 384);
  const StepRecord hybrid = step(384, same_format("fp8_current"), true);
  for (const bool custom : {false, true}) {
    const auto delayed = [&](bool fused) {
      const RecipePtr all_delayed = custom ? by_tensor([](const string&, const RolePtr&) -> QuantizerLike {
        return DelayedScalingRequest{};
      })
                                           : built_in_recipe("fp8_delayed");
      return step(384, all_delayed, fused);
    };
    const string whose = custom ? "a custom recipe's request: " : "the built-in recipe: ";
    run.expect_different(output_of(hybrid, "bias.grad"), output_of(delayed(true), "bias.grad"),
                         whose + "bias.grad (E13)");
    run.expect_equal(output_of(hybrid, "bias.grad"), output_of(delayed(false), "bias.grad"),
                     whose + "bias.grad, plain sum");
  }
}

// S-34
void one_role(ScenarioRun& run) {
  for (const int64_t rows : kRows)
    for (const string_view f : kFormats) {
      const ModuleSettings s{.rows = rows};
      const StepRecord vanilla = step_of(run, s, under(built_in_recipe(f)));
      for (const string_view tensor : {"input", "weight", "grad_output"}) {
        about(run, string(f) + ", " + string(tensor) + " alone", rows);
        const RecipePtr recipe = per_gemm({f, f, f}, tensor);
        const StepRecord hybrid = step_of(run, s, under(recipe));
        if (f != "nvfp4" || tensor != "grad_output") {
          expect_same_steps(run, hybrid, vanilla);
          expect_same_traces(run, hybrid, vanilla);
          continue;
        }
        // Two launches draw other states for the columns of a gradient that is rounded stochastically (E2):
        // one state for all draws makes them equal.
        expect_same_gemms(run, hybrid, vanilla, "fprop");
        expect_same_gemms(run, hybrid, vanilla, "dgrad");
        run.expect_equal(differing_outputs(hybrid, vanilla), {"weight.grad"}, "outputs that differ (E2)");
        Bench a(run, s), b(run, s);
        a.session.rng.inject = b.session.rng.inject = [] { return 3 * kPhiloxStep; };
        expect_same_steps(run, a.step(under(recipe)), b.step(under(built_in_recipe(f))));
      }
    }
}

// Counts the quantizations of one tensor's rows and columns.
struct Counts {
  int64_t row = 0, col = 0;
};
QuantizerPtr counted(QuantizerPtr q, int64_t& count) {
  return std::make_shared<ObserverQuantizer>(
      std::move(q), [&count](const Observation& o) { count += o.call == "quantize"; });
}
QuantizerPtr stochastic() {
  const auto q = std::make_shared<NVFP4Quantizer>();
  q->stochastic_rounding = true;
  return q;
}

// S-35
void saved_originals(ScenarioRun& run) {
  struct Row {
    bool row_safe, col_safe;
    string_view source;
    int64_t rows_made;  // with the original saved
    bool warns;
  };
  constexpr Row kCases[] = {
      {true, true, "original", 1, false},
      {false, true, "original", 1, false},
      {true, false, "original", 1, false},
      {true, true, "rowwise_dequantized", 2, false},
      {false, true, "rowwise_dequantized", 1, true},
  };
  for (const string_view module : {"linear", "grouped_linear"})
    for (const Row& c : kCases) {
      const int64_t experts = module == "linear" ? 1 : 3;
      const auto make = [](bool safe) -> QuantizerPtr {
        return safe ? std::make_shared<MXFP8Quantizer>() : stochastic();
      };
      Counts counts;
      // Each GEMM's other operand has the input's format there; the gradient rounds to nearest, so that only
      // the input draws.
      const auto other = [](bool mx) -> QuantizerPtr {
        return mx ? QuantizerPtr(std::make_shared<MXFP8Quantizer>()) : std::make_shared<NVFP4Quantizer>();
      };
      const RecipePtr recipe = by_tensor([&](const string& tensor, const RolePtr&) -> QuantizerLike {
        if (tensor == "weight") return std::make_shared<HybridQuantizer>(other(c.row_safe), other(true));
        if (tensor == "grad_output") return std::make_shared<HybridQuantizer>(other(true), other(c.col_safe));
        return std::make_shared<HybridQuantizer>(counted(make(c.row_safe), counts.row),
                                                 counted(make(c.col_safe), counts.col), string(c.source));
      });
      run.about(string(module) + ", rows " + (c.row_safe ? "safe" : "unsafe") + ", columns " +
                (c.col_safe ? "safe" : "unsafe") + ", " + string(c.source));
      const auto step = [&](bool original) {
        counts = {};
        Bench bench(run, {.module = module, .save_original_input = original});
        bench.session.rng.inject = [] { return 0; };  // the two routes draw at other times
        return bench.step(under(recipe));
      };
      const StepRecord saved_codes = step(false);
      run.expect_equal(counts.row, experts, "rows quantized, codes saved");
      run.expect_equal(counts.col, experts, "columns quantized, codes saved");
      const StepRecord saved_original = step(true);
      run.expect_equal(counts.row, c.rows_made * experts, "rows quantized, original saved");
      run.expect_equal(counts.col, experts, "columns quantized, original saved");
      run.expect_equal(static_cast<int64_t>(saved_original.warnings.size()), c.warns ? 1 : 0, "warnings");
      if (c.warns && !saved_original.warnings.empty())
        run.expect(saved_original.warnings[0].text.find("save_original_input") != string::npos,
                   "the warning names save_original_input");
      expect_same_steps(run, saved_original, saved_codes);
      if (module != "linear") continue;
      const auto saved_input = [](const StepRecord& r) { return text(r.usages.back().usages); };
      run.expect_equal(saved_input(saved_codes), "FT", "directions of the saved codes");
      run.expect_equal(saved_input(saved_original), c.warns ? "FT" : "FF",
                       "directions of the saved input, none of a plain one");
    }
  const ModuleSettings saving{.save_original_input = true};
  run.about("delayed scaling");
  run.expect_error(value_error, "the built-in recipe",
                   [&] { step_of(run, saving, under(built_in_recipe("fp8_delayed"))); },
                   {"save_original_input"});
  const RecipePtr delayed =
      by_tensor([](const string&, const RolePtr&) -> QuantizerLike { return DelayedScalingRequest{}; });
  const StepRecord warned = step_of(run, saving, under(delayed));
  run.expect_equal(static_cast<int64_t>(warned.warnings.size()), 1, "a custom recipe's warnings");
  expect_same_steps(run, warned, step_of(run, {}, under(delayed)));
  for (const string_view how : {"high_precision", "dequantized"}) {
    run.about("override " + string(how));
    const RecipePtr recipe = built_in_recipe("mxfp8");
    recipe->backward_override = string(how);
    for (const bool wanted : {false, true}) {
      const StepRecord r = step_of(run, {.save_original_input = wanted}, under(recipe));
      run.expect_equal(text(r.usages.back().usages), how == "high_precision" ? "FF" : "TF",
                       "directions of the saved input, whatever the module was built with");
    }
  }
}

constexpr Scenario kLinearScenarios[] = {
    {"S-30", "A hybrid of two formats is two recipes",
     "Linear with input and weight H(a|b) and gradient b, for the 14 ordered pairs of formats",
     "a step runs on 64 and on 96 rows",
     "fprop is that of the all-a recipe; dgrad, wgrad and the bias gradient are those of the all-b recipe",
     cross_formats, ""},
    {"S-31", "Three formats, one per GEMM",
     "Linear with weight H(F|D), input H(F|W), gradient H(D|W), for all triples of four formats with F apart",
     "a step runs",
     "every GEMM equals that of the plain recipe of its format; where D is W, a plain gradient quantizer "
     "does the same",
     three_formats, ""},
    {"S-32", "What cannot be multiplied is refused",
     "operands of unlike formats in one GEMM; a hybrid or Identity where a result is to be quantized; where "
     "an operation's is, all but delayed scaling; hybrids in attention",
     "a step runs",
     "RuntimeError that names the GEMM; NotImplementedError; RuntimeError; TypeError; native quantizers pass",
     refusals, ""},
    {"S-33", "The bias gradient's order of summation",
     "gradients of 32 to 384 rows whose magnitudes span 2^20", "hybrid and vanilla sum them for the bias",
     "current scaling agrees; MXFP8 and delayed scaling differ from the second chunk on (E13), and agree "
     "where vanilla sums plainly",
     bias_gradients, ""},
    {"S-34", "One hybrid among vanilla quantizers",
     "Linear where only the input, the weight or the gradient is a hybrid of the others' format",
     "a step runs on 64 and on 96 rows",
     "everything equals vanilla; of an NVFP4 gradient the columns once both routes draw one state (E2)",
     one_role, ""},
    {"S-35", "Saving the original input",
     "Linear and GroupedLinear with a hybrid input in five settings of safety and source; delayed scaling; "
     "overrides",
     "a step saves the original, or codes",
     "the same bytes; columns are made once, rows twice only where columns come from them; unsafe sources "
     "and a custom recipe's delayed scaling warn, the built-in one's is a ValueError",
     saved_originals, ""},
};

}  // namespace

std::span<const Scenario> linear_scenarios() { return kLinearScenarios; }

}  // namespace assay::training
