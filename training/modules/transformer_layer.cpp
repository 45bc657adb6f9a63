#include "training/modules/transformer_layer.h"

namespace assay::training {

namespace {

std::optional<std::string> part(const std::optional<std::string>& of, const char* what) {
  return of ? std::optional(*of + "." + what) : std::nullopt;
}

}  // namespace

TransformerLayer::TransformerLayer(Session& session, std::optional<std::string> given, bool decoder)
    : name(given ? *given : next_name(session)),
      self_attention(session, {part(given, "self_attention"), false, true}),
      inter_attention(decoder ? std::optional<MultiheadAttention>(
                                    std::in_place, session,
                                    MultiheadAttention::Options{part(given, "inter_attention"), true, true})
                              : std::nullopt),
      layernorm_mlp(session, Producer::layernorm_mlp, part(given, "layernorm_mlp")) {}

std::vector<std::string> TransformerLayer::names() {
  std::vector<std::string> out = {name, self_attention.name};
  for (const auto& [attribute, state] : self_attention.members()) out.push_back(state->name);
  if (inter_attention) {
    out.push_back(inter_attention->name);
    for (const auto& [attribute, state] : inter_attention->members()) out.push_back(state->name);
  }
  out.push_back(layernorm_mlp.name);
  return out;
}

}  // namespace assay::training
