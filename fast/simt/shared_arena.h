// The shared memory of one block. Arrays are carved out where they are first reached, with red zones around
// them: poisoned under AddressSanitizer, otherwise filled with a pattern that is checked when the block ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fast/simt/thread.h"

namespace assay::simt {

class SharedArena {
 public:
  SharedArena();
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // Forgets all arrays.
  void begin_block();
  // Room for an array, filled with `fill`; null when the arena is full.
  std::byte* place(size_t bytes, size_t alignment, uint8_t fill, const char* name, Site);
  // Where the arrays are placed.
  const std::byte* begin() const { return arena_; }
  static size_t bytes();
  // Bytes placed since begin_block, without red zones.
  size_t used() const { return used_; }
  // Which red zone was written since begin_block, or nothing. Finds nothing under AddressSanitizer, which
  // reports at once.
  std::optional<std::string> damage() const;
  // "shared array 'tile' (9216 bytes), offset 9300", or an empty string when `p` is not in the arena.
  std::string describe(const void* p) const;

 private:
  struct Array {
    std::byte* data;
    size_t bytes;
    const char* name;
    Site site;
  };

  std::byte* arena_;
  std::byte* top_;  // end of the last array
  size_t used_ = 0;
  std::vector<Array> arrays_;
};

}  // namespace assay::simt
