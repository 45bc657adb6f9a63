#include "training/modules/attention.h"

#include "training/attention/local_recipes.h"
#include "training/recipes/delayed.h"

namespace assay::training {

namespace {

QuantizerPtr qkv_of(const ModuleState& state) {
  const AttentionSlot& slot = attention_slot("QKV");
  const std::vector<QuantizerPtr>& all = state.quantizers(slot.mode);
  return slot.slot < all.size() ? all[slot.slot] : nullptr;
}

RolePtr role(std::string_view module_type, std::string_view tensor_type, const ModuleState& consumer) {
  return std::make_shared<const QuantizerRole>(
      QuantizerRole{std::string(module_type), std::string(tensor_type), consumer.name});
}

}  // namespace

void DotProductAttention::init_fp8_metadata(Session& session, const Autocast& autocast) {
  const bool active = autocast.enabled || autocast.calibrating || autocast.fp8_parameters;
  if (!active || !autocast.recipe || autocast.recipe->custom()) {
    built_in_.clear();
    return state.init_fp8_metadata(session, autocast);
  }
  built_in_ = attention_recipes(autocast.recipe, switches);
  state.init_fp8_metadata(session, autocast, built_in_.back(),
                          built_in_.size() > 1 ? built_in_.front() : nullptr);
}

AttentionCapability DotProductAttention::capability() const {
  const QuantizerPtr qkv = qkv_of(state);
  const AttentionKind kind = attention_kind(qkv);
  if (kind == AttentionKind::none) refuse_attention_slot(attention_slot("QKV"), qkv, state.name);
  return {kind == AttentionKind::current, kind == AttentionKind::mxfp8};
}

const std::vector<RecipePtr>& DotProductAttention::local_recipes() {
  if (!state.recipe || !state.recipe->custom()) return built_in_;
  Key key{state.state(Mode::forward), state.quantizers(Mode::forward), state.recipe->fp8_format,
          state.recipe->fp8_dpa, state.recipe->fp8_mha};
  if (key_ == key) return local_recipes_;
  key_ = std::move(key);
  ++inferences_;
  local_recipes_.clear();
  const auto local = [&](auto recipe) {
    recipe->fp8_dpa = state.recipe->fp8_dpa;
    recipe->fp8_mha = state.recipe->fp8_mha;
    local_recipes_.push_back(std::move(recipe));
  };
  const auto in_format = [&](auto recipe) {
    recipe->fp8_format = state.recipe->fp8_format;
    local(std::move(recipe));
  };
  const AttentionKind qkv = attention_kind(qkv_of(state));
  const DelayedStatePtr inner = state.state(Mode::forward) ? state.state(Mode::forward)->delayed() : nullptr;
  if (qkv == AttentionKind::mxfp8) in_format(std::make_shared<MXFP8BlockScaling>());
  if (qkv == AttentionKind::current && inner) in_format(std::make_shared<Float8CurrentScaling>());
  if ((qkv == AttentionKind::current || qkv == AttentionKind::delayed) && inner)
    local(std::make_shared<DelayedScaling>(inner->settings()));
  return local_recipes_;
}

namespace {

std::optional<std::string> part(const std::optional<std::string>& name, std::string_view suffix) {
  if (!name) return std::nullopt;
  return dotted(*name, suffix);
}

// Where cross attention has no layer norm of its own, the projection of the queries is constructed without a
// name.
ModuleState projection_of(Session& session, const MultiheadAttention::Options& o) {
  if (o.input_layernorm)
    return {session, Producer::layernorm_linear,
            part(o.name, o.cross ? "layernorm_linear_q" : "layernorm_linear_qkv")};
  return {session, Producer::linear, o.cross ? std::nullopt : part(o.name, "linear_qkv")};
}

}  // namespace

MultiheadAttention::MultiheadAttention(Session& session, const Options& o)
    : name(o.name ? *o.name : next_name(session)),
      projection(projection_of(session, o)),
      projection_attribute(o.cross ? (o.input_layernorm ? "layernorm_query" : "query_layer")
                                   : (o.input_layernorm ? "layernorm_qkv" : "qkv")),
      key_value(o.cross ? std::optional<ModuleState>(std::in_place, session, Producer::linear,
                                                     part(o.name, "linear_kv"))
                        : std::nullopt),
      core_attention(session, part(o.name, "core_attention")),
      proj(session, Producer::linear, part(o.name, "proj")) {}

void MultiheadAttention::wire_boundary_roles(const AttentionFlags& flags) {
  wirings_.push_back(flags);
  ModuleState& core = core_attention.state;
  const RolePtr qkv = flags.qkv_fp8_output ? role("dpa", "qkv", core) : nullptr;
  projection.set_output_quantizer_role(qkv);
  if (key_value) key_value->set_output_quantizer_role(qkv);
  proj.set_grad_input_quantizer_role(flags.proj_fp8_grad ? role("dpa", "do", core) : nullptr);
  core.set_output_quantizer_role(flags.dpa_fp8_output ? role("linear", "input", proj) : nullptr);
  core.set_grad_input_quantizer_role(flags.dpa_fp8_output ? role("linear", "grad_output", projection)
                                                          : nullptr);
}

AttentionFlags MultiheadAttention::prepare(Session& session, const Autocast& autocast, bool rotary_embedding,
                                           const EdgeRules& rules) {
  const bool fp8 = autocast.enabled;
  if (!fp8) {
    wire_boundary_roles({});
    return {};
  }
  const Recipe& recipe = *autocast.recipe;
  const bool prewired = recipe.custom() && recipe.fp8_mha;
  AttentionCapability family{recipe.float8_current_scaling(), recipe.mxfp8()};
  if (prewired) {
    wire_boundary_roles({!rotary_embedding, true, true});
    core_attention.init_fp8_metadata(session, autocast);
    family = core_attention.capability();
  }
  AttentionFlags flags;
  flags.qkv_fp8_output = recipe.fp8_mha && !rotary_embedding && !family.current_scaling && !family.mxfp8;
  flags.dpa_fp8_output =
      (recipe.custom() || !rules.built_in ? recipe.fp8_mha : recipe.fp8_dpa || recipe.fp8_mha) &&
      !family.mxfp8;
  flags.proj_fp8_grad = flags.dpa_fp8_output && !family.current_scaling;
  if (!prewired || !rules.early_names) wire_boundary_roles(flags);
  return flags;
}

std::vector<std::pair<std::string_view, ModuleState*>> MultiheadAttention::members() {
  std::vector<std::pair<std::string_view, ModuleState*>> all{{projection_attribute, &projection}};
  if (key_value) all.emplace_back("key_value", &*key_value);
  all.emplace_back("core_attention", &core_attention.state);
  all.emplace_back("proj", &proj);
  return all;
}

}  // namespace assay::training
