#include "training/modules/grouped_linear.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "training/base/f32.h"
#include "training/groups/split_quantize.h"

namespace assay::training {
namespace {

template <class Get> std::vector<QuantizerPtr> of_experts(const GroupedCall& g, Get get) {
  std::vector<QuantizerPtr> out;
  for (const LinearCall& c : g.experts) out.push_back(get(c.quantizers));
  return out;
}

std::vector<Tensorlike> views_of(const ArrayPtr& x, const std::vector<int64_t>& splits) {
  std::vector<Tensorlike> out;
  int64_t row = 0;
  for (const int64_t rows : splits) {
    out.push_back(slice(x, 0, row, row + rows));
    row += rows;
  }
  return out;
}

ArrayPtr matrix(const ArrayPtr& x) {
  const Shape s = flattened(x->shape);
  return view(x, {s.rows, s.cols});
}

ArrayPtr joined(const std::vector<Tensorlike>& parts, const Dims& like) {
  std::vector<ArrayPtr> plain;
  for (const Tensorlike& t : parts) plain.push_back(std::get<ArrayPtr>(t));
  const ArrayPtr all = concatenate(plain);
  Dims shape = like;
  shape.back() = all->shape.back();
  return view(all, shape);
}

void set_usages(const std::vector<QuantizerPtr>& quantizers, Usages usages) {
  for (const QuantizerPtr& q : quantizers) q->set_usage(usages.rowwise, usages.columnwise);
}

// The gradients of the experts' outputs as their GEMMs read them, with the bias gradients.
std::vector<GradOutput> grad_outputs(Session& s, const GroupedCall& g, const ArrayPtr& dy, bool quantized) {
  const LinearCall& head = g.experts.front();
  const bool bias = head.bias && head.bias->requires_grad;
  bool fused = false;
  std::vector<Tensorlike> grads = views_of(dy, g.m_splits);
  std::vector<ArrayPtr> sums(g.experts.size());
  const std::vector<Tensorlike> plain_grads = grads;
  if (quantized) {
    const std::vector<QuantizerPtr> quantizers =
        of_experts(g, [](const LinearQuantizers& q) { return q.grad_output; });
    set_usages(quantizers, {head.input_requires_grad, head.weight->requires_grad});
    s.tensor_name = "grad_output";
    fused = bias && head.options.fusions.bias_gradient;
    SplitResult split = split_quantize(s, dy, g.m_splits, quantizers, {head.activation_dtype, fused, false});
    grads = std::move(split.outputs);
    if (fused) sums = std::move(split.bias_gradients);
  }
  if (bias && !fused)
    for (size_t i = 0; i < g.experts.size(); ++i)
      sums[i] = sum_rows(s, std::get<ArrayPtr>(plain_grads[i]), RowSum::plain);
  std::vector<GradOutput> out;
  for (size_t i = 0; i < g.experts.size(); ++i) out.push_back({grads[i], bias ? sums[i] : nullptr});
  return out;
}

// Gives each expert's backward its part of an original input that was saved whole.
void split_saved_input(Session& s, const GroupedCall& g, const ArrayPtr& in, bool quantized,
                       std::vector<LinearSaved>& saved) {
  const LinearCall& head = g.experts.front();
  std::vector<Tensorlike> parts;
  if (quantized && g.save_original_input && head.weight->requires_grad) {  // split again, for its columns
    const std::vector<QuantizerPtr> quantizers =
        of_experts(g, [](const LinearQuantizers& q) { return q.input; });
    set_usages(quantizers, {false, true});
    s.tensor_name = "input";
    parts = split_quantize(s, in, g.m_splits, quantizers, {head.activation_dtype, false, false}).outputs;
  } else if (head.plan.backward_override == BackwardOverride::high_precision) {
    parts = views_of(cast(s, in, head.activation_dtype), g.m_splits);
  }
  for (size_t i = 0; i < parts.size(); ++i) saved[i].input = parts[i];
}

Tensorlike grouped_backward(Session& s, const GroupedCall& g, const ArrayPtr& in,
                            std::vector<LinearSaved>& saved, const ArrayPtr& given) {
  const LinearCall& head = g.experts.front();
  const bool quantized = head.plan.quantized && head.plan.backward_override == BackwardOverride::none;
  std::vector<GradOutput> grads = grad_outputs(s, g, matrix(given), quantized);
  split_saved_input(s, g, in, quantized, saved);
  std::vector<Tensorlike> dgrads;
  for (size_t i = 0; i < g.experts.size(); ++i) {
    if (grads[i].bias_grad) grads[i].bias_grad = cast(s, grads[i].bias_grad, g.experts[i].bias->dtype);
    dgrads.push_back(linear_backward(s, saved[i], grads[i]));
  }
  return head.input_requires_grad ? Tensorlike(joined(dgrads, given->shape)) : Tensorlike(ArrayPtr{});
}

}  // namespace

Forward grouped_forward(Session& session, GroupedCall g, const ArrayPtr& x) {
  const LinearCall& first = g.experts.front();
  const Plan plan = first.plan;
  const DType dtype = first.activation_dtype;
  const ArrayPtr in = matrix(x);
  if (const int64_t sum = std::accumulate(g.m_splits.begin(), g.m_splits.end(), int64_t{0});
      g.m_splits.size() != g.experts.size() || sum != in->shape[0])
    throw SemanticError(ErrorClass::runtime_error,
                        "GroupedLinear: expected " + std::to_string(g.experts.size()) +
                            " splits that add up to " + std::to_string(in->shape[0]) + " rows, found " +
                            std::to_string(g.m_splits.size()) + " that add up to " + std::to_string(sum));
  const std::vector<QuantizerPtr> inputs = of_experts(g, [](const LinearQuantizers& q) { return q.input; });
  const bool training = first.options.grad_enabled, wgrads = first.columns_of_input();
  g.save_original_input =
      resolve_save_original_input(session, g.save_original_input, plan, inputs.front().get());
  std::vector<Tensorlike> splits;
  if (plan.quantized) {
    set_usages(inputs,
               {true, wgrads && !g.save_original_input && plan.backward_override == BackwardOverride::none});
    session.tensor_name = "input";
    splits = split_quantize(session, in, g.m_splits, inputs, {dtype, false, false}).outputs;
  } else {
    splits = views_of(cast(session, in, dtype), g.m_splits);
  }

  auto saved = std::make_shared<std::vector<LinearSaved>>();
  std::vector<Tensorlike> outputs;
  for (size_t i = 0; i < g.experts.size(); ++i) {
    LinearCall call = g.experts[i];
    call.save_original_input = false;  // decided above, for all experts
    LinearForward done = linear_forward(session, std::move(call), splits[i],
                                        !g.save_original_input);  // rows alone have no columns to keep
    outputs.push_back(done.out);
    saved->push_back(std::move(done.saved));
  }
  Forward out;
  out.out = joined(outputs, x->shape);
  if (!training) return out;
  out.backward = [saved, g = std::move(g), in](Session& s, const ArrayPtr& given) {
    return grouped_backward(s, g, in, *saved, given);
  };
  return out;
}

GroupedLinear::GroupedLinear(Session& session, GroupedLinearSettings s)
    : settings(std::move(s)), state(session, Producer::grouped_linear, settings.name, settings.num_gemms) {
  if (settings.tp_size > 1 && settings.bias)
    throw SemanticError(ErrorClass::value_error,
                        "GroupedLinear: expected no bias with " + std::to_string(settings.tp_size) +
                            " tensor parallel ranks, which communicate outside of this module; build it with "
                            "bias off");
  state.check_operand = [](const std::vector<QuantizerPtr>& list, std::string_view) {
    validate_split_quantizers(list);
  };
  for (size_t i = 0; i < settings.num_gemms; ++i)
    parameters.push_back(make_parameter(
        "weight" + std::to_string(i), {settings.out_features, settings.in_features}, settings.params_dtype));
  for (size_t i = 0; settings.bias && i < settings.num_gemms; ++i)
    parameters.push_back(
        make_parameter("bias" + std::to_string(i), {settings.out_features}, settings.params_dtype));
}

void GroupedLinear::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  state.init_fp8_metadata(session, {recipe, true, false, true, nullptr});
  const std::vector<QuantizerPtr> weights = state.operand(Mode::forward, 1);
  if (settings.single_grouped_parameter)
    for (const QuantizerPtr& q : weights)
      if (!fuses_with_producers(*q))
        throw SemanticError(ErrorClass::not_implemented_error,
                            "GroupedLinear: packed weights cannot be quantized by " +
                                std::string(q->class_name()) + "; build it with separate weights");
  for (size_t i = 0; i < settings.num_gemms; ++i)
    quantize_parameter(session, parameters[i], *weights[i], grad_enabled);
}

Forward GroupedLinear::forward_impl(Session& session, const ArrayPtr& x, const StepOptions& options) {
  if (settings.tp_size > 1 && options.recipe && options.recipe->float8_current_scaling())
    throw SemanticError(ErrorClass::value_error,
                        "GroupedLinear: expected another recipe than current scaling with " +
                            std::to_string(settings.tp_size) +
                            " tensor parallel ranks, which share no amax here");
  begin_forward(session, state, options);
  GroupedCall g;
  g.m_splits = m_splits;
  g.save_original_input = settings.save_original_input;
  for (size_t i = 0; i < settings.num_gemms; ++i) {
    LinearCall call;
    call.suffix = "." + std::to_string(i);
    call.plan = plan_of(options);
    call.options = options;
    call.options.fp8_output = call.options.fp8_grad = false;
    call.ignores_fsdp2 = true;
    call.quantizers = quantizers_of(state, options, i);
    call.weight = &parameters[i];
    call.bias = settings.bias ? &parameters[settings.num_gemms + i] : nullptr;
    call.workspaces = &state.fp8_workspaces;
    call.record = &record;
    call.activation_dtype = activation_dtype(x, options);
    call.input_requires_grad = options.input_requires_grad;
    expect_recipe_of_weight(*call.weight, options);
    g.experts.push_back(std::move(call));
  }
  return grouped_forward(session, std::move(g), x);
}

}  // namespace assay::training
