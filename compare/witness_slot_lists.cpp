// Records of role lists, of the wiring of attention, and of when quantizers are made anew.
#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <type_traits>

#include <fmt/format.h>

#include "compare/witness.h"
#include "training/attention.h"
#include "training/delayed.h"
#include "training/factories.h"
#include "training/module_state.h"

namespace assay {

namespace {

using namespace training;
using std::string;
using std::string_view;

// Members of `given`; a record that lacks one is unreadable.
const json::Value& at(const json::Value& v, string_view key) {
  if (const json::Value* found = v.find(key)) return *found;
  throw std::invalid_argument(fmt::format("expected a member '{}' in {}", key, json::dump(v)));
}
bool flag(const json::Value& v, string_view key) {
  if (const auto b = at(v, key).to_bool()) return *b;
  throw std::invalid_argument(fmt::format("expected '{}' to be true or false in {}", key, json::dump(v)));
}
size_t number(const json::Value& v, string_view key, size_t otherwise) {
  const json::Value* found = v.find(key);
  return found ? static_cast<size_t>(found->to_int().value_or(0)) : otherwise;
}
std::optional<string> name_in(const json::Value& given) {
  const json::Value* name = given.find("name");
  return name && name->string() ? std::optional(*name->string()) : std::nullopt;
}

RolePtr role_of(const json::Value& v) {
  if (v.is_null()) return nullptr;
  return std::make_shared<const QuantizerRole>(QuantizerRole{string(v.text("module_type")), string(v.text("tensor_type")), string(v.text("name"))});
}
json::Value shown(const RolePtr& role) {
  if (!role) return nullptr;
  return json::object({{"module_type", role->module_type}, {"tensor_type", role->tensor_type}, {"name", role->name}});
}
json::Value shown(const std::vector<RolePtr>& roles) {
  json::Value list = json::array();
  for (const RolePtr& role : roles) list.push(shown(role));
  return list;
}

Producer producer_in(const json::Value& given) {
  if (const auto p = module_named(given.text("module"))) return *p;
  throw std::invalid_argument(fmt::format("expected a module that gives role lists, found '{}'", given.text("module")));
}
Mode mode_in(const json::Value& given, string_view key) {
  if (const auto mode = mode_named(given.text(key))) return *mode;
  throw std::invalid_argument(fmt::format("expected forward or backward, found '{}'", given.text(key)));
}

// ---- lists of roles

json::Value auto_name(const json::Value& given, Session& session) {
  const ModuleState state(session, producer_in(given), name_in(given));
  constexpr string_view kPrefix = "Layer_";
  const bool matches = state.name.starts_with(kPrefix) && state.name.size() > kPrefix.size() && state.name.find_first_not_of("0123456789", kPrefix.size()) == string::npos;
  return json::object({{"matches_Layer_number", matches}});
}

json::Value module(const json::Value& given, Session& session) {
  const auto name = name_in(given);
  ModuleState state(session, producer_in(given), name);
  state.set_output_quantizer_role(role_of(at(given, "out_role")));
  state.set_grad_input_quantizer_role(role_of(at(given, "gin_role")));
  std::vector<RolePtr> roles = state.get_quantizer_roles(mode_in(given, "direction"), number(given, "num", 0));
  if (!name) {   // the records write <auto> where the name was not given
    for (RolePtr& role : roles) {
      if (!role || !role->name.starts_with(state.name)) continue;
      QuantizerRole masked = *role;
      masked.name = "<auto>" + masked.name.substr(state.name.size());
      role = std::make_shared<const QuantizerRole>(std::move(masked));
    }
  }
  return json::object({{"len", roles.size()}, {"roles", shown(roles)}});
}

Operation operation_in(const json::Value& given) {
  Operation op;
  op.te_class = given.text("op");
  op.name = name_in(given).value_or("");
  op.num_groups = number(given, "num_groups", 1);
  if (given.find("quantize_forward")) op.quantize_forward = flag(given, "quantize_forward");
  if (given.find("quantize_backward")) op.quantize_backward = flag(given, "quantize_backward");
  return op;
}

json::Value op(const json::Value& given) {
  const Operation operation = operation_in(given);
  const RoleList roles = operation.get_quantizer_roles(given.text("mode"));
  return json::object({{"num_quantizers", operation.num_quantizers(given.text("mode"))}, {"roles", roles ? shown(*roles) : json::Value()}});
}

json::Value role_value(const json::Value& given) {
  const RolePtr role = role_of(at(given, "role"));
  const QuantizerRole copy = *role;
  // A role is handed out as a pointer to const: assigning to a field is refused before the program runs.
  constexpr bool kAssignable = std::is_assignable_v<decltype((std::declval<const RolePtr&>()->name)), string>;
  return json::object({{"text", to_text(*role)},
                       {"equal_to_copy", copy == *role},
                       {"hash_equal_to_copy", hash_of(copy) == hash_of(*role)},
                       {"assignment", kAssignable ? json::Value("ok") : json::object({{"error", name_of(ErrorClass::frozen_instance_error)}})}});
}

json::Value setter(const json::Value& given, Session& session) {
  ModuleState state(session, producer_in(given), "m");
  const bool output = given.text("slot") == "output_quantizer_role";
  const auto set = [&](const RolePtr& role) { output ? state.set_output_quantizer_role(role) : state.set_grad_input_quantizer_role(role); };
  const RolePtr present = role_of(at(given, "present"));
  set(present);
  state.fp8_meta_tensors_initialized = true;
  const RolePtr assigned = flag(given, "assigned_is_same_object") ? present : role_of(at(given, "assigned"));
  set(assigned);
  const RolePtr& stored = output ? state.output_quantizer_role() : state.grad_input_quantizer_role();
  return json::object({{"still_initialised", state.fp8_meta_tensors_initialized}, {"stored", shown(stored)}, {"stored_object_is_new", stored == assigned}});
}

// ---- attention

// The records of cross attention show the automatic name of its query projection, which counts the unnamed modules that the recording process had made before:
// five of the group auto_name, then one per case of both sweeps below that has such a projection, in the order of the sweeps. That history is set up here.
constexpr int kUnnamedBeforeSweeps = 5;
constexpr int kWiringSweep = 8;
int unnamed_before_wiring(const AttentionFlags& f) { return kUnnamedBeforeSweeps + (f.qkv_fp8_output ? 0 : 4) + (f.proj_fp8_grad ? 0 : 2) + (f.dpa_fp8_output ? 0 : 1); }

// Recipes of the flags' sweep in its order: three built-in ones, then a custom one whose factory gives every slot a quantizer of one family.
struct SweptRecipe {
  string_view recipe, family, factory;
  RecipePtr make() const { return factory.empty() ? make_recipe(recipe) : custom_recipe(factory); }
};
constexpr SweptRecipe kSweptRecipes[] = {
    {"DelayedScaling", "", ""},
    {"Float8CurrentScaling", "", ""},
    {"MXFP8BlockScaling", "", ""},
    {"CustomRecipe", "delayed", "delayed_scaling_factory"},
    {"CustomRecipe", "current", "current_scaling_factory"},
    {"CustomRecipe", "mxfp8", "mxfp8_factory"},
    {"CustomRecipe", "nvfp4", "nvfp4_factory"},
    {"CustomRecipe", "block", "float8_block_scaling_factory"},
    {"CustomRecipe", "identity", "high_precision_factory"},
    {"CustomRecipe", "hybrid", "high_precision_fwd_mxfp8_bwd_factory"},
    {"CustomRecipe", "nvfp4_linear_fp8_dpa", "nvfp4_linear_fp8_dpa_factory"},
};
const SweptRecipe& swept(const json::Value& given) {
  const auto found = std::find_if(std::begin(kSweptRecipes), std::end(kSweptRecipes),
                                  [&](const SweptRecipe& r) { return r.recipe == given.text("recipe") && r.family == given.text("qkv_slot_family"); });
  if (found == std::end(kSweptRecipes)) throw std::invalid_argument("no such recipe: " + json::dump(given));
  return *found;
}
int unnamed_before_flags(const json::Value& given) {
  constexpr int kRecipes = std::size(kSweptRecipes), kPerPair = 2 * kRecipes + 1;   // without and with rotary embedding, then once with quantization off
  const int within = flag(given, "enabled") ? kRecipes * flag(given, "rope") + static_cast<int>(&swept(given) - kSweptRecipes) : 2 * kRecipes;
  return kUnnamedBeforeSweeps + kWiringSweep + kPerPair * (2 * flag(given, "fp8_dpa") + flag(given, "fp8_mha")) + within;
}

json::Value boundaries(MultiheadAttention& mha, bool with_names) {
  json::Value shown_members = json::object();
  for (const auto& [attribute, state] : mha.members()) {
    json::Value one = json::object();
    if (with_names) one.set("name", state->name);
    one.set("out_role", shown(state->output_quantizer_role()));
    one.set("gin_role", shown(state->grad_input_quantizer_role()));
    shown_members.set(attribute, std::move(one));
  }
  return shown_members;
}

json::Value mha_wiring(const json::Value& given, Session& session) {
  const AttentionFlags flags{flag(given, "qkv_fp8_output"), flag(given, "proj_fp8_grad"), flag(given, "dpa_fp8_output")};
  session.unnamed_modules = unnamed_before_wiring(flags);
  MultiheadAttention mha(session, {name_in(given), given.text("attention_type") == "cross", flag(given, "input_layernorm")});
  json::Value then = json::object({{"fresh", boundaries(mha, true)}});
  mha.wire_boundary_roles(flags);
  then.set("after", boundaries(mha, true));
  mha.wire_boundary_roles({});
  then.set("after_reset", boundaries(mha, true));
  return then;
}

json::Value mha_flags(const json::Value& given, Session& session) {
  session.unnamed_modules = unnamed_before_flags(given);
  MultiheadAttention mha(session, {"mha", given.text("attention_type") == "cross", false});
  const RecipePtr recipe = swept(given).make();
  recipe->fp8_dpa = flag(given, "fp8_dpa");
  recipe->fp8_mha = flag(given, "fp8_mha");
  json::Value then = json::object();
  try {
    const AttentionFlags f = mha.prepare(session, flag(given, "enabled") ? Autocast{recipe} : quantization_off(), flag(given, "rope"));
    then.set("flags", json::object({{"qkv_fp8_output", f.qkv_fp8_output}, {"proj_fp8_grad", f.proj_fp8_grad}, {"dpa_fp8_output", f.dpa_fp8_output}}));
    then.set("boundaries", boundaries(mha, false));
  } catch (const SemanticError& e) {
    then.set("error", name_of(e.error_class));
  }
  json::Value calls = json::array();
  for (const AttentionFlags& w : mha.wirings()) calls.push(json::array({w.qkv_fp8_output, w.proj_fp8_grad, w.dpa_fp8_output}));
  then.set("wiring_calls", std::move(calls));
  return then;
}

// ---- building and rebuilding

// Names under which a state's two directions go in the original.
constexpr std::pair<Mode, string_view> kDirections[] = {{Mode::forward, "scaling_fwd"}, {Mode::backward, "scaling_bwd"}};

QFactoryPtr known_factory(string_view name) {
  if (QFactoryPtr f = factory_named(name)) return f;
  throw std::invalid_argument(fmt::format("expected a factory's name, found '{}'", name));
}

// A factory that notes the roles it is asked for.
QFactoryPtr counting(std::vector<RolePtr>& asked, QFactoryPtr inner) {
  return std::make_shared<const QFactory>(QFactory{"counting", [&asked, inner = std::move(inner)](const RolePtr& role) {
                                                     asked.push_back(role);
                                                     return inner->call(role);
                                                   }});
}

json::Value build(const json::Value& given, Session& session) {
  std::vector<RolePtr> asked;
  const string_view factory = given.text("factory");
  const auto recipe = std::make_shared<CustomRecipe>();
  recipe->qfactory = counting(asked, known_factory(factory.empty() ? "current_scaling_factory" : factory));
  if (given.find("fp8_dpa")) recipe->fp8_dpa = flag(given, "fp8_dpa");
  if (given.find("fp8_mha")) recipe->fp8_mha = flag(given, "fp8_mha");
  const bool attention = given.text("module") == "DotProductAttention";
  DotProductAttention dpa(session, name_in(given));   // its state serves every module
  if (!attention) dpa.state = ModuleState(session, producer_in(given), name_in(given), number(given, "num_gemms", 1));
  ModuleState& state = dpa.state;
  if (given.find("out_role")) state.set_output_quantizer_role(role_of(at(given, "out_role")));
  if (given.find("gin_role")) state.set_grad_input_quantizer_role(role_of(at(given, "gin_role")));
  json::Value then = json::object();
  if (!attention) {
    state.init_fp8_metadata(session, {recipe});
    then.set("factory_calls_first", asked.size());
    then.set("roles_in_call_order", shown(asked));
    asked.clear();
    state.init_fp8_metadata(session, {recipe});
    then.set("factory_calls_second_same_recipe", asked.size());
    then.set("forward_slots", state.quantizers(Mode::forward).size());
    then.set("backward_slots", state.quantizers(Mode::backward).size());
    return then;
  }
  string result = "ok";
  try {
    state.init_fp8_metadata(session, {recipe});
    dpa.quantizers();
  } catch (const SemanticError& e) {
    result = name_of(e.error_class);
  }
  then.set("result", result);
  then.set("roles_in_call_order", shown(asked));
  json::Value classes = json::object();
  for (const auto& [mode, key] : kDirections) {
    json::Value list = json::array();
    for (const QuantizerPtr& q : state.quantizers(mode)) list.push(q->class_name());
    classes.set(key, std::move(list));
  }
  then.set("quantizer_classes", std::move(classes));
  return then;
}

// What a record calls a situation: two recipes, the second derived from or unlike the first, and what else happens before the module sees the second.
struct Situation {
  RecipePtr before, after;
  std::function<void()> meanwhile = [] {};   // after the first initialisation
  bool off_in_between = false, output_role = false, history = false;
};

// The recipe that a word of a situation means. A custom recipe that comes second has another factory than one that comes first.
RecipePtr recipe_called(string_view word, bool second) {
  static constexpr std::pair<string_view, string_view> kClasses[] = {
      {"delayed", "DelayedScaling"}, {"current", "Float8CurrentScaling"}, {"mxfp8", "MXFP8BlockScaling"}, {"block", "Float8BlockScaling"}, {"nvfp4", "NVFP4BlockScaling"}};
  for (const auto& [called, recipe_class] : kClasses)
    if (word == called) return make_recipe(recipe_class);
  if (word == "custom") return custom_recipe(second ? "mxfp8_factory" : "current_scaling_factory");
  throw std::invalid_argument(fmt::format("expected a recipe's word, found '{}'", word));
}

std::vector<string_view> split(string_view text, string_view by) {
  std::vector<string_view> parts;
  for (size_t end; (end = text.find(by)) != string_view::npos; text.remove_prefix(end + by.size())) parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// Fields of a recipe that a situation changes: "current pow2 on".
struct Change {
  string_view words;
  void (*apply)(Recipe&);
};
constexpr Change kChanges[] = {
    {"margin changed", [](Recipe& r) { dynamic_cast<DelayedScaling&>(r).margin = 1; }},
    {"pow2 on", [](Recipe& r) { dynamic_cast<Float8CurrentScaling&>(r).use_power_2_scales = true; }},
    {"two dimensional switched on", [](Recipe& r) { dynamic_cast<MXFP8BlockScaling&>(r).enable_2d_quantization = true; }},
    {"transforms switched off", [](Recipe& r) { dynamic_cast<NVFP4BlockScaling&>(r).disable_rht = dynamic_cast<NVFP4BlockScaling&>(r).disable_stochastic_rounding = true; }},
};

Situation situation_in(string_view text) {
  Situation s;
  std::vector<string_view> clauses = split(text, ", ");
  const auto says = [&](string_view clause) { return std::find(clauses.begin(), clauses.end(), clause) != clauses.end(); };
  s.off_in_between = says("quantization off in between");
  s.output_role = says("output role assigned");
  const std::vector<string_view> words = split(clauses[0], " ");
  const auto has = [&](string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  if (has("same")) {
    // "same block recipe object", "same custom object"
    s.before = s.after = recipe_called(words.at(1), false);
    if (says("factory attribute reassigned")) s.meanwhile = [r = s.after] { static_cast<CustomRecipe&>(*r).qfactory = known_factory("mxfp8_factory"); };
  } else if (has("different") || has("other")) {
    // "different custom recipe objects", "other equal custom object", "custom to other custom"
    const bool to_other = has("to");
    const string_view family = to_other ? words[0] : words[0] == "different" ? words.at(1) : words.at(2);
    s.before = recipe_called(family, false);
    s.after = recipe_called(family, to_other || says("different factory"));
    if (says("other alignment")) dynamic_cast<CustomRecipe&>(*s.after).quantization_alignment = 64;
  } else if (has("to") && !has("history")) {
    s.before = recipe_called(words.front(), false);
    s.after = recipe_called(words.back(), true);
  } else {
    s.before = recipe_called(words.front(), false);
    s.after = recipe_called(words.front(), false);
    if (has("history")) {   // "delayed history 16 to history 4"
      s.history = true;
      dynamic_cast<DelayedScaling&>(*s.before).amax_history_len = std::stoi(string(words.at(2)));
      dynamic_cast<DelayedScaling&>(*s.after).amax_history_len = std::stoi(string(words.back()));
    }
    for (const Change& c : kChanges)
      if (clauses[0].ends_with(c.words)) c.apply(*s.after);
  }
  return s;
}

struct Replaced {
  bool any = false, all = true;
  std::set<string, std::less<>> classes;
};
Replaced replaced(const std::vector<QuantizerPtr> (&before)[2], const std::vector<QuantizerPtr> (&after)[2]) {
  Replaced r;
  for (size_t d = 0; d < 2; ++d)
    for (size_t i = 0; i < after[d].size(); ++i) {
      const bool kept = i < before[d].size() && before[d][i] == after[d][i];
      r.any |= !kept;
      r.all &= !kept;
      r.classes.insert(string(after[d][i]->class_name()));
    }
  return r;
}

json::Value texts(const std::set<string, std::less<>>& set) {
  json::Value list = json::array();
  for (const string& s : set) list.push(s);
  return list;
}

json::Value rebuild(const json::Value& given, Session& session) {
  const Situation s = situation_in(given.text("situation"));
  json::Value then = json::object();
  if (given.find("op")) {
    Operation operation = operation_in(given);
    operation.num_groups = 2;
    OperationState state(std::move(operation));
    state.reset_recipe_state(session, s.before);
    const std::vector<QuantizerPtr> before[2] = {state.quantizers(Mode::forward), state.quantizers(Mode::backward)};
    s.meanwhile();
    state.reset_recipe_state(session, s.after);
    const std::vector<QuantizerPtr> after[2] = {state.quantizers(Mode::forward), state.quantizers(Mode::backward)};
    const Replaced r = replaced(before, after);
    then.set("any_quantizer_replaced", r.any);
    then.set("classes_after", texts(r.classes));
    return then;
  }
  ModuleState state(session, producer_in(given), "m", 2);
  state.init_fp8_metadata(session, {s.before});
  const std::vector<QuantizerPtr> before[2] = {state.quantizers(Mode::forward), state.quantizers(Mode::backward)};
  session.warnings.clear();
  s.meanwhile();
  if (s.output_role) state.set_output_quantizer_role(std::make_shared<const QuantizerRole>(QuantizerRole{"dpa", "qkv", "core"}));
  if (s.off_in_between) state.init_fp8_metadata(session, quantization_off());
  state.init_fp8_metadata(session, {s.after});
  const std::vector<QuantizerPtr> after[2] = {state.quantizers(Mode::forward), state.quantizers(Mode::backward)};
  const Replaced r = replaced(before, after);
  then.set("any_quantizer_replaced", r.any);
  then.set("all_replaced", r.all);
  then.set("classes_after", texts(r.classes));
  std::set<string, std::less<>> warnings;
  for (const Warning& w : session.warnings) warnings.insert(w.category);
  then.set("warning_classes", texts(warnings));
  if (s.history) then.set("history_rows", state.state(Mode::forward)->delayed()->amax_history->shape.at(0));
  return then;
}

void fill(const ArrayPtr& x, F32Bits bits) {
  std::vector<F32Bits> values(static_cast<size_t>(x->count()), bits);
  std::ranges::copy(std::as_bytes(std::span(values)), x->bytes().begin());
}
json::Value words_of(const ArrayPtr& x, int64_t count) {
  json::Value list = json::array();
  const auto bytes = x->bytes();
  for (int64_t i = 0; i < count; ++i) {
    F32Bits word;
    std::memcpy(&word, bytes.data() + 4 * i, 4);
    list.push(fmt::format("{:08x}", word));
  }
  return list;
}

json::Value inherit(const json::Value& given, Session& session) {
  ModuleState state(session, Producer::linear, "m");
  const RecipePtr recipe = given.text("recipe") == "CustomRecipe" ? custom_recipe("delayed_scaling_factory") : make_recipe(given.text("recipe"));
  state.init_fp8_metadata(session, {recipe});
  const RecipeStatePtr old = state.state(Mode::forward);
  const ArrayPtr scale = old->delayed()->scale, history = old->delayed()->amax_history;
  fill(scale, 0x40E00000);     // 7
  fill(history, 0x40400000);   // 3
  const std::vector<QuantizerPtr> before = state.quantizers(Mode::forward);
  const auto other = std::make_shared<const QuantizerRole>(QuantizerRole{"dpa", "qkv", "core"});
  given.text("change") == "output role" ? state.set_output_quantizer_role(other) : state.set_grad_input_quantizer_role(other);
  if (given.text("rebuilt_through") == "set_meta_tensor")
    state.set_meta_tensor(session, Mode::forward, recipe);
  else
    state.init_fp8_metadata(session, {recipe});
  const RecipeStatePtr now = state.state(Mode::forward);
  const DelayedStatePtr data = now->delayed();
  bool all_replaced = true, aliases = true;
  for (size_t i = 0; i < before.size(); ++i) {
    const auto q = std::dynamic_pointer_cast<Float8Quantizer>(state.quantizers(Mode::forward)[i]);
    all_replaced &= q != before[i];
    aliases &= q && share_memory(*q->scale, *data->scale);
  }
  return json::object({{"state_object_replaced", now != old},
                       {"scale_object_kept", data->scale == scale},
                       {"history_object_kept", data->amax_history == history},
                       {"scale_values", words_of(data->scale, data->scale->count())},
                       {"history_first_row", words_of(data->amax_history, data->amax_history->shape.at(1))},
                       {"quantizer_objects_replaced", all_replaced},
                       {"quantizer_scale_aliases_state", aliases}});
}

}  // namespace

json::Value witness_slot_lists(string_view group, const json::Value& given, Subject& subject) {
  Session session(subject);
  if (group == "auto_name") return auto_name(given, session);
  if (group == "module") return module(given, session);
  if (group == "op") return op(given);
  if (group == "role_value") return role_value(given);
  if (group == "setter") return setter(given, session);
  if (group == "mha_wiring") return mha_wiring(given, session);
  if (group == "mha_flags") return mha_flags(given, session);
  if (group == "build") return build(given, session);
  if (group == "rebuild") return rebuild(given, session);
  if (group == "inherit") return inherit(given, session);
  throw std::invalid_argument(fmt::format("expected a group of slot lists, found '{}'", group));
}

}  // namespace assay
