// How far the differences of one plane reach, before any cause is guessed: counts, distances, and a map of
// the tensor.
#pragma once
#include <vector>

#include "compare/diagnosis/diagnosis.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// In every function of this folder `got` and `want` are one output plane of `problem` (of a split's member:
// the member's line), of equal geometry. Padding is not looked at. The functions are pure, they calculate
// with the judge's own arithmetic alone, and their results do not depend on the number of threads.

// Counts and distances. `inputs` and `got_all` are the case's input planes and the observed outputs. From
// them and compare/arithmetic/expected_values.h come the values that were rounded. Where these cannot be had
// (no x, no scales, a rotation, another plane than data) tie_distance is empty. At most 12 buckets each.
PlaneSummary summarize(const Problem& problem, const PlaneData& got, const PlaneData& want,
                       const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& got_all);

// Where the differences lie in the tensor. Tiles cover powers of two of elements. A scale counts once, in the
// tile where its block begins.
HeatMap heat_map(const Problem& problem, const PlaneData& got, const PlaneData& want);

}  // namespace assay
