// Records of recipes and their states: construction, slots, the quantizers of every recipe, and what a state takes over from an older one.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compare/witness.h"
#include "training/delayed.h"
#include "training/factories.h"
#include "training/hybrid.h"

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

tr::RolePtr role_of(const Value& v) {
  if (v.is_null()) return nullptr;
  return std::make_shared<const tr::QuantizerRole>(string(v.text("module_type")), string(v.text("tensor_type")), string(v.text("name")));
}
tr::RoleList roles_of(const Value& given) {
  const Value* v = given.find("roles");
  if (!v || !v->array()) return std::nullopt;
  std::vector<tr::RolePtr> roles;
  for (const Value& r : *v->array()) roles.push_back(role_of(r));
  return roles;
}
Value shown(const tr::RolePtr& r) {
  return r ? json::object({{"module_type", r->module_type}, {"tensor_type", r->tensor_type}, {"name", r->name}}) : Value();
}
size_t number(const Value& given, string_view key, size_t otherwise) {
  const Value* v = given.find(key);
  return v && v->to_int() ? static_cast<size_t>(*v->to_int()) : otherwise;
}
string mode_of(const Value& given) { return given.find("mode") ? string(given.text("mode")) : "forward"; }

Value shape_of(const tr::ArrayPtr& a) {
  Value out = json::array();
  for (const int64_t n : a->shape) out.push(n);
  return out;
}
Value classes_of(const std::vector<tr::QuantizerPtr>& all) {
  Value out = json::array();
  for (const auto& q : all) out.push(q->class_name());
  return out;
}
string hex(const std::byte* p) {
  uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  char text[9];
  std::snprintf(text, sizeof text, "%08x", bits);
  return text;
}

// Which of the words that a record asks for an error's text mentions.
Value mentioned(const string& text, std::initializer_list<string> words) {
  Value out = json::array();
  for (const string& w : words)
    if (text.find(w) != string::npos) out.push(w);
  return out;
}
Value failed(const tr::SemanticError& e) { return json::object({{"error", name_of(e.error_class)}}); }
Value failed(const tr::SemanticError& e, std::initializer_list<string> words) {
  return json::object({{"error", name_of(e.error_class)}, {"message_mentions", mentioned(e.what(), words)}});
}

tr::QFactoryPtr factory_of(std::function<tr::QuantizerLike(const tr::RolePtr&)> call) { return std::make_shared<const tr::QFactory>(tr::QFactory{"of a record", std::move(call)}); }
tr::RecipePtr recipe_around(tr::QFactoryPtr factory) {
  auto r = tr::custom_recipe("mxfp8_factory");
  r->qfactory = std::move(factory);
  return r;
}

// A recipe by the record's class and fields, where a custom one gets some factory and words stand for objects.
tr::RecipePtr recipe_of(string_view name, const Value* fields) {
  Value all = json::object();
  if (name == "CustomRecipe") all.set("qfactory", "mxfp8_factory");
  if (fields && fields->object()) {
    for (const auto& [key, value] : *fields->object()) {
      const string* word = value.string();
      if (word && *word == "<factory>") continue;
      if (word && word->starts_with("split accumulator")) all.set(key, json::object({{"use_split_accumulator", !word->ends_with("off")}}));
      else all.set(key, value);
    }
  }
  return tr::make_recipe(name, all);
}

// A recipe of a family that nobody knows.
struct UnknownRecipe final : tr::Recipe {
  string_view class_name() const override { return "UnknownRecipe"; }
  Value fields() const override { return json::object(); }
  bool equals(const Recipe&) const override { return true; }
};

Value resolve(const Value& given, tr::Session& session) {
  const tr::RoleList roles = roles_of(given);
  const size_t n = number(given, "num", 0);
  const auto state = tr::RecipeState::create(session, recipe_of("Float8CurrentScaling", nullptr), mode_of(given), n, roles);
  Value slots = json::array();
  for (size_t i = 0; i < n; ++i) {
    const tr::RolePtr role = state->slot_role(i);
    slots.push(json::object({{"role", shown(role)}, {"same_object", roles && (*roles)[i] == role}, {"tensor_type", state->slot_tensor_type(i)}}));
  }
  return json::object({{"slots", std::move(slots)}});
}

Value builtin(const Value& given, tr::Session& session) {
  try {
    const auto state = tr::RecipeState::create(session, recipe_of(given.text("recipe"), given.find("recipe_fields")), mode_of(given), number(given, "num", 0), roles_of(given));
    const auto quantizers = state->make_quantizers(session);
    Value out = json::object({{"state_class", state->class_name()}}), list = json::array();
    if (const tr::DelayedStatePtr d = state->delayed()) {
      Value init = json::array(), scales = json::array(), amaxes = json::array();
      for (size_t i = 0; i < quantizers.size(); ++i) {
        const auto& q = dynamic_cast<const tr::Float8Quantizer&>(*quantizers[i]);
        init.push(hex(d->scale->data() + i * sizeof(F32Bits)));
        scales.push(q.scale->data() == d->scale->data() + i * sizeof(F32Bits));
        amaxes.push(q.amax->data() == d->amax_history->data() + i * sizeof(F32Bits));
      }
      const auto history = std::as_const(*d->amax_history).bytes();
      out.set("scale_shape", shape_of(d->scale));
      out.set("history_shape", shape_of(d->amax_history));
      out.set("scale_init", std::move(init));
      out.set("history_all_zero", std::all_of(history.begin(), history.end(), [](std::byte b) { return b == std::byte{0}; }));
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

Value create(const Value& given, tr::Session& session) {
  const bool without_factory = given.find("qfactory") && given.find("qfactory")->is_null();
  try {
    const string name(given.text("recipe"));
    tr::RecipePtr recipe = name.ends_with("no known family") ? std::make_shared<UnknownRecipe>() : recipe_of(name, nullptr);
    if (without_factory) dynamic_cast<tr::CustomRecipe&>(*recipe).qfactory = nullptr;
    tr::RoleList roles;
    if (given.find("roles_given")) roles = std::vector<tr::RolePtr>(number(given, "roles_given", 0), std::make_shared<const tr::QuantizerRole>());
    const auto state = tr::RecipeState::create(session, recipe, mode_of(given), number(given, "num", 1), roles);
    if (given.find("make_quantizers")) return json::object({{"ok", classes_of(state->make_quantizers(session))}});
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
  out.set("scale_shape", d ? shape_of(d->scale) : Value());
  out.set("history_shape", d ? shape_of(d->amax_history) : Value());
  out.set("dtype", d ? Value(d->dtype == Encoding::e4m3 ? "E4M3" : "E5M2") : Value());
  Value inner;
  if (d) {
    const tr::DelayedScaling& r = d->settings();
    inner = json::object({{"fp8_format", name_of(r.fp8_format)}, {"margin", r.margin}, {"amax_history_len", r.amax_history_len}, {"amax_compute_algo", r.amax_compute_algo},
                          {"reduce_amax", r.reduce_amax}});
  }
  out.set("inner_recipe", std::move(inner));
  out.set("delayed_slot_of_each", std::move(slots));
  out.set("amax_aliases_history_row0", std::move(aliases));
  return out;
}

tr::DelayedScalingRequest request_with(string_view what) {
  tr::DelayedScalingRequest r;
  if (what == "history 1") r.amax_history_len = 1, r.amax_compute_algo = "most_recent";
  if (what == "E4M3 format" || what == "format differs" || what == "differ in fp8_format") r.fp8_format = "E4M3";
  if (what == "margin differs" || what == "differ in margin") r.margin = 1;
  if (what == "history differs" || what == "differ in amax_history_len") r.amax_history_len = 16;
  if (what == "algorithm differs" || what == "differ in amax_compute_algo") r.amax_compute_algo = "most_recent";
  if (what == "differ in amax_compute_algo callable") r.amax_compute_algo = "of a record";
  if (what == "differ in scaling_factor_compute_algo") r.scaling_factor_compute_algo = "of a record";
  if (what == "differ in reduce_amax") r.reduce_amax = false;
  return r;
}
tr::QuantizerLike other() { return std::make_shared<tr::MXFP8Quantizer>(); }

// A factory that answers slot by slot, starting over with every build of `period` slots.
tr::QFactoryPtr by_slot(size_t period, std::function<tr::QuantizerLike(size_t slot)> answer) {
  return factory_of([period, answer = std::move(answer), at = std::make_shared<size_t>(0)](const tr::RolePtr&) { return answer((*at)++ % period); });
}
bool is_delayed_slot(string_view requests, size_t slot) {
  if (requests == "none delayed") return false;
  if (requests == "delayed, other, delayed") return slot != 1;
  if (requests == "other, other, delayed") return slot == 2;
  return true;
}

Value custom_inherit(const Value& given, tr::Session& session) {
  const string_view how = given.text("inherit");
  const string mode = mode_of(given);
  const size_t old_n = 3, new_n = how.starts_with("slot count 3 to 4") ? 4 : 3;
  // Slot 1 is another quantizer's unless all of them are delayed.
  const auto state_with = [&](size_t n, bool delayed, const tr::DelayedScalingRequest& request) {
    const auto answer = [=](size_t) -> tr::QuantizerLike { return delayed ? tr::QuantizerLike(request) : other(); };
    return tr::RecipeState::create(session, recipe_around(by_slot(n, answer)), mode, n, std::vector<tr::RolePtr>(n, std::make_shared<const tr::QuantizerRole>()));
  };
  const auto old = state_with(old_n, how != "old has none", {});
  old->make_quantizers(session);
  const auto fresh = state_with(new_n, how != "new has none", request_with(how));
  const tr::DelayedStatePtr before = old->delayed();
  const tr::ArrayPtr scale = before ? before->scale : nullptr;
  const bool returns = fresh->inherit(*old);
  const auto quantizers = fresh->make_quantizers(session);
  const tr::DelayedStatePtr after = fresh->delayed();
  Value out = json::object({{"inherit_returns", returns}, {"inner_state_reused", before ? Value(after == before) : Value()},
                            {"scale_object_kept", before && after ? Value(after->scale == scale) : Value()}});
  const Value rest = custom_shown(fresh, quantizers);
  for (const auto& [key, value] : *rest.object()) out.set(key, value);
  return json::object({{"ok", std::move(out)}});
}

Value custom(const Value& given, tr::Session& session) {
  const size_t n = number(given, "num", 3);
  const string mode = mode_of(given);
  const std::vector<tr::RolePtr> some(n, std::make_shared<const tr::QuantizerRole>());
  if (given.find("factory_returns_none_for_slot")) {
    const size_t none = number(given, "factory_returns_none_for_slot", 0);
    try {
      tr::RecipeState::create(session, recipe_around(by_slot(n, [&](size_t i) { return i == none ? tr::QuantizerLike() : other(); })), mode, n, some)->make_quantizers(session);
      return json::object({{"ok", nullptr}});
    } catch (const tr::SemanticError& e) {
      return failed(e, {"slot " + std::to_string(none), "role=", "IdentityQuantizer", "None"});
    }
  }
  if (given.find("factory_raises")) {
    const string name(given.text("factory_raises"));
    try {
      tr::RecipeState::create(session, recipe_around(factory_of([&](const tr::RolePtr&) -> tr::QuantizerLike { throw Raised{name}; })), mode, n, some)->make_quantizers(session);
      return json::object({{"ok", nullptr}});
    } catch (const Raised& e) {
      return json::object({{"error", e.name}});
    } catch (const tr::SemanticError& e) {
      return failed(e);
    }
  }
  if (given.find("inherit")) return custom_inherit(given, session);
  if (given.find("requests")) {
    const string_view requests = given.text("requests");
    constexpr string_view kDiffer = "differ in ";
    const bool differ = requests.starts_with(kDiffer);
    const size_t differing = number(given, "differing_slot", 0);
    const auto answer = [&](size_t i) -> tr::QuantizerLike {
      if (differ) return i == differing ? request_with(requests) : tr::DelayedScalingRequest{};
      return is_delayed_slot(requests, i) ? tr::QuantizerLike(request_with(requests)) : other();
    };
    try {
      const auto state = tr::RecipeState::create(session, recipe_around(by_slot(n, answer)), mode, n, some);
      const auto quantizers = state->make_quantizers(session);
      return json::object({{"ok", custom_shown(state, quantizers)}});
    } catch (const tr::SemanticError& e) {
      const string field(requests.substr(kDiffer.size()));
      return failed(e, {"slot " + std::to_string(differing), "Slot 0", field.substr(0, field.find(' '))});
    }
  }

  // What the factory sees.
  const tr::RoleList roles = roles_of(given);
  Value seen = json::array(), warnings = json::array();
  const auto note = [&](const tr::RolePtr& role) {
    seen.push(shown(role));
    return other();
  };
  const auto state = tr::RecipeState::create(session, recipe_around(factory_of(note)), mode, roles ? roles->size() : n, roles);
  const auto quantizers = state->make_quantizers(session);
  for (const tr::Warning& w : session.warnings) warnings.push(w.category);
  Value out = json::object({{"warning_classes", std::move(warnings)}, {"roles_seen", std::move(seen)}});
  if (!roles) out.set("quantizers", classes_of(quantizers));
  return out;
}

Value inherit(const Value& given, tr::Session& session) {
  const string_view what = given.text("from_to");
  const auto recipe = [&](string_view family, bool newer) {
    if (family == "custom") return recipe_around(by_slot(3, [](size_t) { return tr::DelayedScalingRequest{}; }));
    Value fields = json::object();
    if (newer && what == "delayed history differs") fields.set("amax_history_len", 16);
    if (newer && what == "delayed margin differs") fields.set("margin", 1);
    if (newer && what == "delayed format differs") fields.set("fp8_format", "E4M3");
    return tr::make_recipe(family == "current" ? "Float8CurrentScaling" : "DelayedScaling", fields);
  };
  const size_t to = what.find(" to ");
  const string_view from_family = what.substr(0, what.find(' ')), to_family = to == string_view::npos ? from_family : what.substr(to + 4);
  const size_t n = 3, new_n = what == "delayed count differs" ? 4 : n;
  const auto state = [&](const tr::RecipePtr& r, size_t count) {
    return tr::RecipeState::create(session, r, "forward", count, std::vector<tr::RolePtr>(count, std::make_shared<const tr::QuantizerRole>()));
  };
  const auto old = state(recipe(from_family, false), n), fresh = state(recipe(to_family, true), new_n);
  old->make_quantizers(session);
  const tr::DelayedStatePtr before = old->delayed();
  const bool returns = fresh->inherit(*old);
  const tr::DelayedStatePtr after = fresh->delayed();
  const bool both = before && after;
  return json::object({{"ok", json::object({{"inherit_returns", returns}, {"scale_kept", both && before->scale == after->scale}, {"history_kept", both && before->amax_history == after->amax_history}})}});
}

Value recipe(const Value& given) {
  try {
    recipe_of(given.text("recipe"), given.find("fields"));
    return json::object({{"ok", true}});
  } catch (const tr::SemanticError& e) {
    Value bases = json::array();
    bases.push(name_of(e.error_class));
    if (e.error_class != tr::ErrorClass::value_error && is_a(e.error_class, tr::ErrorClass::value_error)) bases.push(name_of(tr::ErrorClass::value_error));
    bases.push("Exception");
    return json::object({{"error_bases", std::move(bases)}});
  }
}

Value recipe_defaults(const Value& given) {
  const tr::RecipePtr r = recipe_of(given.text("recipe"), nullptr);
  Value fields = json::object(), parameters = json::object();
  const Value all = r->fields();
  for (const auto& [key, value] : *all.object())
    if (key != "qfactory") fields.set(key, value);   // a required one has no default
  if (const auto p = r->quantization_parameters()) {
    for (const auto& [name, q] : {std::pair{"_quant_fwd_inp", p->fwd_inp}, {"_quant_fwd_weight", p->fwd_weight}, {"_quant_bwd_grad", p->bwd_grad}})
      parameters.set(string(p->prefix) + name, json::object({{"power_2_scale", q.power_2_scale}, {"amax_epsilon", std::bit_cast<float>(q.amax_epsilon)},
                                                             {"random_hadamard_transform", q.random_hadamard_transform}, {"stochastic_rounding", q.stochastic_rounding},
                                                             {"fp4_2d_quantization", q.fp4_2d_quantization}}));
  }
  return json::object({{"fields", std::move(fields)}, {"quantization_parameters", std::move(parameters)}, {"predicates", tr::predicates(*r)}});
}

Value recipe_equality(const Value& given) {
  const string_view pair = given.text("pair");
  Value second = json::object();
  string_view name = "CustomRecipe", other_name;
  for (const auto& [word, family] : {std::pair{"current", "Float8CurrentScaling"}, {"delayed", "DelayedScaling"}, {"mxfp8", "MXFP8BlockScaling"}, {"block", "Float8BlockScaling"},
                                     {"nvfp4", "NVFP4BlockScaling"}})
    if (const size_t at = pair.find(word); at != string_view::npos) (name == "CustomRecipe" ? name : other_name) = family;
  if (other_name.empty()) other_name = name;
  if (pair.find("other factory") != string_view::npos) second.set("qfactory", "nvfp4_factory");
  if (pair.find("other alignment") != string_view::npos) second.set("quantization_alignment", 64);
  if (pair.find("other format") != string_view::npos) second.set("fp8_format", "E4M3");
  if (pair.find("other margin") != string_view::npos) second.set("margin", 1);
  if (pair.find("other history") != string_view::npos) second.set("amax_history_len", 16);
  return json::object({{"equal", *recipe_of(name, nullptr) == *recipe_of(other_name, &second)}});
}

Value align(const Value& given) {
  if (!given.find("quantization_alignment")) return json::object({{"align", align_size(*recipe_of(given.text("recipe"), nullptr))}});
  size_t calls = 0;
  auto r = tr::custom_recipe("mxfp8_factory");
  r->qfactory = factory_of([&](const tr::RolePtr&) { return ++calls, other(); });
  r->quantization_alignment = *given.find("quantization_alignment")->to_int();
  const int64_t rows = align_size(*r);
  return json::object({{"align", rows}, {"factory_calls", calls}});
}

Value dtype(const Value& given) {
  const tr::RecipePtr r = recipe_of(given.text("recipe"), given.find("fields"));
  const bool forward = given.find("forward")->to_bool().value();
  return json::object({{"dtype", fp8_dtype(*r, forward) == Encoding::e4m3 ? "E4M3" : "E5M2"}, {"max", fp8_max(*r, forward)}});
}

// The quantizer of a stored weight; null of a plain one.
tr::QuantizerPtr weight_quantizer(string_view kind) {
  if (kind == "delayed") return std::make_shared<tr::Float8Quantizer>(tr::zeros({}, tr::DType::float32), tr::zeros({1}, tr::DType::float32), Encoding::e4m3);
  static constexpr std::pair<string_view, string_view> kFactories[] = {{"current", "current_scaling_factory"}, {"mxfp8", "mxfp8_factory"},     {"block", "float8_block_scaling_factory"},
                                                                       {"nvfp4", "nvfp4_factory"},             {"identity", "identity"}, {"hybrid", "hybrid_mxfp8"}};
  const auto role = std::make_shared<const tr::QuantizerRole>("linear", "weight", "");
  for (const auto& [name, factory] : kFactories)
    if (name == kind) return std::get<tr::QuantizerPtr>(tr::factory_named(factory)->call(role));
  return nullptr;
}

Value correspondence(const Value& given) {
  const string name(given.text("recipe"));
  const tr::RecipePtr active = recipe_of(name, nullptr);
  try {
    if (given.find("enabled")->to_bool().value()) check_weight_recipe(*active, weight_quantizer(given.text("weight")).get(), "weight");
    return json::object({{"ok", nullptr}});
  } catch (const tr::SemanticError& e) {
    return failed(e, {name, "weight"});
  }
}

}  // namespace

Value witness_recipe_states(string_view group, const Value& given, Subject& subject) {
  // What records call "callable": something that no built-in name is.
  [[maybe_unused]] static const bool kRegistered = [] {
    tr::register_amax_algorithm("of a record", [](std::span<const F32Bits> h, int64_t, int64_t slots) { return std::vector<F32Bits>(h.begin(), h.begin() + slots); });
    tr::register_scale_algorithm("of a record", [](std::span<const F32Bits>, std::span<const F32Bits> scale, int, const tr::DelayedScaling&) {
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
