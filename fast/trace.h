// One element's computation step by step, from the lanes that the kernels use. Host build only; serves both
// subjects.
#pragma once
#include <span>
#include <vector>

#include "contract/subject.h"

namespace assay::fast_host {

// The steps to the element at tensor coordinates (row, col) in direction d; of a gemm, which has none, to
// d(row, col). Empty for ops without elements (update, swizzle), for the sums that no kernel has, and where
// (row, col) lies outside the tensor.
std::vector<TraceStep> trace(const Problem&, std::span<const ConstBuffer> inputs, Direction d, int64_t row,
                             int64_t col);

}  // namespace assay::fast_host
