#include "training/modules/linear_core.h"

#include "training/base/f32.h"
#include "training/formats/hybrid.h"
#include "training/modules/tensor_parallel.h"
#include "training/ranks/fsdp.h"

namespace assay::training {
namespace {

bool is(const Quantizer* q, std::string_view class_name) { return q && q->class_name() == class_name; }

Quantizer& wanted(const QuantizerPtr& q, const std::string& who) {
  if (!q)
    throw SemanticError(
        ErrorClass::runtime_error,
        "'" + who + "' has no quantizer although quantization is on: its operation declares no such slot");
  return *q;
}

StoragePtr storage_of(const Tensorlike& t) {
  const StoragePtr* s = std::get_if<StoragePtr>(&t);
  return s ? *s : nullptr;
}

void note_usages(StepRecord* record, const std::string& name, const Tensorlike& t) {
  if (!record) return;
  const StoragePtr s = storage_of(t);
  record->usages.push_back({name, s ? s->present() : Usages{false, false}});
}

bool saves_plain(const LinearCall& c) {
  return !c.plan.quantized || c.plan.backward_override == BackwardOverride::high_precision;
}

std::string named(const LinearCall& c, std::string_view what) {
  return c.prefix + std::string(what) + c.suffix;
}

GemmOptions gemm_options(const LinearCall& c, std::string_view name, std::string_view a, std::string_view b) {
  GemmOptions o;
  o.out_dtype = c.activation_dtype;
  o.name = named(c, name);
  o.a = named(c, a);
  o.b = named(c, b);
  if (c.record) o.record = &c.record->gemms;
  return o;
}

}  // namespace

Plan plan_of(const StepOptions& options) {
  Plan plan;
  if (!options.recipe) return plan;
  const Recipe& r = *options.recipe;
  plan.quantized = true;
  plan.custom = r.custom();
  if (r.backward_override)
    plan.backward_override = *r.backward_override == "dequantized" ? BackwardOverride::dequantized
                                                                   : BackwardOverride::high_precision;
  plan.split_fprop = r.fprop().use_split_accumulator;
  plan.split_dgrad = r.dgrad().use_split_accumulator;
  plan.split_wgrad = r.wgrad().use_split_accumulator;
  return plan;
}

bool sums_bias_plainly(const Quantizer& q) {
  return q.custom() || is(&q, "HybridQuantizer") || is(&q, "IdentityQuantizer") ||
         is(&q, "Float8BlockQuantizer") || is(&q, "Float8CurrentScalingQuantizer") ||
         is(&q, "NVFP4Quantizer");
}

bool fuses_with_producers(const Quantizer& q) {
  return !q.custom() && !is(&q, "HybridQuantizer") && !is(&q, "IdentityQuantizer");
}

void expect_recipe_of_weight(const Parameter& weight, const StepOptions& options) {
  const StoragePtr s = storage_of(weight.value);
  if (s && options.recipe) check_weight_recipe(*options.recipe, s->quantizer.get(), weight.name);
}

bool resolve_save_original_input(Session& session, bool wanted, const Plan& plan, const Quantizer* input) {
  if (plan.backward_override == BackwardOverride::high_precision) return true;
  if (plan.backward_override == BackwardOverride::dequantized) return false;
  if (!wanted || !plan.quantized || !input) return wanted;
  if (is(input, "Float8Quantizer")) {
    if (!plan.custom)
      throw SemanticError(ErrorClass::value_error,
                          "save_original_input is not possible under DelayedScaling: its scale has moved on "
                          "when backward quantizes again; build the module without it");
    session.warn("UserWarning",
                 "save_original_input is ignored: the custom recipe gives this input delayed scaling");
    return false;
  }
  if (!can_rebuild_wgrad_input(*input)) {
    session.warn("UserWarning",
                 "save_original_input is ignored: quantizing the input again would not give the columns of "
                 "this forward");
    return false;
  }
  return true;
}

StoragePtr quantize_for(Session& session, Quantizer& q, const ArrayPtr& x, const std::string& who,
                        Usages usages, const GroupPtr& group, std::optional<F32Bits> local_amax) {
  q.set_usage(usages.rowwise, usages.columnwise);
  set_amax_reduction_group(q, group);
  AmaxReduction* reduction = q.amax_reduction();
  if (reduction) reduction->local = local_amax;
  session.tensor_name = who;
  StoragePtr out = q.quantize(session, x);
  if (reduction) reduction->local.reset();
  return out;
}

Tensorlike quantized_weight(Session& session, const LinearCall& c, bool columns) {
  const std::string& name = c.weight->name;
  const auto event = [&](const char* what) {
    if (c.record) c.record->cache.push_back({name, what});
  };
  Quantizer& q = wanted(c.quantizers.weight, named(c, "weight"));
  q.set_usage(true, columns);
  session.tensor_name = named(c, "weight");
  if (const StoragePtr parameter = storage_of(c.weight->value)) {
    // Asked for, never dropped; an operation asks in backward only. What FSDP2 gathered has what its own
    // quantizer says, and no columns yet where a forward is resharded.
    const bool asked =
        c.options.fsdp2 ? parameter->quantizer && parameter->quantizer->columnwise_usage : columns;
    if (c.workspaces) parameter->update_usage(true, asked ? std::optional(true) : std::nullopt);
    event("parameter");
    return parameter;
  }
  const ArrayPtr x = cast(session, std::get<ArrayPtr>(c.weight->value), c.activation_dtype);
  const bool kept = c.workspaces && c.options.is_first_microbatch.has_value() && !c.fsdp2();
  StoragePtr workspace;
  if (kept)
    if (const auto found = c.workspaces->find(name); found != c.workspaces->end()) {
      if (workspace_valid(*found->second, q, session.tn_only())) {
        workspace = found->second;
      } else {
        c.workspaces->erase(found);
        event("invalid");
      }
    }
  if (!workspace) {
    const bool internal = q.internal;
    if (kept) q.internal = false;
    workspace = q.quantize(session, x);
    q.internal = internal;
    if (kept) c.workspaces->emplace(name, workspace);
    event(kept ? "built and kept" : "built");
    return workspace;
  }
  if (c.options.skip_weight_update || *c.options.is_first_microbatch) {
    workspace->quantizer->update_quantized(session, x, *workspace, c.options.skip_weight_update);
    event(c.options.skip_weight_update == F32Bits{0x3F800000} ? "update skipped" : "updated");
  } else {
    event("reused");
  }
  return workspace;
}

namespace {

// The input as the GEMM reads it, and what backward may keep of it.
struct ForwardInput {
  Tensorlike value, kept;
  bool own = false;     // made here, so that this layer may drop a direction
  bool gather = false;  // `value` has the rows of all ranks, `kept` this rank's
};

bool is_custom(const LinearCall& c) {
  return c.quantizers.input->custom() || (c.quantizers.weight && c.quantizers.weight->custom());
}

// Which directions of the input this rank quantizes before they are gathered.
Usages usages_of_shard(const LinearCall& c, const Quantizer& q) {
  const bool rows_travel = c.behind_norm
                               ? q.supports_only_rowwise_all_gather()
                               : is(&q, "Float8Quantizer") || is(&q, "Float8CurrentScalingQuantizer");
  return {true, c.columns_of_input() && !c.save_original_input && !rows_travel &&
                    c.plan.backward_override == BackwardOverride::none};
}

// Column parallel with sequence parallelism: the shard is quantized here, then gathered in rows alone.
ForwardInput gathered_input_of(Session& session, const LinearCall& c, const Tensorlike& x, bool own) {
  ForwardInput input{x, x, own, true};
  const GroupPtr group = c.input_group();
  const std::string who = named(c, "input");
  if (!storage_of(x)) input.kept = plain(session, x, c.activation_dtype);
  if (!c.plan.quantized) {
    input.value = gather(session, input.kept, group, nullptr, who);
    return input;
  }
  Quantizer& q = wanted(c.quantizers.input, who);
  set_amax_reduction_group(q, group);
  if (!storage_of(x) && !is_custom(c) && !c.gathers_plain_shards && c.options.fusions.gathers) {
    input.kept = quantize_for(session, q, std::get<ArrayPtr>(input.kept), who, usages_of_shard(c, q), group);
    input.own = !c.save_original_input;
  }
  q.set_usage(true, false);
  input.value = gather(session, input.kept, group, c.quantizers.input, who, c.options.fusions.gathers);
  return input;
}

ForwardInput input_of(Session& session, const LinearCall& c, const Tensorlike& x, bool produced_here) {
  const GroupPtr group = c.input_group();
  if (meets(group)) return gathered_input_of(session, c, x, produced_here);
  ForwardInput input{x, x, produced_here, false};
  if (!c.plan.quantized) {
    input.value = plain(session, x, c.activation_dtype);
  } else if (const StoragePtr given = storage_of(x)) {
    given->update_usage(true, std::nullopt);
  } else {
    Quantizer& q = wanted(c.quantizers.input, named(c, "input"));
    const bool columns =
        c.columns_of_input() && !c.save_original_input && c.plan.backward_override == BackwardOverride::none;
    input.value = quantize_for(session, q, plain(session, x, c.activation_dtype), named(c, "input"),
                               {true, columns}, group);
    input.own = true;
  }
  input.kept = input.value;
  return input;
}

Tensorlike forward_gemm(Session& session, const LinearCall& c, const Tensorlike& weight,
                        const Tensorlike& input) {
  GemmOptions gemm = gemm_options(c, "fprop", "weight", "input");
  const bool row = c.parallel_mode == ParallelMode::row;  // a bias comes after what ranks do, on one rank too
  const bool narrow = c.plan.quantized && c.activation_dtype == DType::float32;
  const ArrayPtr bias =
      c.bias ? plain(session, c.bias->value, narrow && !row ? DType::bfloat16 : c.activation_dtype) : nullptr;
  if (!row) gemm.bias = bias;
  gemm.use_split_accumulator = c.plan.split_fprop;
  if (c.plan.quantized && c.options.fp8_output) {
    gemm.out_quantizer = c.quantizers.output;
    if (gemm.out_quantizer) gemm.out_quantizer->set_usage(true, false);
  }
  Tensorlike out = general_gemm(session, weight, input, GemmOp::TN, gemm);
  if (!row) return out;
  if (meets(c.options.tp_group))
    out = reduced(session, c.options.tp_group, std::get<ArrayPtr>(out), named(c, "output"),
                  c.sequence_parallel);
  return bias ? add_bias(session, plain(session, out, c.activation_dtype), bias) : out;
}

// Which direction of an own quantized input is kept. Of one that backward gathers, the columns travel, or the
// rows where columns cannot: a plain layer asks the weight's quantizer, as the original does; one behind a
// norm drops rows of the block formats alone, so that a hybrid keeps both and gathers its rows.
void drop_direction(const LinearCall& c, const ForwardInput& input) {
  Storage& kept = *storage_of(input.kept);
  if (input.gather && c.behind_norm) {
    const std::string_view of = kept.quantizer ? kept.quantizer->class_name() : "";
    if (of == "MXFP8Quantizer" || of == "Float8BlockQuantizer") kept.update_usage(false, std::nullopt);
    return;
  }
  const bool rows =
      input.gather && wanted(c.quantizers.weight, named(c, "weight")).supports_only_rowwise_all_gather();
  kept.update_usage(rows, !rows);
}

// What backward gets: the original input `x`, or what is kept of the quantized one, and the weight.
void save(Session& session, const LinearCall& c, const Tensorlike& x, ForwardInput input, Tensorlike weight,
          LinearSaved& saved) {
  saved.gather = input.gather;
  if (saves_plain(c)) {
    weight = plain(session, c.weight->value, c.activation_dtype);
    if (c.plan.quantized || input.gather) input.kept = plain(session, x, c.activation_dtype);
  } else if (c.plan.backward_override == BackwardOverride::dequantized) {
    if (input.own && storage_of(input.kept)) storage_of(input.kept)->update_usage(true, false);
  } else if (c.save_original_input) {
    input.kept = plain(session, x, c.activation_dtype);
  } else if (input.own && c.columns_of_input() && storage_of(input.kept)) {
    drop_direction(c, input);
  }
  if (!c.columns_of_input()) input.kept = ArrayPtr{};
  // FSDP2: a workspace of a plain weight is not kept; backward quantizes the gathered weight again.
  if (c.fsdp2() && c.plan.quantized && !saves_plain(c) && !storage_of(c.weight->value)) weight = ArrayPtr{};
  if (c.record && !absent(input.kept)) note_usages(c.record, named(c, "saved input"), input.kept);
  saved.input = input.kept;
  saved.weight = weight;
}

}  // namespace

LinearForward linear_forward(Session& session, LinearCall c, const Tensorlike& x, bool produced_here) {
  c.save_original_input = !storage_of(x) && resolve_save_original_input(session, c.save_original_input,
                                                                        c.plan, c.quantizers.input.get());
  const ForwardInput input = input_of(session, c, x, produced_here);
  // Columns of the weight serve dgrad alone. A first forward of a region that is recomputed makes them for
  // the workspace that backward finds; the recompute does not ask again.
  const bool columns_of_weight = (c.options.grad_enabled && c.input_requires_grad && !c.fsdp2() &&
                                  c.plan.backward_override == BackwardOverride::none) ||
                                 c.options.first_of_recompute;
  const Tensorlike weight = c.plan.quantized
                                ? quantized_weight(session, c, columns_of_weight)
                                : Tensorlike(plain(session, c.weight->value, c.activation_dtype));
  LinearForward done;
  done.out = forward_gemm(session, c, weight, input.value);
  if (c.record) note_usages(c.record, named(c, "weight"), weight);
  if (c.options.grad_enabled) save(session, c, x, input, weight, done.saved);
  done.saved.call = std::move(c);
  return done;
}

ArrayPtr add_bias(Session& session, const ArrayPtr& y, const ArrayPtr& bias) {
  const Shape s = flattened(y->shape);
  if (s.rows == 0) return y;
  const std::vector<ArrayPtr> rows(static_cast<size_t>(s.rows), view(bias, {1, s.cols}));
  return cast(session, add(session, y, concatenate(rows)), y->dtype);
}

namespace {

// The gradient where nothing is quantized: gathered as it is.
GradOutput plain_grad_output(Session& session, const LinearCall& c, const ArrayPtr& dy,
                             const ArrayPtr& bias) {
  const GroupPtr group = c.grad_output_group();
  if (!meets(group)) return {dy, bias};
  return {gather(session, dy, group, nullptr, named(c, "grad_output")), bias};
}

}  // namespace

GradOutput prepare_grad_output(Session& session, const LinearSaved& saved, const Tensorlike& given) {
  const LinearCall& c = saved.call;
  if (!c.options.grad_enabled)
    throw SemanticError(ErrorClass::runtime_error,
                        "backward needs what a forward with gradients saves; this one ran without");
  GradOutput out;
  const bool bias = c.bias && c.bias->requires_grad;
  const StoragePtr quantized = storage_of(given);
  const ArrayPtr dy = !quantized ? std::get<ArrayPtr>(given)
                      : bias     ? quantized->dequantize(session)
                                 : nullptr;
  const auto bias_grad = [&](RowSum order) {
    return cast(session, cast(session, sum_rows(session, dy, order), dy->dtype), c.bias->dtype);
  };
  if (quantized) {
    quantized->update_usage(true, c.weight->requires_grad ? std::optional(true) : std::nullopt);
    return {quantized, bias ? bias_grad(RowSum::plain) : nullptr};
  }
  if (!c.plan.quantized || c.plan.backward_override != BackwardOverride::none)
    return plain_grad_output(session, c, dy, bias ? bias_grad(RowSum::plain) : nullptr);
  Quantizer& q = wanted(c.quantizers.grad_output, named(c, "grad_output"));
  const Usages usages{c.input_requires_grad, c.weight->requires_grad};
  // Row parallel, the bias is added outside of the layer, so its gradient is the plain sum of this rank's.
  const bool plainly = sums_bias_plainly(q) || !c.options.fusions.bias_gradient || c.unfused_bias_gradient ||
                       c.parallel_mode == ParallelMode::row;
  if (bias)
    out.bias_grad = bias_grad(plainly                                          ? RowSum::plain
                              : !usages.columnwise && is(&q, "MXFP8Quantizer") ? RowSum::chunks_rowwise_only
                                                                               : RowSum::chunks);
  const GroupPtr group = c.grad_output_group();
  if (!meets(group)) {
    out.grad = quantize_for(session, q, dy, named(c, "grad_output"), usages, group);
    return out;
  }
  set_amax_reduction_group(q, group);
  q.set_usage(true, usages.columnwise);
  out.grad = gather(session, dy, group, c.quantizers.grad_output, named(c, "grad_output"),
                    c.options.fusions.gathers);
  return out;
}

Tensorlike wgrad_input(Session& session, const LinearSaved& saved) {
  const LinearCall& c = saved.call;
  if (!c.weight->requires_grad) return ArrayPtr{};
  const bool quantized = c.plan.quantized && c.plan.backward_override == BackwardOverride::none;
  const std::string who = named(c, "input");
  const GroupPtr group = c.input_group();
  Tensorlike input = saved.input;
  if (!quantized) {
    input = plain(session, input, c.activation_dtype);
    return saved.gather ? gather(session, input, group, nullptr, who) : input;
  }
  const QuantizerPtr& q = c.quantizers.input;
  const bool given = storage_of(input) != nullptr;
  const bool quantized_here = !is_custom(c) && !c.gathers_plain_shards && c.options.fusions.gathers;
  if (!given && (!saved.gather || quantized_here)) {
    Quantizer& made_by = wanted(q, who);
    const bool rows = made_by.supports_only_rowwise_all_gather();
    const Usages usages = saved.gather ? Usages{rows, !rows} : Usages{false, true};
    input = quantize_for(session, made_by, std::get<ArrayPtr>(input), who, usages, group);
  }
  if (!saved.gather) return input;
  const Usages usages = c.gathers_plain_shards ? Usages{false, true} : wgrad_gather_usages(*q);
  set_amax_reduction_group(*q, group);
  q->set_usage(usages.rowwise, usages.columnwise);
  return gather(session, input, group, q, who, c.options.fusions.gathers);
}

namespace {

// The weight as dgrad reads it. Under FSDP2 a plain one is quantized again, in both directions.
Tensorlike weight_of_dgrad(Session& session, const LinearSaved& saved) {
  const LinearCall& c = saved.call;
  const bool quantized = c.plan.quantized && c.plan.backward_override == BackwardOverride::none;
  if (!quantized) return c.plan.quantized ? plain(session, saved.weight, c.activation_dtype) : saved.weight;
  Tensorlike weight = saved.weight;
  if (absent(weight)) {
    const ArrayPtr x = cast(session, std::get<ArrayPtr>(c.weight->value), c.activation_dtype);
    weight = quantize_for(session, wanted(c.quantizers.weight, named(c, "weight")), x, named(c, "weight"),
                          {true, true});
    if (c.record) c.record->cache.push_back({c.weight->name, "built again"});
  }
  storage_of(weight)->update_usage(std::nullopt, true);
  return weight;
}

Tensorlike dgrad_of(Session& session, const LinearSaved& saved, const Tensorlike& grad_output) {
  const LinearCall& c = saved.call;
  const bool quantized = c.plan.quantized && c.plan.backward_override == BackwardOverride::none;
  const Tensorlike weight = weight_of_dgrad(session, saved);
  GemmOptions gemm = gemm_options(c, "dgrad", "weight", "grad_output");
  gemm.use_split_accumulator = c.plan.split_dgrad;
  if (quantized && c.options.fp8_grad) {
    gemm.out_quantizer = c.quantizers.grad_input;
    if (gemm.out_quantizer) gemm.out_quantizer->set_usage(true, false);
  }
  const Tensorlike dgrad = general_gemm(session, weight, grad_output, GemmOp::NN, gemm);
  if (quantized && c.fsdp2()) clear_columns(*storage_of(weight));
  if (c.parallel_mode != ParallelMode::column || !meets(c.options.tp_group)) return dgrad;
  return reduced(session, c.options.tp_group, std::get<ArrayPtr>(dgrad), named(c, "dgrad"),
                 c.sequence_parallel);
}

}  // namespace

Tensorlike linear_backward(Session& session, const LinearSaved& saved, const GradOutput& grad_output,
                           Tensorlike input) {
  const LinearCall& c = saved.call;
  const bool quantized = c.plan.quantized && c.plan.backward_override == BackwardOverride::none;
  if (absent(input)) input = wgrad_input(session, saved);  // before dgrad, whose GEMM hides the gather
  Tensorlike dgrad = ArrayPtr{};
  if (c.input_requires_grad) dgrad = dgrad_of(session, saved, grad_output.grad);
  if (c.weight->requires_grad) {
    if (quantized) storage_of(input)->update_usage(std::nullopt, true);
    GemmOptions gemm = gemm_options(c, "wgrad", "input", "grad_output");
    gemm.use_split_accumulator = c.plan.split_wgrad;
    if (c.weight->main_grad)
      gemm.out_dtype = c.weight->main_grad->dtype, gemm.accumulate_into = c.weight->main_grad;
    const Tensorlike wgrad = general_gemm(session, input, grad_output.grad, GemmOp::NT, gemm);
    c.weight->grad = c.weight->main_grad ? nullptr : std::get<ArrayPtr>(wgrad);
  }
  if (grad_output.bias_grad) c.bias->grad = grad_output.bias_grad;
  return dgrad;
}

}  // namespace assay::training
