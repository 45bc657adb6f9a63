// Runs of one case: what is run, under which Environment, and what an unsound run is called.
#pragma once
#include <optional>
#include <vector>

#include "compare/judge/verdict.h"
#include "compare/process/guarded_run.h"
#include "contract/problem.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// Everything about one case that does not depend on the judged subject.
struct CaseInputs {
  const Problem& problem;
  const Environment& environment;
  std::vector<PlaneData> inputs;
};

// The line's noop flag is 1.0: nothing is written, and nothing can be compared (N6.7).
bool writes_nothing(const Problem& problem);

// A second Environment for a line: another order, number of threads, poison and alignment, chosen by the line
// so that a suite covers many and a line always the same.
Environment other_environment(const Problem& problem, const Environment& base);

// Runs a subject; a throw or a write outside the buffers is a breach, and then nothing else is claimed.
std::optional<Execution> sound_run(const CaseInputs& c, Subject& s, const Environment& environment,
                                   Verdict& v);

}  // namespace assay
