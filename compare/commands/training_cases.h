// Training cases: what `assay run` judges besides lines. A training case drives training/ on a subject and
// has a name instead of a line: a scenario
// ("S-21"), or a cell of the parity matrix ("parity linear mxfp8 ...", "parity linear factory=my_hybrid
// ..."). They run in the workers, with the reports and exit statuses of lines.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compare/judge/cases.h"
#include "compare/judge/verdict.h"
#include "contract/result.h"
#include "fixtures/suite.h"

namespace assay {

struct TrainingCase {
  std::string row, column;         // of a cell of the parity matrix; empty for scenarios
  SuiteEntry entry;                // file "scenarios" or "roles"; the text is what `assay run` takes
  int ranks = 1;                   // that it runs at once (docs/ranks.md)
  std::vector<std::string> about;  // printed under the text: "given ...", "when ...", "then ..."
  // Throws training::RankError where processes lost one another.
  std::function<Verdict(Subject& subject, Subject& reference, const Environment&)> judge;
};

// Takes the words "scenarios", "ranks" (every case of more than one rank), "roles", "roles all", "roles
// left-out" and "roles factory=<name>", the ids of scenarios and the names of cells out of `what` and returns
// their cases in that order, those that `filter` and `shard` keep (CaseChoice). A filter looks at the texts
// and at what is printed under them. Fails on a word that looks like a scenario id or the name of a cell but
// does not exist.
Result<std::vector<TrainingCase>> take_training_cases(std::vector<std::string>& what,
                                                      const std::string& filter, const std::string& shard);

// Judges every case on each of the settings' subjects, in workers unless settings.in_process. Results come in
// the order of the cases, the subjects of a case one after the other. Stops where on_result returns false.
// Where a launcher has started several processes they judge together (training_cases/processes.h): false
// where they lost one another.
bool run_training_cases(const std::vector<TrainingCase>&, const Subjects&, const RunSettings&,
                        const std::function<bool(const TrainingCase&, const Verdict&)>& on_result);

// What a worker answers for one task of these: case i / subjects on subject i % subjects.
std::string judged_text(const std::vector<TrainingCase>&, size_t i, const Subjects&, const RunSettings&);

}  // namespace assay
