#include "fast/simt/race/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace assay::simt::race {

namespace {

void drop(Cell& c) {
  delete c.more;
  c = {};
}

}  // namespace

void Shadow::cover(const std::byte* begin, size_t bytes) {
  if (begin == begin_ && bytes == bytes_) return;
  release_table();
  begin_ = begin;
  bytes_ = bytes;
  if (bytes == 0) return;
  const size_t table = (bytes + kPage - 1) / kPage * sizeof(Cell*);
  void* p = mmap(nullptr, table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<Cell**>(p);
}

Cell* Shadow::make(size_t page, size_t limit) {
  if (made_.size() >= limit) return nullptr;
  Cell* cells = static_cast<Cell*>(std::calloc(kPage, sizeof(Cell)));
  if (!cells) throw std::bad_alloc();
  made_.push_back(page);
  return pages_[page] = cells;
}

void Shadow::clear(const std::byte* p, size_t bytes) {
  for (const std::byte* end = p + bytes; p < end;) {
    const size_t offset = static_cast<size_t>(p - begin_) % kPage,
                 here = std::min(kPage - offset, static_cast<size_t>(end - p));
    if (Cell* cells = pages_[static_cast<size_t>(p - begin_) / kPage])
      for (size_t i = 0; i < here; ++i) drop(cells[offset + i]);
    p += here;
  }
}

void Shadow::forget() {
  for (const size_t page : made_) {
    for (size_t i = 0; i < kPage; ++i) delete pages_[page][i].more;
    std::free(pages_[page]);
    pages_[page] = nullptr;
  }
  made_.clear();
}

void Shadow::release_table() {
  forget();
  if (pages_) munmap(pages_, (bytes_ + kPage - 1) / kPage * sizeof(Cell*));
  pages_ = nullptr;
}

}  // namespace assay::simt::race
