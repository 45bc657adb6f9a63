// A diagnosis for GitHub Actions (`explain --github`).
#pragma once
#include <cstdio>

#include "compare/diagnosis/diagnosis.h"

namespace assay {

// An annotation on `out`, and the explanations in the step's summary.
void annotate_diagnosis(const Diagnosis&, std::FILE* out);

}  // namespace assay
