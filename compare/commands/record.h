// `assay record <suite|line>... -o <pack>`: writes a subject's outputs, to be judged where the subject is
// absent (compare/packs/pack.h).
#pragma once
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "compare/packs/pack.h"
#include "compare/process/guarded_run.h"
#include "fixtures/suite.h"

namespace assay {

struct Program;

struct RecordOptions {
  std::vector<SuiteEntry> entries;
  std::string subject = "reference";
  std::string output;  // path of the pack
  std::string fingerprint, kernels;
  bool all_bytes = false;  // bytes of every case up to kMostCaseBytes, not only of small and failing ones
  Environment environment;
  int jobs = 0;
  double timeout = 60;
};

// Cases that the subject does not support, and those that crash or throw, are named on `err` and left out.
// The last line on `out` is `N passed, N failed, N skipped`: recorded, not recorded, unsupported. Exit
// status: 0; 1 a case could not be run; 2 the pack cannot be written; 3 nothing was recorded.
int run_record(const RecordOptions&, const Subjects&, std::FILE* out, std::FILE* err);

// What a worker's answer says of one case.
struct Recorded {
  std::optional<std::string> failed;  // why nothing was recorded
  bool unsupported = false;
  std::vector<RecordedPlane> planes;
  std::string unpinned;
};
// `failed` where the text cannot be read as an answer of this Problem.
Recorded recorded_from(const std::string& text, const Problem& problem);

void register_record(Program&);

}  // namespace assay
