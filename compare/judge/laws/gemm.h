// The law of products.
#pragma once
#include "compare/judge/laws/record.h"

namespace assay {

// d lies between the casts of the bound's ends (N16.10, N16.13); where nothing is rounded there is one value
// (N16.11).
void check_gemm(LawRecord& laws);

}  // namespace assay
