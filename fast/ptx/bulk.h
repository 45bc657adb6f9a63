// Bulk copies between global and shared memory (9.7.9.25.4, 9.7.9.25.5): of bytes that lie side by side, or
// of a box of a tensor. What they bring arrives as late as the text allows: at an mbarrier, when nobody in
// the block can go on without it; of a bulk group, when its lane waits for the group, or at once under
// RunOptions::stores_at_once.
#pragma once
#include "fast/ptx/machine.h"

namespace assay::ptx {

// Handlers. Fault: addresses and sizes that are no multiples of what they must be, or outside; no tensor map;
// no mbarrier; what a copy races with.
void issue_bulk(Warp&, const Instruction&);
void close_bulk_group(Warp&, const Instruction&);
void wait_for_bulk_groups(Warp&, const Instruction&);

// Lets one copy arrive that an mbarrier waits for: that which was issued first, or last. False: there is
// none.
bool deliver_bulk(Block&, bool last);
// The block is at its end. Fault, where checks are on: a load that nobody waited for.
void finish_bulk(Block&);

}  // namespace assay::ptx
