// The barrier objects that lie in shared memory (mbarrier, 9.7.13.15). A phase is complete when as many
// arrivals have come as the object was initialised with, and as many bytes as were expected of copies. An
// arrival orders what its lane did before; whoever has been told that a phase is complete is ordered behind
// it.
//
// The eight bytes of an object hold its state, so that a store over it is noticed by the next instruction
// that comes to it: bits 0 to 2 the number of the phase, 3 to 22 the arrivals to come, 23 to 42 those of a
// phase, 43 to 63 the bytes to come. What arrive gives to test_wait is this state.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "fast/ptx/machine.h"

namespace assay::ptx {

inline constexpr unsigned kMbarrierBytes = 8;

// What Instruction::code of an mbarrier instruction is made of.
enum MbarrierFlags : uint32_t {
  kCounted = 1,     // an operand gives how many arrive
  kExpects = 2,     // bytes are expected
  kDrops = 4,       // arrivals of later phases are given up too
  kNeverLast = 8,   // .noComplete
  kUnordered = 16,  // .relaxed
  kByParity = 32,
  kCompletes = 64,  // complete_tx
  kForeseen = 128   // .noinc: the count of the object has a place for the arrival
};

// Handlers. Fault: no mbarrier there, one that was written over, counts out of range, more arrivals than are
// missing, a phase that is neither this one nor the one before.
void begin_mbarrier(Warp&, const Instruction&);
void end_mbarrier(Warp&, const Instruction&);
void count_bytes(Warp&, const Instruction&);
void arrive_at_mbarrier(Warp&, const Instruction&);
void ask_mbarrier(Warp&, const Instruction&);  // Warp::passed: the lanes whose phase was complete
void pending_arrivals(Warp&, const Instruction&);
void arrive_behind_copies(Warp&, const Instruction&);  // becomes one of Warp::copies

// The object at a shared offset, for an instruction of one lane. Fault: as above.
Mbarrier& mbarrier_at(Warp&, const Instruction&, unsigned lane, uint64_t offset);
// All copies of a lane have come that an arrival waited for. Fault: as above.
void arrive_now(Warp&, const Instruction&, unsigned lane, uint64_t offset);
// Bytes of a copy have come. Fault: as above.
void complete_bytes(Warp&, const Instruction&, unsigned lane, uint64_t offset, uint64_t bytes);
// An object that some of these bytes of shared memory belong to.
std::optional<uint64_t> overlapped(const Block&, uint64_t offset, uint64_t bytes);
// What a lane waits for that asks in vain, in words: "at the mbarrier at shared offset 0, phase 1, where ..".
std::string held_by(const Warp&, const Instruction&, int lane);

}  // namespace assay::ptx
