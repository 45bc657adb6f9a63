// Scenarios of Identity: high precision that passes for a quantized tensor, alone or as one direction of a
// hybrid.
#include "training/base/data.h"
#include "training/formats/formats.h"
#include "training/formats/hybrid.h"
#include "training/formats/ops.h"
#include "training/groups/split_quantize.h"
#include "training/recipes/format_table.h"
#include "training/scenarios/common.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using enum ErrorClass;

constexpr F32Bits kHalf = 0x3F000000, kOne = 0x3F800000, kMinusZero = 0x80000000;

IdentityStorage& identity(const StoragePtr& s) { return dynamic_cast<IdentityStorage&>(*s); }
IdentityStorage& identity(const Piece& p) { return identity(std::get<StoragePtr>(p)); }
int64_t position(const ArrayPtr& a, const ArrayPtr& within) {
  return share_memory(*a, *within) ? a->offset - within->offset : -1;
}

// S-40
void all_identity(ScenarioRun& run) {
  const auto identity_of = [](const RolePtr& role) { return base_quantizer("identity", role); };
  const RecipePtr plain =
      by_tensor([=](const string&, const RolePtr& role) -> QuantizerLike { return identity_of(role); });
  const RecipePtr pairs = by_tensor([=](const string&, const RolePtr& role) -> QuantizerLike {
    return std::make_shared<HybridQuantizer>(identity_of(role), identity_of(role));
  });
  for (const string_view module : kModules)
    for (const bool bias : {false, true}) {
      const ModuleSettings s{.module = module, .bias = bias};
      const StepRecord bf16 = step_of(run, s, under(nullptr));
      for (const RecipePtr& recipe : {plain, pairs}) {
        run.about(string(module) + (bias ? " with bias" : "") + (recipe == plain ? ", ID" : ", H(ID|ID)"));
        const StepRecord r = step_of(run, s, under(recipe));
        if (!bias) {
          expect_same_steps(run, r, bf16);
          continue;
        }
        // With a bias the original claims no wgrad: the unfused bias gradient leaves it to another kernel
        // (E3).
        for (const NamedArray& o : bf16.outputs) {
          const bool of_bias = o.name.find("bias") != string::npos && o.name.find("norm") == string::npos;
          if (o.name == "output" || o.name == "dgrad" || of_bias) expect_same_output(run, r, bf16, o.name);
        }
      }
    }
}

// S-41. An input, its parts, and what Identity makes of them; one function for each side of the contract.
struct IdentityCase {
  explicit IdentityCase(ScenarioRun& run) : run(run), session(run.session()) {}
  ScenarioRun& run;
  Session session;
  ArrayPtr x = gradient({64, 96}, DType::bfloat16, 1), other = gradient({64, 96}, DType::bfloat16, 2);
  ArrayPtr part = slice(x, 1, 16, 48);  // has gaps and an offset
  IdentityQuantizer q, wide{DType::float32};
  StoragePtr whole = q.copy()->quantize(session, x), cut = q.copy()->quantize(session, part);
  StoragePtr cast_first = wide.copy()->quantize(session, x),
             mx = MXFP8Quantizer().copy()->quantize(session, x);
};

void identity_quantizes(IdentityCase& c) {
  ScenarioRun& run = c.run;
  run.about("quantize");
  run.expect(share_memory(*identity(c.whole).hp_data, *c.x) && identity(c.whole).hp_data != c.x,
             "an alias of the input, not the input");
  run.expect(
      identity(c.cut).hp_data->strides == c.part->strides && position(identity(c.cut).hp_data, c.part) == 0,
      "strides and offset are kept");
  run.expect_equal(name_of(c.whole->dtype), "bfloat16", "nominal dtype");
  run.expect_equal(c.whole->class_name(), "IdentityTensor", "class");
  run.expect(!share_memory(*identity(c.cast_first).hp_data, *c.x), "another dtype is a copy");
  run.expect_equal(identity(c.cast_first).hp_data, cast(c.session, c.x, DType::float32),
                   "another dtype is a cast");
  run.expect_equal(name_of(c.cast_first->dtype), "float32", "nominal dtype of a cast");
  c.q.internal = true;
  run.expect_equal(c.q.copy()->quantize(c.session, c.x)->class_name(), "IdentityTensorStorage",
                   "class where internal");
  c.q.internal = false;
  c.q.set_usage(false, false);
  run.expect(identity(c.q.copy()->quantize(c.session, c.x)).hp_data != nullptr,
             "one buffer whatever the usages");

  run.about("make_empty");
  run.expect_equal(name_of(identity(c.q.make_empty(c.session, {4, 8}, DType::float16)).hp_data->dtype),
                   "float16", "the requested dtype");
  run.expect_equal(name_of(identity(c.wide.make_empty(c.session, {4, 8}, DType::float16)).hp_data->dtype),
                   "float32", "the configured dtype");
}

void identity_updates(IdentityCase& c) {
  ScenarioRun& run = c.run;
  run.about("update_quantized");
  const ArrayPtr short_one = gradient({32, 96}, DType::bfloat16, 3);
  for (const F32Bits noop : {F32Bits{0}, kMinusZero, kHalf, kOne}) {
    const StoragePtr dst = c.q.copy()->quantize(c.session, clone(c.x));
    const ArrayPtr before = identity(dst).hp_data;
    const bool frozen = noop == kHalf || noop == kOne;
    c.q.update_quantized(c.session, c.other, *dst, noop);
    run.expect(identity(dst).hp_data == before, "the same payload object");
    run.expect_equal(identity(dst).hp_data, frozen ? c.x : c.other,
                     "noop " + std::to_string(noop) + ": any flag but zero keeps the bytes");
    c.q.update_quantized(c.session, short_one, *dst, noop);
    run.expect_equal(identity(dst).hp_data, frozen ? c.x : short_one,
                     "noop " + std::to_string(noop) + ", another shape");
    run.expect(
        frozen || (identity(dst).hp_data != before && share_memory(*identity(dst).hp_data, *short_one)),
        "another shape binds the source");
    c.wide.update_quantized(c.session, short_one, *dst, noop);
    run.expect_equal(name_of(dst->dtype), frozen ? "bfloat16" : "float32",
                     "the nominal dtype follows the payload");
  }
  run.expect_error(value_error, "into MXFP8",
                   [&] { c.q.update_quantized(c.session, c.x, *c.mx, std::nullopt); });
}

// What a gather of one shard gives a parameter of this dtype.
void identity_gathers(IdentityCase& c, const StoragePtr& shard, DType parameter) {
  ScenarioRun& run = c.run;
  const bool own =
      shard == c.cast_first;  // a quantizer that names a dtype decides, whatever the parameter has
  const ArrayPtr payload = identity(shard).hp_data;
  const auto gather = [&](const ArrayPtr& buffer, const std::shared_ptr<IdentityStorage>& out = nullptr) {
    return fsdp_post_all_gather(identity(shard), {buffer}, parameter, out);
  };
  const DType logical = own ? DType::float32 : parameter;
  const string what = string("gathered for a parameter of ") + string(name_of(parameter)) +
                      (own ? ", float32 by its quantizer" : "");
  const ArrayPtr fitting = cast(c.session, payload, logical),
                 two = concatenate(std::vector{fitting, fitting});
  const auto first = gather(two);
  run.expect(first->hp_data == two && first->dtype == logical && identity(shard).hp_data == payload,
             what + ": a tensor over the gathered payload, and the shard stays");
  run.expect(gather(fitting, first) == first && first->hp_data == fitting,
             what + ": an earlier result is bound anew");
  const DType other_dtype = logical == DType::float32 ? DType::bfloat16 : DType::float32;
  run.expect_error(runtime_error, what, [&] { gather(cast(c.session, payload, other_dtype), first); },
                   {name_of(logical), name_of(other_dtype)});
  run.expect(first->hp_data == fitting, what + ": a refusal leaves the earlier result");
}

void identity_storage(IdentityCase& c) {
  ScenarioRun& run = c.run;
  run.about("storage");
  run.expect(c.whole->dequantize(c.session) == identity(c.whole).hp_data,
             "dequantize gives the payload itself");
  run.expect_equal(c.whole->dequantize(c.session, DType::float32), cast(c.session, c.x, DType::float32),
                   "dequantize to another dtype");
  c.whole->update_usage(false, false);
  run.expect_equal(text(c.whole->get_usages()), "TT", "usages after all were dropped");
  run.expect(c.q.is_requantization_safe() && !c.q.supports_only_rowwise_all_gather(),
             "requantization is safe, gathers go in either direction");
  const StoragePtr saved = detach(*c.whole);
  const Saved buffers = saved->prepare_for_saving();
  run.expect_equal(static_cast<int64_t>(buffers.size()), 1, "buffers saved");
  run.expect(identity(saved).hp_data == nullptr && identity(c.whole).hp_data != nullptr,
             "saving empties the object alone");
  run.expect_equal(text(saved->get_usages()), "FF", "usages of an emptied object");
  run.expect_equal(static_cast<int64_t>(saved->restore_from_saved(buffers, 0)), 1, "buffers restored");
  run.expect_equal(*saved, *c.whole, "restored");
  run.expect_error(type_error, "copy from MXFP8", [&] { c.whole->copy_from_storage(*c.mx); });
  run.expect_equal(unpickled(pickled(*c.whole))->dequantize(c.session), c.x, "pickled and back");
  run.expect_equal(static_cast<int64_t>(c.whole->fsdp_extract_buffers().buffers.size()), 1,
                   "buffers gathered");
  for (const StoragePtr& shard : {c.whole, c.cast_first})
    for (const DType parameter : {DType::bfloat16, DType::float32}) identity_gathers(c, shard, parameter);
}

void identity_shapes(IdentityCase& c) {
  ScenarioRun& run = c.run;
  run.about("shapes");
  run.expect_equal(position(identity(c.whole->view({96, 64})).hp_data, c.x), 0, "a view's place");
  const std::vector<Piece> pieces = split(c.session, *c.whole, 40, 1);
  run.expect_equal(static_cast<int64_t>(pieces.size()), 3, "pieces of 96 columns by 40");
  for (size_t i = 0; i < pieces.size(); ++i)
    run.expect_equal(position(identity(pieces[i]).hp_data, c.x), static_cast<int64_t>(40 * i),
                     "a piece's place");
  run.expect_equal(position(identity(slice(c.session, *c.whole, 0, 8, 24)).hp_data, c.x), 8 * 96,
                   "a slice's place");
  run.expect_equal(identity(as_strided(c.session, *c.cut, {4, 4}, {96, 1})).hp_data,
                   contiguous(slice(slice(c.part, 0, 0, 4), 1, 0, 4)),
                   "strides from the payload's own offset");
  run.expect_equal(position(identity(as_strided(c.session, *c.cut, {4, 4}, {96, 1}, 5)).hp_data, c.x), 5,
                   "strides from a given offset");
  const ArrayPtr copied = identity(clone(*c.cut)).hp_data;
  run.expect(!share_memory(*copied, *c.x) && copied->offset == 0,
             "a clone's memory is its own, from the start");
  run.expect_equal(copied, contiguous(c.part), "a clone's bytes");
  const StoragePtr zero = new_zeros(c.session, *c.cast_first, {8, 8});
  run.expect_equal(identity(zero).hp_data, zeros({8, 8}, DType::float32), "new_zeros");
  const StoragePtr target = c.q.copy()->quantize(c.session, clone(c.x));
  const ArrayPtr buffer = identity(target).hp_data;
  copy_into(c.session, *c.q.copy()->quantize(c.session, c.other), *target);
  run.expect(identity(target).hp_data == buffer, "copy_ writes in place");
  run.expect_equal(buffer, c.other, "copy_ from Identity");
  copy_into(c.session, c.x, *target);
  run.expect_equal(identity(target).hp_data, c.x, "copy_ from a plain tensor");
}

void identity_elsewhere(IdentityCase& c) {
  ScenarioRun& run = c.run;
  run.about("elsewhere");
  const auto quantizers = std::vector<QuantizerPtr>(3, std::make_shared<IdentityQuantizer>());
  const std::vector<int64_t> rows = {32, 0, 32};
  const auto views =
      split_quantize(c.session, c.x, rows, quantizers, {DType::bfloat16, false, false}).outputs;
  run.expect(std::holds_alternative<ArrayPtr>(views[2]), "a grouped split gives plain views", "plain",
             "quantized");
  if (const ArrayPtr* last = std::get_if<ArrayPtr>(&views[2]))
    run.expect_equal(position(*last, c.x), 32 * 96, "a split's place");
  const auto objects =
      split_quantize(c.session, c.x, rows,
                     std::vector<QuantizerPtr>(3, std::make_shared<IdentityQuantizer>(DType::float32)),
                     {DType::bfloat16, false, false})
          .outputs;
  run.expect(std::holds_alternative<StoragePtr>(objects[2]), "of another dtype, storage objects", "quantized",
             "plain");
  GemmOptions o;
  const ArrayPtr w = drawn({32, 96}, DType::bfloat16, 4);
  run.expect_equal(std::get<ArrayPtr>(general_gemm(c.session, w, c.whole, GemmOp::TN, o)),
                   std::get<ArrayPtr>(general_gemm(c.session, w, c.x, GemmOp::TN, o)),
                   "a GEMM takes the plain tensor");
}

void identity_contracts(ScenarioRun& run) {
  IdentityCase c(run);
  identity_quantizes(c);
  identity_updates(c);
  identity_storage(c);
  identity_shapes(c);
  identity_elsewhere(c);
}

// S-42. Built-in overrides of the backward pass are hybrids whose columns are Identity.
void high_precision_backward(ScenarioRun& run) {
  struct Format {
    string_view name;
    RecipePtr (*recipe)();
    QuantizerPtr (*make)(bool weight);
  };
  constexpr Format kRowFormats[] = {
      {"CS", [] { return built_in_recipe("fp8_current"); },
       [](bool) -> QuantizerPtr { return std::make_shared<Float8CurrentScalingQuantizer>(); }},
      {"MX", [] { return built_in_recipe("mxfp8"); },
       [](bool) -> QuantizerPtr { return std::make_shared<MXFP8Quantizer>(); }},
      {"FP4rs",
       [] {
         const auto r = std::make_shared<NVFP4BlockScaling>();
         r->disable_rht = r->disable_stochastic_rounding = r->disable_2d_quantization =
             r->row_scaled_activation = true;
         return RecipePtr(r);
       },
       [](bool weight) -> QuantizerPtr {
         const auto q = std::make_shared<NVFP4Quantizer>();
         q->row_scaled_nvfp4 = !weight;
         return q;
       }},
  };
  for (const string_view module : {"linear", "layernorm_linear", "grouped_linear"})
    for (const Format& f : kRowFormats)
      for (const auto& [source, how] : {std::pair<string, string>("original", "high_precision"),
                                        {"rowwise_dequantized", "dequantized"}}) {
        run.about(string(module) + ", H(" + string(f.name) + "|ID), " + source);
        const RecipePtr builtin = f.recipe();
        builtin->backward_override = how;
        const RecipePtr custom =
            by_tensor([&, &source = source](const string& tensor, const RolePtr&) -> QuantizerLike {
              if (tensor == "grad_output") return std::make_shared<IdentityQuantizer>();
              return std::make_shared<HybridQuantizer>(f.make(tensor == "weight"),
                                                       std::make_shared<IdentityQuantizer>(), source);
            });
        const ModuleSettings s{.module = module};
        const StepRecord vanilla = step_of(run, s, under(builtin)), hybrid = step_of(run, s, under(custom));
        expect_same_steps(run, hybrid, vanilla);
        // The two overrides are not one another.
        const RecipePtr none = f.recipe();
        run.expect_different(output_of(hybrid, "dgrad"), output_of(step_of(run, s, under(none)), "dgrad"),
                             "dgrad of the plain recipe");
      }
  run.about("the two sources");
  const auto dgrad = [&](const string& source) {
    return output_of(
        step_of(run, {}, under(per_gemm({"mxfp8", "identity", "identity"}, "input,weight", source))),
        "dgrad");
  };
  run.expect_different(dgrad("original"), dgrad("rowwise_dequantized"), "dgrad");
}

// S-43
void high_precision_forward(ScenarioRun& run) {
  for (const string_view module : {"linear", "layernorm_linear", "grouped_linear", "ops_linear"})
    for (const int64_t rows : {64, 96}) {
      const ModuleSettings s{.module = module, .rows = rows};
      const StepRecord bf16 = step_of(run, s, under(nullptr));
      for (const string_view f : kFormats) {
        run.about(string(module) + ", H(ID|" + string(f) + "), " + std::to_string(rows) + " rows");
        const StepRecord quantized = step_of(run, s, under(built_in_recipe(f))),
                         hybrid = step_of(run, s, under(per_gemm({"identity", f, f})));
        expect_same_gemms(run, hybrid, bf16, "fprop");
        expect_same_output(run, hybrid, bf16, "output");
        for (const string_view gemm : {"dgrad", "wgrad"}) expect_same_gemms(run, hybrid, quantized, gemm);
        for (const NamedArray& o : quantized.outputs)
          if (o.name != "output") expect_same_output(run, hybrid, quantized, o.name);
        run.expect_different(output_of(hybrid, "dgrad"), output_of(bf16, "dgrad"),
                             "dgrad of the unquantized step");
      }
    }
}

constexpr Scenario kIdentityScenarios[] = {
    {"S-40", "All-Identity does not quantize",
     "every module with ID or H(ID|ID) in all slots, with bias and without", "a step runs",
     "without bias everything equals the unquantized step; with bias output, dgrad and bias gradients do",
     all_identity, ""},
    {"S-41", "Identity's contracts", "tensors with gaps and offsets, a configured dtype, every noop flag",
     "Identity quantizes, updates, views, splits, saves, gathers, copies and multiplies",
     "it aliases what it can, casts where a dtype is set, freezes at any flag but zero, binds a source of "
     "another shape, keeps strides and offsets, and "
     "refuses a gathered payload of another dtype",
     identity_contracts, ""},
    {"S-42", "High-precision backward",
     "Linear, LayerNormLinear and GroupedLinear with H(q|ID), q of CS, MX and row-scaled NVFP4",
     "columns come from the original, or from dequantized rows",
     "a step equals backward_override high_precision, or dequantized", high_precision_backward, ""},
    {"S-43", "High-precision forward",
     "modules with input and weight H(ID|q) and gradient q, in four formats", "a step runs",
     "fprop equals the unquantized one; dgrad, wgrad and bias gradients equal those of plain q",
     high_precision_forward, ""},
};

}  // namespace

std::span<const Scenario> identity_scenarios() { return kIdentityScenarios; }

}  // namespace assay::training
