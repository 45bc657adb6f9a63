// Launches of fast/nvfp4_rotated.cu: BF16, columns a multiple of 8, rows of 16, blocks of 16, neither empty.
// x is 16-byte, the columns' data 8-byte and the rows' 4-byte aligned.
#pragma once
#include "fast/choose.h"
#include "fast/move/nvfp4_pair.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Raises *row (where not null) to the amax of x, and *col to that of the rotated columns (N11.4).
void launch_nvfp4_rotated_amax(const Nvfp4PairArgs& args, uint32_t* row, uint32_t* col);

// Quantizes rows (where args.row.data is not null) and rotated columns by the amaxes that args name. `drawn`:
// both by stochastic rounding.
void launch_nvfp4_rotated(const Nvfp4PairArgs& args, bool drawn);

}  // namespace assay::ASSAY_FAST_NAMESPACE
