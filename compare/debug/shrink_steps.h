// Ways to make a failing case smaller that keep its shape: what a line can do without, and plainer data.
#pragma once
#include "compare/debug/shrink_trials.h"

namespace assay::shrinking {

// A split becomes the line of one member where that fails alike; else it loses the members that do not
// matter.
void drop_members(Trials& trials, State& state);
// A quantize of two directions becomes one of one.
void drop_direction(Trials& trials, State& state);
// A gemm loses bias, beta and alpha: what follows the sum, where the failure does without it.
void drop_epilogue(Trials& trials, State& state);
// Of an attention sequences, heads, gradients, masks and tokens.
void drop_attention(Trials&, State&);

// Of a loaded state: zeroes elements in halving chunks, then clears signs and mantissa bits of those that are
// left.
void zero(Trials& trials, State& state);
void simplify(Trials& trials, State& state);
// Of many elements keeps those of the first difference alone, where that fails alike, or those of the window
// around it.
bool zero_around(Trials& trials, State& state);

}  // namespace assay::shrinking
