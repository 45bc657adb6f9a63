// A cell of the parity matrix as a training case: hybrid against vanilla, bit for bit.
#pragma once
#include "compare/commands/training_cases.h"
#include "training/parity/cell.h"
#include "training/parity/cells.h"

namespace assay {

TrainingCase case_of(const training::Cell&);
// A cell that the factory refuses is unsupported.
TrainingCase case_of(const training::FactoryCell&);

}  // namespace assay
