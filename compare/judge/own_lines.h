// Claims that need no second side: a subject's result against other results of its own.
#pragma once
#include "compare/judge/runs.h"
#include "compare/judge/verdict.h"
#include "compare/process/guarded_run.h"
#include "contract/subject.h"

namespace assay {

// Runs the same line under another Environment, a swizzle there and back, the directions of a pair and the
// members of a split alone, an attention with its heads moved on, and looks at what stands beyond the
// members.
void claim_own_lines(const CaseInputs& c, Subject& s, const Execution& got, Verdict& v);

}  // namespace assay
