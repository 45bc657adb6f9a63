// MultiheadAttention as a module that takes a step: its projections around attention's core, with whatever
// travels between them in FP8 (TE attention/multi_head_attention.py).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "training/modules/attention.h"
#include "training/modules/attention_core.h"
#include "training/modules/layernorm_linear.h"

namespace assay::training {

struct AttentionModuleSettings {
  std::optional<std::string> name;
  int64_t hidden_size = 0;           // columns of the input and of the output
  int64_t heads = 0, head_size = 0;  // this rank's heads
  int64_t batch = 1;                 // rows of the input are (s, b)
  bool cross = false;                // keys and values come from `context`
  bool input_layernorm = false;
  bool bias = true;
  DType params_dtype = DType::bfloat16;
  bool set_parallel_mode = false;  // projections in are column parallel, the one out is row parallel
  bool sequence_parallel = false;
  bool checkpoint_core = false;  // checkpoint_core_attention: the core alone runs again in backward
  std::optional<F32Bits> softmax_scale;
  NormSettings norm;
};

// What the projections in leave: the buffers that the core takes, [rows, columns], and what their own
// backward needs.
struct AttentionProjected {
  std::vector<Tensorlike> buffers;
  std::vector<LinearSaved> saved;
  std::optional<NormLayer> norm;
};

// Parameters: of an input norm "layer_norm_weight" and "layer_norm_bias"; "qkv_weight" [3 heads head_size,
// hidden_size], whose rows are h3d, and "qkv_bias"; of cross attention "query_*" and "key_value_*" instead;
// "proj_weight" [hidden_size, heads head_size] and "proj_bias". Zeros until the caller writes them, a norm's
// scale 1.
//
// The core is quantized where the recipe has fp8_dpa or fp8_mha, in the way of the fused path
// (training/attention/fused_flow.h); else it runs in 16 bits. Its products are those of
// training/attention/core_kernels.h, under a causal mask where it is no cross attention.
class AttentionModule final : public Module {
 public:
  AttentionModule(Session&, AttentionModuleSettings);
  std::string_view kind() const override { return "MultiheadAttention"; }
  void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled) override;
  RecipeStatePtr recipe_state(Mode mode) const override { return wiring.core_attention.state.state(mode); }
  std::vector<RecipeStatePtr> recipe_states(Mode) const override;

  AttentionModuleSettings settings;
  MultiheadAttention wiring;
  ArrayPtr context;  // of cross attention: [rows, hidden_size], the source of keys and values

 protected:
  Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) override;
  void describe(const StepOptions&) override;

 private:
  // One projection: its parameters are called "<layer>_weight" and "<layer>_bias".
  LinearCall call_of(Session&, ModuleState&, const std::string& layer, const StepOptions&, ParallelMode,
                     DType dtype);
  AttentionProjected project(Session&, const ArrayPtr& x, const StepOptions&, bool fp8_output);
  CoreCall core_call(const StepOptions&, const AttentionFlags&, const std::vector<Tensorlike>& buffers);
  // dx; of cross attention the gradient of the context goes to the record.
  Tensorlike gradient_of_input(Session&, const AttentionProjected&, const std::array<Tensorlike, 3>& dqkv);

  RecomputePhase phase_;
  RecomputeStash stash_;
};

}  // namespace assay::training
