// Module: what Linear, LayerNormLinear, LayerNormMLP, GroupedLinear and the fusible operations have in
// common: parameters, a forward that returns what its own backward needs, and a record of the step.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "training/modules/linear_core.h"

namespace assay::training {

// One forward, waiting for its backward. Several may be open at once, in any order; the module outlives them.
struct Forward {
  Tensorlike out;
  // Runs the backward of this forward once, adds to the module's record and returns dgrad, null where the
  // input needs none. RuntimeError where forward ran without gradients, or at a second call.
  std::function<Tensorlike(Session&, const ArrayPtr& dy)> backward;
};

class Module {
 public:
  virtual ~Module() = default;
  virtual std::string_view kind() const = 0;  // "LayerNormLinear"
  // x [..., in_features] in a float dtype. Begins a new record.
  Forward forward(Session&, const ArrayPtr& x, const StepOptions&);
  // forward, then backward where gradients are enabled; the whole step's record. Delayed scaling's histories
  // are updated as the autocast does: forward's when it ends, backward's after the last backward. A caller of
  // `forward` does that by AmaxBuffers (training/recipes/delayed.h).
  const StepRecord& step(Session&, const ArrayPtr& x, const ArrayPtr& dy, const StepOptions&);
  // Quantizes the weights in place of their plain values, as construction under quantized_model_init does;
  // their columns follow `grad_enabled`.
  virtual void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled = true) = 0;
  // Null before the first quantized forward.
  virtual RecipeStatePtr recipe_state(Mode) const = 0;
  // Those of every part, without null ones: what histories are updated and stashed by.
  virtual std::vector<RecipeStatePtr> recipe_states(Mode) const;

  std::vector<Parameter> parameters;            // never grows after construction
  Parameter& parameter(std::string_view name);  // std::out_of_range
  StepRecord record;                            // of the last forward, and of backwards since

 protected:
  virtual Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) = 0;
  // Called at the end of forward: fills the record's roles and quantizers.
  virtual void describe(const StepOptions&) = 0;
  void describe_module(const ModuleState&, const StepOptions&);
  void describe_slots(Mode, RoleList roles, const std::vector<QuantizerPtr>& quantizers);
  void note_output(Session&, const std::string& name, const Tensorlike&);
  DType activation_dtype(const ArrayPtr& x, const StepOptions&) const;

 private:
  // Appends what `work` adds to the session's traces to the record.
  void traced(Session&, const std::function<void()>& work);
};

}  // namespace assay::training
