// How many blocks of a launch an SM holds at once.
#pragma once
#include <cstdint>
#include <string>

namespace assay::model {

// What ptxas says of a kernel.
struct Compiled {
  int registers = 0;                      // of a thread
  int stack = 0;                          // bytes of a thread
  int spill_stores = 0, spill_loads = 0;  // bytes
  uint64_t static_shared = 0;             // bytes of a block
};

struct Occupancy {
  int blocks = 0;     // of an SM
  std::string limit;  // what allows no more: "registers", "shared memory", "threads", "blocks"
};

// For blocks of `threads` threads that also ask for `dynamic_shared` bytes. Registers are given to whole
// warps in units of 256, a quarter of them to each scheduler; a block's shared memory takes 1 KiB more
// (CUDA C++ Programming Guide, technical specifications). 0 blocks: the launch does not fit.
Occupancy occupancy(const Compiled&, int threads, uint64_t dynamic_shared);

}  // namespace assay::model
