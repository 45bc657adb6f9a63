// Stories: what `assay run` judges besides lines. A story drives training/ on a subject and has a name instead of a line: a scenario ("S-21"), or a cell of the parity
// matrix ("parity linear mxfp8 ...", "parity linear factory=my_hybrid ..."). Stories run in the workers, with the reports and exit statuses of lines.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compare/judge/cases.h"
#include "contract/result.h"

namespace assay {

struct Story {
  std::string row, column;                                             // of a cell of the parity matrix; empty for scenarios
  SuiteEntry entry;                                                    // file "scenarios" or "roles"; the text is what `assay run` takes
  std::vector<std::string> about;                                      // printed under the text: "given ...", "when ...", "then ..."
  std::function<Verdict(Subject& subject, Subject& reference, const Environment&)> judge;
};

// Takes the words "scenarios", "roles" and "roles factory=<name>", the ids of scenarios and the names of cells out of `what` and returns their stories in that order, those whose text contains `filter`.
// Error: a word that looks like one of them and is none.
Result<std::vector<Story>> take_stories(std::vector<std::string>& what, const std::string& filter);

// Judges every story on each of the settings' subjects, in workers unless settings.in_process; results come in the order of the stories, subjects inside. Stops where on_result
// returns false.
void run_stories(const std::vector<Story>& stories, const Subjects& subjects, const RunSettings& settings, const std::function<bool(const Story&, const Verdict&)>& on_result);

}  // namespace assay
