// `assay coverage <suite|line>...`: which pairs of choices (compare/choices/choices.h) the lines exercise, of
// all that some accepted line has, by op and format; what is left out; and lines that would exercise it.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "compare/choices/space.h"
#include "contract/problem.h"
#include "contract/subject.h"

namespace assay {

struct Program;

struct CoverageOptions {
  std::vector<std::string> suites;  // as they were named
  std::vector<Problem> lines;       // of them; once ask_subject has been called, those that the subject runs
  std::string evidence_suites;      // their names, joined by commas; empty: pairs
  std::vector<Problem> evidence;    // lines whose pairs are valid, whatever the suite is, so that two compare
  std::string subject;              // empty: every line that the parser accepts
  std::string json;                 // a path; empty: none
  std::string complete;             // where lines for what is left out are written; empty: nowhere
  size_t list = 3;                  // pairs that are shown of each op and format
  bool whole = false;               // exit status 1 where a pair, or a case, is left out
  bool cases = false;               // rounding cases instead of pairs (compare/commands/coverage_cases.h)
  choices::SpaceOptions space;
};

// Leaves of the lines, and of the evidence, those that the subject runs, and lets the search count no others.
// The subject is asked in worker processes alone, because it may load a library, which may crash. Where the
// command ends with that, the exit status: 2 a worker died, and the line is named; 3 the subject is absent;
// 130 it was interrupted.
std::optional<int> ask_subject(CoverageOptions&, const Subject&, std::ostream& err);

// The JSON document's `schema` is "assay.coverage/1" (docs/schemas/coverage.schema.json). Exit status: 0; 1
// `whole` and a pair is left out; 2 `only` names no op with a format, or a file cannot be written; 3 there is
// no pair to count.
int run_coverage(const CoverageOptions&, std::ostream& out, std::ostream& err);

void register_coverage(Program&);

}  // namespace assay
