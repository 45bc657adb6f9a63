// Coordinates of the tensor that tell where the differences of one plane lie.
#pragma once
#include <vector>

#include "compare/diagnosis/diagnosis.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// The coordinates that explain clearly more than chance would, at most 6, sorted by the information they
// give. Differences of one block count as one where a coordinate cannot part them. Empty: the differences are
// spread over the tensor as far as coordinates tell. What `got` and `want` are is said in
// compare/diagnosis/patterns/summaries.h.
std::vector<Coordinate> coordinates(const Problem& problem, const PlaneData& got, const PlaneData& want);

}  // namespace assay
