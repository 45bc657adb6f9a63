// What kernel text sees of the executor: the running thread, and the few operations on which it may wait.
// fast/simt/cuda_words.h gives them their CUDA names.
#pragma once
#include <cstddef>
#include <cstdint>

namespace assay::simt {

struct Index3 {
  unsigned x, y, z;
};

// A place in the source. As a default argument, the place of the call.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// A CUDA thread as its kernel sees it.
struct Thread {
  Index3 index;     // threadIdx
  unsigned linear;  // within the block
  unsigned warp, lane;
};

// A block as its kernel sees it.
struct Block {
  Index3 index, threads, blocks;  // blockIdx, blockDim, gridDim
  uint64_t serial;                // differs between any two blocks that one OS thread runs; never 0
  const char* kernel;             // its name
};

// The CUDA thread and the block that run on this OS thread; `current` is null outside kernels.
extern constinit thread_local Thread* current;
extern constinit thread_local Block current_block;

// Reports that the running kernel broke a rule: throws KernelFault with `what`, the thread, the place and who
// waits where. Outside kernels, KernelFault with `what` and the place.
[[noreturn]] void fault(const char* what, Site);

// __syncthreads and its kin. Returns the number of threads whose predicate held.
enum class BarrierOp : uint8_t { sync, count, all, any };
unsigned barrier(BarrierOp, bool predicate, Site);

// One meeting of the lanes named by a mask. Each gives up to 8 bytes and sees what all gave.
enum class WarpOp : uint8_t {
  sync,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  any,
  all,
  match_any,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_and,
  reduce_or,
  reduce_xor
};
struct Meeting {
  const uint64_t* values;  // by lane; valid until the thread's next meeting
  uint32_t lanes;          // that took part: those of the mask that had not exited
};
// `bytes` is the size of the operand; lanes must agree on it, on the operation and on the mask.
Meeting meet(WarpOp, unsigned bytes, uint32_t mask, uint64_t value, Site);

// One static shared array. The slot remembers where it lies in the block that runs.
struct SharedSlot {
  uint64_t serial;
  void* data;
};
void* place_shared(SharedSlot&, size_t bytes, size_t alignment, const char* name, Site);
inline void* shared_array(SharedSlot& slot, size_t bytes, size_t alignment, const char* name,
                          Site site = Site::here()) {
  return __builtin_expect(slot.serial == current_block.serial, 1)
             ? slot.data
             : place_shared(slot, bytes, alignment, name, site);
}
// The dynamic shared memory of the block, 128-byte aligned.
void* dynamic_shared(Site = Site::here());

}  // namespace assay::simt
