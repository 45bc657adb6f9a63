// What is seen of a case, whatever caused it: its planes, where they differ and how.
#pragma once
#include "compare/diagnosis/diagnosis.h"
#include "compare/diagnosis/search/judged_case.h"

namespace assay::cause {

// Fills the planes, and of the first one that differs the heat map, the coordinates and the fingerprints.
void describe(JudgedCase& judged_case, Diagnosis& out);

// Padding, where every element is right: it must be 0 (N6.4). Compact padding of a recording may hold
// anything. Fills the whole answer where it holds something.
void judge_padding(JudgedCase& judged_case, Diagnosis& out);

}  // namespace assay::cause
