// Records of role lists, of the wiring of attention, and of when quantizers are made anew.
#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <type_traits>

#include <fmt/format.h>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "training/formats/float8.h"
#include "training/modules/attention.h"
#include "training/modules/module_state.h"
#include "training/modules/transformer_layer.h"
#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"

namespace assay {

namespace {

using namespace training;
using std::string;
using std::string_view;

Producer producer_in(const Given& given) {
  const Given module = given.at("module", "a module that gives role lists");
  const auto p = module_named(module.text());
  if (!p) module.refuse("a module that gives role lists");
  return *p;
}
Mode mode_in(const Given& given, string_view key) {
  return *mode_named(given.word(key, {"forward", "backward"}));
}

// ---- lists of roles

json::Value auto_name(const Given& given, Session& session) {
  const ModuleState state(session, producer_in(given), given.name());
  constexpr string_view kPrefix = "Layer_";
  const bool matches = state.name.starts_with(kPrefix) && state.name.size() > kPrefix.size() &&
                       state.name.find_first_not_of("0123456789", kPrefix.size()) == string::npos;
  return json::object({{"matches_Layer_number", matches}});
}

json::Value module(const Given& given, Session& session) {
  const auto name = given.name();
  ModuleState state(session, producer_in(given), name);
  state.set_output_quantizer_role(given.role("out_role"));
  state.set_grad_input_quantizer_role(given.role("gin_role"));
  std::vector<RolePtr> roles = state.get_quantizer_roles(mode_in(given, "direction"), given.count("num", 0));
  if (!name) {  // the records write <auto> where the name was not given
    for (RolePtr& role : roles) {
      if (!role || !role->name.starts_with(state.name)) continue;
      QuantizerRole masked = *role;
      masked.name = "<auto>" + masked.name.substr(state.name.size());
      role = std::make_shared<const QuantizerRole>(std::move(masked));
    }
  }
  return json::object({{"len", roles.size()}, {"roles", shown(roles)}});
}

Operation operation_in(const Given& given) {
  Operation op;
  op.te_class = given.text("op");
  op.name = given.name().value_or("");
  op.num_groups = given.count("num_groups", 1);
  op.quantize_forward = given.flag("quantize_forward", op.quantize_forward);
  op.quantize_backward = given.flag("quantize_backward", op.quantize_backward);
  return op;
}

json::Value op(const Given& given) {
  const Operation operation = operation_in(given);
  const RoleList roles = operation.get_quantizer_roles(given.text("mode"));
  return json::object({{"num_quantizers", operation.num_quantizers(given.text("mode"))},
                       {"roles", roles ? shown(*roles) : json::Value()}});
}

json::Value role_value(const Given& given) {
  const RolePtr role = given.role("role");
  if (!role) given.at("role", "").refuse("a role");
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the record asks about a copy
  const QuantizerRole copy = *role;
  // A role is handed out as a pointer to const: assigning to a field is refused before the program runs.
  constexpr bool kAssignable = std::is_assignable_v<decltype((std::declval<const RolePtr&>()->name)), string>;
  return json::object(
      {{"text", to_text(*role)},
       {"equal_to_copy", copy == *role},
       {"hash_equal_to_copy", hash_of(copy) == hash_of(*role)},
       {"assignment", kAssignable ? json::Value("ok")
                                  : json::object({{"error", name_of(ErrorClass::frozen_instance_error)}})}});
}

json::Value setter(const Given& given, Session& session) {
  ModuleState state(session, producer_in(given), "m");
  const bool output =
      given.word("slot", {"output_quantizer_role", "grad_input_quantizer_role"}) == "output_quantizer_role";
  const auto set = [&](const RolePtr& role) {
    output ? state.set_output_quantizer_role(role) : state.set_grad_input_quantizer_role(role);
  };
  const RolePtr present = given.role("present");
  set(present);
  state.fp8_meta_tensors_initialized = true;
  const RolePtr assigned = given.flag("assigned_is_same_object") ? present : given.role("assigned");
  set(assigned);
  const RolePtr& stored = output ? state.output_quantizer_role() : state.grad_input_quantizer_role();
  return json::object({{"still_initialised", state.fp8_meta_tensors_initialized},
                       {"stored", shown(stored)},
                       {"stored_object_is_new", stored == assigned}});
}

// ---- attention

// The records of cross attention show the automatic name of its query projection, which counts the unnamed
// modules that the recording process had made before: five of the group auto_name, then one per case of both
// sweeps below that has such a projection, in the order of the sweeps. That history is set up here.
constexpr int kUnnamedBeforeSweeps = 5;
constexpr int kWiringSweep = 8;
int unnamed_before_wiring(const AttentionFlags& f) {
  return kUnnamedBeforeSweeps + (f.qkv_fp8_output ? 0 : 4) + (f.proj_fp8_grad ? 0 : 2) +
         (f.dpa_fp8_output ? 0 : 1);
}

// Recipes of the flags' sweep in its order: built-in ones, then a custom one whose factory gives every slot a
// quantizer of one family.
struct SweptFamily {
  string_view name, factory;
};
constexpr string_view kSweptRecipes[] = {"DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling"};
constexpr SweptFamily kSweptFamilies[] = {
    {"delayed", "delayed_scaling_factory"},
    {"current", "current_scaling_factory"},
    {"mxfp8", "mxfp8_factory"},
    {"nvfp4", "nvfp4_factory"},
    {"block", "float8_block_scaling_factory"},
    {"identity", "high_precision_factory"},
    {"hybrid", "high_precision_fwd_mxfp8_bwd_factory"},
    {"nvfp4_linear_fp8_dpa", "nvfp4_linear_fp8_dpa_factory"},
};
RecipePtr recipe_in(const Given& given) {
  return given.text("recipe") == "CustomRecipe"
             ? custom_recipe(given.row("qkv_slot_family", kSweptFamilies).factory)
             : make_recipe(given.text("recipe"));
}
// Where the recipe stood in the sweep. A recipe outside the sweep is taken for the first, because the number
// of modules before it is not known.
int sweep_index(const Given& given) {
  constexpr int kBuiltIn = std::size(kSweptRecipes);
  if (given.text("recipe") == "CustomRecipe")
    return kBuiltIn + static_cast<int>(&given.row("qkv_slot_family", kSweptFamilies) - kSweptFamilies);
  return static_cast<int>(
             std::find(std::begin(kSweptRecipes), std::end(kSweptRecipes), given.text("recipe")) -
             std::begin(kSweptRecipes)) %
         kBuiltIn;
}
int unnamed_before_flags(const Given& given) {
  constexpr int kRecipes = std::size(kSweptRecipes) + std::size(kSweptFamilies),
                kPerPair =
                    2 * kRecipes + 1;  // without and with rotary embedding, then once with quantization off
  const int within =
      given.flag("enabled") ? kRecipes * given.flag("rope") + sweep_index(given) : 2 * kRecipes;
  return kUnnamedBeforeSweeps + kWiringSweep +
         kPerPair * (2 * given.flag("fp8_dpa") + given.flag("fp8_mha")) + within;
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

json::Value mha_wiring(const Given& given, Session& session) {
  const AttentionFlags flags{given.flag("qkv_fp8_output"), given.flag("proj_fp8_grad"),
                             given.flag("dpa_fp8_output")};
  session.unnamed_modules = unnamed_before_wiring(flags);
  MultiheadAttention mha(session, {given.name(), given.word("attention_type", {"self", "cross"}) == "cross",
                                   given.flag("input_layernorm")});
  json::Value then = json::object({{"fresh", boundaries(mha, true)}});
  mha.wire_boundary_roles(flags);
  then.set("after", boundaries(mha, true));
  mha.wire_boundary_roles({});
  then.set("after_reset", boundaries(mha, true));
  return then;
}

json::Value mha_flags(const Given& given, Session& session) {
  session.unnamed_modules = unnamed_before_flags(given);
  MultiheadAttention mha(session, {"mha", given.word("attention_type", {"self", "cross"}) == "cross", false});
  const RecipePtr recipe = recipe_in(given);
  recipe->fp8_dpa = given.flag("fp8_dpa");
  recipe->fp8_mha = given.flag("fp8_mha");
  json::Value then = json::object();
  try {
    const AttentionFlags f = mha.prepare(
        session, given.flag("enabled") ? Autocast{recipe} : quantization_off(), given.flag("rope"));
    then.set("flags", json::object({{"qkv_fp8_output", f.qkv_fp8_output},
                                    {"proj_fp8_grad", f.proj_fp8_grad},
                                    {"dpa_fp8_output", f.dpa_fp8_output}}));
    then.set("boundaries", boundaries(mha, false));
  } catch (const SemanticError& e) {
    then.set("error", name_of(e.error_class));
  }
  json::Value calls = json::array();
  for (const AttentionFlags& w : mha.wirings())
    calls.push(json::array({w.qkv_fp8_output, w.proj_fp8_grad, w.dpa_fp8_output}));
  then.set("wiring_calls", std::move(calls));
  return then;
}

// ---- building and rebuilding

// Names under which a state's two directions go in the original.
constexpr std::pair<Mode, string_view> kDirections[] = {{Mode::forward, "scaling_fwd"},
                                                        {Mode::backward, "scaling_bwd"}};

QFactoryPtr known_factory(string_view name) {
  if (QFactoryPtr f = factory_named(name)) return f;
  throw std::invalid_argument(fmt::format("expected a factory's name, found '{}'", name));
}

// A factory that notes the roles it is asked for.
QFactoryPtr counting(std::vector<RolePtr>& asked, QFactoryPtr inner) {
  return std::make_shared<const QFactory>(
      QFactory{"counting", [&asked, inner = std::move(inner)](const RolePtr& role) {
                 asked.push_back(role);
                 return inner->call(role);
               }});
}

// An operation's quantizers are made: which roles the factory sees, and how it warns.
json::Value build_operation(const Given& given, Session& session) {
  std::vector<RolePtr> asked;
  const auto recipe = std::make_shared<CustomRecipe>();
  recipe->qfactory = counting(asked, known_factory("current_scaling_factory"));
  Operation operation = operation_in(given);
  const Given groups = given.at("groups", "an integer or null");
  if (!groups.is_null()) operation.num_groups = static_cast<size_t>(groups.number(1, 256));
  operation.quantize_forward = operation.quantize_backward = true;
  OperationState(std::move(operation)).reset_recipe_state(session, recipe);
  return json::object(
      {{"roles_in_call_order", shown(asked)}, {"warning_classes", categories_of(session.warnings)}});
}

// The names of a layer and of the modules within, sorted.
json::Value names(const Given& given, Session& session) {
  given.word("module", {"TransformerLayer"});
  const bool decoder =
      given.has("layer_type") && given.word("layer_type", {"encoder", "decoder"}) == "decoder";
  std::vector<string> all = TransformerLayer(session, given.name(), decoder).names();
  std::sort(all.begin(), all.end());
  return json::object({{"names", shown(all)}});
}

json::Value build(const Given& given, Session& session) {
  if (given.has("op")) return build_operation(given, session);
  std::vector<RolePtr> asked;
  const auto recipe = std::make_shared<CustomRecipe>();
  recipe->qfactory = counting(asked, known_factory(given.text("factory", "current_scaling_factory")));
  recipe->fp8_dpa = given.flag("fp8_dpa", recipe->fp8_dpa);
  recipe->fp8_mha = given.flag("fp8_mha", recipe->fp8_mha);
  const bool attention = given.text("module") == "DotProductAttention";
  DotProductAttention dpa(session, given.name());  // its state serves every module
  if (!attention)
    dpa.state = ModuleState(session, producer_in(given), given.name(), given.count("num_gemms", 1));
  ModuleState& state = dpa.state;
  if (given.has("out_role")) state.set_output_quantizer_role(given.role("out_role"));
  if (given.has("gin_role")) state.set_grad_input_quantizer_role(given.role("gin_role"));
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
  for (const auto& [mode, key] : kDirections) classes.set(key, classes_of(state.quantizers(mode)));
  then.set("quantizer_classes", std::move(classes));
  return then;
}

// What a record calls a situation: two recipes, the second derived from or unlike the first, and what else
// happens before the module sees the second.
struct Situation {
  RecipePtr before, after;
  std::function<void()> meanwhile = [] {};  // after the first initialisation
  bool off_in_between = false, output_role = false, history = false;
};

// The recipe that a word of a situation means. A custom recipe that comes second has another factory than one
// that comes first.
RecipePtr recipe_of(string_view word, bool second) {
  const string_view recipe_class = recipe_called(word, "given.situation");
  return recipe_class == "CustomRecipe"
             ? RecipePtr(custom_recipe(second ? "mxfp8_factory" : "current_scaling_factory"))
             : make_recipe(recipe_class);
}

std::vector<string_view> split(string_view text, string_view by) {
  std::vector<string_view> parts;
  for (size_t end; (end = text.find(by)) != string_view::npos; text.remove_prefix(end + by.size()))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// Fields of a recipe that a situation changes: "current pow2 on".
struct Change {
  string_view name;
  void (*apply)(Recipe&);
};
constexpr Change kChanges[] = {
    {"margin changed", [](Recipe& r) { dynamic_cast<DelayedScaling&>(r).margin = 1; }},
    {"pow2 on", [](Recipe& r) { dynamic_cast<Float8CurrentScaling&>(r).use_power_2_scales = true; }},
    {"two dimensional switched on",
     [](Recipe& r) { dynamic_cast<MXFP8BlockScaling&>(r).enable_2d_quantization = true; }},
    {"transforms switched off",
     [](Recipe& r) {
       dynamic_cast<NVFP4BlockScaling&>(r).disable_rht =
           dynamic_cast<NVFP4BlockScaling&>(r).disable_stochastic_rounding = true;
     }},
};

// What a clause after the first may say.
constexpr std::pair<string_view, int> kClauses[] = {{"quantization off in between", 0},
                                                    {"output role assigned", 0},
                                                    {"factory attribute reassigned", 0},
                                                    {"equal fields", 0},
                                                    {"other object", 0},
                                                    {"same factory", 0},
                                                    {"different factory", 0},
                                                    {"other alignment", 0}};

int64_t rows_in(string_view word) {
  if (word.empty() || word.size() > 4 || word.find_first_not_of("0123456789") != string::npos)
    throw std::invalid_argument(
        fmt::format("given.situation: expected a history's length, found '{}'", word));
  return std::stoi(string(word));
}

Situation situation_in(const Given& given) {
  const string& text = given.text("situation");
  Situation s;
  const std::vector<string_view> clauses = split(text, ", ");
  for (size_t i = 1; i < clauses.size(); ++i) row_called(kClauses, clauses[i], "given.situation");
  const auto says = [&](string_view clause) {
    return std::find(clauses.begin() + 1, clauses.end(), clause) != clauses.end();
  };
  s.off_in_between = says("quantization off in between");
  s.output_role = says("output role assigned");
  std::vector<string_view> words = split(clauses[0], " ");
  const auto begins = [&](std::initializer_list<string_view> with) {
    return words.size() >= with.size() && std::equal(with.begin(), with.end(), words.begin());
  };
  const auto ends = [&](string_view word) { return words.size() > 1 && words.back() == word; };
  const auto drop = [&](size_t front, size_t back) {
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(front));
    words.resize(words.size() - back);
  };
  // What is left of the first clause when the words that say what happens are read: a recipe's word, and
  // "recipe" or "scaling" where it reads better.
  const auto family = [&] {
    if (words.size() == 2 && (words[1] == "recipe" || words[1] == "scaling")) words.pop_back();
    if (words.size() != 1) given.at("situation", "").refuse("a recipe's word and what becomes of it");
    return words[0];
  };
  if (begins({"same"}) && (ends("object") || ends("objects"))) {  // "same block recipe object"
    drop(1, 1);
    s.before = s.after = recipe_of(family(), false);
    if (says("factory attribute reassigned"))
      s.meanwhile = [r = std::dynamic_pointer_cast<CustomRecipe>(s.after), &given] {
        if (!r) given.at("situation", "").refuse("a custom recipe, which alone has a factory");
        r->qfactory = known_factory("mxfp8_factory");
      };
  } else if ((begins({"different"}) && ends("objects")) ||
             (begins({"other", "equal"}) && ends("object"))) {  // "different custom recipe objects"
    drop(words[0] == "other" ? 2 : 1, 1);
    s.before = recipe_of(family(), false);
    s.after = recipe_of(family(), says("different factory"));
    if (says("other alignment")) dynamic_cast<CustomRecipe&>(*s.after).quantization_alignment = 64;
  } else if (words.size() == 6 && words[1] == "history" && words[3] == "to" &&
             words[4] == "history") {  // "delayed history 16 to history 4"
    s.before = recipe_of(words[0], false);
    s.after = recipe_of(words[0], false);
    s.history = true;
    dynamic_cast<DelayedScaling&>(*s.before).amax_history_len = static_cast<int>(rows_in(words[2]));
    dynamic_cast<DelayedScaling&>(*s.after).amax_history_len = static_cast<int>(rows_in(words[5]));
  } else if ((words.size() == 3 && words[1] == "to") ||
             (words.size() == 4 && words[1] == "to" && words[2] == "other")) {  // "custom to other custom"
    s.before = recipe_of(words.front(), false);
    s.after = recipe_of(words.back(), true);
  } else {  // "current scaling, other object, equal fields", "current pow2 on"
    const string_view change =
        std::string_view(clauses[0]).substr(std::min(words[0].size() + 1, clauses[0].size()));
    s.before = recipe_of(words[0], false);
    s.after = recipe_of(words[0], false);
    if (!change.empty() && change != "scaling" && change != "recipe")
      row_called(kChanges, change, "given.situation")->apply(*s.after);
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
  return shown(std::vector<string>(set.begin(), set.end()));
}

json::Value rebuild(const Given& given, Session& session) {
  const Situation s = situation_in(given);
  json::Value then = json::object();
  if (given.has("op")) {
    Operation operation = operation_in(given);
    operation.num_groups = 2;
    OperationState state(std::move(operation));
    state.reset_recipe_state(session, s.before);
    const std::vector<QuantizerPtr> before[2] = {state.quantizers(Mode::forward),
                                                 state.quantizers(Mode::backward)};
    s.meanwhile();
    state.reset_recipe_state(session, s.after);
    const std::vector<QuantizerPtr> after[2] = {state.quantizers(Mode::forward),
                                                state.quantizers(Mode::backward)};
    const Replaced r = replaced(before, after);
    then.set("any_quantizer_replaced", r.any);
    then.set("classes_after", texts(r.classes));
    return then;
  }
  ModuleState state(session, producer_in(given), "m", 2);
  state.init_fp8_metadata(session, {s.before});
  const std::vector<QuantizerPtr> before[2] = {state.quantizers(Mode::forward),
                                               state.quantizers(Mode::backward)};
  session.warnings.clear();
  s.meanwhile();
  if (s.output_role)
    state.set_output_quantizer_role(
        std::make_shared<const QuantizerRole>(QuantizerRole{"dpa", "qkv", "core"}));
  if (s.off_in_between) state.init_fp8_metadata(session, quantization_off());
  state.init_fp8_metadata(session, {s.after});
  const std::vector<QuantizerPtr> after[2] = {state.quantizers(Mode::forward),
                                              state.quantizers(Mode::backward)};
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
  std::vector<F32Bits> words(static_cast<size_t>(count));
  std::memcpy(words.data(), x->bytes().data(), words.size() * sizeof(F32Bits));
  return shown(words);
}

json::Value inherit(const Given& given, Session& session) {
  ModuleState state(session, Producer::linear, "m");
  const Given name = given.at("recipe", "a recipe's class");
  const RecipePtr recipe =
      name.text() == "CustomRecipe" ? custom_recipe("delayed_scaling_factory") : make_recipe(name.text());
  state.init_fp8_metadata(session, {recipe});
  const RecipeStatePtr old = state.state(Mode::forward);
  if (!old->delayed()) name.refuse("a recipe whose state has a scale and a history");
  const ArrayPtr scale = old->delayed()->scale, history = old->delayed()->amax_history;
  fill(scale, 0x40E00000);    // 7
  fill(history, 0x40400000);  // 3
  const std::vector<QuantizerPtr> before = state.quantizers(Mode::forward);
  const auto other = std::make_shared<const QuantizerRole>(QuantizerRole{"dpa", "qkv", "core"});
  given.word("change", {"output role", "grad input role", "grad_input role", "gradient input role"}) ==
          "output role"
      ? state.set_output_quantizer_role(other)
      : state.set_grad_input_quantizer_role(other);
  if (given.word("rebuilt_through", {"set_meta_tensor", "init_fp8_metadata"}) == "set_meta_tensor")
    state.set_meta_tensor(session, Mode::forward, recipe);
  else state.init_fp8_metadata(session, {recipe});
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

json::Value witness_slot_lists(string_view group, const Given& given, Subject& subject) {
  Session session(subject);
  if (group == "auto_name") return auto_name(given, session);
  if (group == "module") return module(given, session);
  if (group == "op") return op(given);
  if (group == "role_value") return role_value(given);
  if (group == "setter") return setter(given, session);
  if (group == "mha_wiring") return mha_wiring(given, session);
  if (group == "mha_flags") return mha_flags(given, session);
  if (group == "names") return names(given, session);
  if (group == "build") return build(given, session);
  if (group == "rebuild") return rebuild(given, session);
  if (group == "inherit") return inherit(given, session);
  throw std::invalid_argument(fmt::format("expected a group of slot lists, found '{}'", group));
}

}  // namespace assay
