#include "training/modules/layernorm_mlp.h"

#include "training/base/f32.h"
#include "training/modules/fused_producers.h"

namespace assay::training {
namespace {

// The gradient of fc1's output: the activation's backward, its bias gradient and its quantization, fused as
// vanilla quantizers are (TE csrc/extensions/bias.cpp).
GradOutput activation_grad(Session& session, const LinearSaved& fc1, Activation activation, const ArrayPtr& d,
                           const ArrayPtr& fc1_out) {
  const LinearCall& c = fc1.call;
  const ArrayPtr unrounded = activation_backward(session, activation, d, fc1_out);
  const bool bias = c.bias && c.bias->requires_grad;
  // Without a recipe there is none.
  Quantizer* q =
      c.plan.backward_override == BackwardOverride::none ? c.quantizers.grad_output.get() : nullptr;
  const bool fuse = q && c.options.fusions.activation && !(bias && c.unfused_bias_gradient) &&
                    q->class_name() != "Float8BlockQuantizer";
  const Usages usages{c.input_requires_grad, c.weight->requires_grad};
  const Produced made = produce(session, unrounded, c.activation_dtype, ProducerKind::activation, q, fuse,
                                "fc1.grad_output", usages, nullptr);
  if (!made.quantized) return prepare_grad_output(session, fc1, std::get<ArrayPtr>(made.tensor));
  GradOutput out{made.tensor, nullptr};
  if (!bias) return out;
  const bool plainly = sums_bias_plainly(*q) || !c.options.fusions.bias_gradient;
  const RowSum order = plainly ? RowSum::plain
                       : usages.columnwise || q->class_name() != "MXFP8Quantizer"
                           ? RowSum::chunks
                           : RowSum::chunks_rowwise_only;
  // A fused kernel sums before it rounds, in chunks of half the rows.
  out.bias_grad = cast(
      session,
      cast(session, sum_rows(session, plainly ? made.rounded : unrounded, order, 64), c.activation_dtype),
      c.bias->dtype);
  return out;
}

}  // namespace

LayerNormMLP::LayerNormMLP(Session& session, LayerNormMLPSettings s)
    : settings(std::move(s)), state(session, Producer::layernorm_mlp, settings.name, 2) {
  const int64_t hidden = settings.hidden_size, ffn = settings.ffn_hidden_size,
                fc1 = is_gated(settings.activation) ? 2 * ffn : ffn;
  const DType dtype = settings.params_dtype;
  add_norm_parameters(parameters, settings.norm, hidden, dtype);
  parameters.push_back(make_parameter("fc1_weight", {fc1, hidden}, dtype));
  if (settings.bias) parameters.push_back(make_parameter("fc1_bias", {fc1}, dtype));
  parameters.push_back(make_parameter("fc2_weight", {hidden, ffn}, dtype));
  if (settings.bias) parameters.push_back(make_parameter("fc2_bias", {hidden}, dtype));
  if (!settings.norm.zero_centered_gamma)
    write_back(session, parameter("layer_norm_weight"),
               f32_array({hidden}, std::vector<float>(static_cast<size_t>(hidden), 1.0f)));
}

void LayerNormMLP::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  state.init_fp8_metadata(session, {recipe, true, false, true, nullptr});
  for (const size_t gemm : {size_t{0}, size_t{1}})
    quantize_parameter(session, parameter(gemm == 0 ? "fc1_weight" : "fc2_weight"),
                       *state.quantizer(Mode::forward, 1, gemm), grad_enabled);
}

LinearCall LayerNormMLP::call_of(const StepOptions& options, size_t gemm, DType dtype) {
  const std::string layer = gemm == 0 ? "fc1" : "fc2";
  LinearCall call;
  call.prefix = layer + ".";
  call.plan = plan_of(options);
  call.options = options;
  call.options.fp8_output = call.options.fp8_grad =
      false;  // neither boundary of this module can be quantized
  call.quantizers = quantizers_of(state, options, gemm);
  call.weight = &parameter(layer + "_weight");
  call.bias = settings.bias ? &parameter(layer + "_bias") : nullptr;
  call.workspaces = &state.fp8_workspaces;
  call.record = &record;
  call.activation_dtype = dtype;
  call.parallel_mode = !settings.set_parallel_mode ? ParallelMode::none
                       : gemm == 0                 ? ParallelMode::column
                                                   : ParallelMode::row;
  call.sequence_parallel = settings.sequence_parallel;
  call.unfused_bias_gradient = gemm == 0 && call.plan.custom;
  call.behind_norm = gemm == 0;
  expect_recipe_of_weight(*call.weight, options);
  return call;
}

Forward LayerNormMLP::forward_impl(Session& session, const ArrayPtr& input, const StepOptions& options) {
  begin_forward(session, state, options);
  const DType dtype = activation_dtype(input, options);
  LinearCall fc1 = call_of(options, 0, dtype), fc2 = call_of(options, 1, dtype);
  const bool quantized = fc1.plan.quantized,
             fusible = quantized && fc1.plan.backward_override == BackwardOverride::none;
  if (quantized && fc1.plan.backward_override == BackwardOverride::dequantized)
    throw SemanticError(ErrorClass::not_implemented_error,
                        "LayerNormMLP has no backward_override 'dequantized'; use LayerNormLinear and "
                        "Linear, or hybrid quantizers with columnwise_source rowwise_dequantized");

  NormLayer norm = norm_layer(*this, settings.norm);
  norm.forward(session, cast(session, input, dtype));
  const Produced x = produce(session, norm.saved.out, dtype, ProducerKind::norm, fc1.quantizers.input.get(),
                             fusible && options.fusions.norm && fuses_before_gather(fc1), "fc1.input",
                             usages_behind_norm(fc1), fc1.input_group());
  LinearForward first = linear_forward(session, std::move(fc1), x.tensor, x.quantized);
  const ArrayPtr fc1_out = std::get<ArrayPtr>(first.out);

  // Blockwise FP8 has no kernel that is fused with an activation; its values are the same either way.
  const Produced act =
      produce(session, activation_forward(session, settings.activation, fc1_out), dtype,
              ProducerKind::activation, fc2.quantizers.input.get(), fusible && options.fusions.activation,
              "fc2.input", {true, fc2.columns_of_input()}, fc2.input_group());
  LinearForward second = linear_forward(session, std::move(fc2), act.tensor, act.quantized);

  Forward out{std::move(second.out), nullptr};
  if (options.grad_enabled)
    out.backward = [fc1 = std::move(first.saved), fc2 = std::move(second.saved), norm, fc1_out,
                    activation = settings.activation](Session& s, const ArrayPtr& dy) -> Tensorlike {
      const GradOutput grad = prepare_grad_output(s, fc2, dy);
      const Tensorlike input = wgrad_input(s, fc1);  // its gather begins before the second layer's GEMMs
      const ArrayPtr d = std::get<ArrayPtr>(linear_backward(s, fc2, grad));
      const ArrayPtr dz =
          std::get<ArrayPtr>(linear_backward(s, fc1, activation_grad(s, fc1, activation, d, fc1_out), input));
      return norm.backward(s, dz);
    };
  return out;
}

}  // namespace assay::training
