// Runs an entry of a PTX module on the CPU, thread for thread. What this room offers to others, with
// module.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fast/ptx/counters.h"
#include "fast/ptx/memory.h"
#include "fast/ptx/module.h"

namespace assay::ptx {

struct Dim {
  unsigned x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// What every GPU that runs PTX here takes at most (CUDA C++ Programming Guide, compute capabilities).
inline constexpr Dim kMostBlocks = {0x7FFFFFFF, 65535, 65535}, kWidestBlock = {1024, 1024, 64};

struct Launch {
  Dim grid, block;
  uint64_t dynamic_shared = 0;
  std::vector<std::byte> parameters;  // laid out as the entry declares them
};

class Recorder;

inline constexpr uint64_t kAsHopper = ~uint64_t{0};

struct RunOptions {
  // Of blocks and of the warps of a block: 0 forward, 1 reverse, 2 and up a seed. Odd ones also let other
  // lanes of a warp run first (schedule.h).
  uint64_t order = 0;
  uint8_t poison = 0x7F;  // fills registers, shared and local memory
  bool count = false;
  bool check = false;  // values that nobody wrote, and races (checks.h)
  // Without checks: a bulk store reads and writes when it is issued, not as late as the text allows.
  bool stores_at_once = false;
  // Likewise: a wgmma is carried out when it is issued, as if a wait stood before whatever accesses its
  // registers.
  bool products_at_once = false;
  // A shuffle may read a lane that takes no part: the ISA leaves the value open, and it counts as never
  // written.
  bool shuffles_any = false;
  // An instruction that names .shared may be given a generic address of shared memory, which the ISA leaves
  // undefined: GPUs take its lower half, and that is the offset (S2UR SR_SWINHI makes the upper one).
  bool generic_as_shared = false;
  // Results for which the ISA gives a bound alone, moved by one place of their last bit, which every bound
  // allows: 0 not at all, 1 toward zero, 2 away from it, 3 and up by a seed. kAsHopper: instead those that an
  // H100 gives, where that is known (hopper_functions.h). Of one PTX line, or, where that is 0, of all.
  uint64_t perturb = 0;
  uint32_t perturb_line = 0;
  Recorder* recorder = nullptr;  // keeps what blocks did, for a slice (slice.h)
  // Run in place of the entry's own kernel, of which it was made (contraction.h).
  const Kernel* in_place = nullptr;
  uint64_t most_instructions = uint64_t{1}
                               << 36;  // of warps, in one launch: beyond it the launch is taken to hang
  double most_seconds = 1e9;           // of this thread's processor time, likewise
};

// Fault: the launch does not fit the entry, or the kernel did something wrong; global memory is then as far
// as it came.
Counters run(Module&, std::string_view entry, const Launch&, const Memory&, const RunOptions& = {});

}  // namespace assay::ptx
