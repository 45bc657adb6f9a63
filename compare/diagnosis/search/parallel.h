// A loop over several threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace assay::cause {

// Calls body(i) for every i below `count`, on at most `jobs` threads.
template <class Body> void parallel(int jobs, size_t count, Body body) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < count;) body(i);
  };
  std::vector<std::jthread> others;
  for (size_t t = 1; t < std::min<size_t>(static_cast<size_t>(std::max(jobs, 1)), count); ++t)
    others.emplace_back(work);
  work();
}

}  // namespace assay::cause
