// A Diagnosis as people read it on a terminal: one screen, the verdict first.
#pragma once
#include <string>

#include "compare/diagnosis/diagnosis.h"

namespace assay {

// The screen, with line ends. `colour`: the first word is coloured by the verdict.
std::string diagnosis_screen(const Diagnosis&, bool colour = false);

// The cause in one line, for screens of failures: "cause: the amax of a block misses its last element (N5.1),
// all 726 differences". Empty where there is none to name.
std::string cause_line(const Diagnosis&);

}  // namespace assay
