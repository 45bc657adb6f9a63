#include "training/modules/linear_core.h"

#include "training/f32.h"
#include "training/hybrid.h"

namespace assay::training {
namespace {

bool is(const Quantizer* q, std::string_view class_name) { return q && q->class_name() == class_name; }

Quantizer& wanted(const QuantizerPtr& q, const std::string& who) {
  if (!q) throw SemanticError(ErrorClass::runtime_error, "'" + who + "' has no quantizer although quantization is on: its operation declares no such slot");
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

bool saves_plain(const LinearCall& c) { return !c.plan.quantized || c.plan.backward_override == BackwardOverride::high_precision; }

std::string named(const LinearCall& c, std::string_view what) { return c.prefix + std::string(what) + c.suffix; }

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
  if (r.backward_override) plan.backward_override = *r.backward_override == "dequantized" ? BackwardOverride::dequantized : BackwardOverride::high_precision;
  plan.split_fprop = r.fprop().use_split_accumulator;
  plan.split_dgrad = r.dgrad().use_split_accumulator;
  plan.split_wgrad = r.wgrad().use_split_accumulator;
  return plan;
}

bool sums_bias_plainly(const Quantizer& q) {
  return q.custom() || is(&q, "HybridQuantizer") || is(&q, "IdentityQuantizer") || is(&q, "Float8BlockQuantizer") || is(&q, "Float8CurrentScalingQuantizer") || is(&q, "NVFP4Quantizer");
}

bool fuses_with_producers(const Quantizer& q) { return !q.custom() && !is(&q, "HybridQuantizer") && !is(&q, "IdentityQuantizer"); }

void expect_recipe_of_weight(const Parameter& weight, const StepOptions& options) {
  const StoragePtr s = storage_of(weight.value);
  if (!s || !s->quantizer || !options.recipe) return;
  const std::string_view made_for = s->quantizer->compatible_recipe(), active = options.recipe->class_name();
  if (active != "CustomRecipe" && made_for != active)
    throw SemanticError(ErrorClass::runtime_error, "Recipe mismatch for '" + weight.name + "': " + std::string(s->class_name()) + " belongs to " + std::string(made_for) + ", the autocast has " +
                                                       std::string(active) + "; use the recipe that the module was built with");
}

bool resolve_save_original_input(Session& session, bool wanted, const Plan& plan, const Quantizer* input) {
  if (plan.backward_override == BackwardOverride::high_precision) return true;
  if (plan.backward_override == BackwardOverride::dequantized) return false;
  if (!wanted || !plan.quantized || !input) return wanted;
  if (is(input, "Float8Quantizer")) {
    if (!plan.custom) throw SemanticError(ErrorClass::value_error, "save_original_input is not possible under DelayedScaling: its scale has moved on when backward quantizes again; build the module without it");
    session.warn("UserWarning", "save_original_input is ignored: the custom recipe gives this input delayed scaling");
    return false;
  }
  if (!can_rebuild_wgrad_input(*input)) {
    session.warn("UserWarning", "save_original_input is ignored: quantizing the input again would not give the columns of this forward");
    return false;
  }
  return true;
}

StoragePtr quantize_for(Session& session, Quantizer& q, const ArrayPtr& x, const std::string& who, Usages usages, const GroupPtr& group, std::optional<F32Bits> local_amax) {
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
    if (c.workspaces) parameter->update_usage(true, columns ? std::optional(true) : std::nullopt);   // asked for, never dropped; an operation asks in backward only
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

LinearForward linear_forward(Session& session, LinearCall c, const Tensorlike& x, bool produced_here) {
  const bool kept_in_rows = c.plan.backward_override == BackwardOverride::dequantized;
  const bool quantizes = c.plan.quantized;
  Tensorlike input = x;
  const StoragePtr given = storage_of(x);
  c.save_original_input = given ? false : resolve_save_original_input(session, c.save_original_input, c.plan, c.quantizers.input.get());
  bool own = produced_here;
  if (quantizes && given) {
    given->update_usage(true, std::nullopt);
  } else if (quantizes) {
    Quantizer& q = wanted(c.quantizers.input, named(c, "input"));
    const bool columns = c.columns_of_input() && !c.save_original_input && c.plan.backward_override == BackwardOverride::none;
    input = quantize_for(session, q, plain(session, x, c.activation_dtype), named(c, "input"), {true, columns}, c.input_group());
    own = true;
  } else {
    input = plain(session, x, c.activation_dtype);
  }

  // Columns of the weight serve dgrad alone.
  const bool columns_of_weight = c.options.grad_enabled && c.input_requires_grad && c.plan.backward_override == BackwardOverride::none;
  Tensorlike weight = quantizes ? quantized_weight(session, c, columns_of_weight) : Tensorlike(plain(session, c.weight->value, c.activation_dtype));

  GemmOptions gemm = gemm_options(c, "fprop", "weight", "input");
  if (c.bias) gemm.bias = plain(session, c.bias->value, quantizes && c.activation_dtype == DType::float32 ? DType::bfloat16 : c.activation_dtype);
  gemm.use_split_accumulator = c.plan.split_fprop;
  if (quantizes && c.options.fp8_output) {
    gemm.out_quantizer = c.quantizers.output;
    if (gemm.out_quantizer) gemm.out_quantizer->set_usage(true, false);
  }
  LinearForward done;
  done.out = general_gemm(session, weight, input, GemmOp::TN, gemm);
  if (c.record) note_usages(c.record, named(c, "weight"), weight);

  if (c.options.grad_enabled) {
    if (saves_plain(c)) {
      weight = plain(session, c.weight->value, c.activation_dtype);
      if (quantizes) input = plain(session, x, c.activation_dtype);
    } else if (kept_in_rows) {
      if (own) storage_of(input)->update_usage(true, false);
    } else if (c.save_original_input) {
      input = plain(session, x, c.activation_dtype);
    } else if (own && c.columns_of_input()) {
      storage_of(input)->update_usage(false, true);
    }
    if (!c.columns_of_input()) input = ArrayPtr{};
    if (c.record && !absent(input)) note_usages(c.record, named(c, "saved input"), input);
    done.saved.input = input;
    done.saved.weight = weight;
  }
  done.saved.call = std::move(c);
  return done;
}

GradOutput prepare_grad_output(Session& session, const LinearSaved& saved, const ArrayPtr& dy) {
  const LinearCall& c = saved.call;
  if (!c.options.grad_enabled) throw SemanticError(ErrorClass::runtime_error, "backward needs what a forward with gradients saves; this one ran without");
  GradOutput out;
  const bool bias = c.bias && c.bias->requires_grad;
  const auto bias_grad = [&](RowSum order) { return cast(session, cast(session, sum_rows(session, dy, order), dy->dtype), c.bias->dtype); };
  if (!c.plan.quantized || c.plan.backward_override != BackwardOverride::none) {
    out.grad = dy;
    if (bias) out.bias_grad = bias_grad(RowSum::plain);
    return out;
  }
  Quantizer& q = wanted(c.quantizers.grad_output, named(c, "grad_output"));
  const Usages usages{c.input_requires_grad, c.weight->requires_grad};
  const bool plainly = sums_bias_plainly(q) || !c.options.fusions.bias_gradient || c.unfused_bias_gradient || c.grad_output_group();
  if (bias) out.bias_grad = bias_grad(plainly ? RowSum::plain : !usages.columnwise && is(&q, "MXFP8Quantizer") ? RowSum::chunks_rowwise_only : RowSum::chunks);
  out.grad = quantize_for(session, q, dy, named(c, "grad_output"), usages, c.grad_output_group());
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
  }
  if (c.weight->requires_grad) {
    Tensorlike input = saved.input;
    if (dequantizes) {
      input = plain(session, input, c.activation_dtype);
    } else if (quantized) {
      if (const StoragePtr s = storage_of(input)) {
        s->update_usage(std::nullopt, true);
      } else {
        input = quantize_for(session, wanted(c.quantizers.input, named(c, "input")), std::get<ArrayPtr>(input), named(c, "input"), {false, true}, c.input_group());
      }
    }
    GemmOptions gemm = gemm_options(c, "wgrad", "input", "grad_output");
    gemm.use_split_accumulator = c.plan.split_wgrad;
    if (c.weight->main_grad) gemm.out_dtype = c.weight->main_grad->dtype, gemm.accumulate_into = c.weight->main_grad;
    const Tensorlike wgrad = general_gemm(session, input, grad_output.grad, GemmOp::NT, gemm);
    c.weight->grad = c.weight->main_grad ? nullptr : std::get<ArrayPtr>(wgrad);
  }
  if (grad_output.bias_grad) c.bias->grad = grad_output.bias_grad;
  return dgrad;
}

}  // namespace assay::training
