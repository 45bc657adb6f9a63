// The extra state of a module in a checkpoint: its recipe, and scales and histories of delayed scaling, as a
// pickle (TE module/base.py, _extra_state.py). A pickle can run code where Python loads it, so what looks as
// if it needed that is refused unless the caller says that it trusts the file. Nothing is executed here.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "training/recipes/delayed.h"
#include "training/state/pickle.h"

namespace assay::training {

// What a module hands over. States are null where quantization never ran.
struct ModuleExtraState {
  RecipePtr recipe;
  RecipeStatePtr forward, backward;
  int64_t num_gemms = 1;
};

// Empty where quantization never ran, and for recipes without state of their own: current scaling, MXFP8,
// blockwise FP8, NVFP4. A custom recipe is always written; scales and histories where it asked for delayed
// scaling. TypeError where it did so in one direction only; PicklingError where its factory has no name that
// a reader could find (register_factory).
pickle::Bytes write_extra_state(const ModuleExtraState&);

// Whether bytes are to be loaded (true) or ignored: false of nothing, of plain values alone, and of a known
// recipe without scales. RuntimeError, that it refuses, for everything else unless `trusted`: delayed
// scaling, globals without a recipe, unknown recipes, and bytes that are no pickle.
bool loads_extra_state(std::span<const std::byte>, bool trusted);

// What was read: the recipe (the default DelayedScaling where none was written), and what stood beside it.
struct LoadedExtraState {
  RecipePtr recipe;
  ArrayPtr scale_fwd, scale_bwd, amax_history_fwd, amax_history_bwd;  // null: not written
};
// Nothing where the bytes are ignored. RuntimeError where they are refused, or are trusted and no extra state
// all the same: then nothing has changed anywhere.
std::optional<LoadedExtraState> read_extra_state(std::span<const std::byte>, bool trusted);

// Copies what was read into states of the stored recipe. RuntimeError where sizes differ.
void restore_delayed(const LoadedExtraState&, const RecipeStatePtr& forward, const RecipeStatePtr& backward);

}  // namespace assay::training
