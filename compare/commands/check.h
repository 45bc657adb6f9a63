// `assay check <pack>...`: tensors of any program against the reference.
// The form of a pack: compare/packs/pack.h. A foreign one needs tensors named <case>/<plane> and each case's
// line.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "compare/commands/kept_results.h"
#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

struct CheckOptions {
  std::vector<std::string> paths;  // packs, or folders that are searched for *.safetensors
  double timeout = 60;             // seconds a run of the reference may take: of a case, or of a part
  double budget = 60;  // time limit of the search for the cause of the first divergence, in seconds
  bool cause = true;   // look for it
  int jobs = 0;        // worker processes of a large case, of all cases where they are tasks; 0: the cores
  int64_t large = int64_t{1} << 22;  // elements from which on a case is judged in parts
  bool progress = false;             // a line on `err` that is rewritten
  bool coherence = false;            // judge rows against columns instead, without their source
  bool exact = false;     // the reference judges every block, also those that the vectorised method knows
  std::string json = {};  // a file that receives the verdicts; empty: none
  bool github = false;    // annotations for GitHub Actions on `out`
  bool mpi = false;       // the processes of a launcher share the cases
  KeptResults kept = {};  // of cases that a later run takes over
};

// Runs the reference on each case's line and input planes (those of the pack; others from the line, and x
// only if the line names its fill) and judges the planes that the pack holds in causal order. Planes that it
// lacks are named as not judged; compact padding is ignored, GEMM-layout padding must be 0; a plane may come
// without its padding. Cases are taken by step, module, role and direction as far as file and case names
// tell, each verdict is printed as soon as it is known, and the first divergence is named after them, before
// its cause is looked for. Exit status: 0; 1 a case differs or has nothing to judge; 2 a path or pack cannot
// be read; 3 no case at all; 130 it was interrupted before anything differed.
int run_check(const CheckOptions&, const Subjects&, std::ostream& out, std::ostream& err);

void register_check(Program&);

}  // namespace assay
