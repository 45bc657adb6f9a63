// Expected tensors that one run of a subject answers, and the answer.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compare/judge/verdict.h"
#include "compare/process/guarded_run.h"
#include "compare/witness/vectors/check.h"

namespace assay {

struct VectorCase {
  Problem problem;
  std::vector<PlaneData> given;
  std::vector<VectorCheck> checks;
};

// Adds the check to the case of the same Problem and inputs, or as a case of its own.
void add_check(std::vector<VectorCase>& cases, VectorCheck check);

// One case on one subject.
struct VectorAnswer {
  std::optional<std::string> unsupported;
  std::vector<bool> equal;  // per check; empty where the subject failed before there was anything to compare
  std::optional<Breach> breach;
  bool interrupted = false;  // nothing was judged
};

VectorAnswer judge_vectors(const VectorCase&, Subject&, const Subjects&, const Environment&, double timeout);

}  // namespace assay
