// Records of recipes and their states: construction, slots, the quantizers of every recipe, and what a state
// takes over from an older one.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"
#include "training/recipes/delayed.h"
#include "training/recipes/factories.h"

namespace assay {

namespace {

namespace tr = training;
using json::Value;
using std::string;
using std::string_view;

// An error that a factory of a record raises: no class of ours.
struct Raised {
  string name;
};

string mode_of(const Given& given) { return given.text("mode", "forward"); }

// Slots are limited where each has a history of its own.
constexpr int64_t kMostSlots = 256, kMostRows = 4096;
size_t slots_in(const Given& given, size_t otherwise) {
  return given.has("num") ? static_cast<size_t>(given.number("num", 0, kMostSlots)) : otherwise;
}

// The element at slot `i` of a binary32 array.
string hex_at(const tr::Array& a, size_t i) {
  F32Bits bits;
  std::memcpy(&bits, a.data() + i * sizeof bits, sizeof bits);
  return hex(bits);
}

tr::QFactoryPtr factory_of(std::function<tr::QuantizerLike(const tr::RolePtr&)> call) {
  return std::make_shared<const tr::QFactory>(tr::QFactory{"of a record", std::move(call)});
}
tr::RecipePtr recipe_around(tr::QFactoryPtr factory) {
  auto r = tr::custom_recipe("mxfp8_factory");
  r->qfactory = std::move(factory);
  return r;
}

// A recipe by the record's class and fields, where a custom one gets some factory and words stand for
// objects.
tr::RecipePtr recipe_of(string_view name, const Value& fields) {
  expect_recipe_class(name, "given.recipe");
  const Given given(fields, "given.fields");
  Value all = json::object();
  if (name == "CustomRecipe") all.set("qfactory", "mxfp8_factory");
  for (const auto& [key, member] : given.members()) {
    const Value& value = member.value();
    const string* word = value.string();
    if (key == "amax_history_len" && value.to_int()) member.number(-kMostRows, kMostRows);
    if (word && *word == "<factory>") continue;
    if (word && word->starts_with("split accumulator")) {
      static constexpr std::pair<string_view, bool> kSplit[] = {
          {"split accumulator on", true}, {"split accumulator off", false}, {"split accumulator", true}};
      all.set(key, json::object({{"use_split_accumulator", member.row(kSplit).second}}));
    } else {
      all.set(key, value);
    }
  }
  return tr::make_recipe(name, all);
}
tr::RecipePtr recipe_of(string_view name) { return recipe_of(name, json::object()); }
// "recipe" with the fields in `key`.
tr::RecipePtr recipe_in(const Given& given, string_view key) {
  return recipe_of(given.text("recipe"), given.at(key, "the recipe's fields").value());
}

// A recipe of an unknown family.
struct UnknownRecipe final : tr::Recipe {
  string_view class_name() const override { return "UnknownRecipe"; }
  Value fields() const override { return json::object(); }
  bool equals(const Recipe&) const override { return true; }
};

Value resolve(const Given& given, tr::Session& session) {
  const tr::RoleList roles = given.roles("roles");
  const size_t n = slots_in(given, 0);
  const auto state =
      tr::RecipeState::create(session, recipe_of("Float8CurrentScaling"), mode_of(given), n, roles);
  Value slots = json::array();
  for (size_t i = 0; i < n; ++i) {
    const tr::RolePtr role = state->slot_role(i);
    slots.push(json::object({{"role", shown(role)},
                             {"same_object", roles && (*roles)[i] == role},
                             {"tensor_type", state->slot_tensor_type(i)}}));
  }
  return json::object({{"slots", std::move(slots)}});
}

Value builtin(const Given& given, tr::Session& session) {
  try {
    const auto state = tr::RecipeState::create(session, recipe_in(given, "recipe_fields"), mode_of(given),
                                               slots_in(given, 0), given.roles("roles"));
    const auto quantizers = state->make_quantizers(session);
    Value out = json::object({{"state_class", state->class_name()}}), list = json::array();
    if (const tr::DelayedStatePtr d = state->delayed()) {
      Value init = json::array(), scales = json::array(), amaxes = json::array();
      for (size_t i = 0; i < quantizers.size(); ++i) {
        const auto& q = dynamic_cast<const tr::Float8Quantizer&>(*quantizers[i]);
        init.push(hex_at(*d->scale, i));
        scales.push(q.scale->data() == d->scale->data() + i * sizeof(F32Bits));
        amaxes.push(q.amax->data() == d->amax_history->data() + i * sizeof(F32Bits));
      }
      const auto history = std::as_const(*d->amax_history).bytes();
      out.set("scale_shape", shape_of(d->scale));
      out.set("history_shape", shape_of(d->amax_history));
      out.set("scale_init", std::move(init));
      out.set("history_all_zero",
              std::all_of(history.begin(), history.end(), [](std::byte b) { return b == std::byte{0}; }));
      out.set("quantizer_scale_aliases", std::move(scales));
      out.set("quantizer_amax_aliases_history_row0", std::move(amaxes));
    }
    for (const auto& q : quantizers) list.push(q->describe());
    out.set("quantizers", std::move(list));
    return json::object({{"ok", std::move(out)}});
  } catch (const tr::SemanticError& e) {
    return failed(e, {"RHT", "4over6"});
  }
}

Value create(const Given& given, tr::Session& session) {
  const bool without_factory = given.has("qfactory");
  if (without_factory && !given.at("qfactory", "").is_null()) given.at("qfactory", "").refuse("null");
  try {
    const string& name = given.text("recipe");
    tr::RecipePtr recipe =
        name == "a recipe subclass of no known family" ? std::make_shared<UnknownRecipe>() : recipe_of(name);
    if (without_factory) dynamic_cast<tr::CustomRecipe&>(*recipe).qfactory = nullptr;
    tr::RoleList roles;
    if (given.has("roles_given"))
      roles = std::vector<tr::RolePtr>(given.count("roles_given", 0),
                                       std::make_shared<const tr::QuantizerRole>());
    const auto state = tr::RecipeState::create(session, recipe, mode_of(given), slots_in(given, 1), roles);
    if (given.flag("make_quantizers", false))
      return json::object({{"ok", classes_of(state->make_quantizers(session))}});
    return json::object({{"ok", state->class_name()}});
  } catch (const tr::SemanticError& e) {
    return without_factory ? failed(e, {"qfactory"}) : failed(e);
  }
}

// What a record shows of a custom state and its quantizers.
Value custom_shown(const tr::RecipeStatePtr& state, const std::vector<tr::QuantizerPtr>& quantizers) {
  const tr::DelayedStatePtr d = state->delayed();
  Value slots = json::array(), aliases = json::array();
  for (const auto& q : quantizers) {
    Value slot, alias;
    if (const auto* f8 = dynamic_cast<const tr::Float8Quantizer*>(q.get()); f8 && d) {
      for (size_t i = 0; i < d->num_quantizers(); ++i) {
        if (f8->scale->data() == d->scale->data() + i * sizeof(F32Bits)) slot = i;
        if (f8->amax->data() == d->amax_history->data() + i * sizeof(F32Bits)) alias = i;
      }
    }
    slots.push(std::move(slot));
    aliases.push(std::move(alias));
  }
  Value out = json::object({{"classes", classes_of(quantizers)}, {"has_delayed", d != nullptr}});
  out.set("scale_shape", shape_of(d ? d->scale : nullptr));
  out.set("history_shape", shape_of(d ? d->amax_history : nullptr));
  out.set("dtype", d ? Value(d->dtype == Encoding::e4m3 ? "E4M3" : "E5M2") : Value());
  Value inner;
  if (d) {
    const tr::DelayedScaling& r = d->settings();
    inner = json::object({{"fp8_format", name_of(r.fp8_format)},
                          {"margin", r.margin},
                          {"amax_history_len", r.amax_history_len},
                          {"amax_compute_algo", r.amax_compute_algo},
                          {"reduce_amax", r.reduce_amax}});
  }
  out.set("inner_recipe", std::move(inner));
  out.set("delayed_slot_of_each", std::move(slots));
  out.set("amax_aliases_history_row0", std::move(aliases));
  return out;
}

// What a word says of a request; "differ in margin" and "margin differs" say the same.
struct Setting {
  string_view name;
  void (*apply)(tr::DelayedScalingRequest&);
};
constexpr Setting kSettings[] = {
    {"equal", [](tr::DelayedScalingRequest&) {}},
    {"E4M3 format", [](tr::DelayedScalingRequest& r) { r.fp8_format = "E4M3"; }},
    {"history 1",
     [](tr::DelayedScalingRequest& r) { r.amax_history_len = 1, r.amax_compute_algo = "most_recent"; }},
    {"fp8_format", [](tr::DelayedScalingRequest& r) { r.fp8_format = "E4M3"; }},
    {"format", [](tr::DelayedScalingRequest& r) { r.fp8_format = "E4M3"; }},
    {"margin", [](tr::DelayedScalingRequest& r) { r.margin = 1; }},
    {"amax_history_len", [](tr::DelayedScalingRequest& r) { r.amax_history_len = 16; }},
    {"history", [](tr::DelayedScalingRequest& r) { r.amax_history_len = 16; }},
    {"history length", [](tr::DelayedScalingRequest& r) { r.amax_history_len = 8; }},
    {"pure E5M2", [](tr::DelayedScalingRequest& r) { r.fp8_format = "E5M2"; }},
    {"amax_compute_algo", [](tr::DelayedScalingRequest& r) { r.amax_compute_algo = "most_recent"; }},
    {"algorithm", [](tr::DelayedScalingRequest& r) { r.amax_compute_algo = "most_recent"; }},
    {"amax_compute_algo callable", [](tr::DelayedScalingRequest& r) { r.amax_compute_algo = "of a record"; }},
    {"scaling_factor_compute_algo",
     [](tr::DelayedScalingRequest& r) { r.scaling_factor_compute_algo = "of a record"; }},
    {"reduce_amax", [](tr::DelayedScalingRequest& r) { r.reduce_amax = false; }},
};
tr::DelayedScalingRequest request_with(string_view setting, const Given& where) {
  tr::DelayedScalingRequest r;
  row_called(kSettings, setting, where.path())->apply(r);
  return r;
}
tr::QuantizerLike other() { return std::make_shared<tr::MXFP8Quantizer>(); }

// A factory that answers slot by slot, starting over with every build of `period` slots.
tr::QFactoryPtr by_slot(size_t period, std::function<tr::QuantizerLike(size_t slot)> answer) {
  return factory_of([period, answer = std::move(answer), at = std::make_shared<size_t>(0)](
                        const tr::RolePtr&) { return answer((*at)++ % period); });
}

// What a factory answers by slot: a request, or nothing where another quantizer's turn is.
using Answer = std::function<std::optional<tr::DelayedScalingRequest>(size_t slot)>;
constexpr string_view kDiffer = "differ in ";

// "all delayed", "none delayed", "history 1"; "delayed, other, delayed" slot by slot, and over again where
// there are more slots; "differ in margin", but for `differing_slot`.
Answer answer_of(const Given& given) {
  const Given requests = given.at("requests", "what the factory asks for");
  const string_view text = requests.text();
  if (text.starts_with(kDiffer)) {
    const auto differs = request_with(text.substr(kDiffer.size()), requests);
    return [differs, at = given.count("differing_slot", 0)](size_t slot) {
      return slot == at ? differs : tr::DelayedScalingRequest{};
    };
  }
  if (text == "all delayed") return [](size_t) { return tr::DelayedScalingRequest{}; };
  if (text == "none delayed") return [](size_t) { return std::nullopt; };
  if (text.find("delayed") == string_view::npos && text.find("other") == string_view::npos) {
    const auto same = request_with(text, requests);
    return [same](size_t) { return same; };
  }
  static constexpr std::pair<string_view, bool> kSlots[] = {{"delayed", true}, {"other", false}};
  std::vector<bool> delayed;
  for (string_view rest = text;;) {
    const size_t end = rest.find(", ");
    delayed.push_back(row_called(kSlots, rest.substr(0, end), requests.path())->second);
    if (end == string_view::npos) break;
    rest.remove_prefix(end + 2);
  }
  return [delayed](size_t slot) {
    return delayed[slot % delayed.size()] ? std::optional(tr::DelayedScalingRequest{}) : std::nullopt;
  };
}

Value custom_inherit(const Given& given, tr::Session& session) {
  // What the old state and the new one are asked for; every slot alike.
  struct Case {
    string_view name;
    size_t new_slots;
    bool old_delayed, new_delayed;
    string_view setting;
    bool second_is_other = false;  // of the new slots
  };
  static constexpr Case kCases[] = {{"same", 3, true, true, "equal"},
                                    {"old has none", 3, false, true, "equal"},
                                    {"new has none", 3, true, false, "equal"},
                                    {"slot count 3 to 4, all delayed", 4, true, true, "equal"},
                                    {"slot count 3 to 4", 4, true, true, "equal"},
                                    {"slot count 3 to 2, all delayed", 2, true, true, "equal"},
                                    {"count differs", 3, true, true, "equal", true}};
  const Given inherit = given.at("inherit", "what differs");
  const string_view text = inherit.text();
  constexpr string_view kDiffers = " differs";  // "margin differs"
  const Case how = text.ends_with(kDiffers) && text != "count differs"
                       ? Case{text, 3, true, true, text.substr(0, text.size() - kDiffers.size())}
                       : inherit.row(kCases);
  const string mode = mode_of(given);
  constexpr size_t kOldSlots = 3;
  const auto state_with = [&](size_t n, bool delayed, const tr::DelayedScalingRequest& request,
                              bool second_is_other = false) {
    const auto answer = [=](size_t i) -> tr::QuantizerLike {
      return delayed && !(second_is_other && i == 1) ? tr::QuantizerLike(request) : other();
    };
    return tr::RecipeState::create(session, recipe_around(by_slot(n, answer)), mode, n,
                                   std::vector<tr::RolePtr>(n, std::make_shared<const tr::QuantizerRole>()));
  };
  const auto old = state_with(kOldSlots, how.old_delayed, {});
  old->make_quantizers(session);
  const auto fresh =
      state_with(how.new_slots, how.new_delayed, request_with(how.setting, inherit), how.second_is_other);
  const tr::DelayedStatePtr before = old->delayed();
  const tr::ArrayPtr scale = before ? before->scale : nullptr;
  const bool returns = fresh->inherit(*old);
  const auto quantizers = fresh->make_quantizers(session);
  const tr::DelayedStatePtr after = fresh->delayed();
  Value out = json::object({{"inherit_returns", returns},
                            {"inner_state_reused", before ? Value(after == before) : Value()},
                            {"scale_object_kept", before && after ? Value(after->scale == scale) : Value()}});
  const Value rest = custom_shown(fresh, quantizers);
  for (const auto& [key, value] : *rest.object()) out.set(key, value);
  return json::object({{"ok", std::move(out)}});
}

// A factory whose answer for every slot is no quantizer.
Value weird_answers(const Given& given, tr::Session& session) {
  constexpr string_view kBase = "the base request class",
                        kObject = "an object that is neither quantizer nor request";
  const tr::QuantizerLike answer =
      given.word("factory_returns", {kBase, kObject}) == kBase
          ? tr::QuantizerLike(tr::QuantizerRequest{})
          : tr::QuantizerLike(tr::NotAQuantizer{"Weird"});  // the recording process called its class so
  const size_t n = slots_in(given, 3);
  return outcome([&] {
    const auto state = tr::RecipeState::create(
        session, recipe_around(factory_of([&](const tr::RolePtr&) { return answer; })), mode_of(given), n,
        std::vector<tr::RolePtr>(n, std::make_shared<const tr::QuantizerRole>()));
    return classes_of(state->make_quantizers(session));
  });
}

Value custom(const Given& given, tr::Session& session) {
  const size_t n = slots_in(given, 3);
  const string mode = mode_of(given);
  const std::vector<tr::RolePtr> some(n, std::make_shared<const tr::QuantizerRole>());
  if (given.has("factory_returns_none_for_slot")) {
    const size_t none = given.count("factory_returns_none_for_slot", 0);
    try {
      tr::RecipeState::create(
          session,
          recipe_around(by_slot(n, [&](size_t i) { return i == none ? tr::QuantizerLike() : other(); })),
          mode, n, some)
          ->make_quantizers(session);
      return json::object({{"ok", nullptr}});
    } catch (const tr::SemanticError& e) {
      return failed(e, {"slot " + std::to_string(none), "role=", "IdentityQuantizer", "None"});
    }
  }
  if (given.has("factory_raises")) {
    const string& name = given.text("factory_raises");
    try {
      tr::RecipeState::create(
          session,
          recipe_around(factory_of([&](const tr::RolePtr&) -> tr::QuantizerLike { throw Raised{name}; })),
          mode, n, some)
          ->make_quantizers(session);
      return json::object({{"ok", nullptr}});
    } catch (const Raised& e) {
      return json::object({{"error", e.name}});
    } catch (const tr::SemanticError& e) {
      return failed(e);
    }
  }
  if (given.has("factory_returns")) return weird_answers(given, session);
  if (given.has("inherit")) return custom_inherit(given, session);
  if (given.has("requests")) {
    const Answer wanted = answer_of(given);
    const auto answer = [&](size_t i) -> tr::QuantizerLike {
      const auto request = wanted(i);
      return request ? tr::QuantizerLike(*request) : other();
    };
    try {
      const auto state = tr::RecipeState::create(session, recipe_around(by_slot(n, answer)), mode, n, some);
      const auto quantizers = state->make_quantizers(session);
      return json::object({{"ok", custom_shown(state, quantizers)}});
    } catch (const tr::SemanticError& e) {
      if (e.error_class == tr::ErrorClass::validation_error) return failed(e);
      const string& requests = given.text("requests");
      const string field = requests.starts_with(kDiffer) ? requests.substr(kDiffer.size()) : requests;
      return failed(e, {"slot " + std::to_string(given.count("differing_slot", 0)), "Slot 0",
                        field.substr(0, field.find(' '))});
    }
  }

  // What the factory sees.
  const tr::RoleList roles = given.roles("roles");
  Value seen = json::array();
  const auto note = [&](const tr::RolePtr& role) {
    seen.push(shown(role));
    return other();
  };
  const auto state = tr::RecipeState::create(session, recipe_around(factory_of(note)), mode,
                                             roles ? roles->size() : n, roles);
  const auto quantizers = state->make_quantizers(session);
  Value out =
      json::object({{"warning_classes", categories_of(session.warnings)}, {"roles_seen", std::move(seen)}});
  if (!roles) out.set("quantizers", classes_of(quantizers));
  return out;
}

Value inherit(const Given& given, tr::Session& session) {
  // "delayed margin differs", "delayed to current".
  const Given from_to = given.at("from_to", "two families, or a family and what differs");
  const string_view what = from_to.text();
  const size_t to = what.find(" to "), space = std::min(what.find(' '), what.size());
  const string_view from_family = what.substr(0, space),
                    to_family = to == string_view::npos ? from_family : what.substr(to + 4);
  const string_view differs = to == string_view::npos ? what.substr(space) : "";
  Value fields = json::object();
  if (differs == " history differs") fields.set("amax_history_len", 16);
  else if (differs == " margin differs") fields.set("margin", 1);
  else if (differs == " format differs") fields.set("fp8_format", "E4M3");
  else if (differs == " algorithm differs") fields.set("amax_compute_algo", "most_recent");
  else if (!differs.empty() && differs != " same" && differs != " count differs")
    from_to.refuse("two families, or a family and what differs: count, history, margin, format or algorithm");
  const auto recipe = [&](string_view family, bool newer) -> tr::RecipePtr {
    const string_view name = recipe_called(family, from_to.path());
    if (name == "CustomRecipe")
      return recipe_around(factory_of([](const tr::RolePtr&) { return tr::DelayedScalingRequest{}; }));
    return tr::make_recipe(name, newer ? fields : json::object());
  };
  const size_t n = 3, new_n = differs == " count differs" ? 4 : n;
  const auto state = [&](const tr::RecipePtr& r, size_t count) {
    return tr::RecipeState::create(
        session, r, "forward", count,
        std::vector<tr::RolePtr>(count, std::make_shared<const tr::QuantizerRole>()));
  };
  const auto old = state(recipe(from_family, false), n), fresh = state(recipe(to_family, true), new_n);
  old->make_quantizers(session);
  const tr::DelayedStatePtr before = old->delayed();
  const bool returns = fresh->inherit(*old);
  const tr::DelayedStatePtr after = fresh->delayed();
  const bool both = before && after;
  return json::object(
      {{"ok", json::object({{"inherit_returns", returns},
                            {"scale_kept", both && before->scale == after->scale},
                            {"history_kept", both && before->amax_history == after->amax_history}})}});
}

Value recipe(const Given& given) {
  try {
    recipe_in(given, "fields");
    return json::object({{"ok", true}});
  } catch (const tr::SemanticError& e) {
    Value bases = json::array();
    bases.push(name_of(e.error_class));
    if (e.error_class != tr::ErrorClass::value_error && is_a(e.error_class, tr::ErrorClass::value_error))
      bases.push(name_of(tr::ErrorClass::value_error));
    bases.push("Exception");
    return json::object({{"error_bases", std::move(bases)}});
  }
}

Value recipe_defaults(const Given& given) {
  const tr::RecipePtr r = recipe_of(given.text("recipe"));
  Value fields = json::object(), parameters = json::object();
  const Value all = r->fields();
  for (const auto& [key, value] : *all.object())
    if (key != "qfactory") fields.set(key, value);  // a required one has no default
  if (const auto p = r->quantization_parameters()) {
    for (const auto& [name, q] : {std::pair{"_quant_fwd_inp", p->fwd_inp},
                                  {"_quant_fwd_weight", p->fwd_weight},
                                  {"_quant_bwd_grad", p->bwd_grad}})
      parameters.set(string(p->prefix) + name,
                     json::object({{"power_2_scale", q.power_2_scale},
                                   {"amax_epsilon", std::bit_cast<float>(q.amax_epsilon)},
                                   {"random_hadamard_transform", q.random_hadamard_transform},
                                   {"stochastic_rounding", q.stochastic_rounding},
                                   {"fp4_2d_quantization", q.fp4_2d_quantization}}));
  }
  return json::object({{"fields", std::move(fields)},
                       {"quantization_parameters", std::move(parameters)},
                       {"predicates", tr::predicates(*r)}});
}

Value recipe_equality(const Given& given) {
  // "two current", "current and mxfp8", "two custom, other factory"
  struct Field {
    string_view name, field;
    Value (*value)();
  };
  static const Field kFields[] = {{"same factory", "", nullptr},
                                  {"equal fields", "", nullptr},
                                  {"other factory", "qfactory", [] { return Value("nvfp4_factory"); }},
                                  {"other alignment", "quantization_alignment", [] { return Value(64); }},
                                  {"other format", "fp8_format", [] { return Value("E4M3"); }},
                                  {"other margin", "margin", [] { return Value(1); }},
                                  {"other history", "amax_history_len", [] { return Value(16); }}};
  const Given pair = given.at("pair", "two recipes");
  const string_view text = pair.text();
  const size_t comma = std::min(text.find(", "), text.size());
  const string_view names = text.substr(0, comma);
  std::vector<string_view> families;
  for (string_view rest = names; !rest.empty();) {
    const size_t end = std::min(rest.find(' '), rest.size());
    const string_view word = rest.substr(0, end);
    if (word != "two" && word != "and" && word != "against")
      families.push_back(recipe_called(word, pair.path()));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (families.empty() || families.size() > 2) pair.refuse("one or two families");
  Value second = json::object();
  if (comma < text.size()) {
    const Field& f = *row_called(kFields, text.substr(comma + 2), pair.path());
    if (f.value) second.set(f.field, f.value());
  }
  return json::object({{"equal", *recipe_of(families.front()) == *recipe_of(families.back(), second)}});
}

Value align(const Given& given) {
  if (!given.has("quantization_alignment"))
    return json::object({{"align", align_size(*recipe_of(given.text("recipe")))}});
  given.word("recipe", {"CustomRecipe"});
  size_t calls = 0;
  auto r = tr::custom_recipe("mxfp8_factory");
  r->qfactory = factory_of([&](const tr::RolePtr&) { return ++calls, other(); });
  r->quantization_alignment = given.number("quantization_alignment");
  const int64_t rows = align_size(*r);
  return json::object({{"align", rows}, {"factory_calls", calls}});
}

Value dtype(const Given& given) {
  const tr::RecipePtr r = recipe_in(given, "fields");
  const bool forward = given.flag("forward");
  return json::object(
      {{"dtype", fp8_dtype(*r, forward) == Encoding::e4m3 ? "E4M3" : "E5M2"}, {"max", fp8_max(*r, forward)}});
}

// The quantizer of a stored weight; null of a plain one.
tr::QuantizerPtr weight_quantizer(const Given& kind) {
  static constexpr std::pair<string_view, string_view> kFactories[] = {
      {"plain", ""},
      {"delayed", ""},
      {"current", "current_scaling_factory"},
      {"mxfp8", "mxfp8_factory"},
      {"block", "float8_block_scaling_factory"},
      {"nvfp4", "nvfp4_factory"},
      {"identity", "identity"},
      {"hybrid", "hybrid_mxfp8"}};
  const auto& [name, factory] = kind.row(kFactories);
  if (name == "plain") return nullptr;
  if (name == "delayed")
    return std::make_shared<tr::Float8Quantizer>(tr::zeros({}, tr::DType::float32),
                                                 tr::zeros({1}, tr::DType::float32), Encoding::e4m3);
  const auto role = std::make_shared<const tr::QuantizerRole>(tr::QuantizerRole{"linear", "weight", ""});
  return std::get<tr::QuantizerPtr>(tr::factory_named(factory)->call(role));
}

Value correspondence(const Given& given) {
  const string& name = given.text("recipe");
  const tr::RecipePtr active = recipe_of(name);
  const tr::QuantizerPtr weight = weight_quantizer(given.at("weight", "a kind of weight"));
  try {
    if (given.flag("enabled")) check_weight_recipe(*active, weight.get(), "weight");
    return json::object({{"ok", nullptr}});
  } catch (const tr::SemanticError& e) {
    return failed(e, {name, "weight"});
  }
}

}  // namespace

Value witness_recipe_states(string_view group, const Given& given, Subject& subject) {
  // What records call "callable": something that no built-in name is.
  [[maybe_unused]] static const bool kRegistered = [] {
    tr::register_amax_algorithm("of a record", [](std::span<const F32Bits> h, int64_t, int64_t slots) {
      return std::vector<F32Bits>(h.begin(), h.begin() + slots);
    });
    tr::register_scale_algorithm("of a record", [](std::span<const F32Bits>, std::span<const F32Bits> scale,
                                                   int, const tr::DelayedScaling&) {
      return std::vector<F32Bits>(scale.begin(), scale.end());
    });
    return true;
  }();
  tr::Session session(subject);
  if (group == "resolve") return resolve(given, session);
  if (group == "builtin") return builtin(given, session);
  if (group == "create") return create(given, session);
  if (group == "custom") return custom(given, session);
  if (group == "inherit") return inherit(given, session);
  if (group == "recipe") return recipe(given);
  if (group == "recipe_defaults") return recipe_defaults(given);
  if (group == "recipe_equality") return recipe_equality(given);
  if (group == "align") return align(given);
  if (group == "dtype") return dtype(given);
  if (group == "correspondence") return correspondence(given);
  throw std::runtime_error("no group '" + string(group) + "' of recipe_states");
}

}  // namespace assay
