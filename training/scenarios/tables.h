// The tables of scenarios, one function per file of this folder (training/scenarios/tables.def).
#pragma once
#include <span>

#include "training/scenarios/scenario.h"

namespace assay::training {

#define SCENARIOS(function) std::span<const Scenario> function();
#include "training/scenarios/tables.def"
#undef SCENARIOS

}  // namespace assay::training
