// What the race checker remembers: one access, and the accesses to one byte that still matter.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay::simt::race {

// An atomic that reads and writes counts as a write.
enum class Kind : uint8_t { read, write, atomic_read, atomic_write };
constexpr bool writes(Kind k) { return k == Kind::write || k == Kind::atomic_write; }
constexpr bool atomic(Kind k) { return k == Kind::atomic_read || k == Kind::atomic_write; }

struct Access {
  uint32_t block;   // its number among all blocks that this process ever ran; 0: no access
  uint32_t clock;   // of the thread when it made the access
  uint32_t place;   // in the program: an offset for source_lines()
  uint16_t thread;  // within the block
  uint8_t bytes;    // kManyBytes: that many or more
  Kind kind;
};
inline constexpr uint8_t kManyBytes = 255;

// Two relaxed atomics do not conflict where they touch the same bytes: being aligned, those of one size do.
constexpr bool conflict(const Access& a, const Access& b) {
  return (writes(a.kind) || writes(b.kind)) && !(atomic(a.kind) && atomic(b.kind) && a.bytes == b.bytes);
}

// One byte of shared or device memory. Two accesses are the rule; `more` holds the rest.
struct Cell {
  Access held[2];
  std::vector<Access>* more;
};

}  // namespace assay::simt::race
