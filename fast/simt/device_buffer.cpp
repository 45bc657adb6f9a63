#include "fast/simt/device_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fast/simt/executor.h"
#include "fast/simt/report.h"
#include "fast/simt/sanitizer.h"

namespace assay::simt {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kWindowBytes = size_t{64} << 30;  // of address space; memory is taken only where touched
constexpr size_t kKeepBytes = size_t{64} << 20;    // larger slots give their memory back when released
constexpr size_t kFrontZone = 256;
constexpr unsigned char kPattern = 0xA5;

}  // namespace

// A run of pages that may be touched, followed by one that may not (as the page before it: the end of the
// slot before).
struct DeviceSlot {
  std::byte* pages = nullptr;
  size_t bytes = 0;
  std::byte* data = nullptr;  // of the buffer that lies here, or lay here last
  size_t size = 0;
  bool live = false;
  std::string name;

  std::byte* end() const { return pages + bytes; }
  std::byte* front() const { return data - std::min<size_t>(kFrontZone, static_cast<size_t>(data - pages)); }
};

namespace {

struct Window {
  std::mutex mutex;
  std::byte* base = nullptr;
  size_t top = kPage;
  std::deque<DeviceSlot> slots;
  std::map<size_t, std::vector<DeviceSlot*>> free;  // by size in bytes

  DeviceSlot* acquire(size_t bytes) {
    std::lock_guard lock(mutex);
    std::vector<DeviceSlot*>& same = free[bytes];
    if (!same.empty()) {
      DeviceSlot* slot = same.back();
      same.pop_back();
      return slot;
    }
    if (!base) {
      void* p = mmap(nullptr, kWindowBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) throw std::bad_alloc();
      base = static_cast<std::byte*>(p);
    }
    if (bytes > kWindowBytes || top + bytes + kPage > kWindowBytes) throw std::bad_alloc();
    std::byte* pages = base + top;
    if (mprotect(pages, bytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    top += bytes + kPage;
    DeviceSlot& slot = slots.emplace_back();
    slot.pages = pages;
    slot.bytes = bytes;
    return &slot;
  }
};

// Never destroyed: buffers with static storage may outlive any order of destruction.
Window& window() {
  static Window* w = new Window;
  return *w;
}

// Reads bytes that are poisoned under AddressSanitizer, hence not sanitized.
__attribute__((no_sanitize("address"))) const std::byte* first_written(const std::byte* p,
                                                                       const std::byte* end) {
  for (; p < end; ++p)
    if (*p != std::byte{kPattern}) return p;
  return nullptr;
}

std::string describe(const DeviceSlot& s, const std::byte* p) {
  std::string text = std::string(s.live ? "" : "released ") + "buffer '" + s.name + "' (" +
                     std::to_string(s.size) + " bytes) at offset " + std::to_string(p - s.data);
  if (p >= s.data + s.size) text += ", " + std::to_string(p - (s.data + s.size)) + " past the end";
  if (p < s.data) text += ", before the start";
  return text;
}

}  // namespace

DeviceBuffer::DeviceBuffer(size_t bytes, std::string name, size_t alignment, Align align) : size_(bytes) {
  if (!std::has_single_bit(alignment) || alignment > kPage)
    throw std::invalid_argument("a device buffer's alignment is a power of two up to 4096, not " +
                                std::to_string(alignment));
  catch_memory_faults();
  // Sizes are rounded up to a power of two so that slots are reused; buffers end at the slot's end, so that
  // only address space is lost.
  const size_t need =
      (bytes + alignment - 1) / alignment * alignment + (align == Align::exactly ? alignment : 0);
  slot_ = window().acquire(std::max(kPage, std::bit_ceil(need)));
  DeviceSlot& s = *slot_;
  std::byte* start = s.end() - bytes;
  start -= reinterpret_cast<uintptr_t>(start) % alignment;
  if (align == Align::exactly && reinterpret_cast<uintptr_t>(start) / alignment % 2 == 0) start -= alignment;
  data_ = start;
  s.data = data_;
  s.size = size_;
  s.live = true;
  s.name = std::move(name);
  unpoison(s.pages, s.bytes);
  std::memset(s.front(), kPattern, static_cast<size_t>(data_ - s.front()));
  std::memset(data_, options().poison, size_);
  std::memset(data_ + size_, kPattern, static_cast<size_t>(s.end() - (data_ + size_)));
  poison(s.pages, static_cast<size_t>(data_ - s.pages));
  poison(data_ + size_, static_cast<size_t>(s.end() - (data_ + size_)));
}

DeviceBuffer::~DeviceBuffer() {
  if (!data_) return;
  std::lock_guard lock(window().mutex);
  DeviceSlot& s = *slot_;
  s.live = false;
  if (s.bytes > kKeepBytes) {
    unpoison(s.pages, s.bytes);
    madvise(s.pages, s.bytes, MADV_DONTNEED);
  }
  poison(s.pages, s.bytes);
  window().free[s.bytes].push_back(slot_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      slot_(std::exchange(other.slot_, nullptr)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(slot_, other.slot_);
  return *this;
}

std::optional<std::string> DeviceBuffer::intact() const {
  if (!data_) return std::nullopt;
  const DeviceSlot& s = *slot_;
  const std::byte* written = first_written(s.front(), data_);
  if (!written) written = first_written(data_ + size_, s.end());
  if (!written) return std::nullopt;
  return describe(s, written) + " was written";
}

std::optional<std::string> DeviceBuffer::changed_from(std::span<const std::byte> bytes) const {
  if (size_ == 0 || std::memcmp(data_, bytes.data(), size_) == 0) return std::nullopt;
  const auto at = std::mismatch(data_, data_ + size_, bytes.begin()).first;
  return describe(*slot_, at) + " was written, and is an input";
}

AddressRange device_window() {
  std::lock_guard lock(window().mutex);
  return {window().base, window().base ? kWindowBytes : 0};
}

std::string describe_device_address(const void* address) {
  const Window& w = window();
  const std::byte* p = static_cast<const std::byte*>(address);
  if (!w.base || p < w.base || p >= w.base + kWindowBytes) return {};
  // Overruns of one slot and underruns of the next meet in the page between them: the nearest buffer is
  // named.
  const DeviceSlot* nearest = nullptr;
  ptrdiff_t best = 0;
  for (const DeviceSlot& s : w.slots) {
    const ptrdiff_t distance = p < s.data ? s.data - p : p >= s.data + s.size ? p - (s.data + s.size) + 1 : 0;
    if (!nearest || distance < best) nearest = &s, best = distance;
  }
  if (nearest) return describe(*nearest, p);
  return "device memory that was never allocated";
}

}  // namespace assay::simt
