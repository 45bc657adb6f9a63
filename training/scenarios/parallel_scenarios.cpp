// Tensor and sequence parallelism of linear layers: hybrid against vanilla on the same ranks, which bytes a
// gathered input has, which collectives run in which order, and who sums a bias gradient.
#include <algorithm>
#include <array>

#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/base/ranks.h"
#include "training/formats/formats.h"
#include "training/modules/grouped_linear.h"
#include "training/modules/wire.h"
#include "training/recipes/format_table.h"
#include "training/scenarios/common.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr int kRanks = 2;
constexpr int64_t kPart = 128, kFeatures = 128;  // rows of a rank's shard: whole blocks of every format

struct Topology {
  string_view module = "linear";
  ParallelMode mode = ParallelMode::column;
  bool sequence = true;
  bool column() const { return mode == ParallelMode::column; }
};
string text_of(const Topology& t, string_view format) {
  return string(t.module) + ", " + string(format) + (t.column() ? ", column" : ", row") + " parallel" +
         (t.sequence ? ", sequence parallel" : "");
}

// One rank's data. Without sequence parallelism both ranks have the same rows.
ArrayPtr input_of_rank(const Topology& t, int rank) {
  const auto seed = static_cast<uint64_t>(65 + (t.column() && !t.sequence ? 0 : rank));
  const bool shard = t.column() && t.sequence;
  return drawn({shard ? kPart : kRanks * kPart, kFeatures}, DType::bfloat16, seed);
}
ArrayPtr gradient_of_rank(const Topology& t, int rank) {
  const bool shard = t.sequence && (!t.column() || t.module == "layernorm_mlp");
  const auto seed = static_cast<uint64_t>(165 + (t.column() || shard ? rank : 0));
  return gradient({shard ? kPart : kRanks * kPart, kFeatures}, DType::bfloat16, seed);
}

ModuleSettings settings_of(const Topology& t) {
  ModuleSettings s;
  s.module = t.module;
  s.in = s.out = kFeatures;
  s.parallel = t.mode;
  s.sequence = t.sequence;
  return s;
}

std::vector<StepRecord> step_on_ranks(ScenarioRun& run, const Topology& t, const RecipePtr& recipe) {
  std::vector<StepRecord> out(kRanks);
  run_ranks(
      kRanks, "tp",
      [&](int rank, const GroupPtr& group) {
        Session session = run.session();
        session.rng.reseed(7);
        const auto module = make_module(session, settings_of(t));
        fill_parameters(*module, static_cast<uint64_t>(100 + 10 * rank));
        StepOptions options = under(recipe);
        options.tp_group = group;
        out[static_cast<size_t>(rank)] =
            module->step(session, input_of_rank(t, rank), gradient_of_rank(t, rank), options);
      },
      shared(out));
  return out;
}

RolePtr role_of(const char* tensor) {
  return std::make_shared<const QuantizerRole>(QuantizerRole{"linear", tensor, ""});
}

ArrayPtr plane_of_gemm(const StepRecord& r, string_view gemm, string_view plane) {
  for (const GemmRecord& g : r.gemms)
    if (g.name == gemm)
      if (const PlaneData* p = find_plane(g.planes, plane))
        return from_bytes({static_cast<int64_t>(p->bytes.size())}, DType::uint8, p->bytes);
  return nullptr;
}

// The wgrad operand that comes of the whole input: quantized in one direction, dequantized, and quantized in
// columns; of "original" quantized in columns at once.
GemmRecord wgrad_operand(ScenarioRun& run, string_view format, const ArrayPtr& whole, string_view from) {
  Session session = run.session();
  const RolePtr role = role_of("input");
  ArrayPtr x = whole;
  if (from != "original") {
    const QuantizerPtr first = base_quantizer(format, role);
    first->set_usage(from == "rows", from == "columns");
    x = first->quantize(session, whole)->dequantize(session, DType::bfloat16);
  }
  const QuantizerPtr columns = base_quantizer(format, role),
                     grads = base_quantizer(format, role_of("grad_output"));
  columns->set_usage(false, true);
  grads->set_usage(false, true);
  std::vector<GemmRecord> record;
  GemmOptions options;
  options.name = "wgrad";
  options.record = &record;
  const ArrayPtr dy = gradient({whole->shape[0], kFeatures}, DType::bfloat16, 1);
  general_gemm(session, columns->quantize(session, x), grads->quantize(session, dy), GemmOp::NT, options);
  return record.front();
}

// What a norm or the caller gives to the layer, of all ranks: the operand of a step without quantization.
ArrayPtr whole_input(ScenarioRun& run, const Topology& t) {
  const StepRecord plain = step_on_ranks(run, t, nullptr)[0];
  const GemmRecord& fprop = plain.gemms.front();
  const PlaneData* b = find_plane(fprop.planes, "b.data");
  return from_bytes({kRanks * kPart, kFeatures}, DType::bfloat16, b->bytes);
}

// Where a gathered hybrid's columns come from: a plain layer keeps columns and sends those, unless they
// cannot be dequantized; behind a norm both directions are kept and rows travel.
string_view kept_direction(const Topology& t, string_view format) {
  return t.module == "linear" && (format == "mxfp8" || format == "fp8_block") ? "columns" : "rows";
}

void expect_wgrad_of_gather(ScenarioRun& run, const Topology& t, string_view format,
                            const StepRecord& vanilla, const StepRecord& hybrid) {
  const ArrayPtr whole = whole_input(run, t);
  const GemmRecord original = wgrad_operand(run, format, whole, "original"),
                   travelled = wgrad_operand(run, format, whole, kept_direction(t, format));
  for (const PlaneData& p : original.planes) {
    if (!p.plane.name.starts_with("a.")) continue;
    const auto bytes = [](const PlaneData* d) {
      return from_bytes({static_cast<int64_t>(d->bytes.size())}, DType::uint8, d->bytes);
    };
    run.expect_equal(plane_of_gemm(vanilla, "wgrad", p.plane.name), bytes(&p),
                     "vanilla's wgrad reads the columns of the input: " + p.plane.name);
    run.expect_equal(plane_of_gemm(hybrid, "wgrad", p.plane.name),
                     bytes(find_plane(travelled.planes, p.plane.name)),
                     "hybrid's wgrad reads the columns of what travelled: " + p.plane.name);
  }
  if (kept_direction(t, format) == "rows" && format != "fp8_current")
    run.expect_different(plane_of_gemm(hybrid, "wgrad", "a.data"), plane_of_gemm(vanilla, "wgrad", "a.data"),
                         "columns of rows are not the columns of the input");
  else run.expect_equal(output_of(hybrid, "weight.grad"), output_of(vanilla, "weight.grad"), "weight.grad");
}

void expect_same_on_ranks(ScenarioRun& run, const Topology& t, string_view format,
                          const RecipePtr& vanilla_recipe, const RecipePtr& hybrid_recipe) {
  const std::vector<StepRecord> vanilla = step_on_ranks(run, t, vanilla_recipe),
                                hybrid = step_on_ranks(run, t, hybrid_recipe);
  const bool gathers = t.column() && t.sequence && format != "identity";
  for (size_t rank = 0; rank < kRanks; ++rank) {
    expect_same_gemms(run, hybrid[rank], vanilla[rank], "dgrad");
    if (!gathers) {
      expect_same_gemms(run, hybrid[rank], vanilla[rank], "fprop");
      expect_same_gemms(run, hybrid[rank], vanilla[rank], "wgrad");
    }
    expect_same_outputs(run, hybrid[rank], vanilla[rank], {gathers ? "weight.grad" : ""});
    run.expect_equal(static_cast<int64_t>(hybrid[rank].rng_offset),
                     static_cast<int64_t>(vanilla[rank].rng_offset), "random states drawn");
    if (gathers) expect_wgrad_of_gather(run, t, format, vanilla[rank], hybrid[rank]);
  }
}

void s65(ScenarioRun& run) {
  for (const string_view module : {"linear", "layernorm_linear"})
    for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row})
      for (const bool sequence : {true, false})
        for (const string_view format : {"fp8_current", "mxfp8", "fp8_block", "identity", "nvfp4"}) {
          const Topology t{module, mode, sequence};
          const RecipePtr hybrid = per_gemm({format, format, format});
          run.about(text_of(t, format));
          expect_same_on_ranks(run, t, format, built_in_recipe(format), hybrid);
          if (format != "nvfp4" || !t.column() || !sequence) continue;
          run.about(text_of(t, format) + ", nothing rounded stochastically");
          const RecipePtr still =
              make_recipe("NVFP4BlockScaling", json::object({{"disable_stochastic_rounding", true}}));
          const RecipePtr still_hybrid =
              by_tensor([](const string& tensor, const RolePtr& role) -> QuantizerLike {
                const auto q = [&] {
                  const QuantizerPtr made = base_quantizer("nvfp4", role);
                  dynamic_cast<NVFP4Quantizer&>(*made).stochastic_rounding = false;
                  return made;
                };
                if (tensor != "input" && tensor != "weight") return q();
                return std::make_shared<HybridQuantizer>(q(), q());
              });
          expect_same_on_ranks(run, t, format, still, still_hybrid);
        }
}

std::vector<string> collectives_of(const StepRecord& r) {
  std::vector<string> out;
  for (const Collective& c : r.collectives) out.push_back(c.what + " " + c.who);
  return out;
}

void s140(ScenarioRun& run) {
  struct Case {
    string_view module, format;
    ParallelMode mode;
    bool sequence;
    std::vector<string> want;
  };
  const string in = "all_gather input", amax = "all_reduce_max input", grad = "all_gather grad_output";
  const Case cases[] = {
      {"linear", "fp8_current", ParallelMode::column, true, {amax, in, in, "reduce_scatter dgrad"}},
      {"linear", "mxfp8", ParallelMode::column, true, {in, in, in, in, "reduce_scatter dgrad"}},
      {"linear", "mxfp8", ParallelMode::column, false, {"all_reduce dgrad"}},
      {"linear", "mxfp8", ParallelMode::row, true, {"reduce_scatter output", grad, grad, grad, grad}},
      {"linear",
       "fp8_current",
       ParallelMode::row,
       true,
       {"reduce_scatter output", "all_reduce_max grad_output", grad}},
      {"linear", "nvfp4", ParallelMode::row, false, {"all_reduce output"}},
      {"layernorm_linear",
       "nvfp4",
       ParallelMode::column,
       true,
       {amax, in, in, in, in, "reduce_scatter dgrad"}},
      {"layernorm_mlp",
       "mxfp8",
       ParallelMode::column,
       true,
       {"all_gather fc1.input", "all_gather fc1.input", "reduce_scatter fc2.output",
        "all_gather fc2.grad_output", "all_gather fc2.grad_output", "all_gather fc2.grad_output",
        "all_gather fc2.grad_output", "all_gather fc1.input", "all_gather fc1.input",
        "reduce_scatter fc1.dgrad"}},
      {"layernorm_mlp",
       "mxfp8",
       ParallelMode::column,
       false,
       {"all_reduce fc2.output", "all_reduce fc1.dgrad"}},
  };
  for (const Case& c : cases) {
    Topology t{c.module, c.mode, c.sequence};
    run.about(text_of(t, c.format));
    for (const StepRecord& r : step_on_ranks(run, t, built_in_recipe(c.format)))
      run.expect_equal(collectives_of(r), c.want, "collectives in order");
  }
}

void s141(ScenarioRun& run) {
  for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row})
    for (const bool sequence : {true, false}) {
      run.about(mode == ParallelMode::column ? "column parallel" : "row parallel");
      GroupedLinearSettings s;
      s.num_gemms = 2;
      s.in_features = s.out_features = kFeatures;
      s.parallel_mode = mode;
      s.sequence_parallel = sequence;
      s.tp_size = 2;
      std::array<StepRecord, kRanks> got, want;
      run_ranks(
          kRanks, "tp",
          [&](int rank, const GroupPtr& group) {
            Session session = run.session(), alone = run.session();
            const auto step = [&](Session& on, const GroupPtr& with) {
              GroupedLinearSettings own = s;
              own.bias = false;
              if (!with) own.parallel_mode = ParallelMode::none, own.tp_size = 1;
              GroupedLinear module(on, own);
              module.m_splits = {64, 64};
              fill_parameters(module, static_cast<uint64_t>(7 + rank));
              StepOptions options = under(built_in_recipe("mxfp8"));
              options.tp_group = with;
              return module.step(on, drawn({128, kFeatures}, DType::bfloat16, static_cast<uint64_t>(rank)),
                                 gradient({128, kFeatures}, DType::bfloat16, 3), options);
            };
            got[static_cast<size_t>(rank)] = step(session, group);
            want[static_cast<size_t>(rank)] = step(alone, nullptr);
          },
          shared(got, want));
      for (size_t rank = 0; rank < kRanks; ++rank) {
        run.expect_equal(collectives_of(got[rank]), {}, "collectives");
        expect_same_steps(run, got[rank], want[rank]);
      }
      Session session = run.session();
      run.expect_error(ErrorClass::value_error, "a bias on two ranks", [&] { GroupedLinear(session, s); },
                       {"bias", "outside"});
      GroupedLinearSettings current = s;
      current.bias = false;
      GroupedLinear module(session, current);
      module.m_splits = {64, 64};
      run.expect_error(ErrorClass::value_error, "current scaling on two ranks",
                       [&] {
                         module.forward(session, zeros({128, kFeatures}, DType::bfloat16),
                                        under(built_in_recipe("fp8_current")));
                       },
                       {"current scaling"});
    }
}

void s108(ScenarioRun& run) {
  constexpr int64_t kRows = 160, kColumn = 5;  // more rows than a chunk of a fused sum
  for (const string_view format : {"fp8_current", "mxfp8", "fp8_block", "nvfp4", "identity"})
    for (const bool hybrid : {false, true}) {
      if (!hybrid && format == "identity") continue;
      run.about(string(format) + (hybrid ? ", hybrid" : ""));
      const RecipePtr recipe =
          hybrid ? per_gemm({format, format, format}, "input,weight,grad_output") : built_in_recipe(format);
      std::array<ArrayPtr, kRanks> got, want, chunked;
      run_ranks(
          kRanks, "tp",
          [&](int rank, const GroupPtr& group) {
            Session session = run.session();
            ModuleSettings s = settings_of({"linear", ParallelMode::row, true});
            const auto module = make_module(session, s);
            fill_parameters(*module, 9);
            StepOptions options = under(recipe);
            options.tp_group = group;
            const ArrayPtr dy =
                gradient({kRows, kFeatures}, DType::bfloat16, static_cast<uint64_t>(40 + rank));
            plant_sum_order(*dy, kColumn);
            const StepRecord& r =
                module->step(session, drawn({kRanks * kRows, kFeatures}, DType::bfloat16, 8), dy, options);
            std::vector<float> sums(kFeatures, 0.0f);
            const std::vector<float> values = floats(session, dy);
            for (size_t i = 0; i < values.size(); ++i) sums[i % kFeatures] += values[i];
            const auto own = static_cast<size_t>(rank);
            got[own] = output_of(r, "bias.grad");
            want[own] = cast(session, f32_array({kFeatures}, sums), DType::bfloat16);
            chunked[own] = cast(session, sum_rows(session, dy, RowSum::chunks), DType::bfloat16);
          },
          shared(got, want, chunked));
      for (size_t rank = 0; rank < kRanks; ++rank) {
        run.expect_equal(got[rank], want[rank], "the plain sum of this rank's gradient");
        run.expect_different(chunked[rank], want[rank], "sums of chunks");
      }
    }
}

// What an operation's step has in its GEMMs and outputs, hybrid and vanilla, on the same ranks.
void expect_same_operation(ScenarioRun& run, const Topology& t, string_view format) {
  run.about(text_of(t, format));
  const std::vector<StepRecord> vanilla = step_on_ranks(run, t, built_in_recipe(format)),
                                hybrid = step_on_ranks(run, t, per_gemm({format, format, format}));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    expect_same_steps(run, hybrid[rank], vanilla[rank]);
    run.expect_equal(static_cast<int64_t>(hybrid[rank].rng_offset),
                     static_cast<int64_t>(vanilla[rank].rng_offset), "random states drawn");
  }
  if (!t.column() || !t.sequence || format == "identity") return;
  const ArrayPtr whole = whole_input(run, t);
  for (const PlaneData& p : wgrad_operand(run, format, whole, "original").planes)
    if (p.plane.name.starts_with("a."))
      run.expect_equal(plane_of_gemm(hybrid[0], "wgrad", p.plane.name),
                       from_bytes({static_cast<int64_t>(p.bytes.size())}, DType::uint8, p.bytes),
                       "hybrid's wgrad reads the columns of the input: " + p.plane.name);
}

void s142(ScenarioRun& run) {
  for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row})
    for (const bool sequence : {true, false})
      for (const string_view format : {"fp8_current", "mxfp8", "fp8_block", "nvfp4", "identity"})
        expect_same_operation(run, {"ops_linear", mode, sequence}, format);
  const string in = "all_gather input", amax = "all_reduce_max input", grad = "all_gather grad_output";
  struct Case {
    string_view format;
    ParallelMode mode;
    bool sequence;
    std::vector<string> want;
  };
  const Case cases[] = {
      {"fp8_current", ParallelMode::column, true, {amax, in, amax, in, "reduce_scatter dgrad"}},
      {"mxfp8", ParallelMode::column, true, {in, in, in, in, "reduce_scatter dgrad"}},
      {"mxfp8", ParallelMode::column, false, {"all_reduce dgrad"}},
      {"mxfp8", ParallelMode::row, true, {"reduce_scatter output", grad, grad, grad, grad}},
      {"nvfp4", ParallelMode::row, false, {"all_reduce output"}},
  };
  for (const Case& c : cases) {
    const Topology t{"ops_linear", c.mode, c.sequence};
    run.about(text_of(t, c.format));
    for (const StepRecord& r : step_on_ranks(run, t, built_in_recipe(c.format)))
      run.expect_equal(collectives_of(r), c.want, "collectives in order");
  }
}

// clang-format off
const Scenario kParallelScenarios[] = {
    {"S-65", "Hybrid equals vanilla on the same ranks",
     "Linear and LayerNormLinear, column and row parallel, with and without sequence parallelism, in five formats",
     "both take a step on two ranks",
     "operands and results are equal; of a gathered input wgrad reads the columns of what travelled: of dequantized columns the same values, of "
     "dequantized rows, as NVFP4 must send them, others, whatever is rounded stochastically", s65, {}, 2},
    {"S-108", "The bias gradient of row parallel layers",
     "a gradient whose rows are shards", "five formats take a step, vanilla and hybrid",
     "it is the plain sum of the rank's own rows, so that no fused sum differs from it", s108, {}, 2},
    {"S-140", "Collectives of a step in order",
     "Linear, LayerNormLinear and LayerNormMLP on two ranks", "they take a step",
     "amaxes before codes, scales before data; backward gathers grad_output, then the input, before any GEMM, and reduces dgrad last", s140, {}, 2},
    {"S-141", "GroupedLinear leaves ranks to others",
     "experts whose weights are shards", "they take a step, with and without a group",
     "no collective runs and the bytes are those of one process; a bias and current scaling are refused on more than one rank", s141, {}, 2},
    {"S-142", "The operation BasicLinear on ranks",
     "BasicLinear, column and row parallel, with and without sequence parallelism, in five formats", "vanilla and hybrid take a step on two ranks",
     "all is equal: its shard stays in high precision and each pass quantizes it anew, so that wgrad reads the columns of the input; amaxes are reduced again in backward", s142, {}, 2},
};
// clang-format on

}  // namespace

std::span<const Scenario> parallel_scenarios() { return kParallelScenarios; }

}  // namespace assay::training
