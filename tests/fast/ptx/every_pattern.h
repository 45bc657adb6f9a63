// Long tests on all cores: every pattern of 32 bits, or many drawn operands.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace assay::ptx {

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
