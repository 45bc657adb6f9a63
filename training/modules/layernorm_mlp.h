// LayerNormMLP: y = act(norm(x) W1^T + b1) W2^T + b2 (TE module/layernorm_mlp.py).
#pragma once
#include "training/modules/activations.h"
#include "training/modules/layernorm_linear.h"

namespace assay::training {

struct LayerNormMLPSettings {
  std::optional<std::string> name;
  int64_t hidden_size = 0, ffn_hidden_size = 0;
  bool bias = true;
  DType params_dtype = DType::bfloat16;
  NormSettings norm;
  Activation activation = Activation::gelu;
  bool sequence_parallel = false, set_parallel_mode = false;  // fc1 is column parallel, fc2 row parallel
};

// Parameters: the norm's, "fc1_weight" [ffn (twice where gated), hidden], "fc1_bias", "fc2_weight" [hidden,
// ffn], "fc2_bias".
class LayerNormMLP final : public Module {
 public:
  LayerNormMLP(Session&, LayerNormMLPSettings);
  std::string_view kind() const override { return "LayerNormMLP"; }
  void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled) override;
  RecipeStatePtr recipe_state(Mode mode) const override { return state.state(mode); }
  LayerNormMLPSettings settings;
  ModuleState state;

 protected:
  // NotImplementedError under backward_override "dequantized", which this module lacks.
  Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) override;
  void describe(const StepOptions& options) override { describe_module(state, options); }

 private:
  LinearCall call_of(const StepOptions&, size_t gemm, DType dtype);
};

}  // namespace assay::training
