// Attention's core in the parity matrix: its six casts under a custom recipe against a built-in one, on the
// fused path and in the emulation, over one step or three. A slot may be given a hybrid, which the core takes
// only where it drops the slot.
#pragma once
#include <cstdint>

#include "contract/subject.h"
#include "training/parity/cell.h"
#include "training/parity/differences.h"
#include "training/parity/routes.h"

namespace assay::training {

// The first difference between the two recipes, in the order of the casts; adds the bytes that were looked at
// to `compared`. removed.core_hybrids: the slots that the cell gives hybrids get plain quantizers.
Found compare_attention(const Cell&, const Removed&, Subject&, const Environment&, int64_t& compared);

}  // namespace assay::training
