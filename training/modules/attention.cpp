#include "training/modules/attention.h"

#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"
#include "training/recipes/delayed.h"

namespace assay::training {

namespace {

// The slot of each group that the core reads (TE's FP8FwdTensors and FP8BwdTensors by the names of three
// GEMMs).
struct CoreSlot {
  QuantizerPtr AttentionQuantizers::*member;
  Mode mode;
  size_t slot;
  const char* name;
  bool inner;  // S and dP never leave the core
};
constexpr CoreSlot kCoreSlots[] = {
    {&AttentionQuantizers::qkv, Mode::forward, 2, "QKV", false},
    {&AttentionQuantizers::o, Mode::forward, 3, "O", false},
    {&AttentionQuantizers::s, Mode::forward, 8, "S", true},
    {&AttentionQuantizers::dqkv, Mode::backward, 0, "dQKV", false},
    {&AttentionQuantizers::do_, Mode::backward, 3, "dO", false},
    {&AttentionQuantizers::dp, Mode::backward, 5, "dP", true},
};
const CoreSlot& kQkv = kCoreSlots[0];

enum class Family { none, delayed, current, mxfp8 };
Family family_of(const QuantizerPtr& q) {
  if (dynamic_cast<const Float8Quantizer*>(q.get())) return Family::delayed;
  if (dynamic_cast<const Float8CurrentScalingQuantizer*>(q.get())) return Family::current;
  if (dynamic_cast<const MXFP8Quantizer*>(q.get())) return Family::mxfp8;
  return Family::none;
}

QuantizerPtr at(const ModuleState& state, const CoreSlot& slot) {
  const std::vector<QuantizerPtr>& all = state.quantizers(slot.mode);
  return slot.slot < all.size() ? all[slot.slot] : nullptr;
}

[[noreturn]] void refuse(const ModuleState& state, const CoreSlot& slot, const QuantizerPtr& q) {
  if (!q) {
    throw SemanticError(ErrorClass::runtime_error,
                        std::string("attention '") + state.name + "': expected a quantizer in slot " +
                            slot.name + ", found none: run init_fp8_metadata with a recipe that makes one");
  }
  throw SemanticError(
      ErrorClass::type_error,
      std::string("attention '") + state.name +
          "': expected Float8Quantizer, Float8CurrentScalingQuantizer or MXFP8Quantizer in slot " +
          slot.name + ", found " + std::string(q->class_name()) +
          ": return one of them from the factory for its role");
}

RolePtr role(std::string_view module_type, std::string_view tensor_type, const ModuleState& consumer) {
  return std::make_shared<const QuantizerRole>(
      QuantizerRole{std::string(module_type), std::string(tensor_type), consumer.name});
}

}  // namespace

AttentionQuantizers DotProductAttention::quantizers() const {
  AttentionQuantizers found;
  const bool mxfp8 = family_of(at(state, kQkv)) == Family::mxfp8;
  for (const CoreSlot& slot : kCoreSlots) {
    QuantizerPtr q = at(state, slot);
    if (slot.inner && mxfp8)
      continue;  // the kernel keeps S and dP to itself, so whatever the factory made for them is not looked
                 // at
    if (!q) refuse(state, slot, q);
    q->internal = slot.inner;
    q->set_usage(true, mxfp8);  // MXFP8 operands are read along both of their dimensions
    if (mxfp8 && (slot.member == &AttentionQuantizers::qkv || slot.member == &AttentionQuantizers::do_))
      q->optimize_for_gemm = true;
    if (family_of(q) == Family::none) refuse(state, slot, q);
    found.*slot.member = std::move(q);
  }
  return found;
}

AttentionCapability DotProductAttention::capability() const {
  const QuantizerPtr qkv = at(state, kQkv);
  const Family family = family_of(qkv);
  if (family == Family::none) refuse(state, kQkv, qkv);
  return {family == Family::current, family == Family::mxfp8};
}

const std::vector<RecipePtr>& DotProductAttention::local_recipes() {
  static const std::vector<RecipePtr> kNone;
  if (!state.recipe || !state.recipe->custom()) return kNone;
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
  const Family qkv = family_of(at(state, kQkv));
  const DelayedStatePtr inner = state.state(Mode::forward) ? state.state(Mode::forward)->delayed() : nullptr;
  if (qkv == Family::mxfp8) in_format(std::make_shared<MXFP8BlockScaling>());
  if (qkv == Family::current && inner) in_format(std::make_shared<Float8CurrentScaling>());
  if ((qkv == Family::current || qkv == Family::delayed) && inner)
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

AttentionFlags MultiheadAttention::prepare(Session& session, const Autocast& autocast,
                                           bool rotary_embedding) {
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
    core_attention.state.init_fp8_metadata(session, autocast);
    family = core_attention.capability();
  }
  AttentionFlags flags;
  flags.qkv_fp8_output = recipe.fp8_mha && !rotary_embedding && !family.current_scaling && !family.mxfp8;
  flags.dpa_fp8_output =
      (recipe.custom() ? recipe.fp8_mha : recipe.fp8_dpa || recipe.fp8_mha) && !family.mxfp8;
  flags.proj_fp8_grad = flags.dpa_fp8_output && !family.current_scaling;
  if (!prewired) wire_boundary_roles(flags);
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
