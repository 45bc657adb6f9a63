// The cells of the parity matrix that run on ranks, with an optimizer or with a recompute. There are
// thousands, so `assay run roles` takes a choice of them that holds every value and every valid pair of
// values of the axes.
#pragma once
#include <vector>

#include "training/parity/cell.h"

namespace assay::training {

// Every valid combination of module, formats, phase, ranks, sequence parallelism, FSDP2, optimizer and
// recompute.
const std::vector<Cell>& all_trained_cells();
// The choice, in the order of all.
const std::vector<Cell>& chosen_trained_cells();
// Pairs of values of two axes that some valid cell has and no cell of `cells` does; empty for the choice.
size_t pairs_left_out(const std::vector<Cell>& cells);

}  // namespace assay::training
