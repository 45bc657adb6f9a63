// A scenario of the training layer as a training case.
#pragma once
#include "compare/commands/training_cases.h"
#include "training/scenarios/scenario.h"

namespace assay {

// `scenario` must outlive the case.
TrainingCase case_of(const training::Scenario& scenario);

}  // namespace assay
