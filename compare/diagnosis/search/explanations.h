// What was found in each direction, put together as explanations of the whole case.
#pragma once
#include <map>
#include <optional>

#include "compare/diagnosis/diagnosis.h"
#include "compare/diagnosis/search/judged_case.h"
#include "compare/diagnosis/search/search.h"

namespace assay::cause {

using CausesByDirection = std::map<std::optional<Direction>, Causes>;

// Fills the explanations, exact ones first, and how sure they are.
void explain(JudgedCase& judged_case, CausesByDirection& causes, Diagnosis& out);

}  // namespace assay::cause
