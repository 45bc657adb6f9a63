// What the tests of arithmetic and of conversions try: binary32 patterns where conversions part, or every
// pattern.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {

// Every bf16 and every f16 value, and binary32 around every value and midpoint of small formats, and at every
// exponent.
inline std::vector<uint64_t> samples() {
  std::vector<uint64_t> out;
  for (uint64_t n = 0; n < 65536; ++n) out.push_back(n << 16);
  Draw draw;
  for (uint64_t exponent = 0; exponent < 256; ++exponent)
    for (int n = 0; n < 1024; ++n) {
      uint64_t fraction = draw() & 0x7FFFFF;
      // Few bits in front, then nothing, a half, or just beside it: where roundings part.
      if (n % 4)
        fraction = (fraction & (0x7FFFFFull << (23 - n % 12) & 0x7FFFFF)) + (n % 4 == 1   ? 0
                                                                             : n % 4 == 2 ? 1
                                                                                          : 0x7FFFFF);
      out.push_back((draw() & 1) << 31 | exponent << 23 | (fraction & 0x7FFFFF));
    }
  return out;
}

// Calls `part` with 0 to parts - 1 from as many threads as the machine has, until one fails.
inline void in_threads(size_t parts, const std::function<void(size_t)>& part) {
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (unsigned n = 0; n < std::max(1u, std::thread::hardware_concurrency()); ++n)
    threads.emplace_back([&] {
      for (size_t p; (p = next++) < parts && !testing::Test::HasFatalFailure();) part(p);
    });
}

// All 2^32 patterns, in parts that a core's cache holds.
inline void with_every_pattern(const std::function<void(const std::vector<uint64_t>&)>& check) {
  constexpr uint64_t kPart = uint64_t{1} << 14;
  in_threads((uint64_t{1} << 32) / kPart, [&](size_t part) {
    std::vector<uint64_t> patterns(kPart);
    std::iota(patterns.begin(), patterns.end(), part * kPart);
    check(patterns);
  });
}

}  // namespace assay::ptx
