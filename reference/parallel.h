// Loops over independent items on several OS threads. What an item computes may not depend on another, so the
// bytes are the same for any number of threads. The threads end with the loop: nothing spins between loops,
// and a process may fork at any time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace assay::reference {

// Calls body(i) for every i in [0, count): contiguous shares, one for each of `threads` OS threads, this one
// among them.
template <class Body> void parallel_for(int threads, int64_t count, Body body) {
  const int64_t shares = std::clamp<int64_t>(threads, 1, std::max<int64_t>(count, 1));
  auto work = [&](int64_t share) {
    for (int64_t i = count * share / shares; i < count * (share + 1) / shares; ++i) body(i);
  };
  std::vector<std::jthread> others;
  for (int64_t share = 1; share < shares; ++share) others.emplace_back(work, share);
  work(0);
}

}  // namespace assay::reference
