// Grids: which threads run, in which order, on how many OS threads, with what limits; and what survives a
// fault.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "fast/launch.h"
#include "tests/simt/shared.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

using simt::fault_of;

__global__ void count_calls(unsigned* calls, unsigned* bad) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  if (warpSize != 32) atomicAdd(bad, 1u);
  atomicAdd(&calls[block * blockDim.x * blockDim.y * blockDim.z + thread], 1u);
}

TEST(Grids, EveryThreadRunsOnce) {
  const std::vector<std::pair<dim3, dim3>> shapes = {
      {1, 1}, {dim3(3, 2, 5), dim3(4, 3, 2)}, {7, 1024}, {dim3(1, 65535), 1}, {2, dim3(1, 1, 64)}, {257, 33}};
  for (const simt::ExecutorOptions& o : simt::all_orders())
    for (const auto& [grid, block] : shapes) {
      simt::UseOptions use(o);
      std::vector<unsigned> calls(size_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z);
      unsigned bad = 0;
      launch({.name = "count_calls", .grid = grid, .block = block}, count_calls, calls.data(), &bad);
      EXPECT_EQ(std::count(calls.begin(), calls.end(), 1u), static_cast<ptrdiff_t>(calls.size()))
          << to_text(o);
      EXPECT_EQ(bad, 0u);
    }
}

// Writes the order in which the threads of each block pass three stations.
__global__ void log_order(unsigned* log, unsigned* next) {
  const unsigned threads = blockDim.x;
  auto pass = [&](unsigned station) {
    const unsigned s = blockIdx.x * 3 + station;
    log[s * threads + atomicAdd(&next[s], 1u)] = threadIdx.x;
  };
  pass(0);
  __syncthreads();
  pass(1);
  __shfl_xor_sync(0xFFFFFFFFu, 1, 1);
  pass(2);
}
std::vector<unsigned> logged(const simt::ExecutorOptions& o, unsigned blocks, unsigned threads) {
  simt::UseOptions use(o);
  std::vector<unsigned> log(blocks * 3 * threads), next(blocks * 3);
  launch({.name = "log_order", .grid = blocks, .block = threads}, log_order, log.data(), next.data());
  return log;
}

TEST(Grids, OrdersAreWhatTheySay) {
  const auto forward = logged({.order = 0}, 1, 96), reverse = logged({.order = 1}, 1, 96);
  for (unsigned i = 0; i < 96; ++i) {
    EXPECT_EQ(forward[i], i);
    EXPECT_EQ(forward[96 + i], i);
    EXPECT_EQ(reverse[i], 95 - i);
    EXPECT_EQ(reverse[96 + i], 95 - i);
  }
  std::set<std::vector<unsigned>> different;
  for (uint64_t seed = 2; seed < 22; ++seed) {
    const auto log = logged({.order = seed}, 1, 96);
    different.insert(log);
    const std::vector<unsigned> first(log.begin(), log.begin() + 96),
        second(log.begin() + 96, log.begin() + 192);
    EXPECT_NE(first, second) << "lanes and warps are permuted anew at a barrier";
    EXPECT_TRUE(std::is_permutation(first.begin(), first.end(), forward.begin()));
  }
  EXPECT_EQ(different.size(), 20u);
}

TEST(Grids, ASeedReproducesARunForAnyNumberOfOsThreads) {
  for (uint64_t order : {0u, 1u, 2u, 99u}) {
    const auto one = logged({.threads = 1, .order = order}, 37, 160);
    for (int threads : {1, 2, 3, 8})
      EXPECT_EQ(logged({.threads = threads, .order = order}, 37, 160), one) << order << " " << threads;
  }
}

__global__ void log_blocks(unsigned* log, unsigned* next) { log[atomicAdd(next, 1u)] = blockIdx.x; }

TEST(Grids, BlockOrder) {
  std::set<std::vector<unsigned>> different;
  for (unsigned blocks : {1u, 2u, 6u, 1000u}) {
    std::vector<unsigned> ascending(blocks);
    std::iota(ascending.begin(), ascending.end(), 0u);
    for (uint64_t order : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u}) {
      simt::UseOptions use({.order = order});
      std::vector<unsigned> log(blocks);
      unsigned next = 0;
      launch({.name = "log_blocks", .grid = blocks, .block = 1}, log_blocks, log.data(), &next);
      EXPECT_TRUE(std::is_permutation(log.begin(), log.end(), ascending.begin()));
      if (order == 0) {
        EXPECT_EQ(log, ascending);
      }
      if (order == 1) {
        EXPECT_TRUE(std::equal(log.rbegin(), log.rend(), ascending.begin()));
      }
      if (blocks == 1000) different.insert(log);
    }
  }
  EXPECT_EQ(different.size(), 8u);
}

// --- shared memory -------------------------------------------------------------------------------

template <int kTag> ASSAY_DEVICE unsigned* scratch() {
  ASSAY_SHARED(unsigned, box, [32]);
  return box;
}
struct alignas(64) Wide {
  uint8_t bytes[64];
};
__global__ void use_shared(uint64_t* out) {
  ASSAY_SHARED(uint8_t, small, [3]);
  ASSAY_SHARED_ALIGNED(256, uint16_t, tile, [4][5]);
  ASSAY_SHARED(Wide, wide, [2]);
  ASSAY_DYNAMIC_SHARED(uint32_t, dynamic);
  unsigned* a = scratch<0>();
  unsigned* b = scratch<1>();
  if (threadIdx.x == 0) {
    // Distinct, aligned, poisoned; and the same when reached again.
    out[0] = reinterpret_cast<uintptr_t>(&tile) % 256 + reinterpret_cast<uintptr_t>(&wide) % 64 +
             reinterpret_cast<uintptr_t>(dynamic) % 128;
    out[1] = a != b && scratch<0>() == a && scratch<1>() == b;
    out[2] = small[0] | small[1] << 8 | small[2] << 16;
    out[3] = tile[3][4];
    out[4] = dynamic[15];
    out[5] = sizeof tile;
  }
  a[threadIdx.x] = threadIdx.x;
  b[threadIdx.x] = 100 + threadIdx.x;
  __syncthreads();
  atomicAdd(reinterpret_cast<unsigned long long*>(&out[6]), a[31 - threadIdx.x] + b[threadIdx.x]);
}

TEST(Grids, SharedMemory) {
  if (simt::race::kOn) GTEST_SKIP() << "the race checker objects to reading what nobody wrote";
  for (simt::ExecutorOptions o : simt::all_orders())
    for (uint8_t poison : {uint8_t{0x7F}, uint8_t{0xFF}, uint8_t{0x00}}) {
      o.poison = poison;
      simt::UseOptions use(o);
      uint64_t out[7] = {};
      launch({.name = "use_shared", .grid = 3, .block = 32, .dynamic_shared_bytes = 64}, use_shared, out);
      const uint64_t p = poison;
      EXPECT_EQ(out[0], 0u);
      EXPECT_EQ(out[1], 1u);
      EXPECT_EQ(out[2], p * 0x010101);
      EXPECT_EQ(out[3], p * 0x0101);
      EXPECT_EQ(out[4], p * 0x01010101);
      EXPECT_EQ(out[5], 40u);
      EXPECT_EQ(out[6], 3 * (2 * 496 + 3200u));
    }
}

__global__ void big_dynamic(unsigned bytes) {
  ASSAY_DYNAMIC_SHARED(uint8_t, d);
  d[threadIdx.x * (bytes - 1)] = 1;
}
template <unsigned kBytes> __global__ void big_static(unsigned* out) {
  ASSAY_SHARED(uint8_t, block, [kBytes]);
  block[kBytes - 1] = 1;
  *out = block[kBytes - 1];
}
__global__ void no_dynamic(unsigned* out) {
  ASSAY_DYNAMIC_SHARED(uint8_t, d);
  *out = d[0];
}
__global__ void nothing() {}

TEST(Grids, LaunchLimits) {
  auto shape = [](dim3 grid, dim3 block) {
    return fault_of({.name = "nothing", .grid = grid, .block = block}, nothing);
  };
  EXPECT_EQ(shape(1, 1024), "no fault");
  EXPECT_EQ(shape(1, dim3(16, 1, 64)), "no fault");
  EXPECT_NE(shape(1, 1025).find("'nothing': the block (1025,1,1)"), std::string::npos);
  EXPECT_NE(shape(1, dim3(33, 32)).find("more than 1024 threads"), std::string::npos);
  EXPECT_NE(shape(1, dim3(1, 1, 65)).find("the block (1,1,65)"), std::string::npos);
  EXPECT_NE(shape(1, 0).find("the block (0,1,1)"), std::string::npos);
  EXPECT_NE(shape(0, 1).find("the grid (0,1,1)"), std::string::npos);
  EXPECT_NE(shape(dim3(1, 65536), 1).find("the grid (1,65536,1)"), std::string::npos);
  EXPECT_NE(shape(dim3(1, 1, 65536), 1).find("the grid (1,1,65536)"), std::string::npos);
  EXPECT_NE(shape(dim3(0x80000000u), 1).find("the grid"), std::string::npos);

  auto dynamic = [](unsigned bytes, bool large) {
    return fault_of(
        {.name = "big", .grid = 1, .block = 2, .dynamic_shared_bytes = bytes, .large_shared = large},
        big_dynamic, bytes);
  };
  EXPECT_EQ(dynamic(48 * 1024, false), "no fault");
  EXPECT_NE(dynamic(48 * 1024 + 1, false).find("large_shared"), std::string::npos);
  EXPECT_EQ(dynamic(227 * 1024, true), "no fault");
  EXPECT_NE(dynamic(227 * 1024 + 1, true).find("227 KB"), std::string::npos);

  unsigned out = 0;
  EXPECT_EQ(fault_of({.name = "big", .grid = 1, .block = 1}, big_static<48 * 1024>, &out), "no fault");
  EXPECT_NE(fault_of({.name = "big", .grid = 1, .block = 1}, big_static<48 * 1024 + 1>, &out)
                .find("48 KB of static"),
            std::string::npos);
  EXPECT_NE(
      fault_of({.name = "big", .grid = 1, .block = 1, .large_shared = true}, big_static<48 * 1024 + 1>, &out)
          .find("48 KB of static"),
      std::string::npos);
  EXPECT_NE(
      fault_of({.name = "big", .grid = 1, .block = 1, .dynamic_shared_bytes = 1}, big_static<48 * 1024>, &out)
          .find("static and dynamic"),
      std::string::npos);
  EXPECT_NE(
      fault_of({.name = "none", .grid = 1, .block = 1}, no_dynamic, &out).find("dynamic_shared_bytes is 0"),
      std::string::npos);
}

// --- launching -----------------------------------------------------------------------------------

TEST(Grids, LaunchesAreCounted) {
  const uint64_t before = launches();
  for (int i = 0; i < 3; ++i) launch({.name = "nothing", .grid = 2, .block = 2}, nothing);
  EXPECT_EQ(launches() - before, 3u);
  EXPECT_THROW(launch({.name = "nothing", .grid = 0, .block = 2}, nothing), simt::KernelFault);
  EXPECT_EQ(launches() - before, 3u);
}

TEST(Grids, BarrierFreeKernelsAreLoops) {
  const uint64_t before = simt::switches();
  launch({.name = "nothing", .grid = 10, .block = 1024}, nothing);
  EXPECT_EQ(simt::switches() - before, 20u) << "one to enter a block, one to leave it";
}

TEST(Grids, OptionsAreScoped) {
  EXPECT_EQ(simt::options().order, 0u);
  {
    simt::UseOptions outer({.threads = 2, .order = 5});
    {
      simt::UseOptions inner({.threads = 1, .order = 6, .poison = 1});
      EXPECT_EQ(simt::options().order, 6u);
      EXPECT_EQ(simt::options().poison, 1);
    }
    EXPECT_EQ(simt::options().order, 5u);
    EXPECT_EQ(simt::options().threads, 2);
  }
  EXPECT_EQ(simt::options().threads, 1);
  EXPECT_THROW(simt::UseOptions({.threads = 0}), std::invalid_argument);
}

// Arguments are converted to the kernel's types, and each thread has its own copy.
__global__ void own_copy(unsigned start, const unsigned* none, unsigned* sum) {
  start += threadIdx.x;
  if (!none) atomicAdd(sum, start);
}
TEST(Grids, ArgumentsAreCopiedPerThread) {
  unsigned sum = 0;
  launch({.name = "own_copy", .grid = 1, .block = 4}, own_copy, static_cast<uint8_t>(10), nullptr, &sum);
  EXPECT_EQ(sum, 46u);
}

__global__ void launches_itself() { launch({.name = "inner", .grid = 1, .block = 1}, nothing); }
TEST(Grids, KernelsDoNotLaunch) {
  EXPECT_NE(fault_of({.name = "outer", .grid = 1, .block = 1}, launches_itself)
                .find("'inner': launched from within a kernel"),
            std::string::npos);
}

__global__ void throws_up() {
  if (threadIdx.x == 2) throw std::runtime_error("no such thing");
  __syncthreads();
}
TEST(Grids, ExceptionsEndTheGrid) {
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    const std::string text = fault_of({.name = "throws_up", .grid = 5, .block = 64}, throws_up);
    EXPECT_NE(text.find("threw an exception: no such thing"), std::string::npos) << text;
  }
}

// A fault leaves threads in the middle of a kernel. The executor goes on as if nothing had been.
__global__ void stuck(unsigned from) {
  if (threadIdx.x < 40) __syncthreads();
  if (blockIdx.x >= from && threadIdx.x >= 40) __shfl_sync(0xFFFFFFFFu, 1, 0);
}
TEST(Grids, RunsCleanlyAfterFaults) {
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    const auto before = logged(o, 20, 256);
    for (int i = 0; i < 3; ++i)
      EXPECT_NE(fault_of({.name = "stuck", .grid = 9, .block = 256}, stuck, 0u), "no fault");
    EXPECT_EQ(logged(o, 20, 256), before) << to_text(o);
  }
}

// Of several faulty blocks the first in order is reported, however many OS threads run them.
TEST(Grids, TheFirstFaultIsReported) {
  for (uint64_t order : {0u, 1u, 2u, 3u, 4u}) {
    auto text = [&](int threads) {
      simt::UseOptions use({.threads = threads, .order = order});
      return fault_of({.name = "stuck", .grid = 50, .block = 64}, stuck, 0u);
    };
    const std::string one = text(1);
    for (int i = 0; i < 5; ++i)
      for (int threads : {2, 4}) EXPECT_EQ(text(threads), one);
    if (order == 0) {
      EXPECT_NE(one.find("block (0,0,0)"), std::string::npos);
    }
    if (order == 1) {
      EXPECT_NE(one.find("block (49,0,0)"), std::string::npos);
    }
  }
}

// Whichever of two blocks takes longer to its fault.
__global__ void slow_fault(unsigned slow) {
  if (blockIdx.x % 2 == slow && threadIdx.x == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (threadIdx.x == 0) __syncthreads();
}
TEST(Grids, TheFirstFaultIsReportedWhoeverIsLate) {
  for (unsigned slow : {0u, 1u}) {
    simt::UseOptions use({.threads = 2});
    const std::string text = fault_of({.name = "slow_fault", .grid = 2, .block = 32}, slow_fault, slow);
    EXPECT_NE(text.find("block (0,0,0)"), std::string::npos) << text;
  }
}

// Several OS threads may launch at once.
TEST(Grids, LaunchingFromSeveralOsThreads) {
  const auto want = logged({.threads = 1, .order = 8}, 30, 128);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i)
        equal[static_cast<size_t>(t)] += logged({.threads = 1 + t, .order = 8}, 30, 128) == want;
    });
  for (std::thread& t : threads) t.join();
  for (int e : equal) EXPECT_EQ(e, 25);
}

// A forked child, as worker processes are, has OS threads of its own.
TEST(Grids, ForkedChildrenRunGrids) {
  const auto want = logged({.threads = 3, .order = 8}, 30, 128);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(logged({.threads = 3, .order = 8}, 30, 128) == want ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace assay::ASSAY_FAST_NAMESPACE
