// Why a line failed: what `assay explain` says of it, run in a child process.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/commands/hunt/records.h"
#include "compare/judge/verdict.h"
#include "compare/process/guarded_run.h"

namespace assay::hunting {

struct CauseOptions {
  std::string subject;
  Environment environment;
  double timeout = 60;  // seconds a run of the subject may take
  double budget = 5;    // seconds for the search of a cause
  std::string folder;   // receives the reproducer
  // Whether the hunt is to end: then no more lines are looked at to tell causes apart.
  std::function<bool()> over = {};
};

// What two failures of one kind have in common before anybody has looked for the cause: op, formats, claim,
// plane.
std::string kind_of(const Problem&, const Breach&);

// The claim of a finding that only an instrumented program sees.
inline constexpr std::string_view kOfASanitizer = "sanitizer";

// Of a line on which an instrumented program ended, and what a sanitizer said of it, which is its cause.
Finding finding_of_end(const Problem&, const std::string& words);
// Whether such a finding is not what the program says now; empty words: it ended well.
bool is_other_end(const Finding&, const std::string& words);
// Makes the line of such a finding smaller while `said` says the same of it (Edges::said_of), and writes its
// pack, which has what both sides make of it.
void shrink_end(Finding&, const Subjects&, const CauseOptions&,
                const std::function<std::string(const Problem&)>& said);

// Of a line whose cause has not been looked for: its kind stands for the cause.
Finding finding_of_kind(const Problem&, const Breach&);

// Explains and shrinks. Where explain finds no difference (a law that fails, a crash, a write beyond a
// plane), the line is shrunk while it fails in the same way, and its kind stands for the cause. `also`: lines
// that failed alike; where several causes make the bytes of the line, those that make theirs are left.
Finding find_cause(const Problem&, const Breach&, const Subjects&, const CauseOptions&,
                   const std::vector<Problem>& also = {});

}  // namespace assay::hunting
