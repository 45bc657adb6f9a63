// The fusible operation GroupedLinear (TE ops/basic/grouped_linear.py): the experts' work of the module of
// that name, with roles of a plain linear, no boundary slots, no weight workspaces, and quantized weights
// that keep their own usages. Its results are plain whatever its neighbours quantize with: the original takes
// their quantizers and leaves both unused.
#pragma once
#include "training/modules/grouped_linear.h"
#include "training/modules/ops_linear.h"

namespace assay::training {

struct OpsGroupedLinearSettings {
  std::string name;
  size_t num_groups = 1;
  int64_t in_features = 0, out_features = 0;
  bool bias = false;
  DType params_dtype = DType::bfloat16;
  UsagePolicy usage_policy = UsagePolicy::assign;
  bool single_grouped_weight = false;  // packed: RuntimeError under delayed scaling, NotImplementedError with
                                       // hybrids or Identity; group 0 writes the usages
};

// Parameters: "weight0".., "bias0"...
class OpsGroupedLinear final : public Module {
 public:
  OpsGroupedLinear(Session&, OpsGroupedLinearSettings);
  std::string_view kind() const override { return "ops.GroupedLinear"; }
  void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled) override;
  RecipeStatePtr recipe_state(Mode mode) const override { return state.state(mode); }
  OpsGroupedLinearSettings settings;
  OperationState state;
  std::vector<int64_t> m_splits;               // rows of x for each group; set before every forward
  void prepare(Session&, const StepOptions&);  // as OpsLinear's, for every group

 protected:
  Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) override;
  void describe(const StepOptions&) override;

 private:
  void check_packed() const;
};

}  // namespace assay::training
