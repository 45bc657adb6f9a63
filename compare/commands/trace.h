// `assay trace <line|pack>`: show both sides of one element, clause by clause, and the first step on which
// they part.
#pragma once
#include <iosfwd>
#include <string>

#include "compare/debug/trace.h"
#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

// Prints the table with the first differing row marked. 0: no row differs, but inside the bound of bits that
// are not pinned (N16.13); 1: one does; 2: an error (a subject that is unsupported or crashes, an element
// outside).
int run_trace(const TraceOptions&, const Subjects&, std::ostream& out, std::ostream& err);

// The same of a recorded case, whose bytes stand for the subject: the case called `id`, else the first of the
// pack that differs. A recording has no steps, so its column holds outputs alone. The exit status is that of
// `check` (1 where a case cannot be judged), but with an element that was asked for that of this element.
int run_trace_of_pack(const std::string& path, const std::string& id, const TraceOptions&, const Subjects&,
                      std::ostream& out, std::ostream& err);

void register_trace(Program&);

}  // namespace assay
