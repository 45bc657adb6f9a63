// A block while it runs: its warps with their registers, its shared memory, and what handlers see of the
// launch.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fast/ptx/counters.h"
#include "fast/ptx/kernel.h"
#include "fast/ptx/memory.h"
#include "fast/ptx/run.h"

namespace assay::ptx {

struct Block;
struct Warp;

// Lanes of one warp that stand at one instruction.
struct Group {
  uint32_t pc = 0, lanes = 0;
};

// A copy that lanes of a warp have issued and that has not arrived (copies.h); or an arrival at mbarriers
// that comes when all copies before it have (cp.async.mbarrier.arrive), with `to` as the places of those.
struct Copy {
  const Instruction* instruction = nullptr;
  uint32_t lanes = 0, whole = 0;          // whose copy is still to come; who reads all that it writes
  std::array<uint8_t, kLanes> given{};    // bytes that each reads; zeros follow them
  std::array<uint64_t, kLanes> to, from;  // addresses in shared and in global memory
  std::array<uint32_t, kLanes> group;     // groups that the lane had closed
  bool at_mbarrier = false;
};

// Bytes of a bulk copy that lie side by side on both sides; those of zeros come from nowhere.
struct BulkPiece {
  uint64_t shared = 0, global = 0;
  uint32_t bytes = 0;
  bool zero = false;
};
// A bulk copy that a lane has issued and that has not arrived (bulk.h).
struct BulkCopy {
  const Instruction* instruction = nullptr;
  Warp* warp = nullptr;
  unsigned lane = 0;
  bool to_shared = false;
  uint64_t mbarrier = 0, bytes = 0;  // which learns that so many have come
  uint32_t group = 0;                // bulk groups that the lane had closed
  uint32_t number = 0;               // among those of its thread, for the race checker
  std::vector<BulkPiece> pieces;
};

// A wgmma that a warp has issued and not carried out (wgmma.h).
struct PendingProduct {
  const Instruction* instruction = nullptr;
  uint64_t a = 0, b = 0;  // descriptors
  bool adds = false;
  uint32_t group = 0;   // groups that the warp had closed
  uint32_t number = 0;  // among those of its warp, for the race checker
};
// What the four warps of a group have issued: each must issue the same in the same order.
struct Warpgroup {
  std::vector<PendingProduct> products;
  std::array<size_t, 4> of_warp{};
};

// An mbarrier object in shared memory (mbarriers.h).
struct Mbarrier {
  uint32_t expected = 0, pending = 0;  // arrivals of each phase; those of this one that are still to come
  int64_t bytes = 0;                   // that are still to come: the transaction count
  uint64_t phase = 0;                  // the one that is not complete
  uint32_t line = 0;                   // of the PTX text that initialised it
};

// A register file: registers of 32 lanes with 4 or 8 bytes each, and predicates of one word each.
struct Warp {
  uint32_t* words = nullptr;
  uint32_t* predicates = nullptr;
  uint32_t active = 0;  // the lanes of the current instruction
  uint32_t carry = 0;   // CC.CF of each lane (9.7.2)
  // How long lanes have run while others of the warp were ready elsewhere, and when each lane ran last.
  uint32_t apart = 0;
  bool out_of_turn = false;  // those that run now had waited for longest
  uint64_t runs = 0;
  std::array<uint64_t, kLanes> ran{};
  uint32_t live = 0;  // lanes that have not left
  unsigned index = 0;
  Block* block = nullptr;
  std::vector<Group> ready;      // by falling pc
  std::vector<Group> meeting;    // wait for the others of a *.sync
  std::vector<Group> parked;     // at an aligned barrier, until the whole warp has come
  std::vector<Group> arrived;    // wait for a barrier to complete
  std::vector<Group> stalled;    // asked an mbarrier whose phase was not complete; go on behind that
  std::vector<uint32_t> asked;   // the instructions that did since then
  uint64_t stalled_at = 0;       // Block::phases at that time
  uint32_t passed = 0;           // lanes of the last such question whose phase was complete
  std::vector<std::byte> local;  // lane by lane
  std::vector<Copy> copies;      // in the order in which they were issued
  std::array<uint32_t, kLanes> closed_groups{}, closed_bulk_groups{};
  std::vector<PendingProduct> products;  // in the order in which they were issued
  uint32_t closed_products = 0;          // groups of them
  int speaks_for = -1;                   // the lane whose copy the lanes carry out: errors name it
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
  std::vector<std::byte> registers;  // of all warps
  std::vector<Warp> warps;
  std::map<uint64_t, Mbarrier> mbarriers;  // by their offsets in shared memory
  std::vector<BulkCopy> bulk;              // in the order in which they were issued
  std::map<unsigned, Warpgroup> warpgroups;
  uint64_t perturb = 0;
  uint32_t perturb_line = 0;
  bool stores_at_once = false, products_at_once = false, shuffles_any = false,
       generic_as_shared = false;  // as RunOptions say
  uint64_t phases = 0;             // that were completed, of all of them
  std::vector<uint64_t> unpinned;  // lanes, by instruction
  uint64_t lane_instructions = 0;
  // The allocations that were used last, so that most accesses need no search.
  Allocation last_load, last_store;
};

// Throws the Fault of one lane: kernel, block, thread, what happened, source line and PTX line.
[[noreturn]] void fail(const Warp&, const Instruction&, int lane, const std::string& what);

// The bytes of an access of one lane, which is in bounds, aligned and allowed; a Fault otherwise.
std::byte* resolve(Warp&, const Instruction&, int lane, uint64_t address, unsigned bytes, bool write);
// The offset in shared memory of an address that an instruction with .shared is given: itself, or the lower
// half of a generic one where RunOptions::generic_as_shared allows it; a Fault otherwise.
uint64_t shared_offset(Warp&, const Instruction&, int lane, uint64_t address);
// The space of an access, whose address becomes one in it.
Space located(const Instruction&, uint64_t& address);

}  // namespace assay::ptx
