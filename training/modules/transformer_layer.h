// A transformer layer as far as names go: which modules it has and what each is called, since a factory
// decides by the name of a role (TE transformer.py).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "training/modules/attention.h"
#include "training/modules/module_state.h"

namespace assay::training {

class TransformerLayer {
 public:
  // A decoder has cross attention between its self attention and its MLP. Every part is called after the
  // layer, or gets a name of its own where the layer was given none.
  TransformerLayer(Session&, std::optional<std::string> name, bool decoder = false);
  std::string name;
  MultiheadAttention self_attention;
  std::optional<MultiheadAttention> inter_attention;
  ModuleState layernorm_mlp;
  // Of the layer, its attentions and their modules, and its MLP.
  std::vector<std::string> names();
};

}  // namespace assay::training
