// The routes of cells that run on ranks, with an optimizer or with a recompute.
#pragma once
#include <vector>

#include "training/base/session.h"
#include "training/parity/cell.h"
#include "training/parity/routes.h"

namespace assay::training {

// Makes of a new session what the cell and the removed causes say. `session` stays where it is.
void prepare(Session& session, const Cell&, const Removed&);
// What the removed causes say of a step under this recipe at the edges of attention. Each changes the route
// that it is about, built-in recipes' (E16) or custom ones' (E17), so that it excuses nothing on the other.
EdgeRules edges_of(const Removed&, const RecipePtr&);

// One record for each rank of the cell, in order.
std::vector<StepRecord> run_trained_route(const Cell&, const RecipePtr&, const Removed&, Subject&,
                                          const Environment&);

}  // namespace assay::training
