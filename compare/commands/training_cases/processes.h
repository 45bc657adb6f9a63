// Training cases whose ranks are the processes of a launcher (docs/ranks.md): each process judges every case
// for its own rank, without workers. The first of them reports.
#pragma once
#include "compare/commands/training_cases.h"

namespace assay {

// Judges the cases on each of the settings' subjects, as run_training_cases does, in every process of the
// rank engine at the same time. `on_result` is called in the first process alone; what another process finds
// wrong is in its verdict too. A case of one rank, and one of more ranks than there are processes, is
// skipped. Returns false where ranks lost one another: the verdict of that case says who waited for whom, the
// rest was not judged, and the caller ends all processes (RankEngine::abort). In other processes the loss
// ends the program.
bool run_in_processes(const std::vector<TrainingCase>&, const Subjects&, const RunSettings&,
                      const std::function<bool(const TrainingCase&, Verdict)>& on_result);

// What two processes would judge that is not the same; empty where all agree. Every process calls it first.
std::string disagreement_of_processes(const std::vector<TrainingCase>&, const RunSettings&);

}  // namespace assay
