// `assay coverage <suite|line>... --cases`: which rounding cases (compare/rounding/cases.h) the lines reach,
// by unit, and which nothing reaches.
#pragma once
#include <iosfwd>
#include <string>

#include "compare/commands/coverage.h"
#include "contract/subject.h"

namespace assay {

// The JSON document's `schema` is "assay.rounding_cases/1" (docs/schemas/rounding_cases.schema.json). Exit
// status: 0; 1 `whole` and a case is not reached, or a case is reached that unreachable.def calls
// unreachable, or a line could not be looked at; 2 a file cannot be written, or
// there is no such unit; 130 an interrupt ended it.
int run_coverage_cases(const CoverageOptions&, Subject& reference, std::ostream& out, std::ostream& err);

}  // namespace assay
