// TransformerLayer as a module that takes a step: attention and MLP, each beside a residual (TE
// transformer.py).
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/modules/attention_module.h"
#include "training/modules/layernorm_mlp.h"

namespace assay::training {

struct LayerModuleSettings {
  std::optional<std::string> name;
  int64_t hidden_size = 0, ffn_hidden_size = 0;
  int64_t heads = 0, head_size = 0;  // this rank's heads
  int64_t batch = 1;                 // rows of the input are (s, b)
  bool decoder = false;              // cross attention stands between self attention and MLP
  bool bias = true;
  DType params_dtype = DType::bfloat16;
  bool set_parallel_mode = false, sequence_parallel = false;
  bool checkpoint_core = false;  // of every attention
  std::optional<F32Bits> softmax_scale;
  NormSettings norm;
  Activation activation = Activation::gelu;
};

// y = h + MLP(h) with h = x + attention(x); each part begins with its norm, and each sum is taken in binary32
// and then rounded to the dtype of the activations, as PyTorch does. Biases are added by the GEMM of their
// projection. There is no dropout.
//
// Parameters are those of the parts, called "self_attention.qkv_weight", "inter_attention.query_weight" and
// "layernorm_mlp.fc1_weight", and so are the names in the record; parts are called as TransformerLayer
// (training/modules/transformer_layer.h) calls them.
class LayerModule final : public Module {
 public:
  LayerModule(Session&, LayerModuleSettings);
  std::string_view kind() const override { return "TransformerLayer"; }
  void quantize_parameters(Session&, const RecipePtr&, bool grad_enabled) override;
  RecipeStatePtr recipe_state(Mode mode) const override { return parts_.front().module->recipe_state(mode); }
  std::vector<RecipeStatePtr> recipe_states(Mode) const override;
  // Of a decoder: [rows, hidden_size], the source of keys and values of its cross attention.
  void set_context(const ArrayPtr& context);

  LayerModuleSettings settings;

 protected:
  Forward forward_impl(Session&, const ArrayPtr& x, const StepOptions&) override;
  void describe(const StepOptions&) override;

 private:
  struct Part {
    std::string prefix;  // "self_attention."
    std::unique_ptr<Module> module;
    size_t first = 0;               // its parameters stand in the layer's list from here on
    std::array<size_t, 4> taken{};  // how much of its record the layer's has: GEMMs, outputs, usages, cache
  };
  void add(std::string prefix, std::unique_ptr<Module> module);
  // The values of parameters go to the parts, and the parts' values and gradients come back: whoever trains
  // the layer knows its parameters alone.
  void hand_down();
  void hand_up();
  // Appends what a part's record has more than before, but for gradients of parameters, which the layer
  // notes, and what the session traces.
  void take_record(Part&);

  std::vector<Part> parts_;
};

}  // namespace assay::training
