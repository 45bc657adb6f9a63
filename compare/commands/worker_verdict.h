// Verdicts of cases that a worker judged: one that came as text, and one that did not come.
#pragma once
#include <string>

#include "compare/judge/verdict.h"

namespace assay {

Verdict crashed_verdict(std::string why);

// The verdict that the worker sent as JSON; crashed where the text cannot be read.
Verdict verdict_of_worker(const std::string& text);

}  // namespace assay
