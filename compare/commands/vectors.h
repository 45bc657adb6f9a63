// `assay vectors <dir>`: third-party vectors against the subjects, bit for bit. Nobody of this project made them, so they witness both sides.
//
// The folder holds safetensors files and an index.json:
//   {"files": [{"file": "mxfp8_a01.safetensors", "sha256": "...", "family": "mxfp8_1d", "params": {...}, "consensus": "agree:...",
//               "tensors": [{"name": "input", "dtype": "BF16", "shape": [32, 64], "role": "input"}, ...]}, ...]}
// Roles: input and param are given to the subject, expected is compared, info is neither. Every expected tensor of a family that Assay knows
// (compare/witness/vectors/table.h) is judged or is an error; other families are counted as skipped, by name. A file whose consensus begins with "DISAGREE" holds
// one result per source: which of them each subject agrees with is reported, and nothing of it counts.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "compare/process/guarded_run.h"
#include "contract/subject.h"

namespace assay {

struct VectorOptions {
  std::string directory;
  std::vector<std::string> subjects = {"reference", "host"};
  std::string filter;          // judge only tensors whose "<file>#<tensor>" contains this
  Environment environment;
  double timeout = 60;         // seconds a case may take
};

// A line per file on `out`, a screen per failure, and last `N passed, N failed, N skipped` (tensors, once per subject).
// Exit status: 0 all equal; 1 something differs or a tensor of a known family cannot be judged; 2 the folder or its index cannot be read, or a file is not the one
// that the index describes; 3 nothing was judged.
int run_vectors(const VectorOptions&, const Subjects&, std::ostream& out, std::ostream& err);

}  // namespace assay
