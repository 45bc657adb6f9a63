#include "training/modules/ops_linear.h"

#include "training/f32.h"

namespace assay::training {

void preserve_usages(Quantizer& q, Parameter& weight, UsagePolicy policy) {
  const StoragePtr* quantized = std::get_if<StoragePtr>(&weight.value);
  if (!quantized || !(*quantized)->quantizer) return;
  const Usages own = (*quantized)->quantizer->usages();
  if (policy == UsagePolicy::assign) q.set_usage(own.rowwise, own.columnwise);
  else q.set_usage(own.rowwise || q.rowwise_usage, own.columnwise || q.columnwise_usage);
  (*quantized)->quantizer = q.copy();
}

void prepare_operands(Quantizer& input, Quantizer& grad_output, const Parameter& weight, const StepOptions& options) {
  input.internal = grad_output.internal = true;
  const bool columns = options.grad_enabled && weight.requires_grad && plan_of(options).backward_override == BackwardOverride::none;
  input.set_usage(true, columns);
  grad_output.set_usage(true, columns);
}

OpsLinear::OpsLinear(Session&, OpsLinearSettings s) : settings(std::move(s)), state({"BasicLinear", settings.name, 1}) {
  parameters.push_back(make_parameter("weight", {settings.out_features, settings.in_features}, settings.params_dtype));
  if (settings.bias) parameters.push_back(make_parameter("bias", {settings.out_features}, settings.params_dtype));
}

void OpsLinear::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  state.reset_recipe_state(session, recipe);
  quantize_parameter(session, parameter("weight"), *state.get_quantizer(Mode::forward, 1), grad_enabled);
}

void OpsLinear::prepare(Session& session, const StepOptions& options) {
  state.reset_recipe_state(session, options.recipe);
  if (!options.recipe) return;
  prepare_operands(*state.get_quantizer(Mode::forward, 0), *state.get_quantizer(Mode::backward, 0), parameter("weight"), options);
  preserve_usages(*state.get_quantizer(Mode::forward, 1), parameter("weight"), settings.usage_policy);
}

Forward OpsLinear::forward_impl(Session& session, const ArrayPtr& x, const StepOptions& options) {
  prepare(session, options);
  LinearCall call;
  call.plan = plan_of(options);
  call.options = options;
  call.options.fp8_output = call.options.fp8_grad = false;
  call.weight = &parameter("weight");
  if (options.recipe) {
    call.quantizers.input = state.get_quantizer(Mode::forward, 0);
    call.quantizers.weight = state.get_quantizer(Mode::forward, 1);
    call.quantizers.grad_output = state.get_quantizer(Mode::backward, 0);
  }
  call.record = &record;
  call.activation_dtype = activation_dtype(x, options);
  call.input_requires_grad = options.input_requires_grad;
  if (!call.plan.custom) expect_recipe_of_weight(*call.weight, options);   // operations let a custom recipe have weights of any format
  LinearForward done = linear_forward(session, std::move(call), x);

  // The bias is an operation of its own: it adds to the rounded result, and its gradient is a plain sum.
  Parameter* bias = settings.bias ? &parameter("bias") : nullptr;
  Forward out{std::move(done.out), nullptr};
  if (bias) out.out = add_bias(session, std::get<ArrayPtr>(out.out), std::get<ArrayPtr>(bias->value));
  if (options.grad_enabled)
    out.backward = [saved = std::move(done.saved), bias](Session& s, const ArrayPtr& dy) {
      if (bias && bias->requires_grad) bias->grad = cast(s, sum_rows(s, dy, RowSum::plain), bias->dtype);
      return linear_backward(s, saved, prepare_grad_output(s, saved, dy));
    };
  return out;
}

void OpsLinear::describe(const StepOptions& options) {
  if (!options.recipe) return;
  for (const Mode mode : {Mode::forward, Mode::backward}) describe_slots(mode, state.operation.get_quantizer_roles(mode == Mode::forward ? "forward" : "backward"), state.quantizers(mode));
}

}  // namespace assay::training
