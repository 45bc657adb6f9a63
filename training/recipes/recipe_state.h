// Recipe states: what a module keeps of one recipe for one direction. A state resolves the role of every slot
// and makes its quantizers; only delayed scaling, alone or within a custom recipe, holds data (TE
// quantization.py).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/base/session.h"
#include "training/formats/quantizer.h"
#include "training/recipes/recipe.h"
#include "training/recipes/role.h"

namespace assay::training {

class RecipeState;
using RecipeStatePtr = std::shared_ptr<RecipeState>;
class DelayedScalingRecipeState;
using DelayedStatePtr = std::shared_ptr<DelayedScalingRecipeState>;

class RecipeState : public std::enable_shared_from_this<RecipeState> {
 public:
  // The state of the recipe's class. ValueError: roles of another count than slots, a recipe of no known
  // class, a custom recipe without a factory.
  static RecipeStatePtr create(Session&, const RecipePtr&, Mode, size_t num_quantizers,
                               RoleList roles = std::nullopt);
  // The original takes any word for a mode: MXFP8 and NVFP4 refuse others than "forward" and "backward" with
  // a RuntimeError when quantizers are made, blockwise scaling with an AssertionError; the rest treat them as
  // backward.
  static RecipeStatePtr create(Session&, const RecipePtr&, std::string mode, size_t num_quantizers,
                               RoleList roles = std::nullopt);
  RecipeState(RecipePtr recipe, std::string mode, size_t num_quantizers, RoleList roles)
      : recipe_(std::move(recipe)),
        mode_(std::move(mode)),
        num_quantizers_(num_quantizers),
        roles_(std::move(roles)) {}
  virtual ~RecipeState() = default;
  // "MXFP8BlockScalingRecipeState".
  virtual std::string_view class_name() const = 0;

  const RecipePtr& recipe() const { return recipe_; }
  const std::string& mode() const { return mode_; }
  bool forward() const { return mode_ == "forward"; }
  size_t num_quantizers() const { return num_quantizers_; }
  const RoleList& roles() const { return roles_; }

  // The slot's very role, or an empty one where the list or its entry is missing.
  RolePtr slot_role(size_t slot) const;
  // The role's tensor type where it is one of a linear module's, else that of the slot's place: input,
  // weight, output, and so on; grad_output, grad_input.
  std::string slot_tensor_type(size_t slot) const;

  virtual std::vector<QuantizerPtr> make_quantizers(Session&) = 0;
  // Takes over the buffers of an older state, by identity, before quantizers are made. Whether it did.
  virtual bool inherit(const RecipeState&) { return false; }
  // Takes over the history length of a recipe of the same class. Whether anything changed: then quantizers
  // must be made again.
  virtual bool adjust_history(const Recipe&) { return false; }
  // The state that holds scales and histories: this one, or the one within a custom state; null without
  // delayed scaling.
  virtual DelayedStatePtr delayed() { return nullptr; }

 protected:
  RecipePtr recipe_;
  std::string mode_;
  size_t num_quantizers_;
  RoleList roles_;
};

// Of a CustomRecipe: asks the factory once per slot, in order, with the slot's role as it is. Requests for
// delayed scaling share one state within.
class CustomRecipeState final : public RecipeState {
 public:
  CustomRecipeState(RecipePtr recipe, std::string mode, size_t num_quantizers, RoleList roles);
  std::string_view class_name() const override { return "CustomRecipeState"; }
  // A UserWarning where the producer gave no list: every slot then has an empty role. ValueError where the
  // factory returns nothing for a slot, or where requests differ. Anything else that is no quantizer stays in
  // its slot and fails when it is used (foreign_answer.h). Errors of the factory pass through.
  std::vector<QuantizerPtr> make_quantizers(Session&) override;
  // From a custom state with delayed scaling within: its state is kept for make_quantizers, which uses it
  // again where count, dtype and history length agree. It then keeps its margin and algorithm, whatever is
  // requested now.
  bool inherit(const RecipeState&) override;
  DelayedStatePtr delayed() override { return inner_; }

 private:
  DelayedStatePtr inner_, inherited_;
};

// Whether a module keeps `state` for `wanted`: a built-in recipe a state of its class, a custom one the state
// of the very same recipe.
bool keeps_state(const RecipeState& state, const RecipePtr& wanted);

// RuntimeError where `weight`, the quantizer of a stored weight, belongs to another recipe class than the
// active one. `name` is the parameter's. A null quantizer stands for a plain weight, which any recipe takes.
void check_weight_recipe(const Recipe& active, const Quantizer* weight, std::string_view name);

}  // namespace assay::training
