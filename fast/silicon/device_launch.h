// One launch on the GPU of this machine, of the memory that the interpreter was given.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fast/ptx/run.h"

namespace assay::silicon {

// What an allocation or a variable of the module holds.
struct Contents {
  std::string name;
  uint64_t base = 0;  // its address in this process
  std::vector<std::byte> bytes;
  std::vector<size_t> addresses;  // offsets of words of 8 bytes that are addresses, which differ on a device
};

// All allocations, and then all variables of the module that lie in global memory. Constants never change.
std::vector<Contents> contents_of(const ptx::Module&, const ptx::Memory&);

// Outcomes that are no bytes: the driver does not take the text (its first error), or the kernel ends in an
// error.
struct Refused {
  std::string why;
};
struct Ended {
  std::string why;
};

// What the GPU makes of `before`. std::runtime_error: there is no GPU. A kernel that runs for 20 seconds ends
// the process, for nothing else ends it: `hanging` is called first.
std::vector<Contents> launch_on_device(ptx::Module&, const std::string& entry, const ptx::Launch&,
                                       std::vector<Contents> before, const std::function<void()>& hanging);

}  // namespace assay::silicon
