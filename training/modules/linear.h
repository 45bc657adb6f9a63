// Linear: y = x W^T + b (TE module/linear.py).
#pragma once
#include <optional>
#include <string>

#include "training/modules/module.h"

namespace assay::training {

struct LinearSettings {
  std::optional<std::string> name;  // nothing: the session's next automatic one
  int64_t in_features = 0, out_features = 0;
  bool bias = true;
  DType params_dtype = DType::bfloat16;
  ParallelMode parallel_mode =
      ParallelMode::none;  // column: out_features are sharded; row: in_features. Sizes are this rank's
  bool sequence_parallel = false;
  bool save_original_input = false;
};

// Parameters: "weight" [out_features, in_features], "bias" [out_features]; zeros until the caller writes
// them.
class Linear final : public Module {
 public:
  Linear(Session&, LinearSettings);
  std::string_view kind() const override { return "Linear"; }
  void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled) override;
  RecipeStatePtr recipe_state(Mode mode) const override { return state.state(mode); }
  LinearSettings settings;
  ModuleState state;

 protected:
  Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) override;
  void describe(const StepOptions& options) override { describe_module(state, options); }
};

// Shared by the modules whose quantizers come from a ModuleState. Slots of GEMM `gemm`; all null where the
// options have no recipe.
LinearQuantizers quantizers_of(const ModuleState&, const StepOptions&, size_t gemm = 0);
// Begins a forward: makes states and quantizers fit the recipe, with the flags that module code sets on them.
void begin_forward(Session&, ModuleState&, const StepOptions&);
// Quantizes a weight with the slot's quantizer, as construction under quantized_model_init does.
void quantize_parameter(Session&, Parameter&, Quantizer&, bool grad_enabled);
// A parameter of zeros.
Parameter make_parameter(std::string name, Dims shape, DType dtype);

}  // namespace assay::training
