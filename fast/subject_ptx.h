// Our kernels as nvcc compiled them, run from their PTX on the CPU, as a Subject named "ptx" (docs/ptx.md).
// Always linkable: without nvcc at build time present() says so.
#pragma once
#include <memory>

#include "contract/subject.h"

namespace assay {

// Environment::architecture says which text is run. Served::by names the entries that were launched and
// counts the instructions of lanes; a run with outputs and no launch throws.
std::unique_ptr<Subject> make_ptx_subject();

}  // namespace assay
