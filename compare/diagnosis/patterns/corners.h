// Where the elements of a plane stand in the tensor.
#pragma once
#include <cstdint>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"

namespace assay::patterns {

// The corner of what each element of a plane belongs to: itself, a block, the whole tensor.
struct Corners {
  std::vector<int64_t> row, col;  // of the plane's logical elements, row by row
  int64_t rows = 1, cols = 1;     // of the tensor
};
Corners corners_of(const Problem& problem, const Plane& plane);

}  // namespace assay::patterns
