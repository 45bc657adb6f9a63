// Judges many cases in worker processes: a crash, a hang or a poisoned device costs one case. Results come
// back in the order of the entries, whatever the number of workers.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compare/judge/claims.h"
#include "compare/process/pool.h"

namespace assay {

struct RunSettings {
  std::vector<std::string> subjects = {"host"};  // names in `Subjects`; every one must exist there
  ClaimOptions claims;
  int jobs = 0;                     // workers; 0: the cores of this machine
  double timeout = 60;              // seconds a case may take
  bool in_process = false;          // no workers: for debuggers; crashes and hangs are not caught
  bool stop_at_first = false;       // ends after the first case that is red
  std::function<bool()> over = {};  // asked after each case: true ends the run. May be empty
  // Called when a case has begun, before it ends; in the order in which the workers begin. May be empty.
  std::function<void(const SuiteEntry&)> on_start;
  std::function<void()> on_wait = {};  // called once a second or more often while workers work; may be empty
  std::optional<NumberedTasks> numbered = {};  // the cases as tasks of the whole command
};

struct CaseResult {
  size_t index = 0;               // into the entries
  std::vector<Verdict> verdicts;  // one per subject
};

// Calls `on_result` once per case, in the order of `entries`. Returns the number of cases reported (fewer
// under stop_at_first).
size_t run_cases(std::span<const SuiteEntry> entries, const Subjects& subjects, const RunSettings& settings,
                 const std::function<void(const CaseResult&)>& on_result);

// What a worker answers for one case: its verdicts as text.
std::string judged_text(const SuiteEntry&, const Subjects&, const RunSettings&);

// One Problem, in a worker: for shrink and others that judge lines of their own making.
std::vector<Verdict> run_one(const Problem& problem, const Subjects& subjects, const RunSettings& settings);

// An entry for a Problem that stands in no suite: file "line", its line as text.
SuiteEntry entry_of(const Problem& problem);

}  // namespace assay
