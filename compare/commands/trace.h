// `assay trace <line>`: both sides clause by clause for one element, and the first step on which they part.
#pragma once
#include <iosfwd>

#include "compare/debug/trace.h"
#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

// Prints the table with the first differing row marked. 0: no row differs, but inside the bound of bits that
// are not pinned (N16.13); 1: one does; 2: an error (a subject that is unsupported or crashes, an element
// outside).
int run_trace(const TraceOptions&, const Subjects&, std::ostream& out, std::ostream& err);

void register_trace(Program&);

}  // namespace assay
