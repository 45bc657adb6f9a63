// Counters of code that g++ has compiled with -fsanitize-coverage=trace-pc: of a plugin that clang does not
// compile. Such code calls __sanitizer_cov_trace_pc at the start of each of its blocks. libFuzzer's own
// function of that name ends the program; this one takes its place. libFuzzer reads every byte of the section
// __libfuzzer_extra_counters after each input, beside the counters of what clang has compiled.
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace {

constexpr size_t kCounters = size_t{1} << 16;
__attribute__((section("__libfuzzer_extra_counters"))) uint8_t counters[kCounters];

struct Range {
  uintptr_t begin = 0, end = 0;
};

struct Wanted {
  uintptr_t address;
  Range found;
};

// The loaded segment that holds the address.
__attribute__((no_sanitize("coverage", "address", "undefined"))) int look(dl_phdr_info* object, size_t,
                                                                          void* data) {
  auto& wanted = *static_cast<Wanted*>(data);
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || wanted.address - begin >= segment.p_memsz) continue;
    wanted.found = {begin, begin + segment.p_memsz};
    return 1;
  }
  return 0;
}

}  // namespace

// Threads that count one block at the same time may lose a count. The place in its segment names a block,
// whatever address the system has loaded it at, so that a round follows from its seed. Two blocks 64 KiB
// apart share a counter.
extern "C" __attribute__((no_sanitize("coverage", "address", "undefined"), visibility("default"))) void
__sanitizer_cov_trace_pc() {
  static thread_local Range segment;
  const auto here = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  if (here - segment.begin >= segment.end - segment.begin) {
    Wanted wanted{here, {}};
    dl_iterate_phdr(look, &wanted);
    segment = wanted.found;
  }
  uint8_t* counter = &counters[(here - segment.begin) % kCounters];
  const uint8_t count = __atomic_load_n(counter, __ATOMIC_RELAXED);
  if (count != UINT8_MAX) __atomic_store_n(counter, static_cast<uint8_t>(count + 1), __ATOMIC_RELAXED);
}

// libFuzzer has functions for what -fsanitize-coverage=trace-cmp shows of integers. g++ asks for these two as
// well; a number that two floats share says little about a branch.
extern "C" __attribute__((visibility("default"))) void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" __attribute__((visibility("default"))) void __sanitizer_cov_trace_cmpd(double, double) {}
