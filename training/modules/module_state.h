// What a module keeps of its recipe from step to step: the role lists that it hands out, a recipe state and
// quantizers per direction, and when they are made anew (TE module/base.py, ops/op.py). Modules hold one of
// these; a module's forward begins with init_fp8_metadata.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/formats/quantizer.h"
#include "training/recipes/producers.h"
#include "training/recipes/recipe.h"
#include "training/recipes/recipe_state.h"
#include "training/state/extra_state.h"

namespace assay::training {

// What the surrounding autocast says when a module begins its forward.
struct Autocast {
  RecipePtr recipe = nullptr;   // needed where anything below is on
  bool enabled = true;          // quantization is on
  bool calibrating = false;     // quantizers only take notes
  bool fp8_parameters = false;  // the module is being constructed with quantized parameters
  GroupPtr amax_reduction_group = nullptr;
};
inline Autocast quantization_off() { return {nullptr, false, false, false, nullptr}; }

// The name of a module that was given none: "Layer_<n>", counted through the session.
std::string next_name(Session&);

class ModuleState {
 public:
  // A module of the producer's class, with the session's next automatic name where `name` is nothing.
  // num_gemms: of a GroupedLinear.
  ModuleState(Session&, Producer, std::optional<std::string> name, size_t num_gemms = 1);

  Producer producer;
  std::string name;
  size_t num_gemms;  // 1 of a linear, 2 of LayerNormMLP, 3 of attention

  // Roles of the tensors that leave the module, null until configured. Assigning an equal role does nothing,
  // not even store the new object; any other one marks the recipe states as stale. They are rebuilt by the
  // next init_fp8_metadata that gets past its own test: see there.
  const RolePtr& output_quantizer_role() const { return boundaries_.output; }
  const RolePtr& grad_input_quantizer_role() const { return boundaries_.grad_input; }
  void set_output_quantizer_role(RolePtr role) { assign(boundaries_.output, std::move(role)); }
  void set_grad_input_quantizer_role(RolePtr role) { assign(boundaries_.grad_input, std::move(role)); }
  std::vector<RolePtr> get_quantizer_roles(Mode mode, size_t num_quantizers) const {
    return role_list(producer, name, mode, num_quantizers, boundaries_);
  }

  // Makes states and quantizers fit the autocast:
  //   off                                    forgets that it is initialised, keeps everything else
  //   initialised, recipe equal by value     nothing, so that a role that was assigned meanwhile or a factory
  //                                          that was replaced in the recipe goes unseen
  //   otherwise                              set_meta_tensor for both directions
  // Where the class of recipe differs from the module's last one it warns (UserWarning) and drops the cached
  // weight workspaces.
  void init_fp8_metadata(Session& session, const Autocast& autocast) {
    init_fp8_metadata(session, autocast, autocast.recipe);
  }
  // The same for a module that works by a recipe of its own: `wanted` instead of the autocast's. Where
  // `others` is given, it makes the quantizers of every GEMM but the last, and `wanted` those of the last
  // one, whose state is the one that is kept.
  void init_fp8_metadata(Session&, const Autocast&, const RecipePtr& wanted,
                         const RecipePtr& others = nullptr);
  // One direction. While the states are not stale, a built-in recipe keeps a state of its class whatever its
  // fields (delayed scaling takes over the length of the history), a custom one keeps a state of the very
  // same recipe object. Otherwise a new state, which inherits the buffers of the old one, and new quantizers.
  // AssertionError where the role list has another length than the slots.
  // A kept state whose history is cut or grown makes its own quantizers anew, and only these: where `others`
  // made more of them, the list is too short afterwards (as in the original).
  void set_meta_tensor(Session&, Mode, const RecipePtr&, const RecipePtr& others = nullptr);

  bool fp8 = false, fp8_calibration = false, fp8_parameters = false;
  bool fp8_initialized = false;
  bool fp8_meta_tensors_initialized = false;
  RecipePtr recipe;  // the last one that was active
  GroupPtr fp8_group;

  const RecipeStatePtr& state(Mode mode) const { return states_[index(mode)]; }
  const std::vector<QuantizerPtr>& quantizers(Mode mode) const { return quantizers_[index(mode)]; }
  // One slot of one GEMM; null while there are no quantizers. slot: forward 0 input, 1 weight, 2 output;
  // backward 0 grad_output, 1 grad_input.
  QuantizerPtr quantizer(Mode, size_t slot, size_t gemm = 0) const;
  // One slot of every GEMM.
  std::vector<QuantizerPtr> operand(Mode, size_t slot) const;
  // Counts how often quantizers were made.
  uint64_t generation() const { return generation_; }

  // Set by GroupedLinear: called with the input and the weight quantizers of all GEMMs, or their grad_output
  // ones, at the end of set_meta_tensor under a custom recipe (a factory may give each expert another one).
  // Once per generation that passed: what it throws passes through and is not remembered (TE
  // module/grouped_linear.py).
  using OperandCheck = std::function<void(const std::vector<QuantizerPtr>& list, std::string_view operand)>;
  OperandCheck check_operand;

  // The module's extra state in a checkpoint (training/state/extra_state.h).
  pickle::Bytes extra_state() const;
  // What a loader hands over: the bytes of a tensor, nothing, a stream that Python would unpickle, or
  // something else.
  struct ExtraState {
    enum class Kind : uint8_t { tensor, nothing, stream, other } kind = Kind::tensor;
    std::span<const std::byte> bytes;
  };
  // States and quantizers of the stored recipe, with the stored scales and histories. Nothing happens where
  // the bytes are ignored; RuntimeError where they are refused, unreadable or of another size, and for a
  // stream that is not trusted and anything else: the module is then as it was.
  void set_extra_state(Session&, const ExtraState&, bool trusted);

  // A custom recipe cannot know who consumes an output or a grad input that is to be quantized: a UserWarning
  // each, at every call, where no role is configured.
  void warn_unconfigured(Session&, bool fp8_output, bool fp8_grad) const;

  // Quantized weights that outlive a step, by the name under which the module caches them.
  std::map<std::string, StoragePtr> fp8_workspaces;

 private:
  static size_t index(Mode mode) { return mode == Mode::forward ? 0 : 1; }
  void assign(RolePtr& slot, RolePtr role);
  void make_quantizers(Session&, Mode);
  void check_operands(Mode);
  Boundaries boundaries_;
  std::array<RecipeStatePtr, 2> states_;
  std::array<std::vector<QuantizerPtr>, 2> quantizers_;
  uint64_t generation_ = 0;
  std::array<bool, 2> checked_{};  // check_operand has passed the quantizers that are there now
};

// What a fusible operation keeps. It is rebuilt only where the new recipe is of another class than the old
// one: one custom recipe after another changes nothing.
class OperationState {
 public:
  explicit OperationState(Operation operation) : operation(std::move(operation)) {}
  Operation operation;
  // Null forgets the state. Delayed scaling takes over the length of the history, and makes quantizers at
  // every call.
  void reset_recipe_state(Session&, const RecipePtr&);
  const RecipeStatePtr& state(Mode mode) const { return states_[mode == Mode::forward ? 0 : 1]; }
  const std::vector<QuantizerPtr>& quantizers(Mode mode) const {
    return quantizers_[mode == Mode::forward ? 0 : 1];
  }
  // Null where the operation has no such slot or no state.
  QuantizerPtr get_quantizer(Mode mode, size_t slot) const;

 private:
  std::array<RecipeStatePtr, 2> states_;
  std::array<std::vector<QuantizerPtr>, 2> quantizers_;
};

}  // namespace assay::training
