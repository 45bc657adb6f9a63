// The diagnosis of a case: which stage first, which elements, which cause (docs/debugging-a-divergence.md).
// Layouts are tried before values, scales before codes, and codes only in blocks whose scale agrees;
// hypotheses (compare/diagnosis/library/hypotheses.h) are replayed on the reference, on a sample of bad and
// good blocks first and then on everything.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "compare/diagnosis/diagnosis.h"
#include "compare/judge/judge.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// One case and what a subject made of it.
struct Observation {
  Problem problem;
  std::string subject;            // who made `got`
  std::vector<PlaneData> inputs;  // of input_planes(problem)
  std::vector<PlaneData>
      got;  // of output_planes(problem), in that order, some of them; padding that is not known holds zeros
  bool unpinned = false;  // of an attention: what lies inside the bound of N20.18 is right
  // The subject ran here, so that it had to clear compact padding; a recording may hold anything there
  // (N6.4).
  bool ran = false;
};

struct DiagnoseOptions {
  int jobs = 0;        // threads; 0: the cores of this machine
  bool pairs = true;   // where no single cause is exact, pairs of causes
  bool flips = false;  // where no rule is exact, few flipped bits: of recorded bytes, for a subject that
                       // makes them anew flips no bit twice
  double budget = 60;  // seconds after which the search ends with what it has; Ctrl-C ends it as well
                       // (compare/process/interrupt.h)
  std::function<void(const std::string&)> on_progress;  // "31 of 84 hypotheses"; may be empty
  // Called before the search begins: the first plane that differs, and the first place in it. May be empty.
  std::function<void(const PlaneDifference&)> on_difference;
  const std::atomic<bool>* stop = nullptr;  // where it becomes true the search ends as if out of time
};

// Fills everything of a Diagnosis but what needs the subject to run again (deterministic, reproducer) and the
// trace. A tensor without elements is equal. Errors: planes that do not fit the problem, nothing to compare,
// a reference that does not run the problem.
Result<Diagnosis> diagnose(const Observation&, Subject& reference, const DiagnoseOptions&);

}  // namespace assay
