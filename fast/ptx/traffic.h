// Counts what the lanes of a warp ask of memory (counters.h).
#pragma once
#include <array>
#include <cstdint>
#include <unordered_map>

#include "fast/ptx/machine.h"

namespace assay::ptx {

// Distinct numbers: of sectors of 32 bytes, and of addresses that atomics reach.
class Sectors {
 public:
  void insert(uint64_t sector) {
    const uint64_t page = sector / kInPage;
    if (page != last_page_) last_page_ = page, last_ = &pages_[page];
    (*last_)[sector % kInPage / 64] |= uint64_t{1} << sector % 64;
  }
  uint64_t count() const;

 private:
  static constexpr uint64_t kInPage = 512;
  using Page = std::array<uint64_t, kInPage / 64>;
  std::unordered_map<uint64_t, Page> pages_;
  uint64_t last_page_ = ~uint64_t{0};
  Page* last_ = nullptr;
};

struct TouchedSectors {
  Sectors read, written;
  Sectors atomic;  // addresses, in bytes
};

// A load, store or atomic of the active lanes; `addresses` are those of all lanes.
void count_access(Warp&, const Instruction&, const uint64_t* addresses, unsigned bytes, bool read,
                  bool write);
// Rows of 16 bytes in shared memory, eight to a matrix: ldmatrix and stmatrix.
void count_rows(Warp&, const Instruction&, const uint64_t* addresses, unsigned rows);

}  // namespace assay::ptx
