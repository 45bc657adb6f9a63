#include "training/modules/layernorm_linear.h"

#include "training/base/f32.h"
#include "training/modules/fused_producers.h"

namespace assay::training {

void add_norm_parameters(std::vector<Parameter>& parameters, const NormSettings& settings, int64_t features,
                         DType dtype) {
  parameters.push_back(make_parameter("layer_norm_weight", {features}, dtype));
  if (settings.norm == Norm::LayerNorm)
    parameters.push_back(make_parameter("layer_norm_bias", {features}, dtype));
}

NormLayer norm_layer(Module& module, const NormSettings& settings) {
  return {settings,
          &module.parameter("layer_norm_weight"),
          settings.norm == Norm::LayerNorm ? &module.parameter("layer_norm_bias") : nullptr,
          nullptr,
          {}};
}

void NormLayer::forward(Session& session, const ArrayPtr& input) {
  x = input;
  saved = norm_forward(session, settings, x, std::get<ArrayPtr>(weight->value),
                       bias ? std::get<ArrayPtr>(bias->value) : nullptr);
}

ArrayPtr NormLayer::backward(Session& session, const ArrayPtr& dz) const {
  const NormBackward back = norm_backward(session, settings, dz, x, std::get<ArrayPtr>(weight->value), saved);
  weight->grad = cast(session, back.dgamma, weight->dtype);
  if (bias) bias->grad = cast(session, back.dbeta, bias->dtype);
  return cast(session, back.dx, x->dtype);
}

LayerNormLinear::LayerNormLinear(Session& session, LayerNormLinearSettings s)
    : settings(std::move(s)), state(session, Producer::layernorm_linear, settings.linear.name) {
  const LinearSettings& l = settings.linear;
  add_norm_parameters(parameters, settings.norm, l.in_features, l.params_dtype);
  parameters.push_back(make_parameter("weight", {l.out_features, l.in_features}, l.params_dtype));
  if (l.bias) parameters.push_back(make_parameter("bias", {l.out_features}, l.params_dtype));
  if (!settings.norm.zero_centered_gamma)
    write_back(session, parameter("layer_norm_weight"),
               f32_array({l.in_features}, std::vector<float>(static_cast<size_t>(l.in_features), 1.0f)));
}

void LayerNormLinear::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  state.init_fp8_metadata(session, {recipe, true, false, true, nullptr});
  quantize_parameter(session, parameter("weight"), *state.quantizer(Mode::forward, 1), grad_enabled);
}

Forward LayerNormLinear::forward_impl(Session& session, const ArrayPtr& input, const StepOptions& options) {
  begin_forward(session, state, options);
  LinearCall call;
  call.plan = plan_of(options);
  call.options = options;
  call.quantizers = quantizers_of(state, options);
  call.weight = &parameter("weight");
  call.bias = settings.linear.bias ? &parameter("bias") : nullptr;
  call.workspaces = &state.fp8_workspaces;
  call.record = &record;
  call.activation_dtype = activation_dtype(input, options);
  call.parallel_mode = settings.linear.parallel_mode;
  call.sequence_parallel = settings.linear.sequence_parallel;
  call.behind_norm = true;
  expect_recipe_of_weight(*call.weight, options);
  const DType dtype = call.activation_dtype;

  NormLayer norm = norm_layer(*this, settings.norm);
  norm.forward(session, cast(session, input, dtype));
  const bool fuse = call.plan.quantized && options.fusions.norm &&
                    call.plan.backward_override == BackwardOverride::none && fuses_before_gather(call);
  const Produced x = produce(session, norm.saved.out, dtype, ProducerKind::norm, call.quantizers.input.get(),
                             fuse, "input", usages_behind_norm(call), call.input_group());
  LinearForward done = linear_forward(session, std::move(call), x.tensor, x.quantized);
  Forward out{std::move(done.out), nullptr};
  if (options.grad_enabled)
    out.backward = [saved = std::move(done.saved), norm](Session& s, const ArrayPtr& dy) -> Tensorlike {
      const Tensorlike dz = linear_backward(s, saved, prepare_grad_output(s, saved, dy));
      return norm.backward(s, plain(s, dz, saved.call.activation_dtype));
    };
  return out;
}

}  // namespace assay::training
