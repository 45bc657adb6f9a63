// Whether failures that look different on different inputs have one cause: a hypothesis that explains one
// line exactly, and predicts every byte of the others.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/search/diagnose.h"
#include "compare/process/guarded_run.h"
#include "compare/report/report.h"

namespace assay {

class CommonCause {
 public:
  // Searches for `budget` seconds over all lines, and for at most two in one. `timeout`: seconds that a run
  // of the subject may take; `jobs`: threads, 0: the cores of this machine.
  CommonCause(const Subjects& subjects, const Environment& environment, double timeout, int jobs,
              double budget)
      : subjects_(subjects), environment_(environment), timeout_(timeout), jobs_(jobs), left_(budget) {}

  // Title and id of a single hypothesis that makes every byte of all these failures of one subject. Nothing:
  // there is none, one of them is not of planes that differ, or the time is up.
  std::optional<std::string> of(const std::vector<Failure>&);

 private:
  // A failing line as the subject makes it again, and what explains it exactly.
  struct Line {
    std::optional<Observation> seen;
    std::vector<Explanation> exact;
  };
  Line look(const Failure&) const;
  bool predicts(const Explanation&, const Line&) const;

  const Subjects& subjects_;
  Environment environment_;
  double timeout_;
  int jobs_;
  double left_;
  std::map<std::string, Line> lines_;  // by subject and line
};

}  // namespace assay
