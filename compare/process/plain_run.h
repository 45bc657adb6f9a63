// Runs a Subject on planes that are known to be good, without guard bytes and without poison: for what the
// judge and the diagnosis ask the reference themselves. What is judged goes through guarded_run.h.
#pragma once
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// The planes of output_planes(problem), in that order. `inputs` holds each plane of input_planes(problem), in
// any order, and may hold more. Errors: an input that is missing or has another size, and whatever the
// subject throws.
Result<std::vector<PlaneData>> plain_run(Subject& subject, const Problem& problem,
                                         const std::vector<PlaneData>& inputs);

}  // namespace assay
