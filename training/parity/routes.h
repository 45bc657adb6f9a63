// The two routes through a cell, as steps that can be compared, with causes of differences taken away.
#pragma once
#include <vector>

#include "contract/subject.h"
#include "training/parity/cell.h"

namespace assay::training {

// What may be taken away from a cell to see whether a difference goes with it. Codes are those of
// docs/parity.md.
struct Removed {
  // E1: vanilla quantizes the rounded output of norm and activation, as hybrid does.
  bool fused_producers = false;
  // E2: every draw of a tensor takes the same state on both routes, and a word of it goes to the same element
  // whatever a launch produces.
  bool random_states = false;
  bool sign_of_zero = false;         // E12: every kernel keeps the sign of a zero product
  bool fused_bias_gradient = false;  // E13: vanilla sums the bias gradient plainly
  bool tn_only = false;              // E8: an architecture without a physical transpose
  bool packed = false;               // E10: separate weights
  bool gathers_of_codes = false;     // E14: shards travel unquantized on both routes
  bool core_hybrids = false;         // E5: plain quantizers wherever a role is also one of attention's core
  bool built_in_edges = false;  // E16: built-in recipes follow the rule of custom ones at attention's edges
  bool early_names = false;     // E17: an edge of attention has a name only where it is quantized
  bool fsdp = false;            // E15: weights are whole on every rank
};

// The cell's recipes: hybrid's, and vanilla's for one of the cell's formats.
RecipePtr hybrid_recipe(const Cell&, const Removed& = {});
RecipePtr vanilla_recipe(const Cell&, std::string_view format);

// One route: the module is built, filled and stepped through the cell's phase. The record is that of its last
// step, of each rank where the cell has ranks; after an optimizer's update masters and moments are among its
// outputs.
std::vector<StepRecord> run_route(const Cell&, const RecipePtr&, const Removed&, Subject&,
                                  const Environment&);

}  // namespace assay::training
