// The host executor: runs CUDA kernel text on a CPU, and says what is wrong with it. docs/host-executor.md is
// its manual.
//
// Every CUDA thread that waits (at a barrier, in a warp operation) is a fiber; threads that never wait run as
// plain calls. One OS thread runs one block at a time; blocks are handed out in the order that
// ExecutorOptions names. A worker and its fibers never leave their OS thread, because compilers keep
// addresses of thread-local data across a switch.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

#include "fast/simt/thread.h"

namespace assay::simt {

// How grids are run. Decides no bit of a correct kernel's result.
struct ExecutorOptions {
  enum : uint64_t { kForward = 0, kReverse = 1 };
  int threads = 1;  // OS threads, at least 1
  // Order of threads and blocks: ascending, descending, or (2 and up) a seed. A seed draws an order of
  // blocks, and of the warps and lanes of a block anew at every barrier; equal seeds give equal runs for any
  // number of OS threads.
  uint64_t order = kForward;
  uint8_t poison = 0x7F;  // fills shared memory before a block, and device buffers when they are made
};

// The options in force on this OS thread.
const ExecutorOptions& options();

// Puts options in force on this OS thread until it is destroyed.
class UseOptions {
 public:
  explicit UseOptions(const ExecutorOptions&);
  ~UseOptions();
  UseOptions(const UseOptions&) = delete;
  UseOptions& operator=(const UseOptions&) = delete;

 private:
  ExecutorOptions before_;
};

// A kernel broke a rule. what() names the kernel, the block, the thread, the place in the source and who
// waits where. When several blocks of a grid are at fault, it is the first in the order of the run.
class KernelFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A grid as launch() of fast/launch.h passes it on.
struct Grid {
  const char* name;
  Index3 blocks, threads;
  unsigned dynamic_shared_bytes;
  bool large_shared;
};

// Limits of every GPU that Assay knows; a grid beyond them is a fault.
inline constexpr unsigned kMaxThreads = 1024, kMaxShared = 48 * 1024, kMaxLargeShared = 227 * 1024;

// Calls kernel(closure) once for every thread of the grid. Throws KernelFault. Not callable from within a
// kernel.
void run_grid(const Grid&, void (*kernel)(const void*), const void* closure);

// Grids run by this OS thread so far, and the fiber switches that they took.
uint64_t launches();
uint64_t switches();

}  // namespace assay::simt
