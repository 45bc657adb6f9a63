// Annotations of a suite: `expect unsupported`, `expect fail`, `trust any`.
#pragma once
#include "compare/judge/verdict.h"
#include "fixtures/suite.h"

namespace assay {

// Turns an outcome that was expected into passed, and one that was not into failed.
void apply_expectation(const Expectation& expect, Verdict& v);

}  // namespace assay
