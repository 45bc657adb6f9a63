#include "training/recipes/recipe_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "training/formats/formats.h"
#include "training/recipes/delayed.h"
#include "training/recipes/foreign_answer.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr string_view kForwardPattern[] = {"input", "weight", "output"};
constexpr string_view kBackwardPattern[] = {"grad_output", "grad_input"};

bool is_grad(string_view tensor_type) { return tensor_type == "grad_output" || tensor_type == "grad_input"; }
bool is_linear(const QuantizerRole& r) {
  return r.module_type == "linear" || r.module_type == "grouped_linear";
}

// A state without data: a rule for each slot.
class StatelessState : public RecipeState {
 public:
  using RecipeState::RecipeState;
  std::vector<QuantizerPtr> make_quantizers(Session&) override {
    expect_mode();
    std::vector<QuantizerPtr> all;
    for (size_t i = 0; i < num_quantizers_; ++i) all.push_back(quantizer(i));
    return all;
  }

 protected:
  virtual void expect_mode() const {}
  virtual QuantizerPtr quantizer(size_t slot) const = 0;
  void expect_mode_or(ErrorClass c) const {
    if (mode_ != "forward" && mode_ != "backward")
      throw SemanticError(
          c, string(class_name()) + ": expected mode 'forward' or 'backward', found '" + mode_ + "'");
  }
};

class Float8CurrentScalingRecipeState final : public StatelessState {
 public:
  using StatelessState::StatelessState;
  string_view class_name() const override { return "Float8CurrentScalingRecipeState"; }

 protected:
  QuantizerPtr quantizer(size_t) const override {
    auto q = std::make_shared<Float8CurrentScalingQuantizer>(fp8_dtype(*recipe_, forward()));
    q->force_pow_2_scales = static_cast<const Float8CurrentScaling&>(*recipe_).use_power_2_scales;
    return q;
  }
};

class MXFP8BlockScalingRecipeState final : public StatelessState {
 public:
  using StatelessState::StatelessState;
  string_view class_name() const override { return "MXFP8BlockScalingRecipeState"; }

 protected:
  void expect_mode() const override { expect_mode_or(ErrorClass::runtime_error); }
  QuantizerPtr quantizer(size_t slot) const override {
    auto q = std::make_shared<MXFP8Quantizer>(fp8_dtype(*recipe_, forward()));
    const RolePtr role = slot_role(slot);  // the role alone decides, never the place
    q->with_2d_quantization = static_cast<const MXFP8BlockScaling&>(*recipe_).enable_2d_quantization &&
                              forward() && is_linear(*role) && role->tensor_type == "weight";
    return q;
  }
};

class Float8BlockScalingRecipeState final : public StatelessState {
 public:
  using StatelessState::StatelessState;
  string_view class_name() const override { return "Float8BlockScalingRecipeState"; }

 protected:
  void expect_mode() const override { expect_mode_or(ErrorClass::assertion_error); }
  QuantizerPtr quantizer(size_t slot) const override {
    const auto& r = static_cast<const Float8BlockScaling&>(*recipe_);
    const QuantizationParameters params = *r.quantization_parameters();
    const string type = slot_tensor_type(slot);
    const bool weight = type == "weight", grad = is_grad(type);
    const QParams& p = weight ? params.fwd_weight : grad ? params.bwd_grad : params.fwd_inp;
    const int64_t dim = weight ? r.w_block_scaling_dim
                        : grad ? r.grad_block_scaling_dim
                               : r.x_block_scaling_dim;
    auto q = std::make_shared<Float8BlockQuantizer>(fp8_dtype(r, !grad), static_cast<int>(dim));
    q->amax_epsilon = p.amax_epsilon;
    q->force_pow_2_scales = p.power_2_scale;
    return q;
  }
};

class NVFP4BlockScalingRecipeState final : public StatelessState {
 public:
  using StatelessState::StatelessState;
  string_view class_name() const override { return "NVFP4BlockScalingRecipeState"; }

 protected:
  void expect_mode() const override { expect_mode_or(ErrorClass::runtime_error); }
  QuantizerPtr quantizer(size_t slot) const override {
    const auto& r = static_cast<const NVFP4BlockScaling&>(*recipe_);
    const QuantizationParameters params = *r.quantization_parameters();
    const string type = slot_tensor_type(slot);
    const bool weight = type == "weight", grad = is_grad(type);
    const QParams& p = weight ? params.fwd_weight : grad ? params.bwd_grad : params.fwd_inp;
    const auto covers = [&](const string& scope) {
      return !grad && (scope == "all" || scope == (weight ? "weights" : "activations"));
    };

    auto q = std::make_shared<NVFP4Quantizer>();
    q->with_rht = q->with_post_rht_amax = p.random_hadamard_transform;
    q->stochastic_rounding = p.stochastic_rounding;
    q->with_2d_quantization = p.fp4_2d_quantization;
    q->row_scaled_nvfp4 = r.row_scaled_activation && forward() && !weight;
    q->nvfp4_use_4over6 = covers(r.nvfp4_4over6);
    q->nvfp4_e4m3_max = q->nvfp4_use_4over6 && covers(r.nvfp4_4over6_e4m3_use_256) ? 256 : 448;
    q->nvfp4_4over6_err_mode = r.nvfp4_4over6_err_mode;
    if (q->nvfp4_use_4over6 && (q->with_rht || q->stochastic_rounding)) {
      throw SemanticError(ErrorClass::value_error,
                          "slot " + std::to_string(slot) + " (" + type + "): expected no " +
                              (q->with_rht ? "RHT" : "stochastic rounding") +
                              " together with 4over6, found both: set " +
                              (q->with_rht ? "disable_rht" : "disable_stochastic_rounding"));
    }
    return q;
  }
};

template <class S> RecipeStatePtr state_of(const RecipePtr& recipe, string mode, size_t n, RoleList roles) {
  return std::make_shared<S>(recipe, std::move(mode), n, std::move(roles));
}

// In the order in which the original asks.
constexpr struct {
  bool (Recipe::*is)() const;
  RecipeStatePtr (*make)(const RecipePtr&, string mode, size_t n, RoleList roles);
} kStates[] = {
    {&Recipe::delayed, state_of<DelayedScalingRecipeState>},
    {&Recipe::mxfp8, state_of<MXFP8BlockScalingRecipeState>},
    {&Recipe::float8_current_scaling, state_of<Float8CurrentScalingRecipeState>},
    {&Recipe::float8_block_scaling, state_of<Float8BlockScalingRecipeState>},
    {&Recipe::nvfp4, state_of<NVFP4BlockScalingRecipeState>},
    {&Recipe::custom, state_of<CustomRecipeState>},
};

string role_text(const RolePtr& role) { return role ? to_text(*role) : "None"; }

// The first field in which two requests differ, or nothing.
string_view differing_field(const DelayedScalingRequest& a, const DelayedScalingRequest& b) {
  if (a.fp8_format != b.fp8_format) return "fp8_format";
  if (a.margin != b.margin) return "margin";
  if (a.amax_history_len != b.amax_history_len) return "amax_history_len";
  if (a.amax_compute_algo != b.amax_compute_algo) return "amax_compute_algo";
  if (a.scaling_factor_compute_algo != b.scaling_factor_compute_algo) return "scaling_factor_compute_algo";
  return a.reduce_amax != b.reduce_amax ? "reduce_amax" : "";
}

RecipePtr recipe_of(const DelayedScalingRequest& r) {
  json::Value fields = json::object({{"fp8_format", r.fp8_format},
                                     {"margin", r.margin},
                                     {"amax_history_len", r.amax_history_len},
                                     {"amax_compute_algo", r.amax_compute_algo},
                                     {"reduce_amax", r.reduce_amax}});
  if (r.scaling_factor_compute_algo)
    fields.set("scaling_factor_compute_algo", *r.scaling_factor_compute_algo);
  return make_recipe("DelayedScaling", fields);
}

[[noreturn]] void refuse_none(size_t slot, const RolePtr& role) {
  throw SemanticError(ErrorClass::value_error,
                      "slot " + std::to_string(slot) + " (role=" + role_text(role) +
                          "): expected a quantizer or a DelayedScalingRequest from qfactory, found None; "
                          "return an IdentityQuantizer for a tensor that must not be quantized");
}

}  // namespace

RecipeStatePtr RecipeState::create(Session& session, const RecipePtr& recipe, Mode mode,
                                   size_t num_quantizers, RoleList roles) {
  return create(session, recipe, mode == Mode::forward ? "forward" : "backward", num_quantizers,
                std::move(roles));
}

RecipeStatePtr RecipeState::create(Session&, const RecipePtr& recipe, string mode, size_t num_quantizers,
                                   RoleList roles) {
  if (roles && roles->size() != num_quantizers)
    throw SemanticError(ErrorClass::value_error, "expected a role for each of " +
                                                     std::to_string(num_quantizers) + " slots, found " +
                                                     std::to_string(roles->size()));
  for (const auto& row : kStates)
    if (((*recipe).*row.is)()) return row.make(recipe, std::move(mode), num_quantizers, std::move(roles));
  throw SemanticError(ErrorClass::value_error,
                      "expected a built-in recipe or CustomRecipe, found " + string(recipe->class_name()));
}

RolePtr RecipeState::slot_role(size_t slot) const {
  static const RolePtr kEmpty = std::make_shared<const QuantizerRole>();
  return roles_ && (*roles_)[slot] ? (*roles_)[slot] : kEmpty;
}

string RecipeState::slot_tensor_type(size_t slot) const {
  const string& type = slot_role(slot)->tensor_type;
  const auto known = [&](const auto& pattern) {
    return std::find(std::begin(pattern), std::end(pattern), type) != std::end(pattern);
  };
  if (known(kForwardPattern) || known(kBackwardPattern)) return type;
  return string(forward() ? kForwardPattern[slot % std::size(kForwardPattern)]
                          : kBackwardPattern[slot % std::size(kBackwardPattern)]);
}

CustomRecipeState::CustomRecipeState(RecipePtr recipe, string mode, size_t num_quantizers, RoleList roles)
    : RecipeState(std::move(recipe), std::move(mode), num_quantizers, std::move(roles)) {
  if (!static_cast<const CustomRecipe&>(*recipe_).qfactory)
    throw SemanticError(ErrorClass::value_error, "CustomRecipe: expected a factory in qfactory, found none");
}

std::vector<QuantizerPtr> CustomRecipeState::make_quantizers(Session& session) {
  if (!roles_) {
    session.warn("UserWarning",
                 "the module gives no roles to its CustomRecipe: the factory sees empty ones for all " +
                     std::to_string(num_quantizers_) + " slots");
    roles_ = std::vector<RolePtr>(num_quantizers_, std::make_shared<const QuantizerRole>());
  }
  const QFactoryPtr factory = static_cast<const CustomRecipe&>(*recipe_).qfactory;
  std::vector<QuantizerPtr> all(num_quantizers_);
  std::vector<size_t> delayed_slots;
  std::optional<DelayedScalingRequest> request;
  for (size_t i = 0; i < num_quantizers_; ++i) {
    const RolePtr& role = (*roles_)[i];
    const QuantizerLike made = factory->call(role);
    if (const auto* q = std::get_if<QuantizerPtr>(&made); q && *q) {
      all[i] = *q;
    } else if (const auto* r = std::get_if<DelayedScalingRequest>(&made)) {
      if (request && !(*request == *r)) {
        throw SemanticError(ErrorClass::value_error,
                            "slot " + std::to_string(i) +
                                ": expected the DelayedScalingRequest of all others, found another " +
                                string(differing_field(*request, *r)) + ". Slot " +
                                std::to_string(delayed_slots.front()) +
                                " was the first; one state holds one kind of delayed scaling");
      }
      request = *r;
      delayed_slots.push_back(i);
    } else if (std::holds_alternative<QuantizerRequest>(made)) {
      all[i] = std::make_shared<ForeignAnswer>("QuantizerRequest");
    } else if (const auto* other = std::get_if<NotAQuantizer>(&made)) {
      all[i] = std::make_shared<ForeignAnswer>(other->what);
    } else {
      refuse_none(i, role);
    }
  }

  const DelayedStatePtr old = std::exchange(inherited_, nullptr);
  inner_ = nullptr;
  if (!request) return all;
  const auto fresh = std::static_pointer_cast<DelayedScalingRecipeState>(
      RecipeState::create(session, recipe_of(*request), mode_, delayed_slots.size()));
  const bool fits = old && old->num_quantizers() == fresh->num_quantizers() && old->dtype == fresh->dtype &&
                    old->amax_history->shape == fresh->amax_history->shape;
  inner_ = fits ? old : fresh;
  const std::vector<QuantizerPtr> delayed = inner_->make_quantizers(session);
  for (size_t i = 0; i < delayed_slots.size(); ++i) all[delayed_slots[i]] = delayed[i];
  return all;
}

bool CustomRecipeState::inherit(const RecipeState& old) {
  const auto* custom = dynamic_cast<const CustomRecipeState*>(&old);
  if (!custom || !custom->inner_) return false;
  inherited_ = custom->inner_;
  return true;
}

bool keeps_state(const RecipeState& state, const RecipePtr& wanted) {
  return wanted->custom() ? state.recipe() == wanted : state.recipe()->class_name() == wanted->class_name();
}

void check_weight_recipe(const Recipe& active, const Quantizer* weight, string_view name) {
  if (!weight || weight->compatible_recipe() == active.class_name()) return;
  throw SemanticError(ErrorClass::runtime_error, "Recipe mismatch: expected the parameter '" + string(name) +
                                                     "' to be quantized for " + string(active.class_name()) +
                                                     ", found a " + string(weight->class_name()) +
                                                     ": quantize it under the recipe that autocast has");
}

}  // namespace assay::training
