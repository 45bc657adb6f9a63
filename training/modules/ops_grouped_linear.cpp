#include "training/modules/ops_grouped_linear.h"

namespace assay::training {

OpsGroupedLinear::OpsGroupedLinear(Session&, OpsGroupedLinearSettings s)
    : settings(std::move(s)), state({"GroupedLinear", settings.name, settings.num_groups}) {
  for (size_t i = 0; i < settings.num_groups; ++i)
    parameters.push_back(make_parameter(
        "weight" + std::to_string(i), {settings.out_features, settings.in_features}, settings.params_dtype));
  for (size_t i = 0; settings.bias && i < settings.num_groups; ++i)
    parameters.push_back(
        make_parameter("bias" + std::to_string(i), {settings.out_features}, settings.params_dtype));
}

void OpsGroupedLinear::check_packed() const {
  if (!settings.single_grouped_weight) return;
  for (size_t i = 0; i < settings.num_groups; ++i) {
    const Quantizer& q = *state.get_quantizer(Mode::forward, 2 * i + 1);
    if (q.class_name() == "Float8Quantizer")
      throw SemanticError(ErrorClass::runtime_error,
                          "ops GroupedLinear: a packed weight has one quantizer, but delayed scaling keeps a "
                          "scale for each group; use separate weights");
    if (!fuses_with_producers(q))
      throw SemanticError(ErrorClass::not_implemented_error,
                          "ops GroupedLinear: packed weights cannot be quantized by " +
                              std::string(q.class_name()) + "; use separate weights");
  }
}

void OpsGroupedLinear::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  state.reset_recipe_state(session, recipe);
  check_packed();
  for (size_t i = 0; i < settings.num_groups; ++i)
    quantize_parameter(session, parameters[i], *state.get_quantizer(Mode::forward, 2 * i + 1), grad_enabled);
}

void OpsGroupedLinear::prepare(Session& session, const StepOptions& options) {
  state.reset_recipe_state(session, options.recipe);
  if (!options.recipe) return;
  check_packed();
  for (size_t i = 0; i < settings.num_groups; ++i) {
    prepare_operands(*state.get_quantizer(Mode::forward, 2 * i), *state.get_quantizer(Mode::backward, i),
                     parameters[i], options);
    if (i == 0 || !settings.single_grouped_weight)
      preserve_usages(*state.get_quantizer(Mode::forward, 2 * i + 1), parameters[i], settings.usage_policy);
    else if (const StoragePtr* member = std::get_if<StoragePtr>(&parameters[i].value))
      (*member)->keep(state.get_quantizer(Mode::forward, 1));  // one tensor, one quantizer
  }
}

Forward OpsGroupedLinear::forward_impl(Session& session, const ArrayPtr& x, const StepOptions& options) {
  prepare(session, options);
  GroupedCall g;
  g.m_splits = m_splits;
  for (size_t i = 0; i < settings.num_groups; ++i) {
    LinearCall call;
    call.suffix = "." + std::to_string(i);
    call.plan = plan_of(options);
    call.options = options;
    call.options.fp8_output = call.options.fp8_grad = false;
    call.ignores_fsdp2 = true;
    call.weight = &parameters[i];
    call.bias = settings.bias ? &parameters[settings.num_groups + i] : nullptr;
    if (options.recipe) {
      call.quantizers.input = state.get_quantizer(Mode::forward, 2 * i);
      call.quantizers.weight = state.get_quantizer(Mode::forward, 2 * i + 1);
      call.quantizers.grad_output = state.get_quantizer(Mode::backward, i);
    }
    call.record = &record;
    call.activation_dtype = activation_dtype(x, options);
    call.input_requires_grad = options.input_requires_grad;
    if (!call.plan.custom)
      expect_recipe_of_weight(*call.weight,
                              options);  // operations let a custom recipe have weights of any format
    g.experts.push_back(std::move(call));
  }
  return grouped_forward(session, std::move(g), x);
}

void OpsGroupedLinear::describe(const StepOptions& options) {
  if (!options.recipe) return;
  for (const Mode mode : {Mode::forward, Mode::backward})
    describe_slots(mode, state.operation.get_quantizer_roles(mode == Mode::forward ? "forward" : "backward"),
                   state.quantizers(mode));
}

}  // namespace assay::training
