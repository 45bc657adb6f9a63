// The slice behind a stored value: the instructions that made it and the values they gave, back to what was
// loaded from memory that no launch writes, through registers, shuffles, shared, local and global memory. It
// follows values alone: not the addresses they are found at, nor the branches and guards that led there, nor
// the carry of add.cc. Of a maximum, a minimum or a selection it follows the operand that was taken (flow.h).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fast/ptx/recorder.h"

namespace assay::ptx {

struct SliceStep {
  uint32_t launch = 0;  // in the run, from 0
  std::string kernel;
  Dim block;
  unsigned thread = 0;
  std::string text;   // the instruction as it stands in the PTX, without its guard
  uint32_t line = 0;  // of the PTX
  SourceLine source;  // an empty file where there is no .loc
  Type type = Type::b32;
  bool predicate = false;
  uint64_t value = 0;  // what it wrote: a register, or memory
  std::string memory;  // of loads, stores and atomics of global memory: the allocation
  uint64_t offset = 0;
  bool stores = false, loads = false;
};

// `run_all` launches everything once with the recorder, always in the same way. The slice of the bits
// [bit, bit + bits) of an allocation that it writes, in the order of execution; empty where no launch writes
// them.
std::vector<SliceStep> slice_behind(const std::function<void(Recorder&)>& run_all,
                                    const std::string& allocation, uint64_t bit, unsigned bits);

}  // namespace assay::ptx
