// S-27 is long enough for a file of its own; its row stands with the other scenarios of hybrids.
#pragma once
#include "training/scenarios/scenario.h"

namespace assay::training {

void framework_operations_keep_hybrids(ScenarioRun& run);

}  // namespace assay::training
