// AddressSanitizer's hooks, or nothing in builds without it.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif

#if defined(SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define SIMT_ASAN 0
#endif

#include <cstddef>

namespace assay::simt {

inline constexpr bool kAsan = SIMT_ASAN != 0;

inline void poison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#if SIMT_ASAN
  __asan_poison_memory_region(p, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#if SIMT_ASAN
  __asan_unpoison_memory_region(p, bytes);
#endif
}

}  // namespace assay::simt
