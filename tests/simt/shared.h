// What the executor's tests share: the options under which they run their kernels, and how they let a process die.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fast/simt/executor.h"

namespace assay::simt {

inline const std::vector<ExecutorOptions>& all_orders() {
  static const std::vector<ExecutorOptions> kAll = [] {
    std::vector<ExecutorOptions> all;
    for (int threads : {1, 3})
      for (uint64_t order : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{17}, uint64_t{4711}, uint64_t{0x123456789ABCDEF}})
        all.push_back({.threads = threads, .order = order});
    return all;
  }();
  return kAll;
}

inline std::string to_text(const ExecutorOptions& o) {
  return "order=" + std::to_string(o.order) + ",threads=" + std::to_string(o.threads) + ",poison=" + std::to_string(o.poison);
}

// Death tests die in a process of their own, started anew: a fork of this one would lack its OS threads.
class DeathTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

}  // namespace assay::simt
