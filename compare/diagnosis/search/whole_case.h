// Causes that no direction and no member has for itself.
#pragma once
#include "compare/diagnosis/search/judged_case.h"

namespace assay::cause {

// Puts such a cause before the explanations, where it makes every byte that came and they are not certain.
void try_whole_case(const JudgedCase& judged_case, Diagnosis& out);

}  // namespace assay::cause
