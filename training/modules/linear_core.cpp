#include "training/modules/linear_core.h"

#include "training/base/f32.h"
#include "training/formats/hybrid.h"

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

// ---- tensors across ranks (TE distributed.py) ---------------------------------------------------

bool meets(const GroupPtr& group) { return group && group->all_gather; }

ArrayPtr gathered(const GroupPtr& group, const ArrayPtr& local) {
  return concatenate(group->all_gather(clone(local)));
}

void note_gather(Session& session, const GroupPtr& group, const std::string& who) {
  session.collectives.push_back({"all_gather", who, group->name});
}

// All rows of a tensor of which `local` are this rank's. Native formats gather codes: with one amax for all
// ranks, and shards of whole blocks, those of the whole tensor. Others have no gather of codes: they are
// dequantized, gathered and quantized again; `shard` is then this rank's quantized part.
StoragePtr quantized_gather(Session& session, Quantizer& q, const ArrayPtr& local, const std::string& who,
                            Usages usages, const GroupPtr& group, StoragePtr& shard) {
  ArrayPtr whole;
  if (fuses_with_producers(q)) {
    whole = gathered(group, local);
  } else {
    session.warn("UserWarning", std::string(q.class_name()) + " gathers in high precision: '" + who +
                                    "' is dequantized, gathered and quantized again");
    shard = quantize_for(session, q, local, who, usages, group);
    whole = gathered(group, shard->dequantize(session, local->dtype));
    note_gather(session, group, who);
  }
  StoragePtr out = quantize_for(session, q, whole, who, usages, group);
  if (!shard) note_gather(session, group, who);
  return out;
}

// The sum of all ranks' partial results, binary32 in rank order and rounded once; of a scatter this rank's
// rows.
ArrayPtr reduced(Session& session, const GroupPtr& group, const ArrayPtr& partial, const std::string& who,
                 bool scatter) {
  session.collectives.push_back({scatter ? "reduce_scatter" : "all_reduce", who, group->name});
  ArrayPtr sum;
  for (const ArrayPtr& part : group->all_gather(clone(partial)))
    sum = sum ? add(session, sum, part) : cast(session, part, DType::float32);
  sum = cast(session, sum, partial->dtype);
  if (!scatter) return sum;
  const int64_t rows = sum->shape[0] / group->size;
  return clone(slice(sum, 0, group->rank * rows, (group->rank + 1) * rows));
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
    if (c.workspaces)
      parameter->update_usage(
          true, columns ? std::optional(true)
                        : std::nullopt);  // asked for, never dropped; an operation asks in backward only
    event("parameter");
    return parameter;
  }
  const ArrayPtr x = cast(session, std::get<ArrayPtr>(c.weight->value), c.activation_dtype);
  const bool kept = c.workspaces && c.options.is_first_microbatch.has_value();
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

// The input as the GEMM reads it.
struct ForwardInput {
  Tensorlike value;
  bool own = false;     // made here, so that this layer may drop a direction
  bool gather = false;  // gathered from all ranks
  StoragePtr shard;     // this rank's part of an input that is gathered in high precision
};

ForwardInput input_of(Session& session, const LinearCall& c, const Tensorlike& x, bool produced_here) {
  const StoragePtr given = storage_of(x);
  const GroupPtr group = c.input_group();
  ForwardInput input{x, produced_here, meets(group) && !given, nullptr};
  if (c.plan.quantized && given) {
    given->update_usage(true, std::nullopt);
  } else if (c.plan.quantized) {
    Quantizer& q = wanted(c.quantizers.input, named(c, "input"));
    const bool columns =
        c.columns_of_input() && !c.save_original_input && c.plan.backward_override == BackwardOverride::none;
    const Usages usages{true, columns};
    const ArrayPtr local = plain(session, x, c.activation_dtype);
    if (input.gather)
      input.value = quantized_gather(session, q, local, named(c, "input"), usages, group, input.shard);
    else input.value = quantize_for(session, q, local, named(c, "input"), usages, group);
    input.own = true;
  } else {
    input.value = plain(session, x, c.activation_dtype);
    if (input.gather) {
      input.value = gathered(group, std::get<ArrayPtr>(input.value));
      note_gather(session, group, named(c, "input"));
    }
  }
  return input;
}

Tensorlike forward_gemm(Session& session, const LinearCall& c, const Tensorlike& weight,
                        const Tensorlike& input) {
  GemmOptions gemm = gemm_options(c, "fprop", "weight", "input");
  const bool partial = c.parallel_mode == ParallelMode::row && meets(c.options.tp_group);
  const bool narrow = c.plan.quantized && c.activation_dtype == DType::float32;
  const ArrayPtr bias =
      c.bias ? plain(session, c.bias->value, narrow ? DType::bfloat16 : c.activation_dtype) : nullptr;
  if (!partial) gemm.bias = bias;
  gemm.use_split_accumulator = c.plan.split_fprop;
  if (c.plan.quantized && c.options.fp8_output) {
    gemm.out_quantizer = c.quantizers.output;
    if (gemm.out_quantizer) gemm.out_quantizer->set_usage(true, false);
  }
  Tensorlike out = general_gemm(session, weight, input, GemmOp::TN, gemm);
  if (!partial) return out;
  out =
      reduced(session, c.options.tp_group, std::get<ArrayPtr>(out), named(c, "output"), c.sequence_parallel);
  return bias ? add_bias(session, std::get<ArrayPtr>(out), bias) : out;
}

// What backward gets: the original input `x`, or what `input` and `weight` still hold of their directions.
void save(Session& session, const LinearCall& c, const Tensorlike& x, ForwardInput input, Tensorlike weight,
          LinearSaved& saved) {
  using Gather = LinearSaved::Gather;
  if (input.gather) saved.gather = Gather::again;
  if (saves_plain(c)) {
    weight = plain(session, c.weight->value, c.activation_dtype);
    if (c.plan.quantized || input.gather) input.value = plain(session, x, c.activation_dtype);
  } else if (c.plan.backward_override == BackwardOverride::dequantized) {
    if (input.own) storage_of(input.value)->update_usage(true, false);
    if (input.gather) saved.gather = Gather::done;
  } else if (c.save_original_input) {
    input.value = plain(session, x, c.activation_dtype);
  } else if (input.shard) {  // the weight's quantizer is asked, as in the original (semantics of TE
                             // module/linear.py)
    const bool rows = wanted(c.quantizers.weight, named(c, "weight")).supports_only_rowwise_all_gather();
    if (c.columns_of_input()) input.shard->update_usage(rows, !rows);
    input.value = input.shard;
  } else if (input.own && c.columns_of_input()) {
    storage_of(input.value)->update_usage(false, true);
    if (input.gather) saved.gather = Gather::done;
  }
  if (!c.columns_of_input()) input.value = ArrayPtr{};
  if (c.record && !absent(input.value)) note_usages(c.record, named(c, "saved input"), input.value);
  saved.input = input.value;
  saved.weight = weight;
}

}  // namespace

LinearForward linear_forward(Session& session, LinearCall c, const Tensorlike& x, bool produced_here) {
  c.save_original_input = !storage_of(x) && resolve_save_original_input(session, c.save_original_input,
                                                                        c.plan, c.quantizers.input.get());
  const ForwardInput input = input_of(session, c, x, produced_here);
  // Columns of the weight serve dgrad alone.
  const bool columns_of_weight =
      c.options.grad_enabled && c.input_requires_grad && c.plan.backward_override == BackwardOverride::none;
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

GradOutput prepare_grad_output(Session& session, const LinearSaved& saved, const ArrayPtr& dy) {
  const LinearCall& c = saved.call;
  if (!c.options.grad_enabled)
    throw SemanticError(ErrorClass::runtime_error,
                        "backward needs what a forward with gradients saves; this one ran without");
  GradOutput out;
  const bool bias = c.bias && c.bias->requires_grad;
  const auto bias_grad = [&](RowSum order) {
    return cast(session, cast(session, sum_rows(session, dy, order), dy->dtype), c.bias->dtype);
  };
  if (!c.plan.quantized || c.plan.backward_override != BackwardOverride::none) {
    out.grad = dy;
    if (const GroupPtr group = c.grad_output_group(); meets(group)) {
      out.grad = gathered(group, dy);
      note_gather(session, group, named(c, "grad_output"));
    }
    if (bias) out.bias_grad = bias_grad(RowSum::plain);
    return out;
  }
  Quantizer& q = wanted(c.quantizers.grad_output, named(c, "grad_output"));
  const Usages usages{c.input_requires_grad, c.weight->requires_grad};
  const bool plainly = sums_bias_plainly(q) || !c.options.fusions.bias_gradient || c.unfused_bias_gradient ||
                       c.grad_output_group();
  if (bias)
    out.bias_grad = bias_grad(plainly                                          ? RowSum::plain
                              : !usages.columnwise && is(&q, "MXFP8Quantizer") ? RowSum::chunks_rowwise_only
                                                                               : RowSum::chunks);
  StoragePtr shard;
  const GroupPtr group = c.grad_output_group();
  out.grad = meets(group) ? quantized_gather(session, q, dy, named(c, "grad_output"), usages, group, shard)
                          : quantize_for(session, q, dy, named(c, "grad_output"), usages, group);
  return out;
}

Tensorlike linear_backward(Session& session, const LinearSaved& saved, const GradOutput& grad_output) {
  const LinearCall& c = saved.call;
  const bool quantized = c.plan.quantized && c.plan.backward_override == BackwardOverride::none;
  const bool dequantizes = c.plan.quantized && c.plan.backward_override == BackwardOverride::dequantized;
  Tensorlike dgrad = ArrayPtr{};
  if (c.input_requires_grad) {
    Tensorlike weight = saved.weight;
    if (dequantizes) weight = plain(session, weight, c.activation_dtype);
    if (quantized) storage_of(weight)->update_usage(std::nullopt, true);
    GemmOptions gemm = gemm_options(c, "dgrad", "weight", "grad_output");
    gemm.use_split_accumulator = c.plan.split_dgrad;
    if (quantized && c.options.fp8_grad) {
      gemm.out_quantizer = c.quantizers.grad_input;
      if (gemm.out_quantizer) gemm.out_quantizer->set_usage(true, false);
    }
    dgrad = general_gemm(session, weight, grad_output.grad, GemmOp::NN, gemm);
    if (c.parallel_mode == ParallelMode::column && meets(c.options.tp_group))
      dgrad = reduced(session, c.options.tp_group, std::get<ArrayPtr>(dgrad), named(c, "dgrad"),
                      c.sequence_parallel);
  }
  if (c.weight->requires_grad) {
    Tensorlike input = saved.input;
    if (saved.gather != LinearSaved::Gather::none) note_gather(session, c.input_group(), named(c, "input"));
    if (saved.gather == LinearSaved::Gather::again) {
      const ArrayPtr whole = gathered(c.input_group(), plain(session, input, c.activation_dtype));
      input = whole;
      if (quantized) {
        Quantizer& q = wanted(c.quantizers.input, named(c, "input"));
        input = quantize_for(session, q, whole, named(c, "input"), wgrad_gather_usages(q), c.input_group());
      }
    }
    if (dequantizes) {
      input = plain(session, input, c.activation_dtype);
    } else if (quantized) {
      if (const StoragePtr s = storage_of(input)) {
        s->update_usage(std::nullopt, true);
      } else {
        input = quantize_for(session, wanted(c.quantizers.input, named(c, "input")),
                             std::get<ArrayPtr>(input), named(c, "input"), {false, true}, c.input_group());
      }
    }
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
