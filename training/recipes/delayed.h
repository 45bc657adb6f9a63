// Delayed scaling: scales that follow the history of amaxes. A state holds [length, slots] amaxes, of which
// row 0 is being recorded, and a scale per slot; the update turns a finished row into scales by op update of
// the Subject (TE quantization.py, module/base.py).
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/recipes/recipe_state.h"

namespace assay::training {

class DelayedScalingRecipeState final : public RecipeState {
 public:
  DelayedScalingRecipeState(RecipePtr recipe, std::string mode, size_t num_quantizers, RoleList roles);
  std::string_view class_name() const override { return "DelayedScalingRecipeState"; }
  Encoding dtype;
  ArrayPtr scale;         // [slots], starts at 1
  ArrayPtr amax_history;  // [length, slots], starts at 0

  const DelayedScaling& settings() const { return static_cast<const DelayedScaling&>(*recipe_); }
  // Their scale is a view of one element of `scale`, their amax one of row 0.
  std::vector<QuantizerPtr> make_quantizers(Session&) override;
  // Where the old state has as many slots, the same dtype and length.
  bool inherit(const RecipeState&) override;
  // A new history: cut at the end, or zeros added there.
  bool adjust_history(const Recipe&) override;
  DelayedStatePtr delayed() override {
    return std::static_pointer_cast<DelayedScalingRecipeState>(shared_from_this());
  }
};

// A user's algorithms, by name. An amax algorithm sees the history as rows of slots, before it rolls, and
// gives an amax per slot; a scale algorithm sees amaxes, the present scales and the format's maximum, and
// gives scales.
using AmaxAlgorithm =
    std::function<std::vector<F32Bits>(std::span<const F32Bits> history, int64_t length, int64_t slots)>;
using ScaleAlgorithm = std::function<std::vector<F32Bits>(
    std::span<const F32Bits> amax, std::span<const F32Bits> scale, int fp8_max, const DelayedScaling&)>;
void register_amax_algorithm(std::string name, AmaxAlgorithm);
void register_scale_algorithm(std::string name, ScaleAlgorithm);
bool is_amax_algorithm(std::string_view name);
bool is_scale_algorithm(std::string_view name);

// One update of history and scale, in place. A user's algorithm always takes the unfused path.
void update_amax_and_scale(Session&, Array& amax_history, Array& scale, Encoding dtype, const DelayedScaling&,
                           UpdateRule rule = UpdateRule::bulk);

// The buffers of all modules that take part in reductions, by direction and by what must agree for one
// concatenated call (TE quantization.py, FP8GlobalStateManager).
class AmaxBuffers {
 public:
  // Once per state; adding it again, or a state without delayed scaling, does nothing.
  void add(const RecipeStatePtr&, GroupPtr group = nullptr);
  size_t registered(bool forward) const;
  bool holds(const RecipeState&) const;
  // Row 0 of all states of one direction is reduced over the group where the recipe says so, written back,
  // and every state updated.
  void reduce_and_update(Session&, bool forward, UpdateRule rule = UpdateRule::bulk);

 private:
  void reduce(Session&, bool forward, ProcessGroup&);
  struct Entry {
    RecipeStatePtr state;
    GroupPtr group;
  };
  std::vector<Entry> entries_;
};

}  // namespace assay::training
