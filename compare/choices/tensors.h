// How large the tensors of a line are.
#pragma once
#include <cstdint>

#include "contract/problem.h"

namespace assay::choices {

// Elements of the largest tensor that the line reads, writes or allocates: of x, of each operand, of the
// scores of an attention. Padding does not count: what rounds scales up to whole tiles has a fixed least
// size.
int64_t largest_tensor(const Problem&);

}  // namespace assay::choices
