#include "training/modules/ops_linear.h"

#include <typeinfo>

#include "training/base/f32.h"
#include "training/formats/float8.h"
#include "training/formats/observer.h"
#include "training/modules/tensor_parallel.h"

namespace assay::training {

namespace {

// The class that operations quantize a result with (TE ops/basic/basic_linear.py); modules take any native
// one.
void expect_delayed(const Quantizer& given, const char* whose, const char* result) {
  const Quantizer& q = unwrapped(given);
  if (typeid(q) != typeid(Float8Quantizer))
    throw SemanticError(ErrorClass::runtime_error,
                        std::string("BasicLinear: expected a Float8Quantizer of the ") + whose +
                            " operation for the " + result + ", found " + std::string(q.class_name()) +
                            "; leave it null, and that operation quantizes for itself");
}

}  // namespace

void preserve_usages(Quantizer& q, Parameter& weight, UsagePolicy policy) {
  const StoragePtr* quantized = std::get_if<StoragePtr>(&weight.value);
  if (!quantized || !(*quantized)->quantizer) return;
  const Usages own = (*quantized)->quantizer->usages();
  if (policy == UsagePolicy::assign) q.set_usage(own.rowwise, own.columnwise);
  else q.set_usage(own.rowwise || q.rowwise_usage, own.columnwise || q.columnwise_usage);
  (*quantized)->quantizer = q.copy();
}

void prepare_operands(Quantizer& input, Quantizer& grad_output, const Parameter& weight,
                      const StepOptions& options) {
  input.internal = grad_output.internal = true;
  const bool columns = options.grad_enabled && weight.requires_grad &&
                       plan_of(options).backward_override == BackwardOverride::none;
  input.set_usage(true, columns);
  grad_output.set_usage(true, columns);
}

OpsLinear::OpsLinear(Session&, OpsLinearSettings s)
    : settings(std::move(s)), state({"BasicLinear", settings.name, 1}) {
  parameters.push_back(
      make_parameter("weight", {settings.out_features, settings.in_features}, settings.params_dtype));
  if (settings.bias)
    parameters.push_back(make_parameter("bias", {settings.out_features}, settings.params_dtype));
}

void OpsLinear::quantize_parameters(Session& session, const RecipePtr& recipe, bool grad_enabled) {
  state.reset_recipe_state(session, recipe);
  quantize_parameter(session, parameter("weight"), *state.get_quantizer(Mode::forward, 1), grad_enabled);
}

void OpsLinear::prepare(Session& session, const StepOptions& options) {
  state.reset_recipe_state(session, options.recipe);
  if (!options.recipe) return;
  prepare_operands(*state.get_quantizer(Mode::forward, 0), *state.get_quantizer(Mode::backward, 0),
                   parameter("weight"), options);
  preserve_usages(*state.get_quantizer(Mode::forward, 1), parameter("weight"), settings.usage_policy);
}

Forward OpsLinear::forward_impl(Session& session, const ArrayPtr& x, const StepOptions& options) {
  prepare(session, options);
  const bool parallel = meets(options.tp_group);
  const bool row = parallel && settings.parallel_mode == ParallelMode::row;
  const bool column = parallel && settings.parallel_mode == ParallelMode::column;
  LinearCall call;
  call.plan = plan_of(options);
  call.options = options;
  call.weight = &parameter("weight");
  if (options.recipe) {
    call.quantizers.input = state.get_quantizer(Mode::forward, 0);
    call.quantizers.weight = state.get_quantizer(Mode::forward, 1);
    call.quantizers.grad_output = state.get_quantizer(Mode::backward, 0);
    call.quantizers.grad_input = column ? nullptr : previous_grad_output_quantizer;
  }
  // The bias is an operation of its own: it adds to the rounded result, quantizes nothing, and its gradient
  // is a plain sum. Only where the one behind it wants codes, and the weight has 16 bits, does the fused
  // operation run, whose GEMM adds the bias (TE ops/fused/forward_linear_bias_activation.py).
  Parameter* bias = settings.bias ? &parameter("bias") : nullptr;
  if (options.recipe && (!bias || call.weight->dtype != DType::float32))
    call.quantizers.output = row ? nullptr : next_input_quantizer;
  const bool codes = call.quantizers.output != nullptr;
  if (codes) {
    expect_delayed(*call.quantizers.output, "next", "output");
    call.bias = bias;
  }
  call.options.fp8_output = codes;
  call.options.fp8_grad = call.quantizers.grad_input != nullptr;
  call.record = &record;
  call.activation_dtype = activation_dtype(x, options);
  call.input_requires_grad = options.input_requires_grad;
  if (parallel) call.parallel_mode = settings.parallel_mode;
  call.sequence_parallel = parallel && settings.sequence_parallel;
  call.gathers_plain_shards = call.ignores_fsdp2 = true;
  if (!call.plan.custom)
    expect_recipe_of_weight(*call.weight,
                            options);  // operations let a custom recipe have weights of any format
  LinearForward done = linear_forward(session, std::move(call), x);

  done.saved.call.bias = nullptr;
  Forward out{std::move(done.out), nullptr};
  if (bias && !codes)
    out.out = add_bias(session, std::get<ArrayPtr>(out.out), std::get<ArrayPtr>(bias->value));
  if (options.grad_enabled)
    out.backward = [saved = std::move(done.saved), bias](Session& s, const ArrayPtr& dy) {
      if (bias && bias->requires_grad) bias->grad = cast(s, sum_rows(s, dy, RowSum::plain), bias->dtype);
      const GradOutput grad_output = prepare_grad_output(s, saved, dy);
      const LinearCall& c = saved.call;
      if (c.input_requires_grad && c.options.fp8_grad && c.plan.backward_override == BackwardOverride::none)
        expect_delayed(*c.quantizers.grad_input, "previous", "grad input");
      return linear_backward(s, saved, grad_output);
    };
  return out;
}

void OpsLinear::describe(const StepOptions& options) {
  if (!options.recipe) return;
  for (const Mode mode : {Mode::forward, Mode::backward})
    describe_slots(mode, state.operation.get_quantizer_roles(mode == Mode::forward ? "forward" : "backward"),
                   state.quantizers(mode));
}

}  // namespace assay::training
