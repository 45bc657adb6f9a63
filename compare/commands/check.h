// `assay check <pack>...`: somebody's tensors against the reference, and `assay diff <pack> <pack>`: two dumps against each other, trusting neither.
// The form of a pack: compare/packs/pack.h. A foreign one needs tensors named <case>/<plane> and each case's line.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "compare/process/guarded_run.h"

namespace assay {

struct CheckOptions {
  std::vector<std::string> paths;      // packs, or folders that are searched for *.safetensors
  double timeout = 60;                 // seconds a run of the reference may take
  bool coherence = false;              // judge rows against columns instead, without their source
  bool github = false;                 // annotations for GitHub Actions on `out`
};

// Runs the reference on each case's line and input planes (those of the pack; others from the line, and x only if the line names its fill) and judges the planes that the
// pack holds in causal order. Planes that it lacks are named as not judged; compact padding is ignored, GEMM-layout padding must be 0; a plane may come without
// its padding. Cases are taken by step, module, role and direction as far as file and case names tell, and the first divergence is named last.
// Exit status: 0; 1 a case differs or has nothing to judge; 2 a path or pack cannot be read; 3 no case at all.
int run_check(const CheckOptions&, const Subjects&, std::ostream& out, std::ostream& err);

struct DiffOptions {
  std::string a, b;
};

// Compares the cases that both packs hold (by id, else by line), plane by plane in causal order, inputs first. Cases and planes that only one holds are
// counted as skipped. Exit status as above; 3 where nothing could be compared.
int run_diff(const DiffOptions&, std::ostream& out, std::ostream& err);

}  // namespace assay
