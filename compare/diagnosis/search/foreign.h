// Data that follow something which the case does not hold: another tensor, another step, memory of somebody
// else. No rule foretells their bytes, but what they are of can be told.
#pragma once
#include <string>
#include <vector>

#include "compare/diagnosis/search/judged_case.h"

namespace assay::cause {

// Of a case that nothing explains: "columns are of another tensor or step: ...", for each direction, or
// region of one, that is quantized as it should be for itself beside others that are right. Empty where
// nothing says so.
std::vector<std::string> foreign_data(JudgedCase& judged_case);

}  // namespace assay::cause
