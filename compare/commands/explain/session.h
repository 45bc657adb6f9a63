// One call of `assay explain`: what a line and a pack share. Where it reports, how it searches, and what
// follows a diagnosis.
#pragma once
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "compare/commands/explain.h"
#include "compare/diagnosis/diagnosis.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/process/guarded_run.h"
#include "compare/text/terminal.h"

namespace assay {

struct ExplainSession {
  ExplainSession(const ExplainOptions& options, const Subjects& subjects, std::FILE* out, std::FILE* err)
      : options(options), subjects(subjects), out(out), err(err), progress(err, options.progress) {}

  const ExplainOptions& options;
  const Subjects& subjects;
  std::FILE *out, *err;
  ProgressLine progress;
  bool difference_told = false;  // the screen says already what differs, and where first
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  // Says that the user ended it before anything that differs was found, and returns the status.
  int interrupted_before(bool any_equal);
  // Prints the message and returns the status.
  int fail(const std::string& message, int status);
};

// Says on the screen what differs, and where first, before anybody looks for the cause. `part` as
// Diagnosis::part.
void print_difference(ExplainSession&, const Problem&, const PlaneDifference&);

// The cause of what differs. Differences of bits that are not pinned have no cause where all of them lie
// inside the bound (N16.13).
Result<Diagnosis> diagnosed(ExplainSession&, const Observation&, const std::optional<std::string>& unpinned);

// Shrinks what was explained to a reproducer, and writes it where the options ask for that. `argument`: the
// subject on a command line. Returns an exit status for what cannot be written, else 0.
int reduce(ExplainSession&, Diagnosis&, const Problem&, const std::string& subject, const Subjects&,
           const std::string& argument);

// Prints and writes the diagnosis. Returns the exit status of the command.
int report(ExplainSession&, Diagnosis&);

// The two kinds of input.
int explain_line(ExplainSession&);
int explain_pack(ExplainSession&);

}  // namespace assay
