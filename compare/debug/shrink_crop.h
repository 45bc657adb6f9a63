// Parts of a failing case: windows, rows, columns, and K of a gemm.
#pragma once
#include <optional>

#include "compare/arithmetic/codes.h"
#include "compare/debug/shrink_trials.h"

namespace assay::shrinking {

inline constexpr int64_t kWindow =
    32;  // rows and columns of the window that a large tensor is cropped to first
// Whether a tensor has many windows.
bool is_large(const Problem& problem);

// What the first difference of the state that is kept says something of, in x: an element, a block,
// everything.
std::optional<Region> first_difference(const State& state, const Breach& breach);

// Of many windows keeps one that holds the first difference, where that fails alike; else with the tensor's
// amax.
bool crop_to_window(Trials& trials, State& state);

// Crops rows and columns by halves, quarters and eighths for as long as that fails alike; where `aligned`, to
// multiples of 32. Pins amaxes where that lets it go further.
void crop(Trials& trials, State& state, bool aligned);

}  // namespace assay::shrinking
