// What the compiler calls for every access of a unit compiled with -fsanitize=thread, g++ 12 and clang 14
// alike; libtsan is not linked. This unit itself must not be compiled so.
#include <cstddef>
#include <cstdint>

#include "fast/simt/race/checker.h"

using assay::simt::race::Kind;

namespace {

// The units' host code comes here too, outside any kernel.
inline void access(const volatile void* p, size_t bytes, Kind kind, bool reads, const void* return_address) {
  if (assay::simt::current)
    assay::simt::race::watching->access(static_cast<const std::byte*>(const_cast<const void*>(p)), bytes,
                                        kind, reads, return_address);
}

}  // namespace

#define READ(p, bytes) access(p, bytes, Kind::read, true, __builtin_return_address(0))
#define WRITE(p, bytes) access(p, bytes, Kind::write, false, __builtin_return_address(0))

extern "C" {

// Nothing to prepare, and stacks are not followed.
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
// Objects with virtual functions do not live in a kernel's memory.
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define ACCESSES(size)                                           \
  void __tsan_read##size(void* p) { READ(p, size); }             \
  void __tsan_write##size(void* p) { WRITE(p, size); }           \
  void __tsan_unaligned_read##size(void* p) { READ(p, size); }   \
  void __tsan_unaligned_write##size(void* p) { WRITE(p, size); } \
  void __tsan_read_write##size(void* p) {                        \
    READ(p, size);                                               \
    WRITE(p, size);                                              \
  }                                                              \
  void __tsan_unaligned_read_write##size(void* p) {              \
    READ(p, size);                                               \
    WRITE(p, size);                                              \
  }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* p, size_t bytes) { READ(p, bytes); }
void __tsan_write_range(void* p, size_t bytes) { WRITE(p, bytes); }

// Copies of whole objects. Linked with --wrap for these three (cmake/race.cmake), because g++ leaves calls of
// them alone and clang 14 makes new ones; later clangs call the __tsan_ forms.
void* __real_memcpy(void*, const void*, size_t);
void* __real_memmove(void*, const void*, size_t);
void* __real_memset(void*, int, size_t);
#define COPY(name)                                       \
  void* name(void* to, const void* from, size_t bytes) { \
    READ(from, bytes);                                   \
    WRITE(to, bytes);                                    \
    return __real_memmove(to, from, bytes);              \
  }
COPY(__wrap_memcpy)
COPY(__wrap_memmove)
COPY(__tsan_memcpy)
COPY(__tsan_memmove)
#define FILL(name)                                \
  void* name(void* to, int value, size_t bytes) { \
    WRITE(to, bytes);                             \
    return __real_memset(to, value, bytes);       \
  }
FILL(__wrap_memset)
FILL(__tsan_memset)

#define UPDATE(bits, T, name, operation)                                         \
  T __tsan_atomic##bits##_##name(volatile T* p, T value, int) {                  \
    access(p, sizeof(T), Kind::atomic_write, true, __builtin_return_address(0)); \
    return operation(p, value, __ATOMIC_SEQ_CST);                                \
  }
#define COMPARE_EXCHANGE(bits, T, name)                                                                  \
  int __tsan_atomic##bits##_##name(volatile T* p, T* expected, T desired, int, int) {                    \
    access(p, sizeof(T), Kind::atomic_write, true, __builtin_return_address(0));                         \
    return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define ATOMICS(bits, T)                                                                           \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                         \
    access(p, sizeof(T), Kind::atomic_read, true, __builtin_return_address(0));                    \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                                  \
    access(p, sizeof(T), Kind::atomic_write, false, __builtin_return_address(0));                  \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {                                  \
    access(p, sizeof(T), Kind::atomic_write, false, __builtin_return_address(0));                  \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  UPDATE(bits, T, fetch_add, __atomic_fetch_add)                                                   \
  UPDATE(bits, T, fetch_sub, __atomic_fetch_sub)                                                   \
  UPDATE(bits, T, fetch_and, __atomic_fetch_and)                                                   \
  UPDATE(bits, T, fetch_or, __atomic_fetch_or)                                                     \
  UPDATE(bits, T, fetch_xor, __atomic_fetch_xor)                                                   \
  UPDATE(bits, T, fetch_nand, __atomic_fetch_nand)                                                 \
  COMPARE_EXCHANGE(bits, T, compare_exchange_strong)                                               \
  COMPARE_EXCHANGE(bits, T, compare_exchange_weak)                                                 \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T desired, int, int) {   \
    access(p, sizeof(T), Kind::atomic_write, true, __builtin_return_address(0));                   \
    __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                                               \
  }
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
