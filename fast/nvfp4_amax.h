// The amax of a tensor that NVFP4 goes by, of fast/formats/nvfp4.cu.
#pragma once
#include "fast/table.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// Clears *row and *col (where not null) and raises them to the amax of x (N10.1).
void launch_nvfp4_amax(const Job&, uint32_t* row, uint32_t* col);

}  // namespace assay::ASSAY_FAST_NAMESPACE
