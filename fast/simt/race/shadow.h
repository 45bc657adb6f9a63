// A Cell for every byte of a range of addresses, made when the byte is first touched.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fast/simt/race/access.h"

namespace assay::simt::race {

class Shadow {
 public:
  static constexpr size_t kPage = 4096;  // bytes of memory whose cells are made together

  // Ranges that begin at a page. Forgets everything when the range is another than before.
  void cover(const std::byte* begin, size_t bytes);
  bool holds(const std::byte* p) const { return static_cast<size_t>(p - begin_) < bytes_; }
  // The cell of `p`, whose neighbours lie beside it up to the end of the page. Null when `limit` pages exist
  // and this were one more.
  Cell* cell(const std::byte* p, size_t limit) {
    const size_t page = static_cast<size_t>(p - begin_) / kPage;
    Cell* cells = pages_[page];
    if (!cells) cells = make(page, limit);
    return cells ? cells + static_cast<size_t>(p - begin_) % kPage : nullptr;
  }
  // Forgets the accesses to these bytes.
  void clear(const std::byte* p, size_t bytes);
  void forget();
  size_t pages() const { return made_.size(); }

 private:
  Cell* make(size_t page, size_t limit);
  void release_table();

  const std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
  Cell** pages_ = nullptr;  // one pointer a page; untouched parts of the table take no memory
  std::vector<size_t> made_;
};

}  // namespace assay::simt::race
