// The fusible operation BasicLinear with its Bias: y = x W^T, then + b (TE ops/basic/basic_linear.py). Unlike
// the module it keeps no weight workspace and has no boundary slots, and it preserves a quantized weight's
// own usages when its recipe state is made anew.
#pragma once
#include "training/modules/linear.h"

namespace assay::training {

// What becomes of a quantized weight's usages when the operation (re)configures its weight quantizer (TE
// ops/basic/basic_linear.py reset_recipe_state).
enum class UsagePolicy : uint8_t {
  assign,  // the quantizer takes the weight's present usages: what the original does
  merge    // those or the quantizer's own: columns come back for a weight that was built without gradients
};

struct OpsLinearSettings {
  std::string name;
  int64_t in_features = 0, out_features = 0;
  bool bias = false;
  DType params_dtype = DType::bfloat16;
  UsagePolicy usage_policy = UsagePolicy::assign;
  // Over the ranks of the step's tp_group; sizes are this rank's. Nothing on one rank.
  ParallelMode parallel_mode = ParallelMode::none;
  bool sequence_parallel = false;
};

// Parameters: "weight" [out_features, in_features], "bias".
class OpsLinear final : public Module {
 public:
  OpsLinear(Session&, OpsLinearSettings);
  std::string_view kind() const override { return "BasicLinear"; }
  void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled) override;
  RecipeStatePtr recipe_state(Mode mode) const override { return state.state(mode); }
  OpsLinearSettings settings;
  OperationState state;
  // Of the neighbours in a chain of operations, set before forward: the next one's for its input makes the
  // output, the previous one's for its gradient the grad input. Null, or no quantization: plain results.
  // RuntimeError for any class but Float8Quantizer, where the result is made: the output in forward, the grad
  // input in backward.
  QuantizerPtr next_input_quantizer, previous_grad_output_quantizer;
  // What a chain of operations does for each before the first one runs (TE ops/op.py): the state fits the
  // recipe and the quantizers have this step's usages, since others use them too: the operation before makes
  // this one's input, the one after it this one's gradient. `forward` begins with it.
  void prepare(Session&, const StepOptions&);

 protected:
  Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) override;
  void describe(const StepOptions&) override;
};

// What an operation's quantizers are set to before its chain runs: light storages, and columns where the
// weight's gradient will read them.
void prepare_operands(Quantizer& input, Quantizer& grad_output, const Parameter& weight, const StepOptions&);
// Reconciles a weight quantizer with a weight that is quantized already: usages by `policy`, and a copy of
// the result becomes the weight's own.
void preserve_usages(Quantizer& weight_quantizer, Parameter& weight, UsagePolicy policy);

}  // namespace assay::training
