// Records of attention: the recipes that its core works by, the quantizers that the core reads, and which
// implementation may run. The groups of attention_core.cpp are dispatched from here.
#include "compare/witness/records/attention.h"

#include <algorithm>
#include <array>
#include <string>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "compare/witness/records/state_kinds.h"
#include "training/attention/backends.h"
#include "training/modules/attention.h"
#include "training/recipes/delayed.h"

namespace assay {

using namespace training;
using std::string;
using std::string_view;

namespace {

// What the recording process calls its recipes, and the fields that it gave them.
struct NamedRecipe {
  string_view name, recipe_class;
  json::Value (*fields)();
};
const NamedRecipe kRecipes[] = {
    {"DelayedScaling", "DelayedScaling",
     [] {
       return json::object({{"amax_history_len", 16}, {"amax_compute_algo", "max"}});
     }},
    {"DelayedScaling_E4M3", "DelayedScaling",
     [] {
       return json::object(
           {{"fp8_format", "E4M3"}, {"amax_history_len", 4}, {"amax_compute_algo", "most_recent"}});
     }},
    {"Float8CurrentScaling", "Float8CurrentScaling", [] { return json::object(); }},
    {"MXFP8BlockScaling", "MXFP8BlockScaling", [] { return json::object(); }},
    {"NVFP4BlockScaling", "NVFP4BlockScaling", [] { return json::object(); }},
    {"Float8BlockScaling", "Float8BlockScaling", [] { return json::object(); }},
};

void refuse_others(const Given& object, std::initializer_list<string_view> known) {
  for (const auto& [key, value] : object.members())
    if (std::find(known.begin(), known.end(), key) == known.end())
      refuse_word(object.path(), key, std::vector(known));
}

AttentionSwitches switches_in(const Given& given) {
  const Given env = given.at("env", "an object of switches");
  refuse_others(env, {"recipe", "format", "histlen", "algo", "reduce"});
  AttentionSwitches s;
  s.recipe = env.text("recipe", "");
  if (env.has("format")) {
    const auto format = fp8_format_named(env.text("format"));
    if (!format) env.at("format", "").refuse("the name of an FP8 format");
    s.format = *format;
  }
  s.amax_history_len = env.has("histlen") ? env.number("histlen", 1) : s.amax_history_len;
  if (env.has("algo")) s.amax_compute_algo = env.word("algo", {"most_recent", "max"});
  s.reduce_amax = env.flag("reduce", s.reduce_amax);
  return s;
}

json::Value recipe_shown(const RecipePtr& r) {
  json::Value out = json::object({{"class", r->class_name()},
                                  {"fp8_format", name_of(r->fp8_format)},
                                  {"fp8_dpa", r->fp8_dpa},
                                  {"fp8_mha", r->fp8_mha}});
  if (const auto* d = dynamic_cast<const DelayedScaling*>(r.get())) {
    out.set("amax_history_len", d->amax_history_len);
    out.set("amax_compute_algo", d->amax_compute_algo);
    out.set("reduce_amax", d->reduce_amax);
    out.set("margin", d->margin);
  }
  return out;
}

json::Value class_and_dtype(const QuantizerPtr& q) {
  return json::array({q->class_name(), q->describe().text("dtype")});
}

json::Value history_shown(const RecipeStatePtr& state) {
  const DelayedStatePtr delayed = state->delayed();
  return delayed ? shown(delayed->amax_history->shape) : json::Value();
}

json::Value local_recipes(const Given& given, Session& session) {
  DotProductAttention dpa(session, "core");
  dpa.switches = switches_in(given);
  json::Value out = outcome([&] {
    const RecipePtr user = attention_recipe_in(given);
    dpa.init_fp8_metadata(session, {user});
    const ModuleState& m = dpa.state;
    return json::object({{"module_recipe", recipe_shown(m.recipe)},
                         {"same_object_as_users", m.recipe == user},
                         {"local_recipes", list_of(dpa.local_recipes(), recipe_shown)},
                         {"forward", list_of(m.quantizers(Mode::forward), class_and_dtype)},
                         {"backward", list_of(m.quantizers(Mode::backward), class_and_dtype)},
                         {"state", m.state(Mode::forward)->class_name()},
                         {"history", history_shown(m.state(Mode::forward))},
                         {"history_backward", history_shown(m.state(Mode::backward))},
                         {"users_recipe_switches_after", json::array({user->fp8_dpa, user->fp8_mha})}});
  });
  out.set("warnings", categories_of(session.warnings));
  return out;
}

json::Value slots_shown(const AttentionQuantizers& q) {
  return list_of(attention_slots(), [&](const training::AttentionSlot& slot) {
    const QuantizerPtr& p = q.*slot.member;
    return p ? json::array({p->class_name(), p->rowwise_usage, p->columnwise_usage, p->internal,
                            p->optimize_for_gemm})
             : json::Value();
  });
}

json::Value slots(const Given& given, Session& session) {
  DotProductAttention dpa(session, "core");
  dpa.switches = switches_in(given);
  return outcome(
      [&] {
        dpa.init_fp8_metadata(session, {attention_recipe_in(given)});
        return slots_shown(dpa.quantizers());
      },
      [](const SemanticError& e) {
        return failed(e, {"QKV", "FP8-compatible"});
      });
}

json::Value slot_types(const Given& given) {
  const string_view others = given.word("others", {"CS", "DS", "MX"});
  const string_view tensor = given.word("slot", {"QKV", "O", "S", "dQKV", "dO", "dP"});
  const Given kind = given.at("kind", "a kind of quantizer or null");
  std::vector<QuantizerPtr> forward(slots_of_module(Mode::forward, 3)),
      backward(slots_of_module(Mode::backward, 3));
  for (std::vector<QuantizerPtr>* list : {&forward, &backward})
    for (QuantizerPtr& q : *list) q = quantizer_of_kind(others, "given.others");
  const training::AttentionSlot& slot = attention_slot(tensor);
  (slot.mode == Mode::forward ? forward : backward)[slot.slot] =
      kind.is_null() ? nullptr : quantizer_of_kind(kind);
  return outcome([&] { return slots_shown(attention_quantizers(forward, backward, "core")); },
                 [](const SemanticError& e) {
                   return failed(e, {"QKV", "dQKV", "dO", "dP", "FP8-compatible"});
                 });
}

json::Value slot_index(const Given& given) {
  given.word("what", {"slot of each tensor"});
  json::Value out = json::object();
  for (const training::AttentionSlot& s : attention_slots())
    out.set(string(s.tensor), json::array({s.mode == Mode::forward ? "scaling_fwd" : "scaling_bwd", s.slot}));
  return out;
}

template <size_t n> std::array<int, n> version_in(const Given& given, string_view key) {
  const std::vector<int64_t> numbers = given.numbers(key);
  if (numbers.size() != n) given.at(key, "").refuse(std::to_string(n) + " numbers");
  std::array<int, n> out{};
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<int>(numbers[i]);
  return out;
}

json::Value backend(const Given& given) {
  // The kernel library's number of its FP8 kernels.
  constexpr int kFp8Backend = 2;
  const Given params = given.at("params", "an object");
  refuse_others(params, {"is_training", "deterministic", "return_max_logit", "fp8_mha", "qkv_layout",
                         "attn_mask_type", "core_attention_bias_type"});
  AttentionRequest r;
  r.compute_capability = version_in<2>(given, "arch");
  r.cudnn = version_in<3>(given, "cudnn");
  r.emulate = given.flag("emulate");
  r.is_training = params.flag("is_training", r.is_training);
  r.deterministic = params.flag("deterministic", r.deterministic);
  r.return_max_logit = params.flag("return_max_logit", r.return_max_logit);
  const string layout = params.text("qkv_layout", string(r.qkv_layout));
  r.qkv_layout = layout;
  if (params.has("attn_mask_type")) params.word("attn_mask_type", {"no_mask", "padding", "causal"});
  if (params.has("core_attention_bias_type"))
    params.word("core_attention_bias_type", {"no_bias", "pre_scale_bias", "post_scale_bias", "alibi"});
  expect_recipe_class(given.text("recipe"), "given.recipe");
  return outcome([&] {
    const RecipePtr recipe = make_recipe(
        given.text("recipe"), json::object({{"fp8_dpa", true}, {"fp8_mha", params.flag("fp8_mha", false)}}));
    const AttentionBackends left = fp8_attention_backends(*recipe, r);
    json::Value number;
    if (left.fused) number = kFp8Backend;
    return json::object(
        {{"flash", left.flash}, {"fused", left.fused}, {"fused_backend", number}, {"unfused", left.unfused}});
  });
}

}  // namespace

RecipePtr attention_recipe_in(const Given& given, bool fp8_dpa) {
  const NamedRecipe& named = given.row("recipe", kRecipes);
  json::Value fields = named.fields();
  fields.set("fp8_dpa", given.flag("fp8_dpa", fp8_dpa));
  fields.set("fp8_mha", given.flag("fp8_mha", false));
  return make_recipe(named.recipe_class, fields);
}

json::Value witness_attention(string_view group, const Given& given, Subject& subject) {
  Session session(subject);
  if (group == "local_recipes") return local_recipes(given, session);
  if (group == "slots") return slots(given, session);
  if (group == "slot_types") return slot_types(given);
  if (group == "slot_index") return slot_index(given);
  if (group == "backend") return backend(given);
  if (auto then = witness_attention_core(group, given, session)) return *std::move(then);
  refuse_word("group", group,
              {"local_recipes", "slots", "slot_types", "slot_index", "backend", "combine", "combine_mx_dims",
               "combine_mx_heads", "kernel_flow", "emulation"});
}

}  // namespace assay
