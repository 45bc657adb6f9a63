// What this input could not tell: lines that part explanations that are equal on it.
#pragma once
#include "compare/diagnosis/diagnosis.h"
#include "compare/diagnosis/search/judged_case.h"

namespace assay::cause {

// Fills the lines on which explanations that are equal here differ: other fills of the same line, of a small
// tensor.
void find_separating_lines(const JudgedCase& judged_case, Diagnosis& out);

}  // namespace assay::cause
