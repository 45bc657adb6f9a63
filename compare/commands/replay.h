// `assay replay <pack>...`: judges judge recordings of `assay record` against the reference.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "compare/commands/reports.h"
#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

struct ReplayOptions {
  std::vector<std::string> packs;
  std::string kernels;  // hash of this program's kernels; empty: none
  Environment environment;
  int jobs = 0;
  double timeout = 60;
  ReportOptions report;
};
// Exit status: 0; 1 something failed, crashed or is stale; 2 a pack cannot be read or a report cannot be
// written; 3 nothing was judged.
int run_replay(const ReplayOptions&, const Subjects&, std::FILE* out, std::FILE* err);

void register_replay(Program&);

}  // namespace assay
