// `assay run <suite|line>...`: judges cases and reports. `assay replay <pack>...`: judges recordings against the reference.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "compare/packs/pack.h"
#include "compare/judge/cases.h"
#include "compare/commands/training_cases.h"

namespace assay {

struct ReportOptions {
  std::string junit, jsonl, html;     // paths; empty: none. html: the parity matrix
  bool github = false;                // annotations for GitHub Actions on standard output
  bool verbose = false;
  bool progress = false;              // a line on standard error that is rewritten; for terminals
  bool colour = false;
};

struct RunOptions {
  std::vector<SuiteEntry> entries;
  std::vector<Story> stories;         // judged after the lines
  RunSettings settings;
  std::vector<std::string> require;   // subjects that must be present
  ReportOptions report;
};

// Exit status: 0; 1 something failed, crashed or is mistrusted; 2 a report cannot be written; 3 nothing was judged, or a required subject is absent.
int run_run(const RunOptions&, const Subjects&, std::FILE* out, std::FILE* err);

struct ReplayOptions {
  std::vector<std::string> packs;
  std::string kernels;                // hash of this program's kernels; empty: none
  Environment environment;
  int jobs = 0;
  double timeout = 60;
  ReportOptions report;
};
// Exit status as above; 2 also where a pack cannot be read.
int run_replay(const ReplayOptions&, const Subjects&, std::FILE* out, std::FILE* err);

}  // namespace assay
