#include "training/modules/linear.h"

namespace assay::training {

Parameter make_parameter(std::string name, Dims shape, DType dtype) {
  Parameter p;
  p.name = std::move(name);
  p.value = zeros(std::move(shape), dtype);
  p.dtype = dtype;
  return p;
}

void begin_forward(Session& session, ModuleState& state, const StepOptions& options) {
  Autocast autocast = quantization_off();
  if (options.recipe) autocast = {options.recipe, true, false, false, nullptr};
  state.init_fp8_metadata(session, autocast);
  if (!options.recipe) return;
  state.warn_unconfigured(session, options.fp8_output, options.fp8_grad);
  // Inputs, weights and gradients are the module's own business: light storages do.
  for (const Mode mode : {Mode::forward, Mode::backward})
    for (const size_t slot : {size_t{0}, size_t{1}})
      if (mode == Mode::forward || slot == 0)
        for (const QuantizerPtr& q : state.operand(mode, slot))
          if (q) q->internal = true;
}

LinearQuantizers quantizers_of(const ModuleState& state, const StepOptions& options, size_t gemm) {
  if (!options.recipe) return {};
  const auto of = [&](Mode mode, size_t slot) { return state.quantizer(mode, slot, gemm); };
  return {of(Mode::forward, 0), of(Mode::forward, 1), of(Mode::forward, 2), of(Mode::backward, 0),
          of(Mode::backward, 1)};
}

void quantize_parameter(Session& session, Parameter& parameter, Quantizer& quantizer, bool grad_enabled) {
  quantizer.internal = false;
  const ArrayPtr plain = std::get<ArrayPtr>(parameter.value);
  const StoragePtr made = quantize_for(session, quantizer, plain, parameter.name, {true, grad_enabled});
  if (parameter.preserve_init_value) made->init_value = clone(plain);
  parameter.value = made;
}

Linear::Linear(Session& session, LinearSettings s)
    : settings(std::move(s)), state(session, Producer::linear, settings.name) {
  parameters.push_back(
      make_parameter("weight", {settings.out_features, settings.in_features}, settings.params_dtype));
  if (settings.bias)
    parameters.push_back(make_parameter("bias", {settings.out_features}, settings.params_dtype));
}

void Linear::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  state.init_fp8_metadata(session, {recipe, true, false, true, nullptr});
  quantize_parameter(session, parameter("weight"), *state.quantizer(Mode::forward, 1), grad_enabled);
}

Forward Linear::forward_impl(Session& session, const ArrayPtr& x, const StepOptions& options) {
  begin_forward(session, state, options);
  LinearCall call;
  call.plan = plan_of(options);
  call.options = options;
  call.quantizers = quantizers_of(state, options);
  call.weight = &parameter("weight");
  call.bias = settings.bias ? &parameter("bias") : nullptr;
  call.workspaces = &state.fp8_workspaces;
  call.record = &record;
  call.activation_dtype = activation_dtype(x, options);
  call.parallel_mode = settings.parallel_mode;
  call.sequence_parallel = settings.sequence_parallel;
  call.save_original_input = settings.save_original_input;
  call.input_requires_grad = options.input_requires_grad;
  expect_recipe_of_weight(*call.weight, options);
  LinearForward done = linear_forward(session, std::move(call), x);
  Forward out{std::move(done.out), nullptr};
  if (options.grad_enabled)
    out.backward = [saved = std::move(done.saved)](Session& s, const ArrayPtr& dy) {
      return linear_backward(s, saved, prepare_grad_output(s, saved, dy));
    };
  return out;
}

}  // namespace assay::training
