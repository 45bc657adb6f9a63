#include "training/modules/module_state.h"

#include <algorithm>
#include <array>

#include "training/recipes/delayed.h"

namespace assay::training {

namespace {

constexpr Mode kModes[] = {Mode::forward, Mode::backward};

// What a load may change in a state of delayed scaling: its history may get another length. Scales are
// written last of all, when nothing can fail any more.
struct KeptDelayed {
  explicit KeptDelayed(const RecipeStatePtr& s)
      : state(s ? s->delayed() : nullptr), history(state ? state->amax_history : nullptr) {}
  void put_back() const {
    if (state) state->amax_history = history;
  }
  DelayedStatePtr state;
  ArrayPtr history;
};

size_t gemms_of(Producer p, size_t asked) {
  switch (p) {
    case Producer::grouped_linear: return asked;
    case Producer::layernorm_mlp: return 2;
    case Producer::dot_product_attention: return 3;
    default: return 1;
  }
}

}  // namespace

std::string next_name(Session& session) { return "Layer_" + std::to_string(++session.unnamed_modules); }

ModuleState::ModuleState(Session& session, Producer p, std::optional<std::string> given, size_t gemms)
    : producer(p), name(given ? std::move(*given) : next_name(session)), num_gemms(gemms_of(p, gemms)) {}

void ModuleState::assign(RolePtr& slot, RolePtr role) {
  if (same_role(slot, role)) return;
  slot = std::move(role);
  fp8_meta_tensors_initialized = false;
}

void ModuleState::init_fp8_metadata(Session& session, const Autocast& autocast, const RecipePtr& wanted,
                                    const RecipePtr& others) {
  fp8 = autocast.enabled;
  fp8_calibration = autocast.calibrating;
  fp8_parameters = autocast.fp8_parameters;
  const bool active = fp8 || fp8_calibration;
  if (!active && !fp8_parameters) {
    fp8_initialized = false;
    return;
  }
  if (!wanted)
    throw SemanticError(
        ErrorClass::value_error,
        "module '" + name +
            "' expected a recipe where quantization is on, found none: pass one in Autocast::recipe");
  if (fp8_initialized && *wanted == *recipe) return;

  const RecipePtr before = std::exchange(recipe, wanted);
  if (active) fp8_group = autocast.amax_reduction_group;
  if (active || !fp8_initialized) {
    for (const Mode mode : kModes) set_meta_tensor(session, mode, recipe, others);
    fp8_meta_tensors_initialized = true;
  }
  if (active) fp8_initialized = true;

  if (before && before->class_name() != recipe->class_name()) {
    session.warn("UserWarning", "module '" + name + "': the recipe's class changed from " +
                                    std::string(before->class_name()) + " to " +
                                    std::string(recipe->class_name()) +
                                    "; cached quantized weights are dropped");
    fp8_workspaces.clear();  // they were made by quantizers of the other class
  }
}

void ModuleState::set_meta_tensor(Session& session, Mode mode, const RecipePtr& wanted,
                                  const RecipePtr& others) {
  RecipeStatePtr& state = states_[index(mode)];
  if (fp8_meta_tensors_initialized && state && keeps_state(*state, wanted)) {
    if (state->adjust_history(*wanted)) make_quantizers(session, mode);
  } else {
    const size_t slots = slots_of_module(mode, num_gemms);
    std::vector<RolePtr> roles = get_quantizer_roles(mode, slots);
    if (roles.size() != slots) {
      throw SemanticError(ErrorClass::assertion_error, "module '" + name + "' expected " +
                                                           std::to_string(slots) + " roles, found " +
                                                           std::to_string(roles.size()));
    }
    const size_t own = others ? slots_of_module(mode, 1) : slots;
    const auto cut = roles.begin() + static_cast<std::ptrdiff_t>(slots - own);
    RecipeStatePtr fresh = RecipeState::create(session, wanted, mode, own, std::vector(cut, roles.end()));
    if (state) fresh->inherit(*state);
    state = std::move(fresh);
    make_quantizers(session, mode);
    if (others) {
      const std::vector<QuantizerPtr> first =
          RecipeState::create(session, others, mode, slots - own, std::vector(roles.begin(), cut))
              ->make_quantizers(session);
      std::vector<QuantizerPtr>& all = quantizers_[index(mode)];
      all.insert(all.begin(), first.begin(), first.end());
    }
  }
  if (wanted->custom()) check_operands(mode);
}

pickle::Bytes ModuleState::extra_state() const {
  return write_extra_state({recipe, states_[0], states_[1], static_cast<int64_t>(num_gemms)});
}

void ModuleState::set_extra_state(Session& session, const ExtraState& from, bool trusted) {
  using Kind = ExtraState::Kind;
  if (from.kind == Kind::nothing) return;
  const auto refuse = [&](const char* why) {
    throw SemanticError(ErrorClass::runtime_error, "module '" + name + "': extra state: " + why);
  };
  if (from.kind == Kind::other) refuse("expected a tensor of bytes, found something else");
  if (from.kind == Kind::stream && !trusted)
    refuse("refusing to load a stream, which may be unsafe. Say that the file is trusted to load it");
  const auto loaded = read_extra_state(from.bytes, trusted);
  if (!loaded) return;
  const ModuleState before = *this;
  const std::array kept{KeptDelayed(states_[0]), KeptDelayed(states_[1])};
  try {
    recipe = loaded->recipe;
    // A state of the stored recipe's class stays the object that it is: quantized weights share its scales.
    for (const Mode mode : kModes) set_meta_tensor(session, mode, recipe);
    fp8_meta_tensors_initialized = true;
    restore_delayed(*loaded, states_[0], states_[1]);
  } catch (...) {
    *this = before;
    for (const KeptDelayed& state : kept) state.put_back();
    throw;
  }
}

void ModuleState::make_quantizers(Session& session, Mode mode) {
  quantizers_[index(mode)] = states_[index(mode)]->make_quantizers(session);
  checked_[index(mode)] = false;
  ++generation_;
}

void ModuleState::check_operands(Mode mode) {
  if (!check_operand || checked_[index(mode)]) return;
  if (mode == Mode::forward) {
    check_operand(operand(mode, 0), "input");
    check_operand(operand(mode, 1), "weight");
  } else {
    check_operand(operand(mode, 0), "grad_output");
  }
  checked_[index(mode)] = true;
}

QuantizerPtr ModuleState::quantizer(Mode mode, size_t slot, size_t gemm) const {
  const size_t at = gemm * slots_of_module(mode, 1) + slot;
  const std::vector<QuantizerPtr>& all = quantizers(mode);
  return at < all.size() ? all[at] : nullptr;
}

std::vector<QuantizerPtr> ModuleState::operand(Mode mode, size_t slot) const {
  std::vector<QuantizerPtr> list(num_gemms);
  for (size_t g = 0; g < num_gemms; ++g) list[g] = quantizer(mode, slot, g);
  return list;
}

void ModuleState::warn_unconfigured(Session& session, bool fp8_output, bool fp8_grad) const {
  if (!recipe || !recipe->custom()) return;
  const auto warn = [&](const char* what, const char* setter) {
    session.warn("UserWarning", "module '" + name + "' quantizes its " + what +
                                    " under a custom recipe, but " + setter +
                                    " is not set: the factory sees no role for that slot");
  };
  if (fp8_output && !output_quantizer_role()) warn("output", "output_quantizer_role");
  if (fp8_grad && !grad_input_quantizer_role()) warn("grad input", "grad_input_quantizer_role");
}

void OperationState::reset_recipe_state(Session& session, const RecipePtr& recipe) {
  if (!recipe) {
    states_ = {};
    quantizers_ = {};
    return;
  }
  // Both directions are made together: whichever exists tells.
  const RecipeStatePtr& some = states_[0] ? states_[0] : states_[1];
  const bool keep = some && some->recipe()->class_name() == recipe->class_name();
  for (const Mode mode : kModes) {
    const size_t i = mode == Mode::forward ? 0 : 1;
    if (keep) {
      if (!states_[i] || !recipe->delayed()) continue;
      states_[i]->adjust_history(*recipe);
      quantizers_[i] = states_[i]->make_quantizers(session);  // whether or not the history moved
      continue;
    }
    states_[i] = nullptr;
    quantizers_[i].clear();
    const std::string_view word = mode == Mode::forward ? "forward" : "backward";
    const size_t count = operation.num_quantizers(word);
    if (count == 0) continue;
    states_[i] = RecipeState::create(session, recipe, mode, count, operation.get_quantizer_roles(word));
    quantizers_[i] = states_[i]->make_quantizers(session);
  }
}

QuantizerPtr OperationState::get_quantizer(Mode mode, size_t slot) const {
  const std::vector<QuantizerPtr>& all = quantizers(mode);
  return slot < all.size() ? all[slot] : nullptr;
}

}  // namespace assay::training
