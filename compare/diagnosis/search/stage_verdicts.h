// What is known of each stage of a quantizer, from the planes and from what was found.
#pragma once
#include "compare/diagnosis/diagnosis.h"
#include "compare/diagnosis/search/judged_case.h"

namespace assay::cause {

// Where a difference begins that nothing explains, as far as the planes tell.
Stage stage_of_unexplained(const JudgedLane& lane);

// Fills the stages of both directions. Needs the explanations, and the first stage that differs.
void judge_stages(JudgedCase& judged_case, Diagnosis& out);

}  // namespace assay::cause
