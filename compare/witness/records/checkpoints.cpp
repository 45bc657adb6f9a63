// Records of checkpoints: the extra state of a Linear as bytes, what is done with bytes of several kinds,
// parameters that are quantized at construction, and regions that are recomputed.
#include <algorithm>
#include <bit>
#include <set>
#include <string>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "compare/witness/records/state_kinds.h"
#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/dispatch/in_place.h"
#include "training/formats/formats.h"
#include "training/kit/extra_pieces.h"
#include "training/modules/linear.h"
#include "training/recipes/factories.h"
#include "training/state/checkpoint.h"
#include "training/state/extra_state.h"

namespace assay {

namespace {

using namespace training;  // NOLINT: this file speaks of nothing else
using std::string;

// ---- recipes ---------------------------------------------------------------------------

// Slots at a module's edge have no role until somebody configures one.
bool is_forward(const RolePtr& role) {
  return role && (role->tensor_type == "input" || role->tensor_type == "weight");
}

QuantizerLike current() { return QuantizerPtr(std::make_shared<Float8CurrentScalingQuantizer>()); }
QuantizerLike mixed(const RolePtr& role) {
  if (!is_forward(role)) return current();
  return DelayedScalingRequest{};
}
QuantizerLike hybrid(const RolePtr&) {
  return QuantizerPtr(
      std::make_shared<HybridQuantizer>(QuantizerLike(QuantizerPtr(std::make_shared<MXFP8Quantizer>())),
                                        QuantizerLike(QuantizerPtr(std::make_shared<MXFP8Quantizer>()))));
}

std::shared_ptr<CustomRecipe> custom(QFactoryPtr factory) {
  const auto out = std::make_shared<CustomRecipe>();
  out->qfactory = std::move(factory);
  return out;
}
QFactoryPtr registered(const char* name, QuantizerLike (*call)(const RolePtr&)) {
  if (QFactoryPtr known = factory_named(name)) return known;
  return register_factory(name, call);
}

RecipePtr recipe_in(const Given& given) {
  const string& name = given.text("recipe");
  if (name == "DelayedScaling") return make_recipe(name, json::object({{"amax_history_len", 4}}));
  if (name == "Custom_all_delayed")
    return custom(registered("witness_all_delayed",
                             [](const RolePtr&) -> QuantizerLike { return DelayedScalingRequest{}; }));
  if (name == "Custom_current")
    return custom(registered("witness_current", [](const RolePtr&) { return current(); }));
  if (name == "Custom_mixed") return custom(registered("witness_mixed", mixed));
  if (name == "Custom_hybrid") return custom(registered("witness_hybrid", hybrid));
  if (name == "Custom_lambda")
    return custom(std::make_shared<QFactory>(QFactory{"<lambda>", [](const RolePtr&) { return current(); }}));
  expect_recipe_class(name, "given.recipe");
  return make_recipe(name);
}

Linear linear(Session& session) {
  LinearSettings s;
  s.name = "linear";
  s.in_features = s.out_features = 128;
  return {session, s};
}

// ---- extra state -----------------------------------------------------------------------

json::Value distinct(const ArrayPtr& a) {
  if (!a) return {};
  std::set<double> values;
  for (const F32Bits b : f32_bits(*a)) values.insert(static_cast<double>(std::bit_cast<float>(b)));
  return list_of(values, [](double v) { return json::Value(v); });
}

void fill(const ArrayPtr& a, float value) {
  const std::vector<float> all(static_cast<size_t>(a->count()), value);
  copy_into(*f32_array(a->shape, all), *a);
}

// Every tensor is a call of a global whose second argument is its shape.
json::Value shapes_in(const pickle::Dict& d) {
  json::Value out = json::object({});
  for (const auto& [key, value] : d.items) {
    const auto* o = value.as<pickle::Object>();
    if (!o || o->arguments.size() != 3) continue;
    out.set(key, list_of(o->arguments[1].as<pickle::Tuple>()->items,
                         [](const pickle::Value& v) { return json::Value(*v.as<int64_t>()); }));
  }
  return out;
}

json::Value sorted_keys(const pickle::Dict& d) {
  std::vector<string> out;
  for (const auto& [key, value] : d.items) out.push_back(key);
  std::sort(out.begin(), out.end());
  return shown(out);
}

json::Value load(Session& session, const pickle::Bytes& bytes, bool trusted) {
  return outcome(
      [&] {
        Linear fresh = linear(session);
        fresh.state.set_extra_state(session, {ModuleState::ExtraState::Kind::tensor, bytes}, trusted);
        const RecipeStatePtr& s = fresh.state.state(Mode::forward);
        const DelayedStatePtr d = s ? s->delayed() : nullptr;
        return json::object({{"state", s ? json::Value(s->class_name()) : json::Value()},
                             {"scale", d ? distinct(d->scale) : json::Value()},
                             {"history", d ? distinct(d->amax_history) : json::Value()}});
      },
      [](const SemanticError& e) {
        return failed(e, {"unsafe", "refusing", "trusted"});
      });
}

json::Value extra(const Given& given, Session& session) {
  return outcome([&] {
    Linear module = linear(session);
    module.state.init_fp8_metadata(session, {recipe_in(given), true, false, false, nullptr});
    const Given filled = given.at("state_filled_with", "a number or null");
    if (!filled.is_null())
      for (const Mode mode : {Mode::forward, Mode::backward})
        if (const DelayedStatePtr d = module.state.state(mode)->delayed()) {
          const auto value = filled.value().to_double();
          if (!value) filled.refuse("a number or null");
          fill(d->scale, static_cast<float>(*value));
          fill(d->amax_history, static_cast<float>(*value) / 2);
        }
    const pickle::Bytes bytes = module.state.extra_state();
    json::Value out = json::object({{"bytes", bytes.empty() ? "empty" : "present"}, {"dtype", "uint8"}});
    if (!bytes.empty()) {
      const pickle::Value v = pickle::loads(bytes);
      const auto& dict = *v.as<pickle::Dict>();
      out.set("keys", sorted_keys(dict));
      out.set("extra", sorted_keys(*dict.find("extra_fp8_variables")->as<pickle::Dict>()));
      out.set("shapes", shapes_in(dict));
    }
    out.set("load", load(session, bytes, given.flag("unsafe_allowed")));
    return out;
  });
}

// The bytes that a record calls by a word.
pickle::Bytes payload(const Given& given) {
  using extra_pieces::dict, extra_pieces::recipe, extra_pieces::tensor;
  using pickle::Object;
  using pickle::Value;
  const Value plain{pickle::Dict{{{"num_gemms", {int64_t{1}}}}}};
  const string& word = given.text("payload");
  if (word == "empty") return {};
  if (word == "plain numbers") return dict({{"extra_fp8_variables", plain}});
  if (word == "recipe current") return dict({{"recipe", recipe("Float8CurrentScaling")}});
  if (word == "recipe mxfp8") return dict({{"recipe", recipe("MXFP8BlockScaling")}});
  if (word == "recipe block") return dict({{"recipe", recipe("Float8BlockScaling")}});
  if (word == "recipe nvfp4") return dict({{"recipe", recipe("NVFP4BlockScaling")}});
  if (word == "recipe delayed") return dict({{"recipe", recipe("DelayedScaling")}});
  if (word == "recipe unknown") return dict({{"recipe", recipe("Unheard")}});
  if (word == "custom without buffers") return dict({{"recipe", recipe("CustomRecipe")}});
  if (word == "custom with buffers")
    return dict({{"recipe", recipe("CustomRecipe")}, {"scale_fwd", tensor()}});
  if (word == "tensors without recipe") return dict({{"scale_fwd", tensor()}});
  if (word == "global without recipe") return dict({{"x", Value{Object{"builtins", "print", {}}}}});
  if (word == "truncated") {
    pickle::Bytes cut = dict({{"recipe", recipe("DelayedScaling")}});
    cut.resize(cut.size() / 2);
    return cut;
  }
  if (word == "garbage") {
    pickle::Bytes out;
    for (int i = 0; i < 64; ++i) out.push_back(static_cast<std::byte>(0xF0 ^ (i * 37)));
    return out;
  }
  given.at("payload", "a payload").refuse("a payload that is known here");
}

json::Value classify(const Given& given, Session&) {
  return outcome([&] { return loads_extra_state(payload(given), given.flag("unsafe_allowed")); },
                 [](const SemanticError& e) { return failed(e, {"refusing"}); });
}

json::Value set_extra(const Given& given, Session& session) {
  using Kind = ModuleState::ExtraState::Kind;
  static constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"none", Kind::nothing}, {"BytesIO", Kind::stream}, {"bytes", Kind::other}};
  return outcome(
      [&] {
        Linear module = linear(session);
        module.state.set_extra_state(session, {given.row("state", kKinds).second, {}}, false);
        return json::Value();
      },
      [](const SemanticError& e) { return failed(e, {}); });
}

// ---- quantized parameters --------------------------------------------------------------

std::string_view class_of(const Tensorlike& t) {
  const StoragePtr* s = std::get_if<StoragePtr>(&t);
  return s ? (*s)->class_name() : "Tensor";
}

Linear quantized_linear(Session& session, const RecipePtr& recipe, bool grad, bool preserve, uint64_t seed) {
  Linear out = linear(session);
  out.parameter("weight").value = drawn({128, 128}, DType::bfloat16, seed);
  out.parameter("weight").preserve_init_value = preserve;
  out.quantize_parameters(session, recipe, grad);
  return out;
}

json::Value model_init(const Given& given, Session& session) {
  return outcome([&] {
    const RecipePtr recipe = recipe_in(given);
    const bool preserve = given.flag("preserve");
    Linear module = quantized_linear(session, recipe, given.flag("grad_mode"), preserve, 41);
    const Parameter& weight = module.parameter("weight");
    const StoragePtr s = std::get<StoragePtr>(weight.value);
    const Usages present = s->present(), wanted = s->quantizer->usages();
    json::Value dict = json::object({});
    for (const Parameter& p : module.parameters) dict.set(p.name, class_of(p.value));
    dict.set("_extra_state", "Tensor");
    // Into a module that trains; names are all known, so none is missing or unexpected.
    Linear other = quantized_linear(session, recipe, true, false, 42);
    const StoragePtr to = std::get<StoragePtr>(other.parameter("weight").value);
    const auto copied = [&](const Piece& from) {
      return outcome(
          [&] {
            dispatch::copy_(session, from, to);
            return json::array({json::array(), json::array()});
          },
          [](const SemanticError&) {  // a loader's own error, whatever a parameter's was
            return json::object({{"error", "RuntimeError"}});
          });
    };
    json::Value loaded = copied(s), plain = copied(drawn({128, 128}, DType::bfloat16, 43));
    return json::object({{"class", s->class_name()},
                         {"usages", json::array({present.rowwise, present.columnwise})},
                         {"quantizer_usages", json::array({wanted.rowwise, wanted.columnwise})},
                         {"internal", s->quantizer->internal},
                         {"requires_grad", weight.requires_grad},
                         {"preserved", s->init_value != nullptr},
                         {"has_accessor", s->init_value != nullptr},
                         {"state_dict", std::move(dict)},
                         {"load", std::move(loaded)},
                         {"equal_after_load", json::Value()},  // not recorded
                         {"load_plain", std::move(plain)},
                         {"class_after", to->class_name()}});
  });
}

// ---- recomputed regions ----------------------------------------------------------------

struct Region {
  std::vector<json::Value> log;
  std::vector<uint64_t> draws;
  // y = 2 x, and one random number.
  RegionResult operator()(Session& session, const RecomputePhase& phase, const RegionView& view) {
    log.push_back(json::object({{"grad", view.grad_enabled},
                                {"phase", phase.in_recompute()},
                                {"fp8", view.quantization_on},
                                {"group", view.amax_reduction_group != nullptr},
                                {"depth", 1}}));
    draws.push_back(session.rng.draw("region").offset);
    RegionResult out{zeros({1}, DType::float32), nullptr};
    if (view.grad_enabled)
      out.pullback = [](const ArrayPtr& g) {
        return f32_array({1}, std::vector<float>{2 * std::bit_cast<float>(f32_bits(*g)[0])});
      };
    return out;
  }
};

json::Value recomputed(Session& session, bool reentrant, const RegionView& view, bool through_backward) {
  Region region;
  RecomputePhase phase;
  Checkpoint checkpoint(
      session, phase, [&](const RegionView& v) { return region(session, phase, v); }, reentrant, view);
  checkpoint.forward();
  session.rng.draw("what comes after");
  const uint64_t before = session.rng.offset;
  const ArrayPtr grad = checkpoint.backward(f32_array({1}, std::vector<float>{1}), through_backward);
  return json::object({{"calls", region.log.size()},
                       {"log", list_of(region.log, [](const json::Value& v) { return v; })},
                       {"same_random_numbers", region.draws.front() == region.draws.back()},
                       {"generator_kept_over_backward", session.rng.offset == before},
                       {"gradient", distinct(grad)}});
}

json::Value checkpoint(const Given& given, Session& session) {
  RegionView view;
  view.quantization_on = given.flag("fp8");
  if (given.flag("amax_group")) view.amax_reduction_group = std::make_shared<ProcessGroup>();
  return outcome([&] { return recomputed(session, given.flag("use_reentrant"), view, true); });
}

json::Value checkpoint_error(const Given& given, Session& session) {
  given.word("case", {"autograd.grad on a reentrant checkpoint"});
  return outcome([&] { return recomputed(session, true, {}, false); },
                 [](const SemanticError& e) { return failed(e, {"backward"}); });
}

struct Group {
  std::string_view name;
  json::Value (*then)(const Given& given, Session& session);
};
constexpr Group kGroups[] = {
    {"extra", extra},           {"classify", classify},     {"set_extra", set_extra},
    {"model_init", model_init}, {"checkpoint", checkpoint}, {"checkpoint_error", checkpoint_error},
};

}  // namespace

bool is_checkpoint_group(std::string_view group) {
  return std::any_of(std::begin(kGroups), std::end(kGroups), [&](const Group& g) { return g.name == group; });
}

json::Value witness_checkpoints(std::string_view group, const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  return row_called(kGroups, group, "group")->then(given, session);
}

}  // namespace assay
