#include "training/state/extra_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "training/recipes/factories.h"

namespace assay::training {

namespace {

using pickle::Dict;
using pickle::Object;
using pickle::Tuple;
using pickle::Value;
using std::string;

constexpr const char* kRecipes = "transformer_engine.common.recipe";
constexpr const char* kTensors = "torch._utils";
constexpr const char* kTensor = "_rebuild_tensor_v2";
constexpr const char* kDelayedKeys[] = {"scale_fwd", "scale_bwd", "amax_history_fwd", "amax_history_bwd"};
constexpr const char* kStateless[] = {"Float8CurrentScaling", "MXFP8BlockScaling", "Float8BlockScaling",
                                      "NVFP4BlockScaling", "CustomRecipe"};

[[noreturn]] void fail_to_load(ErrorClass c, const string& what) {
  throw SemanticError(c, "extra state: " + what);
}

// ---- writing ---------------------------------------------------------------------------

// A tensor as its dtype, its shape and its bytes.
Value tensor(const Array& a) {
  Tuple shape;
  for (const int64_t d : a.shape) shape.items.push_back({d});
  return {Object{kTensors,
                 kTensor,
                 {{string(name_of(a.dtype))}, {shape}, {pickle::Bytes(a.bytes().begin(), a.bytes().end())}}}};
}

Value recipe_value(const Recipe& r) {
  if (const auto* custom = dynamic_cast<const CustomRecipe*>(&r))
    if (!custom->qfactory || factory_named(custom->qfactory->name) != custom->qfactory)
      fail_to_load(ErrorClass::pickling_error,
                   "expected a factory with a name that a reader can find, found a function without; "
                   "register_factory gives it one");
  return {Object{kRecipes, string(r.class_name()), {{json::dump(r.fields())}}}};
}

Value extra_variables(const ModuleExtraState& m) {
  return {Dict{{{"fp8_checkpoint", {true}},
                {"fp8_max_fwd", {int64_t{fp8_max(*m.recipe, true)}}},
                {"fp8_max_bwd", {int64_t{fp8_max(*m.recipe, false)}}},
                {"num_gemms", {m.num_gemms}}}}};
}

// ---- reading ---------------------------------------------------------------------------

ArrayPtr tensor_of(const Value* v, const char* key) {
  if (!v) return nullptr;
  const auto* o = v->as<Object>();
  const auto refuse = [&] { fail_to_load(ErrorClass::runtime_error, string("expected a tensor as ") + key); };
  if (!o || o->module != kTensors || o->name != kTensor || o->arguments.size() != 3) refuse();
  const auto* dtype = o->arguments[0].as<string>();
  const auto* shape = o->arguments[1].as<Tuple>();
  const auto* bytes = o->arguments[2].as<pickle::Bytes>();
  if (!dtype || !shape || !bytes || *dtype != "float32") refuse();
  Dims dims;
  int64_t count = 1;
  for (const Value& d : shape->items) {
    const auto* n = d.as<int64_t>();
    if (!n || *n < 0 || *n > static_cast<int64_t>(bytes->size())) refuse();
    dims.push_back(*n);
    count *= *n;
    if (count > static_cast<int64_t>(bytes->size())) refuse();
  }
  if (count * 4 != static_cast<int64_t>(bytes->size())) refuse();
  return from_bytes(dims, DType::float32, *bytes);
}

RecipePtr recipe_of(const Value* v) {
  if (!v) return make_recipe("DelayedScaling");
  const auto* o = v->as<Object>();
  const auto* text = o && o->arguments.size() == 1 ? o->arguments[0].as<string>() : nullptr;
  if (!text || o->module != kRecipes) fail_to_load(ErrorClass::runtime_error, "expected a recipe");
  const auto fields = json::parse(*text);
  if (!fields) fail_to_load(ErrorClass::runtime_error, "expected a recipe with fields that can be read");
  return make_recipe(o->name, *fields);
}

}  // namespace

pickle::Bytes write_extra_state(const ModuleExtraState& m) {
  const bool ran = m.recipe && (m.forward || m.backward);
  if (!ran || (!m.recipe->custom() && !m.recipe->delayed())) return {};
  Dict state;
  const DelayedStatePtr fwd = m.forward ? m.forward->delayed() : nullptr,
                        bwd = m.backward ? m.backward->delayed() : nullptr;
  const auto recipe = [&] { return recipe_value(*m.recipe); };
  if (fwd || bwd) {
    if (!fwd || !bwd)
      fail_to_load(ErrorClass::type_error,
                   "expected delayed scaling in both directions, found it in one: the other "
                   "has no scale to write");
    state.items = {{"recipe", recipe()},
                   {"scale_fwd", tensor(*fwd->scale)},
                   {"amax_history_fwd", tensor(*fwd->amax_history)},
                   {"scale_bwd", tensor(*bwd->scale)},
                   {"amax_history_bwd", tensor(*bwd->amax_history)}};
  } else {
    state.items = {{"recipe", recipe()}};
  }
  state.items.push_back({"extra_fp8_variables", extra_variables(m)});
  return pickle::dumps({state});
}

bool loads_extra_state(std::span<const std::byte> bytes, bool trusted) {
  if (bytes.empty()) return false;
  bool unsafe = false;
  try {
    const pickle::Scan seen = pickle::scan(bytes);
    const auto says = [&](const string& word) {
      return std::find(seen.strings.begin(), seen.strings.end(), word) != seen.strings.end();
    };
    const bool delayed = std::any_of(std::begin(kDelayedKeys), std::end(kDelayedKeys), says);
    if (seen.globals.empty() && !delayed) return false;
    const auto is_recipe = [&](const char* name) {
      return std::find(seen.globals.begin(), seen.globals.end(), string(kRecipes) + " " + name) !=
             seen.globals.end();
    };
    const bool known = std::any_of(std::begin(kStateless), std::end(kStateless), is_recipe);
    unsafe = !says("recipe") || is_recipe("DelayedScaling") || delayed || !known;
  } catch (const pickle::Unreadable&) {
    unsafe = true;
  }
  if (unsafe && !trusted)
    fail_to_load(
        ErrorClass::runtime_error,
        "refusing to load bytes that may be unsafe: they hold more than plain values and a recipe without "
        "scales. Say that the file is trusted to load it");
  return unsafe;
}

std::optional<LoadedExtraState> read_extra_state(std::span<const std::byte> bytes, bool trusted) {
  if (!loads_extra_state(bytes, trusted)) return std::nullopt;
  Value v;
  try {
    v = pickle::loads(bytes);
  } catch (const pickle::Unreadable& e) {
    fail_to_load(ErrorClass::runtime_error, string("expected a pickle of an extra state, found ") + e.what());
  }
  const auto* dict = v.as<Dict>();
  if (!dict) fail_to_load(ErrorClass::runtime_error, "expected a dictionary");
  LoadedExtraState out;
  out.recipe = recipe_of(dict->find("recipe"));
  ArrayPtr* const slots[] = {&out.scale_fwd, &out.scale_bwd, &out.amax_history_fwd, &out.amax_history_bwd};
  for (size_t i = 0; i < std::size(slots); ++i)
    *slots[i] = tensor_of(dict->find(kDelayedKeys[i]), kDelayedKeys[i]);
  return out;
}

void restore_delayed(const LoadedExtraState& from, const RecipeStatePtr& forward,
                     const RecipeStatePtr& backward) {
  struct Pair {
    ArrayPtr from, to;
  };
  const auto pairs = [&](const RecipeStatePtr& s, const ArrayPtr& scale, const ArrayPtr& history) {
    const DelayedStatePtr d = s ? s->delayed() : nullptr;
    return std::vector<Pair>{{scale, d ? d->scale : nullptr}, {history, d ? d->amax_history : nullptr}};
  };
  std::vector<Pair> all = pairs(forward, from.scale_fwd, from.amax_history_fwd);
  for (Pair& p : pairs(backward, from.scale_bwd, from.amax_history_bwd)) all.push_back(std::move(p));
  for (const Pair& p : all)
    if (p.from && (!p.to || p.from->shape != p.to->shape))
      fail_to_load(ErrorClass::runtime_error,
                   "expected as many scales and amaxes as the module has, found others");
  for (const Pair& p : all)
    if (p.from) copy_into(*p.from, *p.to);
}

}  // namespace assay::training
