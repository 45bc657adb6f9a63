// A block while it runs: its warps with their registers, its shared memory, and what handlers see of the
// launch.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fast/ptx/counters.h"
#include "fast/ptx/kernel.h"
#include "fast/ptx/memory.h"
#include "fast/ptx/run.h"

namespace assay::ptx {

struct Block;

// Lanes of one warp that stand at one instruction.
struct Group {
  uint32_t pc = 0, lanes = 0;
};

// A copy that lanes of a warp have issued and that has not arrived (copies.h).
struct Copy {
  const Instruction* instruction = nullptr;
  uint32_t lanes = 0, whole = 0;          // whose copy is still to come; who read memory and not zeros
  std::array<uint64_t, kLanes> to, from;  // addresses in shared and in global memory
  std::array<uint32_t, kLanes> group;     // groups that the lane had closed
};

// A register file: registers of 32 lanes with 4 or 8 bytes each, and predicates of one word each.
struct Warp {
  uint32_t* words = nullptr;
  uint32_t* predicates = nullptr;
  uint32_t active = 0;  // the lanes of the current instruction
  uint32_t carry = 0;   // CC.CF of each lane (9.7.2)
  uint32_t live = 0;    // lanes that have not left
  unsigned index = 0;
  Block* block = nullptr;
  std::vector<Group> ready;      // by falling pc
  std::vector<Group> meeting;    // wait for the others of a *.sync
  std::vector<Group> parked;     // at an aligned barrier, until the whole warp has come
  std::vector<Group> arrived;    // wait for a barrier to complete
  std::vector<std::byte> local;  // lane by lane
  std::vector<Copy> copies;      // in the order in which they were issued
  std::array<uint32_t, kLanes> closed_groups{};
  std::vector<uint32_t> storage;
};

// One instruction that several groups of a warp carry out together: each part has its own registers.
struct Meeting {
  struct Part {
    const Instruction* instruction;
    uint32_t lanes;
  };
  std::array<Part, kLanes> parts;
  size_t count = 0;
  uint32_t lanes = 0;
};

class Checks;
class Recorder;
struct TouchedSectors;

struct Block {
  const Kernel* kernel = nullptr;
  const Launch* launch = nullptr;
  const Memory* memory = nullptr;
  Checks* checks = nullptr;  // null: nothing is checked beyond single accesses
  Recorder* recorder = nullptr;
  Counters* counters = nullptr;       // null: nothing is counted but what is not pinned
  TouchedSectors* sectors = nullptr;  // where there are counters (traffic.h)
  InstructionCounters& counted(const Instruction& i) const {
    return counters->by_instruction[static_cast<size_t>(&i - kernel->code.data())];
  }
  Dim index;
  unsigned threads = 0, live_threads = 0;
  std::vector<std::byte> shared;
  std::vector<Warp> warps;
  std::vector<uint64_t> unpinned;  // lanes, by instruction
  uint64_t lane_instructions = 0;
  // The allocations that were used last, so that most accesses need no search.
  Allocation last_load, last_store;
};

// Throws the Fault of one lane: kernel, block, thread, what happened, source line and PTX line.
[[noreturn]] void fail(const Warp&, const Instruction&, int lane, const std::string& what);

// The bytes of an access of one lane, which is in bounds, aligned and allowed; a Fault otherwise.
std::byte* resolve(Warp&, const Instruction&, int lane, uint64_t address, unsigned bytes, bool write);
// The space of an access, whose address becomes one in it.
Space located(const Instruction&, uint64_t& address);

}  // namespace assay::ptx
