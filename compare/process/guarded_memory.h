// Memory for the planes of one run: each plane lies in a mapping of its own, between guard bytes, which tell
// what was written near it, and pages that nobody may touch, so that nothing farther off is overwritten
// unseen.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace assay {

class GuardedBuffer {
 public:
  // `name` is that of the plane. The address is a multiple of `alignment`, a power of two, and of no larger
  // power of two. Throws std::bad_alloc.
  GuardedBuffer(const std::string& name, size_t bytes, size_t alignment);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::span<std::byte> bytes() const;
  // A guard byte that changed, as text; or nothing.
  std::optional<std::string> trespass() const;
  // For a signal handler: says on standard error which plane lies nearest to an address that nobody may
  // touch.
  static void tell(const std::byte* address, const char* did);

 private:
  struct Mapping;
  struct Mappings;
  Mapping* mapping_;
};

// From here on a process that touches the pages around a GuardedBuffer says on standard error, before it
// ends, which plane it left: "it wrote outside of its planes: byte 1000 past the end of row.data".
void tell_far_writes();

}  // namespace assay
