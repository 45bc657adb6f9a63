// The routes of cells that run on ranks, with an optimizer or with a recompute.
#pragma once
#include <vector>

#include "training/base/session.h"
#include "training/parity/cell.h"
#include "training/parity/routes.h"

namespace assay::training {

// Makes of a new session what the cell and the removed causes say. `session` stays where it is.
void prepare(Session& session, const Cell&, const Removed&);

// One record for each rank of the cell, in order.
std::vector<StepRecord> run_trained_route(const Cell&, const RecipePtr&, const Removed&, Subject&,
                                          const Environment&);

}  // namespace assay::training
