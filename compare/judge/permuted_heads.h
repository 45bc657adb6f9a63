// Attention's heads do not know of one another (N20): with heads of keys moved on by one, and those of
// queries with them, a subject makes the same bytes at the moved places.
#pragma once
#include <vector>

#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// Planes of an attention with every group of heads at the place of the next one. Planes without heads,
// scalars among them, stay; those that stand in the order of a cast are left out.
std::vector<PlaneData> with_moved_heads(const Problem& attention, const std::vector<PlaneData>& planes);

}  // namespace assay
