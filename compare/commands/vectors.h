// `assay vectors <dir>`: judge the subjects by third-party vectors, bit for bit. Nobody in this project made
// them, so they witness both sides. The form of the folder: compare/witness/index.h. Families that Assay does
// not know are counted as skipped, by name.
#pragma once
#include <iosfwd>

#include "compare/process/guarded_run.h"
#include "compare/witness/judge.h"

namespace assay {

struct Program;

// A line per file on `out`, a screen per failure, and last `N passed, N failed, N skipped` (tensors, once per
// subject). Exit status: 0 all equal; 1 something differs or a tensor of a known family cannot be judged; 2
// the folder or its index cannot be read, or a file is not the one that the index describes; 3 nothing was
// judged.
int run_vectors(const VectorOptions&, const Subjects&, std::ostream& out, std::ostream& err);

void register_vectors(Program&);

}  // namespace assay
