// wmma.load and wmma.store (9.7.14.4.3, 9.7.14.4.4) as other instructions. The ISA leaves open where a
// fragment has its elements (9.7.14.4.1); ptxas, for each architecture from sm_80 to sm_120, makes of them a
// load or a store for each matrix of 8x8 elements, and a movmatrix where the layout in memory is not that in
// registers.
#pragma once
#include <vector>

#include "fast/ptx/parts.h"

namespace assay::ptx {

// The instructions that stand for one. Fault: an operand that it does not take.
std::vector<Part> parts_of_wmma(const Opcode&, const std::vector<Operand>&, Names&);

}  // namespace assay::ptx
