// The memory that a launch may reach. Global memory is the host's own: a register holds a host address, so
// that pointers inside structs work.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace assay::ptx {

// Where the generic addresses of shared and local memory lie: no process of Linux maps anything there
// (6.4.2).
inline constexpr uint64_t kSharedWindow = 0x7E0000000000ull, kLocalWindow = 0x7F0000000000ull,
                          kWindowBytes = 0x1000000ull;
// What one block may have on the devices that are modelled.
inline constexpr uint64_t kMostShared = 227 * 1024;

struct Allocation {
  uint64_t base = 0, bytes = 0;
  std::string name;
  bool writable = true;
};

class Memory {
 public:
  void add(const void* data, size_t bytes, std::string name, bool writable = true);
  // The allocation that holds all of [address, address + bytes), or null.
  const Allocation* holding(uint64_t address, uint64_t bytes) const;
  // The allocation that begins nearest below the address, else the first above it, in words: for errors.
  std::string nearest(uint64_t address) const;

 private:
  std::map<uint64_t, Allocation> by_base_;
};

}  // namespace assay::ptx
