// GroupedLinear: y_i = x_i W_i^T + b_i for the experts of a mixture, whose rows stand one after the other in
// x (TE module/grouped_linear.py).
#pragma once
#include "training/modules/linear.h"

namespace assay::training {

struct GroupedLinearSettings {
  std::optional<std::string> name;
  size_t num_gemms = 1;
  int64_t in_features = 0, out_features = 0;
  bool bias = true;
  DType params_dtype = DType::bfloat16;
  bool save_original_input = false;
  // Sizes are this rank's. Ranks exchange tensors outside of this module, so nothing here gathers or reduces;
  // with more than one, ValueError for a bias at construction, and for current scaling at a forward.
  ParallelMode parallel_mode = ParallelMode::none;
  bool sequence_parallel = false;
  int tp_size = 1;
  bool single_grouped_parameter =
      false;  // packed weights: NotImplementedError at a quantization with hybrids or Identity
};

// Parameters: "weight0".., [out_features, in_features] each, "bias0"... zeros until the caller writes them.
class GroupedLinear final : public Module {
 public:
  GroupedLinear(Session&, GroupedLinearSettings);
  std::string_view kind() const override { return "GroupedLinear"; }
  void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled) override;
  RecipeStatePtr recipe_state(Mode mode) const override { return state.state(mode); }
  GroupedLinearSettings settings;
  ModuleState state;
  // Rows of x for each expert, zero allowed; set before every forward. RuntimeError where they do not add up
  // to the rows of x.
  std::vector<int64_t> m_splits;

 protected:
  Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) override;
  void describe(const StepOptions& options) override { describe_module(state, options); }
};

// The experts' work of one step, shared with the fusible operation. `quantizers` has one entry per expert,
// and so has everything else.
struct GroupedCall {
  std::vector<LinearCall> experts;
  std::vector<int64_t> m_splits;
  bool save_original_input = false;
};
Forward grouped_forward(Session&, GroupedCall, const ArrayPtr& x);

}  // namespace assay::training
