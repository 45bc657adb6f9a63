// What a step left behind, by name, as comparisons of two steps ask for it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "training/modules/step.h"

namespace assay::training {

// The GEMMs of one kind, "fprop", "dgrad" or "wgrad", in order: "fc1.dgrad" and "wgrad.2" are of theirs.
std::vector<const GemmRecord*> gemms_of(const StepRecord&, std::string_view kind);
// "output", "dgrad", "weight.grad"; null where a step has no such output.
ArrayPtr output_of(const StepRecord&, std::string_view name);
// What the GEMM "fc2.fprop" gave; null where there was none.
ArrayPtr result_of(const StepRecord&, std::string_view gemm);

std::string to_text(const Collective&);  // "all_reduce of weight over tp"
std::string to_text(const CacheEvent&);  // "weight updated"

}  // namespace assay::training
