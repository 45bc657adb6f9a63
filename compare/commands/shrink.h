// `assay shrink <line>`: the smallest line that still fails in the same way, and the nearest one that passes.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>

#include "compare/debug/shrink.h"
#include "compare/process/guarded_run.h"

namespace assay {

struct Program;

struct ShrinkCommandOptions : ShrinkOptions {
  std::string reproducer;  // a folder that receives a pack and a C++ program; empty: none
  bool progress = false;   // a line on err that is rewritten; for terminals
};

// Prints both lines with the failure of the first, and writes the reproducer (compare/debug/reproducer.h). 0
// when the line was shrunk, whatever its failure; 2 where shrink gives an error or the reproducer cannot be
// written; 3: the subject is absent.
int run_shrink(const ShrinkCommandOptions&, const Subjects&, std::ostream& out, std::ostream& err);

// Writes options.reproducer: what both sides make of a line that fails.
std::optional<Error> reproduce(const ShrinkCommandOptions&, const Subjects&, const Problem& bad);

void register_shrink(Program&);

}  // namespace assay
