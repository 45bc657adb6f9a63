// Which choices are tried on a group of cases.
#pragma once
#include <vector>

#include "compare/diagnosis/identify/choice_runs.h"
#include "compare/diagnosis/identify/choices.h"

namespace assay::identifying {

// The choices of the group's format, with the line's own and those of other architectures where they differ.
std::vector<Choice> choices_for(const ChoiceRuns& runs);

// One more key on top of a choice: every value of every Numerics field, and what a dumper may have told
// wrong.
std::vector<Choice> changes_of(const Choice& base);

}  // namespace assay::identifying
