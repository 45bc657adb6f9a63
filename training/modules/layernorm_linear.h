// LayerNormLinear: y = norm(x) W^T + b (TE module/layernorm_linear.py).
#pragma once
#include "training/modules/linear.h"
#include "training/modules/norms.h"

namespace assay::training {

struct LayerNormLinearSettings {
  LinearSettings linear;  // save_original_input does not exist here: what is saved is the norm's output
  NormSettings norm;
};

// Parameters: "layer_norm_weight" [in_features], of LayerNorm "layer_norm_bias", then Linear's. The norm's
// scale is 1 (0 where it is zero-centred), all else zeros until the caller writes them.
class LayerNormLinear final : public Module {
 public:
  LayerNormLinear(Session&, LayerNormLinearSettings);
  std::string_view kind() const override { return "LayerNormLinear"; }
  void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled) override;
  RecipeStatePtr recipe_state(Mode mode) const override { return state.state(mode); }
  LayerNormLinearSettings settings;
  ModuleState state;

 protected:
  Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) override;
  void describe(const StepOptions& options) override { describe_module(state, options); }
};

// The norm's parameters, and a norm layer of a step: what LayerNormLinear and LayerNormMLP share.
void add_norm_parameters(std::vector<Parameter>&, const NormSettings&, int64_t features, DType dtype);
struct NormLayer {
  NormSettings settings;
  Parameter *weight = nullptr, *bias = nullptr;
  ArrayPtr x;
  NormForward saved;
  // Runs the norm over `x`, keeping what backward needs.
  void forward(Session&, const ArrayPtr& x);
  // dx in x's dtype; the gradients go into the parameters.
  ArrayPtr backward(Session&, const ArrayPtr& dz) const;
};
NormLayer norm_layer(Module&, const NormSettings&);

}  // namespace assay::training
