// One linear layer of a step, forward and backward: what Linear, LayerNormLinear, the two layers of
// LayerNormMLP and the fusible operation share (TE module/linear.py, module/base.py).
#pragma once
#include "training/modules/step.h"

namespace assay::training {

// Recipe's backward_override: gradients from plain operands, the saved originals or what the rows of forward
// dequantize to.
enum class BackwardOverride : uint8_t { none, high_precision, dequantized };

// What forward resolved from its recipe; backward uses the same, whatever the recipe says by then.
struct Plan {
  bool quantized = false, custom = false;
  BackwardOverride backward_override = BackwardOverride::none;
  bool split_fprop = false, split_dgrad = true, split_wgrad = true;
};
Plan plan_of(const StepOptions&);

enum class ParallelMode : uint8_t { none, column, row };

// One layer's quantizers, one per slot; null where quantization is off, or an operation has no such slot.
struct LinearQuantizers {
  QuantizerPtr input, weight, output, grad_output, grad_input;
};

// A module's weight workspaces, by parameter name.
using Workspaces = std::map<std::string, StoragePtr>;

// One layer in one step. Pointers belong to the module and outlive the step.
struct LinearCall {
  std::string prefix;  // "", "fc1." : before names in the record
  std::string suffix;  // "", ".2"  : of an expert
  Plan plan;
  StepOptions options;
  LinearQuantizers quantizers;
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;         // null: none
  Workspaces* workspaces = nullptr;  // null: an operation, which keeps none
  StepRecord* record = nullptr;
  DType activation_dtype = DType::bfloat16;
  ParallelMode parallel_mode = ParallelMode::none;
  bool sequence_parallel = false;
  bool save_original_input = false;
  bool unfused_bias_gradient = false;  // LayerNormMLP's first layer under a custom recipe
  bool behind_norm = false;            // of a module that begins with a norm
  // Of a fusible operation: its shard stays plain, and each gather of it quantizes what that pass reads (TE
  // ops/basic/basic_linear.py).
  bool gathers_plain_shards = false;
  // GroupedLinear and the operations have no branch for FSDP2: a gathered weight is quantized and kept as on
  // one rank, and nobody clears its columns.
  bool ignores_fsdp2 = false;
  bool input_requires_grad = true;

  bool fsdp2() const { return options.fsdp2 && !ignores_fsdp2; }
  bool columns_of_input() const { return options.grad_enabled && weight->requires_grad; }
  // Column parallel with sequence parallelism: the input is a shard of its rows; row parallel: the gradient
  // of the output is. Null elsewhere.
  GroupPtr input_group() const {
    return parallel_mode == ParallelMode::column && sequence_parallel ? options.tp_group : nullptr;
  }
  GroupPtr grad_output_group() const {
    return parallel_mode == ParallelMode::row && sequence_parallel ? options.tp_group : nullptr;
  }
};

// What forward leaves for backward.
struct LinearSaved {
  LinearCall call;
  Tensorlike input, weight;  // as backward reads them; null where nothing needs it
  bool gather = false;       // the input is this rank's shard, to be gathered again
};

struct LinearForward {
  Tensorlike out;
  LinearSaved saved;
};

// `x` is plain, or quantized already by a fused producer or by an earlier step; then `produced_here` says
// whether this layer may drop its rows. The order of events is the original's: input, weight, bias, GEMM,
// saving.
LinearForward linear_forward(Session&, LinearCall, const Tensorlike& x, bool produced_here = false);

// The gradient as both GEMMs of backward read it, and the bias gradient in the bias' dtype, null where there
// is no bias.
struct GradOutput {
  Tensorlike grad;
  ArrayPtr bias_grad;
};
// Sums the bias gradient and quantizes, fused as vanilla quantizers are. A gradient that comes quantized is
// taken as it is; its bias gradient is the plain sum of what it dequantizes to.
GradOutput prepare_grad_output(Session&, const LinearSaved&, const Tensorlike& dy);
// The input as wgrad reads it: quantized again where the original was saved, gathered again where it is a
// shard. Null where the weight needs no gradient.
Tensorlike wgrad_input(Session&, const LinearSaved&);
// dgrad where the input needs it, and wgrad and bias grad into the parameters. `input`: what wgrad_input
// gave, where the caller has asked for it early; null: this call asks. Throws RuntimeError where forward ran
// without gradients.
Tensorlike linear_backward(Session&, const LinearSaved&, const GradOutput&, Tensorlike input = ArrayPtr{});

// The weight in the directions that `columns` and the forward's GEMM ask for: a quantized parameter as it is,
// a kept workspace, or a new tensor.
Tensorlike quantized_weight(Session&, const LinearCall&, bool columns);
// Sets the group for this very call, quantizes and notes whose tensor it was (rule R1). `local_amax`: where
// the tensor's producer took it.
StoragePtr quantize_for(Session&, Quantizer&, const ArrayPtr& x, const std::string& who, Usages wanted,
                        const GroupPtr& group = nullptr, std::optional<F32Bits> local_amax = std::nullopt);

// Rounds y + bias, for every row of y: a bias that no GEMM adds.
ArrayPtr add_bias(Session&, const ArrayPtr& y, const ArrayPtr& bias);

// Classes that leave the bias gradient to a plain sum, and those that no producer fuses with.
bool sums_bias_plainly(const Quantizer&);
bool fuses_with_producers(const Quantizer&);
// RuntimeError "Recipe mismatch" where a quantized weight's class belongs to another recipe than the active
// one: a native one not to CustomRecipe either (TE module/base.py).
void expect_recipe_of_weight(const Parameter&, const StepOptions&);
// What save_original_input comes to for this input quantizer: it may warn and turn it off, or throw
// ValueError (TE module/linear.py).
bool resolve_save_original_input(Session&, bool wanted, const Plan&, const Quantizer* input);

}  // namespace assay::training
