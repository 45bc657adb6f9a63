// Claims: what is asserted about one case, evaluated in this process. A claim is "got equals want on these
// planes", where want is another subject, the same subject under another Environment, or a law that holds for
// any correct result.
#pragma once
#include <string>
#include <vector>

#include "compare/judge/judge.h"
#include "compare/judge/laws/laws.h"
#include "compare/judge/parity.h"
#include "compare/judge/runs.h"
#include "compare/judge/unpinned.h"
#include "compare/judge/verdict.h"
#include "compare/process/guarded_run.h"
#include "contract/subject.h"
#include "fixtures/suite.h"

namespace assay {

struct ClaimOptions {
  Environment environment;
  bool laws = true;  // padding, guard, laws, repeat; without: parity alone
};

// Judges one line on each of the named subjects, in their order; one Verdict each. The reference runs once.
// Expectations of the suite (`expect unsupported`, `expect fail`, `trust any`) are applied. Never throws; a
// crash takes the process with it (cases.h).
std::vector<Verdict> judge_case(const SuiteEntry& entry, const Subjects& subjects,
                                const std::vector<std::string>& names, const ClaimOptions& options);

}  // namespace assay
