#include "fast/simt/shared_arena.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "fast/simt/report.h"
#include "fast/simt/sanitizer.h"

namespace assay::simt {

namespace {

constexpr size_t kArenaBytes = 512 * 1024, kPage = 4096;
constexpr size_t kRedZone = 128, kTailZone = 1024;
constexpr unsigned char kPattern = 0xA5;

}  // namespace

size_t SharedArena::bytes() { return kArenaBytes; }

SharedArena::SharedArena() {
  void* p =
      mmap(nullptr, kArenaBytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  arena_ = static_cast<std::byte*>(p) + kPage;  // a page before and after cannot be touched
  if (mprotect(arena_, kArenaBytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  top_ = arena_;
  if (kAsan) poison(arena_, kArenaBytes);
  else std::memset(arena_, kPattern, kArenaBytes);
}

SharedArena::~SharedArena() {
  unpoison(arena_, kArenaBytes);
  munmap(arena_ - kPage, kArenaBytes + 2 * kPage);
}

void SharedArena::begin_block() {
  const size_t dirty = static_cast<size_t>(top_ - arena_);
  if (kAsan) poison(arena_, dirty);
  else if (dirty) std::memset(arena_, kPattern, dirty + kTailZone);
  top_ = arena_;
  used_ = 0;
  arrays_.clear();
}

std::byte* SharedArena::place(size_t bytes, size_t alignment, uint8_t fill, const char* name, Site site) {
  size_t offset = static_cast<size_t>(top_ - arena_) + kRedZone;
  offset = (offset + alignment - 1) / alignment * alignment;
  if (offset + bytes + kTailZone > kArenaBytes) return nullptr;
  std::byte* data = arena_ + offset;
  unpoison(data, bytes);
  std::memset(data, fill, bytes);
  top_ = data + bytes;
  used_ += bytes;
  arrays_.push_back({data, bytes, name, site});
  return data;
}

std::optional<std::string> SharedArena::damage() const {
  if (kAsan) return std::nullopt;
  const std::byte* zone = arena_;
  auto dirty = [&](const std::byte* end) {
    for (; zone < end; ++zone)
      if (*zone != std::byte{kPattern}) return true;
    return false;
  };
  for (const Array& a : arrays_) {
    if (dirty(a.data)) return "written outside " + describe(zone);
    zone = a.data + a.bytes;
  }
  if (!arrays_.empty() && dirty(top_ + kTailZone)) return "written outside " + describe(zone);
  return std::nullopt;
}

std::string SharedArena::describe(const void* p) const {
  const std::byte* b = static_cast<const std::byte*>(p);
  if (b < arena_ - kPage || b >= arena_ + kArenaBytes + kPage) return {};
  const Array* nearest = nullptr;
  ptrdiff_t best = 0;
  for (const Array& a : arrays_) {
    const ptrdiff_t distance = b < a.data              ? a.data - b
                               : b >= a.data + a.bytes ? b - (a.data + a.bytes) + 1
                                                       : 0;
    if (!nearest || distance < best) nearest = &a, best = distance;
  }
  if (!nearest) return "shared memory before any array was reached";
  return "shared array '" + std::string(nearest->name) + "' (" + std::to_string(nearest->bytes) + " bytes, " +
         to_text(nearest->site) + ") at byte offset " + std::to_string(b - nearest->data);
}

}  // namespace assay::simt
