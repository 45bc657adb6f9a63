// `assay run <suite|line>...`: judges cases and reports.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "compare/commands/kept_results.h"
#include "compare/commands/reports.h"
#include "compare/commands/training_cases.h"
#include "compare/judge/cases.h"

namespace assay {

struct Program;

struct RunOptions {
  std::vector<SuiteEntry> entries;
  std::vector<TrainingCase> training_cases;  // judged after the lines
  RunSettings settings;
  std::vector<std::string> require;  // subjects that must be present
  ReportOptions report;
  double budget = 10;     // seconds for telling whether failures of several patterns have one cause
  double deadline = 120;  // seconds that a rank waits for the others in a collective
  KeptResults kept;
  bool mpi = false;        // the processes of a launcher share the tasks
  std::string transcript;  // path; what every rank did, as JSON lines
};

// Exit status: 0; 1 something failed, crashed or is mistrusted; 2 a report cannot be written; 3 nothing was
// judged, or a required subject is absent.
int run_run(const RunOptions&, const Subjects&, std::FILE* out, std::FILE* err);

void register_run(Program&);

}  // namespace assay
