#include "compare/process/guarded_memory.h"

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <algorithm>
#include <array>
#include <bit>
#include <list>
#include <mutex>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace assay {

namespace {

constexpr size_t kGuard = 256;
constexpr std::byte kGuardByte{0xC3};
constexpr size_t kApart = size_t{1} << 20;      // inaccessible bytes on either side of a mapping
constexpr size_t kMostIdle = size_t{32} << 20;  // bytes of mappings that wait for their next use

const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

// Pages for so many bytes. Of large sizes there are few, so that a mapping is found again.
size_t pages_for(size_t bytes) {
  const size_t pages = (bytes + kPage - 1) / kPage;
  const size_t step = pages <= 32 ? 1 : std::bit_floor(pages) / 8;
  return (pages + step - 1) / step * step;
}

bool is_guard(const std::byte* from, const std::byte* to) {
  return from == to ||
         (*from == kGuardByte && std::memcmp(from, from + 1, static_cast<size_t>(to - from) - 1) == 0);
}

}  // namespace

struct GuardedBuffer::Mapping {
  std::byte *begin = nullptr, *end = nullptr;  // what may be touched
  std::byte* first = nullptr;                  // of the plane
  size_t bytes = 0;
  std::array<char, 64> name{};  // a text that is there when memory is not to be trusted; empty: idle

  // Whether the address lies beyond the guard bytes of this mapping.
  bool is_apart(const std::byte* at) const {
    return (at >= begin - kApart && at < begin) || (at >= end && at < end + kApart);
  }
};

// Those of this process. The ones that are idle keep their pages, because a suite runs many small cases.
struct GuardedBuffer::Mappings {
  std::mutex mutex;
  std::list<Mapping> used, idle;
  size_t idle_bytes = 0;

  static Mappings& own() {
    static auto* const mappings = new Mappings;  // never destroyed: a crash at the end may still ask it
    return *mappings;
  }

  Mapping* take(size_t pages) {
    const std::lock_guard lock(mutex);
    const size_t size = pages * kPage;
    const auto fits = [&](const Mapping& m) { return static_cast<size_t>(m.end - m.begin) == size; };
    if (const auto found = std::find_if(idle.begin(), idle.end(), fits); found != idle.end()) {
      used.splice(used.begin(), idle, found);
      idle_bytes -= size;
      return &used.front();
    }
    void* const base = ::mmap(nullptr, kApart + size + kApart, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    std::byte* const begin = static_cast<std::byte*>(base) + kApart;
    if (::mprotect(begin, size, PROT_READ | PROT_WRITE) != 0) {
      ::munmap(base, kApart + size + kApart);
      throw std::bad_alloc();
    }
    used.emplace_front();
    used.front().begin = begin;
    used.front().end = begin + size;
    return &used.front();
  }

  void give_back(Mapping* mapping) {
    const std::lock_guard lock(mutex);
    mapping->name[0] = '\0';
    const auto at = std::find_if(used.begin(), used.end(), [&](const Mapping& m) { return &m == mapping; });
    idle_bytes += static_cast<size_t>(at->end - at->begin);
    idle.splice(idle.begin(), used, at);
    while (idle_bytes > kMostIdle) {  // the one that waits longest goes
      const Mapping& last = idle.back();
      const auto size = static_cast<size_t>(last.end - last.begin);
      ::munmap(last.begin - kApart, kApart + size + kApart);
      idle_bytes -= size;
      idle.pop_back();
    }
  }

  // For a signal handler: no lock, no allocation.
  static void tell(const std::byte* address, const char* did) {
    for (const Mapping& m : own().used) {
      if (m.name[0] == '\0' || !m.is_apart(address)) continue;
      const bool before = address < m.begin;
      char text[200];
      const int length =
          std::snprintf(text, sizeof text, "it %s outside of its planes: byte %lld %s of %s\n", did,
                        static_cast<long long>(before ? m.first - address : address - (m.first + m.bytes)),
                        before ? "before the start" : "past the end", m.name.data());
      [[maybe_unused]] const ssize_t written =
          ::write(STDERR_FILENO, text, static_cast<size_t>(std::clamp(length, 0, 199)));
      return;
    }
  }
};

GuardedBuffer::GuardedBuffer(const std::string& name, size_t bytes, size_t alignment)
    : mapping_(Mappings::own().take(pages_for(kGuard + bytes + kGuard + 2 * alignment))) {
  Mapping& m = *mapping_;
  // Near the end: what is written behind the guard bytes there is caught.
  const auto last = reinterpret_cast<uintptr_t>(m.end) - kGuard - bytes;
  uintptr_t at = last / alignment * alignment;
  if (at % (2 * alignment) == 0) at -= alignment;
  m.first = m.end - (reinterpret_cast<uintptr_t>(m.end) - at);
  m.bytes = bytes;
  std::memset(m.begin, static_cast<int>(kGuardByte), static_cast<size_t>(m.first - m.begin));
  std::memset(m.first + bytes, static_cast<int>(kGuardByte), static_cast<size_t>(m.end - m.first) - bytes);
  const size_t shown = std::min(name.size(), m.name.size() - 1);
  std::copy_n(name.begin(), shown, m.name.begin());
  m.name[shown] = '\0';
}

GuardedBuffer::~GuardedBuffer() { Mappings::own().give_back(mapping_); }

void GuardedBuffer::tell(const std::byte* address, const char* did) { Mappings::tell(address, did); }

std::span<std::byte> GuardedBuffer::bytes() const { return {mapping_->first, mapping_->bytes}; }

std::optional<std::string> GuardedBuffer::trespass() const {
  const Mapping& m = *mapping_;
  const std::byte* const to = m.first + m.bytes;
  const auto changed = [](std::byte b) { return b != kGuardByte; };
  if (!is_guard(to, m.end)) {
    const std::byte* const after = std::find_if(to, static_cast<const std::byte*>(m.end), changed);
    return fmt::format("{}: byte {} past the end was written ({:02X})", m.name.data(), after - to,
                       static_cast<unsigned>(*after));
  }
  if (is_guard(m.begin, m.first)) return {};
  const std::byte* const before = std::find_if(m.begin, m.first, changed);
  return fmt::format("{}: byte {} before the start was written ({:02X})", m.name.data(), m.first - before,
                     static_cast<unsigned>(*before));
}

namespace {

struct sigaction handler_before;

const char* what_it_did([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr int kErrorRegister = REG_ERR;
  const auto error = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[kErrorRegister];
  return (error & 2) != 0 ? "wrote" : "read";
#else
  return "reached";
#endif
}

}  // namespace

void tell_far_writes() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      ::sigaction(signal, &handler_before, nullptr);
      if (info->si_code <= 0) ::raise(signal);  // sent, so that nothing will fault again
      else GuardedBuffer::tell(static_cast<const std::byte*>(info->si_addr), what_it_did(context));
    };
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGSEGV, &action, &handler_before);
  });
}

}  // namespace assay
