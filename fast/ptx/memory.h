// The memory that a launch may reach. Global memory is the host's own: a register holds a host address, so
// that pointers inside structs work.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace assay::ptx {

// Where the generic addresses of shared and local memory and of parameters lie: no process of Linux maps
// anything there (6.4.2).
inline constexpr uint64_t kSharedWindow = 0x7E0000000000ull, kLocalWindow = 0x7F0000000000ull,
                          kParameterWindow = 0x7D0000000000ull, kWindowBytes = 0x1000000ull;
// What one block may have on the devices that are modelled.
inline constexpr uint64_t kMostShared = 227 * 1024;

struct Allocation {
  uint64_t base = 0, bytes = 0;
  std::string name, id;  // the id tells allocations of one name apart: "scratch", "scratch#2"
  bool writable = true;
  // 1 for each byte that was written; none where all of it counts as written.
  std::shared_ptr<std::vector<uint8_t>> written;
};

class Memory {
 public:
  // `written`: false where nothing was written to it yet, so that a kernel may not count on what it reads
  // there.
  void add(const void* data, size_t bytes, std::string name, bool writable = true, bool written = true);
  // What was added at this address is reachable no more.
  void remove(const void* data);
  // By their first addresses.
  const std::map<uint64_t, Allocation>& allocations() const { return by_base_; }
  // The allocation of this id, or null.
  const Allocation* named(const std::string& id) const;
  // The allocation that holds all of [address, address + bytes), or null.
  const Allocation* holding(uint64_t address, uint64_t bytes) const;
  // Where an address lies: "'x' (512 bytes), offset 4"; where no allocation holds it, nearest().
  std::string place(uint64_t address) const;
  // The allocation that begins nearest below the address, else the first above it, in words: for errors.
  std::string nearest(uint64_t address) const;

 private:
  std::map<uint64_t, Allocation> by_base_;
  std::map<std::string, uint32_t> times_;  // that a name was added
};

}  // namespace assay::ptx
