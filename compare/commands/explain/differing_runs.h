// What can be said of a subject of which two runs on the same input differ (docs/reading-a-report.md,
// `RANDOM` and `UNWRITTEN`).
#pragma once
#include "compare/commands/explain/session.h"
#include "compare/process/run_in_child.h"

namespace assay {

// Another order, poison and number of threads than those of `environment`: nothing that decides a bit.
Environment changed(Environment environment);

// Whether a run made these planes.
bool made(const IsolatedRun& run, const Problem& problem, const std::vector<PlaneData>& planes);

// `seen`: the first run, under the environment of the options; `second`: the other one, under changed().
// Says what neither wrote, or on what the bytes depend, and what makes those of the first run.
Result<Diagnosis> diagnosis_of_runs(ExplainSession& session, Subject& subject, const Observation& seen,
                                    const IsolatedRun& second);

}  // namespace assay
