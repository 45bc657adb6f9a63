// `assay check --coherence <pack>...`: rows against columns of each case, without the tensor that both were
// made from.
#pragma once
#include <iosfwd>

#include "compare/packs/dump.h"

namespace assay {

// Every case in dump order, in the style of run_check. Cases of one direction or another op are skipped. Exit
// status: 0; 1 a case is not coherent, or has no valid line; 3 nothing could be judged.
int run_coherence(const Dump&, std::ostream& out);

}  // namespace assay
