// Recordings of tensor cores as cases of the op gemm. A file has a and b [rows, k] and c and d [rows] (F32):
// d is what one step of k products gave, from c. k is at most the length of the step (N16.4).
#pragma once
#include <string_view>
#include <vector>

#include "compare/witness/vectors/check.h"
#include "contract/result.h"
#include "fixtures/safetensors.h"

namespace assay {

inline constexpr std::string_view kTensorCoreFamily = "tensor_core";

// The rows, some dozens to a gemm of as many rows and columns, of which the diagonal is compared; FP8 under
// both of its sums. A c that is not zero is the sum of a step of its own before the recorded one: of pieces
// that are codes, and exact. Errors: tensors that are missing or do not fit each other, an element of no
// tensor core, a c that is no sum of codes.
Result<std::vector<VectorCheck>> tensor_core_checks(const safetensors::File&);

}  // namespace assay
