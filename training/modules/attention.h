// Attention's part in a recipe: which tensors between the QKV projection, the attention core and the output
// projection travel quantized, who is named as the consumer of each, and what the core itself can work with
// (TE attention/multi_head_attention.py, attention/dot_product_attention). No attention is computed here.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/attention/slots.h"
#include "training/attention/switches.h"
#include "training/modules/module_state.h"
#include "training/modules/step.h"

namespace assay::training {

// Which family of recipes the QKV quantizer of a custom recipe stands for.
struct AttentionCapability {
  bool current_scaling = false, mxfp8 = false;
  bool operator==(const AttentionCapability&) const = default;
};

class DotProductAttention {
 public:
  DotProductAttention(Session& session, std::optional<std::string> name)
      : state(session, Producer::dot_product_attention, std::move(name)) {}
  ModuleState state;
  AttentionSwitches switches;  // read at every init_fp8_metadata; the original reads them once, at import

  // What ModuleState does, by the recipes that the core works by (training/attention/local_recipes.h). The
  // switch "F16" changes the autocast's recipe object.
  void init_fp8_metadata(Session&, const Autocast&);

  // The six quantizers, with the usages that the core wants set on them, or the errors of
  // attention_quantizers.
  AttentionQuantizers quantizers() const {
    return attention_quantizers(state.quantizers(Mode::forward), state.quantizers(Mode::backward),
                                state.name);
  }
  // Read from the QKV quantizer. RuntimeError where the slot was never built, TypeError where the core cannot
  // work with its class.
  AttentionCapability capability() const;

  // The recipes that a custom recipe means for the core, by its QKV quantizer and the requests for delayed
  // scaling among its forward slots: MXFP8 means [MXFP8BlockScaling], current scaling beside requests
  // [Float8CurrentScaling, DelayedScaling as requested], delayed [DelayedScaling as requested]. All else
  // none. Inferred once per set of forward quantizers and of the recipe's attention fields. Of a built-in
  // recipe those of the last init_fp8_metadata.
  const std::vector<RecipePtr>& local_recipes();
  int inferences() const { return inferences_; }

 private:
  struct Key {
    RecipeStatePtr forward;  // compared, and kept alive, by identity
    std::vector<QuantizerPtr> quantizers;
    Fp8Format fp8_format = Fp8Format::HYBRID;
    bool fp8_dpa = false, fp8_mha = false;
    bool operator==(const Key&) const = default;
  };
  std::optional<Key> key_;
  std::vector<RecipePtr> local_recipes_, built_in_;
  int inferences_ = 0;
};

// Which edges of an attention module are quantized.
struct AttentionFlags {
  bool qkv_fp8_output = false;  // the QKV projection writes quantized tensors
  bool proj_fp8_grad = false;   // the output projection's grad input is quantized
  bool dpa_fp8_output = false;  // the core writes quantized output, and quantized dQKV
  bool operator==(const AttentionFlags&) const = default;
};

class MultiheadAttention {
 public:
  struct Options {
    std::optional<std::string>
        name;  // of the whole; parts are called "<name>.proj", or get names of their own where there is none
    bool cross = false;  // queries and keys/values from two sources
    bool input_layernorm = false;
  };
  MultiheadAttention(Session&, const Options&);
  std::string name;

  // The projection into QKV, or of the queries where the attention is cross: "qkv", "layernorm_qkv",
  // "query_layer" or "layernorm_query", as the original calls the member.
  ModuleState projection;
  std::string_view projection_attribute;
  std::optional<ModuleState> key_value;  // of cross attention
  DotProductAttention core_attention;
  ModuleState proj;

  // Names each quantized edge after its consumer, and takes the name away where the flag is off.
  void wire_boundary_roles(const AttentionFlags&);
  // What forward does before its first submodule runs: decides the flags and wires. Under a custom recipe
  // with fp8_mha the edges are wired first, as if they would all be quantized, since the factory must see the
  // consumers before the core's quantizers can tell what is possible; that wiring stays.
  AttentionFlags prepare(Session&, const Autocast&, bool rotary_embedding, const EdgeRules& = {});
  // Every wiring, in order.
  const std::vector<AttentionFlags>& wirings() const { return wirings_; }
  // The members with the original's attribute names, in the order in which they are constructed.
  std::vector<std::pair<std::string_view, ModuleState*>> members();

 private:
  std::vector<AttentionFlags> wirings_;
};

}  // namespace assay::training
