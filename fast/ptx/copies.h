// Copies from global to shared memory that arrive later (cp.async, 9.7.9.25.3). Each arrives as late as the
// text allows, when its lane waits for it or leaves, or when nobody in the block can go on without the
// mbarrier that hears of it (cp.async.mbarrier.arrive). What it does then are instructions that stand behind
// the end of the kernel's code: a load, a move of zeros, a store (Kernel::Arrival).
#pragma once
#include <cstdint>

#include "fast/ptx/machine.h"

namespace assay::ptx {

// Handlers: issue a copy, close a group, wait until no more than Instruction::code groups are left, wait for
// everything. Fault: a source size beyond the whole; what the accesses throw.
void issue_copy(Warp&, const Instruction&);
void close_group(Warp&, const Instruction&);
void wait_for_groups(Warp&, const Instruction&);
void wait_for_all(Warp&, const Instruction&);
// One instruction for these lanes, with what watches it around it.
void carry_out(Warp&, const Instruction&, uint32_t lanes);
// Lets the copies arrive that an arrival at an mbarrier waits for, and then that arrival, of the first warp
// that has one, or of the last. False: none has.
bool deliver_copies(Block&, bool last);
// The copies of lanes that leave arrive.
void finish_copies(Warp&, uint32_t lanes);

}  // namespace assay::ptx
