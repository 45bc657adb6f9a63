// Kernels that are broken on purpose. Each proves that a check bites, in every order, and that the report
// names the line; the lines meant are marked with `// <- name`. Where a fault is only visible in the bytes of
// the result, the test says in which orders; docs/host-executor.md repeats it for readers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fast/launch.h"
#include "fast/simt/device_buffer.h"
#include "fast/simt/sanitizer.h"
#include "tests/simt/shared.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

using BrokenKernelsDeathTest = simt::DeathTest;

constexpr unsigned kFull = 0xFFFFFFFFu;
constexpr bool kAsan = simt::kAsan;
// Of faults that are otherwise seen only in the bytes of the result.
constexpr const char* kReported = "the race checker reports it: tests/simt/racy_kernels.cpp";
const bool kUbsan = std::string_view(SIMT_TEST_SANITIZERS).find("undefined") != std::string_view::npos;

using simt::fault_of;
using simt::marked;

// The kernel is at fault in every order, and the report has every one of `parts`.
template <class... P, class... A>
void expect_fault(const std::vector<std::string>& parts, const LaunchConfig& config, void (*kernel)(P...),
                  A... args) {
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    const std::string text = fault_of(config, kernel, args...);
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' under " << to_text(o) << " in\n"
                                                    << text;
    EXPECT_NE(text.find("kernel '" + std::string(config.name) + "' block ("), std::string::npos) << text;
  }
}

// --- a transpose through shared memory, right and wrong ------------------------------------------

enum class Bug { none, no_barrier, past_the_array, past_the_row, never_written };

// 64 x 64 tiles, 256 threads, 8 elements each and twice.
template <Bug kBug>
__global__ void __launch_bounds__(256) transpose(const uint16_t* in, int rows, int cols, uint16_t* out) {
  ASSAY_SHARED_ALIGNED(16, uint16_t, tile, [64][72]);
  const int row0 = static_cast<int>(blockIdx.y) * 64, col0 = static_cast<int>(blockIdx.x) * 64;
  for (int pass = 0; pass < 2; ++pass) {
    const int item = pass * 256 + static_cast<int>(threadIdx.x), row = item / 8, group = item % 8;
    if (kBug != Bug::never_written || row != 17)
      store16(&tile[row][group * 8], load16(in + (row0 + row) * cols + col0 + group * 8));
    if (kBug == Bug::past_the_array && item == 4 * rows - 1) {
      const int beyond = row + 1;
      tile[beyond][group] = 0x7FFF;  // <- past the array
    }
    if (kBug == Bug::past_the_row && item == 2 * rows - 1) {
      const int beyond = 72 + group;
      tile[row][beyond] = 0x7FFF;  // <- past the row
    }
  }
  if (kBug != Bug::no_barrier) __syncthreads();
  for (int pass = 0; pass < 16; ++pass) {
    const int item = pass * 256 + static_cast<int>(threadIdx.x), col = item / 64, row = item % 64;
    out[(col0 + col) * rows + row0 + row] = tile[row][col];
  }
}

constexpr int kRows = 128, kCols = 192;
constexpr LaunchConfig transpose_config(const char* name) {
  return {.name = name, .grid = dim3(kCols / 64, kRows / 64), .block = 256};
}

struct Transposed {
  std::vector<uint16_t> got, want;
  bool wrong() const { return got != want; }
};
template <Bug kBug> Transposed run_transpose(const simt::ExecutorOptions& o) {
  simt::UseOptions use(o);
  simt::DeviceBuffer in(kRows * kCols * 2, "in"), out(kRows * kCols * 2, "out");
  Transposed t{std::vector<uint16_t>(kRows * kCols), std::vector<uint16_t>(kRows * kCols)};
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kCols; ++c)
      in.as<uint16_t>()[r * kCols + c] = t.want[static_cast<size_t>(c * kRows + r)] =
          static_cast<uint16_t>(1 + r * kCols + c);
  launch(transpose_config("transpose"), transpose<kBug>, in.as<uint16_t>(), kRows, kCols, out.as<uint16_t>());
  std::memcpy(t.got.data(), out.data(), out.size());
  EXPECT_FALSE(out.intact());
  return t;
}

TEST(BrokenKernels, ACleanKernelGivesNoReport) {
  for (simt::ExecutorOptions o : simt::all_orders())
    for (uint8_t poison : {uint8_t{0x7F}, uint8_t{0xFF}}) {
      o.poison = poison;
      EXPECT_FALSE(run_transpose<Bug::none>(o).wrong()) << to_text(o);
    }
}

// Seen in the bytes, in every order: some thread reads before another has written.
TEST(BrokenKernels, MissingBarrier) {
  if (simt::race::kOn) GTEST_SKIP() << kReported;
  for (const simt::ExecutorOptions& o : simt::all_orders())
    EXPECT_TRUE(run_transpose<Bug::no_barrier>(o).wrong()) << to_text(o);
}

// The poison of the run stands where nothing was written.
TEST(BrokenKernels, SharedCellsNeverWritten) {
  if (simt::race::kOn) GTEST_SKIP() << kReported;
  for (simt::ExecutorOptions o : simt::all_orders())
    for (uint8_t poison : {uint8_t{0x7F}, uint8_t{0xFF}}) {
      o.poison = poison;
      const Transposed t = run_transpose<Bug::never_written>(o);
      for (int c = 0; c < kCols; ++c)
        for (int r = 0; r < kRows; ++r) {
          const size_t at = static_cast<size_t>(c * kRows + r);
          ASSERT_EQ(t.got[at], r % 64 == 17 ? poison * 0x0101 : t.want[at]) << to_text(o);
        }
    }
}

TEST_F(BrokenKernelsDeathTest, WritesPastASharedArray) {
  simt::DeviceBuffer in(kRows * kCols * 2, "in"), out(kRows * kCols * 2, "out");
  const auto go = [&] {
    return fault_of(transpose_config("past"), transpose<Bug::past_the_array>, in.as<uint16_t>(), kRows, kCols,
                    out.as<uint16_t>());
  };
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    if (kUbsan) {
      EXPECT_DEATH(go(), "broken_kernels.cpp:[0-9]+:.*index 64 out of bounds");
    } else if (kAsan) {
      EXPECT_DEATH(go(), "use-after-poison");
    } else {
      const std::string text = go();
      EXPECT_NE(text.find("written outside shared array 'tile' (9216 bytes, tests/simt/broken_kernels.cpp:"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("at byte offset 9230"), std::string::npos)
          << text;  // row 64 of 72 elements, element 7
    }
  }
}

// Inside the array only UBSan sees it at once. Without it the bytes tell, unless the right value is written
// afterwards: so in ascending order, not in descending order.
TEST_F(BrokenKernelsDeathTest, WritesPastARowOfASharedArray) {
  if (simt::race::kOn) GTEST_SKIP() << kReported;
  if (kUbsan) {
    EXPECT_DEATH(run_transpose<Bug::past_the_row>({}), "index 79 out of bounds");
    return;
  }
  EXPECT_FALSE(run_transpose<Bug::past_the_row>({.order = simt::ExecutorOptions::kReverse}).wrong());
  int seen = 0;
  for (uint64_t seed = 2; seed < 34; ++seed)
    seen += run_transpose<Bug::past_the_row>({.order = seed}).wrong();
  EXPECT_GT(seen, 0);
  EXPECT_LT(seen, 33);
}

// --- barriers ------------------------------------------------------------------------------------

__global__ void two_barriers() {
  if (threadIdx.x < 8) {  // NOLINT(bugprone-branch-clone): the same call twice is the fault
    __syncthreads();      // <- upper barrier
  } else {
    __syncthreads();  // <- lower barrier
  }
}
TEST(BrokenKernels, DivergentBarrier) {
  expect_fault(
      {"divergent barrier", "wait at __syncthreads, ", marked("upper barrier"), marked("lower barrier")},
      {.name = "two_barriers", .grid = 3, .block = 64}, two_barriers);
}

__global__ void two_kinds() {
  if (threadIdx.x % 2) __syncthreads();
  else __syncthreads_or(1);  // <- two kinds
}
TEST(BrokenKernels, BarriersOfTwoKinds) {
  expect_fault({"divergent barrier", marked("two kinds")}, {.name = "two_kinds", .grid = 1, .block = 64},
               two_kinds);
}

__global__ void early_exit(unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __syncthreads();  // <- after the exit
}
TEST(BrokenKernels, EarlyExitBeforeABarrier) {
  expect_fault(
      {"threads wait at a barrier that other threads of the block exited without reaching", "block (2,0,0)",
       "threads 0-43: wait at __syncthreads, " + marked("after the exit"), "threads 44-63: exited"},
      {.name = "early_exit", .grid = 3, .block = 64}, early_exit, 172u);
  EXPECT_EQ(fault_of({.name = "early_exit", .grid = 3, .block = 64}, early_exit, 192u), "no fault");
}

__global__ void barrier_for_some() {
  if (threadIdx.x >= 32) __syncthreads();  // <- for some
  if (threadIdx.x < 32) __syncwarp();
}
TEST(BrokenKernels, BarrierInABranch) {
  expect_fault({"exited without reaching", "threads 32-63: wait at __syncthreads, " + marked("for some"),
                "threads 0-31: exited; last at"},
               {.name = "barrier_for_some", .grid = 1, .block = 64}, barrier_for_some);
}

__global__ void barrier_against_shuffle(unsigned* out) {
  if (threadIdx.x < 8) __syncthreads();                       // <- waits at the barrier
  out[threadIdx.x] = __shfl_xor_sync(kFull, threadIdx.x, 1);  // <- waits in the shuffle
  if (threadIdx.x >= 8) __syncthreads();
}
TEST(BrokenKernels, Deadlock) {
  unsigned out[32];
  expect_fault({"deadlock: no thread can go on",
                "threads 0-7: wait at __syncthreads, " + marked("waits at the barrier"),
                "threads 8-31: wait in __shfl_xor_sync with mask ffffffff, " +
                    marked("waits in the shuffle") + ", for lanes 000000ff"},
               {.name = "barrier_against_shuffle", .grid = 1, .block = 32}, barrier_against_shuffle, out);
}

// --- warp operations -----------------------------------------------------------------------------

__global__ void divergent_shuffle(unsigned* out) {
  unsigned x = threadIdx.x;
  if (threadIdx.x % 8 < 7) x += __shfl_xor_sync(kFull, x, 1);  // <- divergent shuffle
  __syncthreads();                                             // <- where the others are
  out[threadIdx.x] = x;
}
TEST(BrokenKernels, ShuffleInDivergentCodeWithTheFullMask) {
  unsigned out[64];
  expect_fault(
      {"deadlock",
       "wait in __shfl_xor_sync with mask ffffffff, " + marked("divergent shuffle") + ", for lanes 80808080",
       "thread 7: wait at __syncthreads, " + marked("where the others are")},
      {.name = "divergent_shuffle", .grid = 1, .block = 64}, divergent_shuffle, out);
}

__global__ void mask_without_caller(unsigned* out) {
  out[threadIdx.x] = __ballot_sync(0x00FFFFFFu, 1);  // <- mask without caller
}
TEST(BrokenKernels, MaskThatDoesNotNameTheCaller) {
  unsigned out[32];
  expect_fault({"the mask of a warp operation does not name the calling lane",
                "at " + marked("mask without caller") + ":"},
               {.name = "mask_without_caller", .grid = 1, .block = 32}, mask_without_caller, out);
}

__global__ void absent_lane(unsigned* out) {
  if (threadIdx.x < 8) out[threadIdx.x] = __shfl_sync(0xFFu, threadIdx.x, 9);  // <- absent lane
}
__global__ void exited_lane(unsigned* out) {
  if (threadIdx.x % 4 == 3) return;
  out[threadIdx.x] = __shfl_down_sync(kFull, threadIdx.x, 1);  // <- exited lane
}
TEST(BrokenKernels, ShuffleFromAnAbsentLane) {
  unsigned out[32];
  expect_fault({"a shuffle reads a lane that does not take part", "at " + marked("absent lane") + ":"},
               {.name = "absent_lane", .grid = 1, .block = 32}, absent_lane, out);
  expect_fault({"a shuffle reads a lane that does not take part", "at " + marked("exited lane") + ":"},
               {.name = "exited_lane", .grid = 1, .block = 32}, exited_lane, out);
}

__global__ void different_operations(unsigned* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(kFull, 1u, 1);  // <- one operation
  else out[threadIdx.x] = __ballot_sync(kFull, 1);                         // <- another operation
}
__global__ void different_sizes(unsigned long long* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(kFull, 1u, 1);
  else out[threadIdx.x] = __shfl_xor_sync(kFull, 1ull, 1);
}
TEST(BrokenKernels, LanesMeetInDifferentOperations) {
  unsigned long long out[32];
  expect_fault(
      {"lanes of a warp meet in different operations", marked("one operation"), marked("another operation")},
      {.name = "different_operations", .grid = 1, .block = 32}, different_operations,
      reinterpret_cast<unsigned*>(out));
  expect_fault({"lanes of a warp meet in different operations"},
               {.name = "different_sizes", .grid = 1, .block = 32}, different_sizes, out);
}

__global__ void different_masks(unsigned* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0x000FFFFFu, 1u, 1);  // <- one mask
  else out[threadIdx.x] = __shfl_xor_sync(kFull, 1u, 1);                         // <- another mask
}
TEST(BrokenKernels, LanesMeetWithDifferentMasks) {
  unsigned out[32];
  expect_fault({"lanes wait for each other with different masks", marked("one mask"), marked("another mask")},
               {.name = "different_masks", .grid = 1, .block = 32}, different_masks, out);
}

// A ring of masks: no two lanes wait for each other, and yet none can go on.
__global__ void ring_of_masks(unsigned* out) {
  const unsigned i = threadIdx.x;
  out[i] = __ballot_sync(1u << i | 1u << (i + 1) % 3, 1);  // <- ring
}
TEST(BrokenKernels, RingOfMasks) {
  unsigned out[3];
  expect_fault(
      {"deadlock", "wait in __ballot_sync with mask 00000003, " + marked("ring") + ", for lanes 00000002"},
      {.name = "ring_of_masks", .grid = 1, .block = 3}, ring_of_masks, out);
}

__global__ void odd_width(int width) {
  __shfl_xor_sync(kFull, 1, 1, width);  // <- odd width
}
__global__ void large_delta(unsigned delta) {
  __shfl_up_sync(kFull, 1, delta);  // <- large delta
}
TEST(BrokenKernels, ShuffleArguments) {
  for (int width : {0, 3, 24, 64, -1})
    expect_fault(
        {"the width of a shuffle must be a power of two up to 32", "at " + marked("odd width") + ":"},
        {.name = "odd_width", .grid = 1, .block = 32}, odd_width, width);
  for (unsigned delta : {32u, ~0u})
    expect_fault({"the delta of a shuffle must be below 32", "at " + marked("large delta") + ":"},
                 {.name = "large_delta", .grid = 1, .block = 32}, large_delta, delta);
}

// --- global memory -------------------------------------------------------------------------------

__global__ void misaligned_load(const uint8_t* in, uint8_t* out) {
  if (threadIdx.x == 5) out[0] = static_cast<uint8_t>(load16(in + 8 * threadIdx.x).x);  // <- misaligned load
}
__global__ void misaligned_store(uint8_t* out) {
  if (threadIdx.x == 5) store8_streaming(out + 4, make_uint2(1, 2));  // <- misaligned store
}
TEST(BrokenKernels, MisalignedVectorAccess) {
  simt::DeviceBuffer x(256, "x");
  expect_fault({"thread (5,0,0) (warp 0 lane 5) at " + marked("misaligned load") +
                ": vector load from a misaligned address"},
               {.name = "misaligned_load", .grid = 2, .block = 32}, misaligned_load, x.as<uint8_t>(),
               x.as<uint8_t>());
  expect_fault({"thread (5,0,0) (warp 0 lane 5) at " + marked("misaligned store") +
                ": vector store to a misaligned address"},
               {.name = "misaligned_store", .grid = 2, .block = 32}, misaligned_store, x.as<uint8_t>());
}

// The tail's predicate is missing: the last block runs past the end.
__global__ void no_predicate(const uint16_t* in, uint16_t* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i];
}
TEST_F(BrokenKernelsDeathTest, GlobalAccessOutOfBounds) {
  constexpr size_t kElements = 1000;
  simt::DeviceBuffer in(kElements * 2, "in", 16), out(kElements * 2, "out", 16);
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    EXPECT_EXIT(launch({.name = "no_predicate", .grid = 4, .block = 256}, no_predicate, in.as<uint16_t>(),
                       out.as<uint16_t>()),
                testing::ExitedWithCode(simt::kMemoryFaultStatus),
                "kernel 'no_predicate' block .3,0,0. thread .2[0-9]+,0,0. [a-z]+ out of bounds: buffer 'in' "
                ".2000 bytes. at offset 20");
  }
}

// Two blocks write one byte. Each order gives one answer, and they differ: compare a forward with a reverse
// run.
__global__ void two_writers(uint8_t* out) { out[0] = static_cast<uint8_t>(blockIdx.x); }
TEST(BrokenKernels, TwoBlocksWriteOneByte) {
  if (simt::race::kOn) GTEST_SKIP() << kReported;
  auto result = [](uint64_t order) {
    simt::UseOptions use({.order = order});
    simt::DeviceBuffer out(1, "out", 1);
    launch({.name = "two_writers", .grid = 2, .block = 1}, two_writers, out.as<uint8_t>());
    return out.as<uint8_t>()[0];
  };
  EXPECT_EQ(result(simt::ExecutorOptions::kForward), 1);
  EXPECT_EQ(result(simt::ExecutorOptions::kReverse), 0);
}

// --- a missing barrier in a reduction: why the poison is 7F --------------------------------------

template <bool kBarrier> __global__ void amax(const unsigned* in, unsigned n, unsigned* out) {
  ASSAY_SHARED(unsigned, parts, [32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned a = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    a = max(a, in[i] & 0x7FFFFFFFu);
  a = __reduce_max_sync(kFull, a);
  if (lane == 0) parts[warp] = a;
  if (kBarrier) __syncthreads();
  if (warp == 0) {
    a = __reduce_max_sync(kFull, lane < blockDim.x / 32 ? parts[lane] : 0u);
    if (lane == 0) atomicMax(out, a);
  }
}

TEST(BrokenKernels, MissingBarrierInAReduction) {
  if (simt::race::kOn) GTEST_SKIP() << kReported;
  constexpr unsigned kElements = 8192;
  std::vector<unsigned> in(kElements);
  for (unsigned i = 0; i < kElements; ++i) in[i] = (i * 2654435761u >> 4) | (i % 2 << 31);
  unsigned want = 0;
  for (unsigned v : in) want = std::max(want, v & 0x7FFFFFFFu);
  auto right = [&](auto kernel, uint64_t order, uint8_t poison) {
    simt::UseOptions use({.order = order, .poison = poison});
    unsigned got = 0;
    launch({.name = "amax", .grid = 8, .block = 256}, kernel, in.data(), kElements, &got);
    return got == want;
  };
  constexpr uint64_t kSeeds = 34;
  for (uint64_t order = 0; order < kSeeds; ++order) EXPECT_TRUE(right(amax<true>, order, 0x7F)) << order;
  EXPECT_FALSE(right(amax<false>, simt::ExecutorOptions::kForward, 0x7F));
  // Descending order runs the reading warp last, and so never shows it.
  EXPECT_TRUE(right(amax<false>, simt::ExecutorOptions::kReverse, 0x7F));
  int seen_7f = 0, seen_00 = 0;
  for (uint64_t seed = 2; seed < kSeeds; ++seed) {
    seen_7f += !right(amax<false>, seed, 0x7F);
    seen_00 += !right(amax<false>, seed, 0x00);
  }
  EXPECT_EQ(seen_7f, 32) << "a large poison shows wherever it is read";
  EXPECT_LT(seen_00, 32) << "a small one is lost in the maximum";
}

}  // namespace
}  // namespace assay::ASSAY_FAST_NAMESPACE
