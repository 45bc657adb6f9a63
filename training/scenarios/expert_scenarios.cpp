// Experts: what a grouped linear does against linears of its own experts, how it splits and pads, and which
// quantizers and weights it refuses.
#include <algorithm>
#include <array>
#include <cstring>

#include "training/base/data.h"
#include "training/base/padding.h"
#include "training/formats/float8.h"
#include "training/formats/hybrid.h"
#include "training/groups/grouped.h"
#include "training/groups/split_quantize.h"
#include "training/modules/grouped_linear.h"
#include "training/modules/linear.h"
#include "training/modules/ops_grouped_linear.h"
#include "training/recipes/factories.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using Sizes = std::vector<int64_t>;

constexpr int64_t kIn = 96, kOut = 64;

// bfloat16 rows [from, to) times 2^power; zeros stay.
void scale_rows(const ArrayPtr& x, int64_t from, int64_t to, int power) {
  const std::span<std::byte> bytes = x->bytes();
  for (int64_t i = from * x->shape[1]; i < to * x->shape[1]; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    if (bits & 0x7F80) bits = static_cast<uint16_t>(bits + power * 128);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
}
// Gradients of three experts whose magnitudes lie around 1e8, 1e-8 and 1.
ArrayPtr stressed(const Sizes& splits) {
  const ArrayPtr dy = gradient({splits[0] + splits[1] + splits[2], kOut}, DType::bfloat16, 21);
  scale_rows(dy, 0, splits[0], 26);
  scale_rows(dy, splits[0], splits[0] + splits[1], -27);
  return dy;
}

GroupedLinearSettings grouped(size_t experts = 3) {
  return {.name = "experts", .num_gemms = experts, .in_features = kIn, .out_features = kOut, .bias = false};
}

// --- S-73 ---

struct Experts {
  string_view name;
  RecipePtr recipe;
  Arch arch = Arch::sm100;
};

// The factory as a grouped linear asks it.
RecipePtr as_if_grouped(const RecipePtr& recipe) {
  const auto* custom = dynamic_cast<const CustomRecipe*>(recipe.get());
  if (!custom) return recipe;
  return recipe_around("as if grouped", [factory = custom->qfactory](const RolePtr& role) {
    return factory->call(role ? std::make_shared<const QuantizerRole>(
                                    QuantizerRole{"grouped_linear", role->tensor_type, role->name})
                              : role);
  });
}

void s73(ScenarioRun& run) {
  const Sizes splits = {32, 64, 32};
  const ArrayPtr x = drawn({128, kIn}, DType::bfloat16, 20), dy = stressed(splits);
  const auto step_of = [&](Arch arch, const RecipePtr& recipe, const Sizes& m_splits) {
    Session session = run.session(arch);
    GroupedLinear module(session, grouped());
    fill_parameters(module, 30);
    module.m_splits = m_splits;
    return module.step(session, x, dy, under(recipe));
  };
  for (const Arch arch : {Arch::sm90, Arch::sm100}) {
    run.about(string("current scaling, custom and built in, ") +
              (arch == Arch::sm90 ? "with transposes" : "without"));
    expect_same_steps(run, step_of(arch, custom_recipe("current_scaling_factory"), splits),
                      step_of(arch, make_recipe("Float8CurrentScaling"), splits));
  }
  const auto mixed = std::make_shared<CustomRecipe>();  // NVFP4 draws no random numbers here: one launch for
                                                        // all experts would draw others
  mixed->qfactory = hybrid_custom_recipe(
      "mixed", [](const RolePtr&) { return quantizer_named("MX"); },
      [](const RolePtr&) { return quantizer_named("FP4p"); });
  const Experts table[] = {
      {"current scaling", make_recipe("Float8CurrentScaling"), Arch::sm90},
      {"H(CS|CS)", custom_recipe("hybrid_fp8_current")},
      {"H(MX|MX)", custom_recipe("hybrid_mxfp8")},
      {"H(MX|NVFP4)", mixed},
      {"rows of row-scaled NVFP4, columns of MXFP8", custom_recipe("nvfp4_row_scaled_fwd_mxfp8_bwd_factory")},
  };
  for (const Experts& row : table)
    for (const Sizes& m_splits : {splits, Sizes{64, 0, 64}}) {
      const StepRecord whole = step_of(row.arch, row.recipe, m_splits);
      int64_t at = 0;
      for (size_t i = 0; i < m_splits.size(); ++i) {
        run.about(string(row.name) + ", expert " + std::to_string(i) + " of " + std::to_string(m_splits[i]) +
                  " rows");
        const int64_t end = at + m_splits[i];
        const ArrayPtr out = clone(slice(output_of(whole, "output"), 0, at, end)),
                       dgrad = clone(slice(output_of(whole, "dgrad"), 0, at, end)),
                       wgrad = output_of(whole, "weight" + std::to_string(i) + ".grad");
        if (m_splits[i] == 0) {
          run.expect_equal(wgrad, zeros({kOut, kIn}, DType::bfloat16), "wgrad of no rows");
          continue;
        }
        Session session = run.session(row.arch);
        Linear alone(session, {.name = "experts", .in_features = kIn, .out_features = kOut, .bias = false});
        fill_parameters(alone, 30 + i);
        const StepRecord& r = alone.step(session, clone(slice(x, 0, at, end)), clone(slice(dy, 0, at, end)),
                                         under(as_if_grouped(row.recipe)));
        run.expect_equal(out, output_of(r, "output"), "output");
        run.expect_equal(dgrad, output_of(r, "dgrad"), "dgrad");
        run.expect_equal(wgrad, output_of(r, "weight.grad"), "wgrad");
        at = end;
      }
    }
}

// --- S-74 ---

struct Disagreement {
  string_view name, mentions, first, second;
};
constexpr Disagreement kDisagreements[] = {
    {"hybrid and not", "non-hybrid", "H(MX|MX)", "MX"},
    {"Identity and not", "Identity", "ID", "MX"},
    {"Identity and not, in columns", "Identity", "H(MX|MX)", "H(MX|ID)"},
    {"unlike classes", "families", "MX", "BLK1"},
    {"unlike classes, in rows", "rowwise", "H(MX|MX)", "H(BLK1|MX)"},
    {"unlike settings", "configuration", "BLK1", "BLK2"},
    {"unlike settings, in columns", "columnwise", "H(MX|FP4p)", "H(MX|FP4rs)"},
    {"unlike sources", "columnwise_source", "H(MX|MX)", "H(MX|MX;rwdq)"},
};

// Experts take turns between two quantizers for `operand`; all else is MXFP8.
RecipePtr taking_turns(const Disagreement& d, const string& operand) {
  return recipe_around("taking turns",
                       [d, operand, turn = std::make_shared<int>(0)](const RolePtr& role) -> QuantizerLike {
                         if (!role || role->tensor_type != operand) return quantizer_named("MX");
                         return quantizer_named((*turn)++ % 2 ? d.second : d.first);
                       });
}

void s74(ScenarioRun& run) {
  const ArrayPtr x = drawn({64, kIn}, DType::bfloat16, 1), dy = gradient({64, kOut}, DType::bfloat16, 2);
  const auto module_in = [&](Session& session) {
    auto out = std::make_unique<GroupedLinear>(session, grouped(2));
    fill_parameters(*out, 3);
    out->m_splits = {32, 32};
    return out;
  };
  for (const Disagreement& d : kDisagreements)
    for (const char* operand : {"input", "weight", "grad_output"}) {
      run.about(string(d.name) + ", " + operand);
      Session session = run.session();
      const auto module = module_in(session);
      const RecipePtr recipe = taking_turns(d, operand);
      run.expect_error(ErrorClass::value_error, "a step",
                       [&] { module->step(session, x, dy, under(recipe)); }, {d.mentions});
      run.expect_error(ErrorClass::value_error, "the same step again",
                       [&] { module->step(session, x, dy, under(recipe)); }, {d.mentions});
      const RecipePtr alike =
          recipe_around("alike", [](const RolePtr&) -> QuantizerLike { return quantizer_named("MX"); });
      run.expect_equal(static_cast<int64_t>(module->step(session, x, dy, under(alike)).outputs.size()), 4,
                       "outputs of a step whose experts agree");
    }

  run.about("lists that no module can have");
  run.expect_error(ErrorClass::value_error, "None and a quantizer",
                   [] {
                     validate_split_quantizers({nullptr, quantizer_named("MX")});
                   },
                   {"None"});
  run.expect_error(ErrorClass::value_error, "a quantizer and None",
                   [] {
                     validate_split_quantizers({quantizer_named("MX"), nullptr});
                   },
                   {"None"});
  const auto delayed = [](F32Bits scale, Encoding e) {
    return std::make_shared<Float8Quantizer>(
        from_bytes({}, DType::float32, std::as_bytes(std::span(&scale, 1))), zeros({1}, DType::float32), e);
  };
  run.expect_error(ErrorClass::value_error, "delayed scaling of unlike dtypes",
                   [&] {
                     validate_split_quantizers({delayed(0, Encoding::e4m3), delayed(0, Encoding::e5m2)});
                   },
                   {"configuration"});
  const QuantizerPtr flagged = quantizer_named("MX");
  flagged->set_usage(false, true);
  flagged->internal = flagged->optimize_for_gemm = true;
  for (const auto& [name, list] : std::initializer_list<std::pair<const char*, std::vector<QuantizerPtr>>>{
           {"delayed scaling of unlike scales",
            {delayed(0x3F800000, Encoding::e4m3), delayed(0x41A00000, Encoding::e4m3)}},
           {"unlike usages and flags", {quantizer_named("MX"), flagged}},
           {"no quantizers at all", {nullptr, nullptr}}}) {
    string failed = "none";
    try {
      validate_split_quantizers(list);
    } catch (const SemanticError& e) {
      failed = e.what();
    }
    run.expect_equal(failed, "none", string(name) + " are accepted");
  }

  run.about("how often lists are looked at");
  Session session = run.session();
  const auto module = module_in(session);
  int checks = 0;
  module->state.check_operand = [&](const std::vector<QuantizerPtr>& list, string_view) {
    ++checks;
    validate_split_quantizers(list);
  };
  const auto after = [&](const RecipePtr& recipe, int expected, const char* what) {
    checks = 0;
    module->step(session, x, dy, under(recipe));
    run.expect_equal(checks, expected, what);
  };
  const RecipePtr first = custom_recipe("hybrid_mxfp8"), second = custom_recipe("mxfp8_factory");
  after(make_recipe("MXFP8BlockScaling"), 0, "under a built-in recipe");
  after(first, 3, "in the first step of a custom recipe: input, weight and grad_output");
  after(first, 0, "in its second step");
  after(second, 3, "under another custom recipe");
}

// --- S-75 ---

struct BulkRow {
  string_view quantizer, usages;
  int64_t calls;
};
constexpr BulkRow kBulkRows[] = {
    {"H(MX|CS)", "TT", 2},
    {"H(MX|CS)", "TF", 1},
    {"H(MX|CS)", "FT", 1},
    {"H(MX|CS)", "FF", 0},
    {"H(MX|FP4p;rwdq)", "TT", 2},
    {"H(MX|FP4p;rwdq)", "FT", 2},  // rows are made and dropped
    {"H(MX|FP4p;rwdq)", "TF", 1},
    {"H(MX|ID;rwdq)", "TT", 1},  // Identity is no native class: split by split
    {"MX", "TT", 1},
};

void s75(ScenarioRun& run) {
  const ArrayPtr x = gradient({128, kIn}, DType::bfloat16, 1);
  for (const BulkRow& row : kBulkRows)
    for (const Sizes& splits : {Sizes{32, 0, 96}, Sizes{0, 128, 0}}) {
      run.about(string(row.quantizer) + " " + string(row.usages) + ", " + std::to_string(splits[1]) +
                " rows in the middle");
      Session session = run.session();
      std::vector<QuantizerPtr> quantizers;
      for (size_t i = 0; i < splits.size(); ++i)
        quantizers.push_back(quantizer_named(row.quantizer, usages_of(row.usages)));
      std::vector<ArrayPtr> sources;
      std::vector<std::vector<StoragePtr>> results;
      SplitEntries entries;
      entries.bulk = [&](Session& s, const ArrayPtr& source, const Sizes& sizes,
                         const std::vector<QuantizerPtr>& qs, bool disable) {
        sources.push_back(source);
        run.expect(sizes == splits, "one call is given all splits");
        return results.emplace_back(bulk_quantize(s, source, sizes, qs, disable));
      };
      const SplitResult got = split_quantize(session, x, splits, quantizers, {}, entries);
      run.expect_equal(static_cast<int64_t>(sources.size()), row.calls, "bulk calls");
      run.expect_equal(static_cast<int64_t>(got.outputs.size()), 3, "outputs");
      if (!sources.empty()) run.expect_equal(sources[0], x, "what the first call quantizes");
      if (sources.size() == 2) {
        std::vector<ArrayPtr> rows;
        for (const StoragePtr& r : results[0]) rows.push_back(r->dequantize(session, DType::bfloat16));
        const auto& hybrid = dynamic_cast<const HybridQuantizer&>(*quantizers[0]);
        run.expect_equal(sources[1],
                         hybrid.columnwise_source == "rowwise_dequantized" ? concatenate(rows) : x,
                         "what the second call quantizes");
      }
      int64_t at = 0;
      for (size_t i = 0; i < splits.size(); ++i) {
        Storage& split = *std::get<StoragePtr>(got.outputs[i]);
        run.expect_equal(text(split.present()), row.usages, "directions of split " + std::to_string(i));
        if (splits[i] == 0) continue;
        const StoragePtr alone = quantizer_named(row.quantizer, usages_of(row.usages))
                                     ->quantize(session, slice(x, 0, at, at + splits[i]));
        const std::vector<Field> a = split.fields(), b = alone->fields();
        for (size_t f = 0; f < b.size(); ++f)
          run.expect_equal(*a[f].slot, *b[f].slot,
                           "split " + std::to_string(i) + " against itself alone: " + b[f].name);
        at += splits[i];
      }
    }

  run.about("Identity");
  Session session = run.session();
  int calls = 0;
  SplitEntries entries;
  entries.bulk = [&](Session& s, const ArrayPtr& source, const Sizes& sizes,
                     const std::vector<QuantizerPtr>& qs, bool disable) {
    ++calls;
    return bulk_quantize(s, source, sizes, qs, disable);
  };
  const SplitResult views =
      split_quantize(session, x, {32, 0, 96},
                     {quantizer_named("ID"), quantizer_named("ID"), quantizer_named("ID")}, {}, entries);
  run.expect_equal(calls, 0, "bulk calls");
  for (const Tensorlike& v : views.outputs)
    run.expect(std::holds_alternative<ArrayPtr>(v) && std::get<ArrayPtr>(v)->memory == x->memory,
               "splits are views of the input");
  run.expect_error(
      ErrorClass::value_error, "fewer quantizers than splits",
      [&] {
        split_quantize(session, x, {32, 0, 96}, {quantizer_named("MX"), quantizer_named("MX")}, {});
      },
      {"3"});
}

// --- S-76 ---

struct Padded {
  string_view name;
  RecipePtr recipe;
  int64_t align, least;  // of the recipe; the smallest multiple that its format takes
  Arch arch = Arch::sm100;
};

void s76(ScenarioRun& run) {
  const auto exact = json::object({{"disable_stochastic_rounding", true}});
  const Padded table[] = {
      {"MXFP8, built in", make_recipe("MXFP8BlockScaling"), 32, 32},
      {"MXFP8, custom", custom_recipe("mxfp8_factory"), 128, 32},
      {"H(MX|MX)", custom_recipe("hybrid_mxfp8"), 128, 32},
      {"blocks of 1x128", custom_recipe("float8_block_scaling_factory"), 128, 1, Arch::sm90},
      {"NVFP4, built in", make_recipe("NVFP4BlockScaling", exact), 128, 16},
      {"current scaling, built in", make_recipe("Float8CurrentScaling"), 16, 1, Arch::sm90},
      {"current scaling, custom", custom_recipe("current_scaling_factory"), 128, 1},
  };
  const Sizes splits = {17, 0, 15};
  const ArrayPtr x = drawn({32, kIn}, DType::bfloat16, 1, FillKind::wide),
                 dy = gradient({32, kOut}, DType::bfloat16, 2);
  run.expect(padded_splits({17, 15}, 128) == Sizes{128, 128}, "17 and 15 rows become 128 each");
  run.expect(padded_splits({0, 1, 32, 33}, 32) == Sizes{0, 32, 32, 64},
             "no rows stay none, whole multiples stay");
  run.expect_error(ErrorClass::runtime_error, "splits that do not add up",
                   [&] {
                     pad_rows(x, {17, 16}, 16);
                   },
                   {"33"});
  for (const Padded& row : table) {
    run.about(string(row.name));
    run.expect_equal(align_size(*row.recipe), row.align, "the recipe's multiple");
    const auto step = [&](int64_t align) {
      Session session = run.session(row.arch);
      GroupedLinear module(session, grouped());
      fill_parameters(module, 5);
      module.m_splits = padded_splits(splits, align);
      return module.step(session, pad_rows(x, splits, align), pad_rows(dy, splits, align), under(row.recipe));
    };
    const StepRecord plain = step(row.least);
    for (const int64_t align : {row.align, int64_t{128}, int64_t{160}}) {
      const StepRecord padded = step(align);
      const string to = " of rows padded to multiples of " + std::to_string(align);
      run.expect_equal(output_of(padded, "output")->shape[0],
                       padded_splits(splits, align)[0] + padded_splits(splits, align)[2], "rows" + to);
      for (const char* name : {"output", "dgrad"})
        run.expect_equal(unpad_rows(output_of(padded, name), splits, align),
                         unpad_rows(output_of(plain, name), splits, row.least), name + to);
      for (const char* name : {"weight0.grad", "weight1.grad", "weight2.grad"})
        run.expect_equal(output_of(padded, name), output_of(plain, name), name + to);
    }
  }
}

// --- S-78 ---

void s78(ScenarioRun& run) {
  const ArrayPtr x = drawn({64, kIn}, DType::bfloat16, 1);
  const std::pair<const char*, RecipePtr> separate_only[] = {
      {"a hybrid", custom_recipe("hybrid_mxfp8")}, {"Identity", custom_recipe("high_precision_factory")}};
  const auto ops = [](bool packed) {
    return OpsGroupedLinearSettings{.name = "o",
                                    .num_groups = 2,
                                    .in_features = kIn,
                                    .out_features = kOut,
                                    .single_grouped_weight = packed};
  };
  for (const auto& [name, recipe] : separate_only) {
    run.about(string(name) + " and packed weights");
    for (const bool packed : {true, false}) {
      Session session = run.session();
      GroupedLinearSettings settings = grouped(2);
      settings.single_grouped_parameter = packed;
      GroupedLinear module(session, settings);
      OpsGroupedLinear operation(session, ops(packed));
      operation.m_splits = {32, 32};
      if (!packed) {
        module.quantize_parameters(session, recipe, true);
        operation.quantize_parameters(session, recipe, true);
        run.expect_equal(
            static_cast<int64_t>(
                operation.step(session, x, gradient({64, kOut}, DType::bfloat16, 2), under(recipe))
                    .outputs.size()),
            4, "outputs with separate weights");
        continue;
      }
      run.expect_error(ErrorClass::not_implemented_error, "GroupedLinear",
                       [&, &recipe = recipe] { module.quantize_parameters(session, recipe, true); },
                       {"separate weights"});
      run.expect_error(ErrorClass::not_implemented_error, "ops GroupedLinear",
                       [&, &recipe = recipe] { operation.quantize_parameters(session, recipe, true); },
                       {"separate weights"});
      run.expect_error(ErrorClass::not_implemented_error, "ops GroupedLinear, in forward",
                       [&, &recipe = recipe] { operation.forward(session, x, under(recipe)); },
                       {"separate weights"});
    }
  }
  run.about("delayed scaling and packed weights");
  for (const bool packed : {true, false}) {
    Session session = run.session(Arch::sm90);
    OpsGroupedLinear operation(session, ops(packed));
    operation.m_splits = {32, 32};
    const RecipePtr recipe = make_recipe("DelayedScaling");
    if (packed)
      run.expect_error(ErrorClass::runtime_error, "ops GroupedLinear",
                       [&] { operation.quantize_parameters(session, recipe, true); }, {"delayed scaling"});
    else operation.quantize_parameters(session, recipe, true);
    if (!packed)
      run.expect(std::holds_alternative<StoragePtr>(operation.parameters[1].value),
                 "separate weights are quantized");
  }

  run.about("groups");
  Session session = run.session();
  const GroupedLayout uniform{2, std::nullopt, std::nullopt, {64, 96}},
      first{2, Sizes{32, 64}, std::nullopt, {96, 96}}, last{2, std::nullopt, Sizes{32, 64}, {32, 96}};
  for (const QuantizerPtr& q : {quantizer_named("ID"), quantizer_named("H(MX|MX)")})
    run.expect_error(ErrorClass::not_implemented_error, string("a group of ") + string(q->class_name()),
                     [&] { make_grouped_tensor(session, uniform, q); }, {"Identity and Hybrid"});
  for (const GroupedLayout& layout : {first, last})
    run.expect_error(
        ErrorClass::value_error, "sizes that vary while a stream is captured",
        [&] { make_grouped_tensor(session, layout, quantizer_named("MX"), DType::bfloat16, true); },
        {"captured"});
  run.expect_equal(
      make_grouped_tensor(session, uniform, quantizer_named("MX"), DType::bfloat16, true)->num_tensors, 2,
      "members of a uniform group made while a stream is captured");
  run.expect_equal(
      make_grouped_tensor(session, first, quantizer_named("MX"), DType::bfloat16, false)->num_tensors, 2,
      "members of a group whose sizes vary, made before the capture");
}

constexpr Scenario kExpertScenarios[] = {
    {"S-73",
     "Experts are separate linears",
     "a grouped linear, gradients from 1e-8 to 1e8",
     "it takes a step under built-in, custom and hybrid recipes",
     "custom current scaling equals the built-in one, and every expert equals a linear with its weight and "
     "rows",
     s73,
     {}},
    {"S-74",
     "Experts that disagree",
     "a factory that gives experts unlike quantizers",
     "a grouped linear takes a step, and tries again",
     "every kind of disagreement raises both times; lists are looked at once for each generation, under "
     "custom recipes alone",
     s74,
     {}},
    {"S-75",
     "One call for all splits",
     "hybrid quantizers of experts, some without rows",
     "a tensor is split",
     "each wanted direction is one bulk call; columns from rows read the concatenated dequantized rows",
     s75,
     {}},
    {"S-76",
     "Padding changes no valid row",
     "splits of 17, 0 and 15 rows",
     "they are padded to multiples with zeros, and the padding is removed",
     "valid rows and weight gradients keep every bit",
     s76,
     {}},
    {"S-78",
     "Combinations that do not exist",
     "packed weights with hybrids, Identity or delayed scaling; groups of varying sizes during a capture",
     "they are made",
     "the original's errors; separate weights, and uniform sizes, work",
     s78,
     {}},
    {"S-85", "Grouped kernels in a graph", "a grouped quantize captured in a CUDA graph",
     "the graph is replayed with other group sizes", "the bytes are those of the new sizes", nullptr,
     "needs a GPU: graphs are captured and replayed there alone"},
};

}  // namespace

std::span<const Scenario> expert_scenarios() { return kExpertScenarios; }

}  // namespace assay::training
