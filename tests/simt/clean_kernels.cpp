// Kernels without a race, as near as they come to one: each is ordered by just what it needs. The race
// checker must stay silent in every order, and so must every other check. The results are looked at as well,
// so that the kernels are known to do what they claim.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "fast/launch.h"
#include "fast/simt/device_buffer.h"
#include "tests/simt/shared.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

constexpr unsigned kFull = 0xFFFFFFFFu;
constexpr unsigned kWords = 4096;

struct Buffers {
  simt::DeviceBuffer in{kWords * 4, "in"}, out{kWords * 4, "out"};
  Buffers() {
    for (unsigned i = 0; i < kWords; ++i) in.as<unsigned>()[i] = (i * 2654435761u) >> 8;
  }
};

// The kernel faults in no order, and out[i] is want(i, in) for the first `n` words.
using Want = std::function<unsigned(unsigned, const unsigned*)>;
template <class... P>
void expect_clean(const LaunchConfig& config, void (*kernel)(P...), unsigned n, const Want& want) {
  std::vector<simt::ExecutorOptions> orders = simt::all_orders();
  for (uint64_t seed = 3; seed < 11; ++seed) orders.push_back({.order = seed});
  for (const simt::ExecutorOptions& o : orders) {
    simt::UseOptions use(o);
    Buffers b;
    ASSERT_EQ(simt::fault_of(config, kernel, static_cast<const unsigned*>(b.in.as<unsigned>()),
                             b.out.as<unsigned>()),
              "no fault")
        << to_text(o);
    for (unsigned i = 0; i < n; ++i)
      ASSERT_EQ(b.out.as<unsigned>()[i], want(i, b.in.as<unsigned>())) << i << " " << to_text(o);
  }
}

// --- barriers ------------------------------------------------------------------------------------

__global__ void turned_tile(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, tile, [32][33]);
  const unsigned x = threadIdx.x, y = threadIdx.y;
  for (unsigned r = y; r < 32; r += 8) tile[r][x] = in[blockIdx.x * 1024 + r * 32 + x];
  __syncthreads();
  for (unsigned r = y; r < 32; r += 8) out[blockIdx.x * 1024 + r * 32 + x] = tile[x][r];
}
TEST(CleanKernels, TransposeWithAPaddedTile) {
  expect_clean(
      {.name = "turned_tile", .grid = 4, .block = dim3(32, 8)}, turned_tile, 4096,
      [](unsigned i, const unsigned* in) { return in[i / 1024 * 1024 + i % 32 * 32 + i / 32 % 32]; });
}

__global__ void scan(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, sum, [128]);
  const unsigned t = threadIdx.x;
  sum[t] = in[t];
  __syncthreads();
  for (unsigned step = 1; step < 128; step *= 2) {
    const unsigned before = t >= step ? sum[t - step] : 0;
    __syncthreads();
    sum[t] += before;
    __syncthreads();
  }
  out[t] = sum[t];
}
TEST(CleanKernels, ScanWithBothBarriers) {
  expect_clean({.name = "scan", .grid = 1, .block = 128}, scan, 128, [](unsigned i, const unsigned* in) {
    unsigned sum = 0;
    for (unsigned k = 0; k <= i; ++k) sum += in[k];
    return sum;
  });
}

// A ring of two slots needs one barrier a pass.
__global__ void double_buffer(const unsigned* in, unsigned* out) {
  ASSAY_DYNAMIC_SHARED(unsigned, slots);
  const unsigned t = threadIdx.x, n = blockDim.x;
  unsigned sum = 0;
  slots[t] = in[t];
  for (unsigned k = 0; k < 8; ++k) {
    __syncthreads();
    if (k + 1 < 8) slots[(k + 1) % 2 * n + t] = in[(k + 1) * n + t];
    sum += slots[k % 2 * n + n - 1 - t];
  }
  out[t] = sum;
}
TEST(CleanKernels, DoubleBuffer) {
  expect_clean({.name = "double_buffer", .grid = 1, .block = 96, .dynamic_shared_bytes = 2 * 96 * 4},
               double_buffer, 96, [](unsigned i, const unsigned* in) {
                 unsigned sum = 0;
                 for (unsigned k = 0; k < 8; ++k) sum += in[k * 96 + 95 - i];
                 return sum;
               });
}

// Every kind of barrier orders; each thread writes what another wrote before.
__global__ void all_barriers(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, box, [64]);
  const unsigned t = threadIdx.x;
  box[t] = in[t];
  __syncthreads_count(1);
  const unsigned a = box[63 - t];
  __syncthreads_and(1);
  box[t] = a + 1;
  __syncthreads_or(0);
  const unsigned b = box[(t + 5) % 64];
  __syncthreads();
  box[63 - t] = b;
  __syncthreads();
  out[blockIdx.x * blockDim.x + t] = box[t];
}
TEST(CleanKernels, EveryKindOfBarrier) {
  expect_clean({.name = "all_barriers", .grid = 2, .block = 64}, all_barriers, 64,
               [](unsigned i, const unsigned* in) { return in[63 - (63 - i + 5) % 64] + 1; });
}

// Threads that leave before the last accesses, which no barrier follows.
__global__ void leave_early(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, best, [8]);
  const unsigned warp = threadIdx.x / 32,
                 value = __reduce_max_sync(kFull, in[blockIdx.x * 256 + threadIdx.x]);
  if (threadIdx.x % 32 == 0) best[warp] = value;
  __syncthreads();
  if (threadIdx.x != 77) return;
  unsigned all = 0;
  for (unsigned w = 0; w < 8; ++w) all = max(all, best[w]);
  out[blockIdx.x] = all;
}
TEST(CleanKernels, ThreadsThatLeaveEarly) {
  expect_clean(
      {.name = "leave_early", .grid = 16, .block = 256}, leave_early, 16,
      [](unsigned i, const unsigned* in) { return *std::max_element(in + i * 256, in + i * 256 + 256); });
}

// --- warps ---------------------------------------------------------------------------------------

__global__ void warp_tree(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, sum, [4][32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  volatile unsigned* mine = sum[warp];
  mine[lane] = in[threadIdx.x];
  for (unsigned step = 16; step > 0; step /= 2) {
    __syncwarp();
    const unsigned other = lane < step ? mine[lane + step] : 0;
    __syncwarp();
    if (lane < step) mine[lane] = mine[lane] + other;
  }
  if (lane == 0) out[warp] = mine[0];
}
TEST(CleanKernels, WarpReductionWithSyncwarp) {
  expect_clean({.name = "warp_tree", .grid = 1, .block = 128}, warp_tree, 4,
               [](unsigned i, const unsigned* in) {
                 unsigned sum = 0;
                 for (unsigned k = 0; k < 32; ++k) sum += in[i * 32 + k];
                 return sum;
               });
}

// Groups of 8 lanes that never wait for each other.
__global__ void lane_groups(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, box, [64]);
  const unsigned lane = threadIdx.x % 32, group = lane / 8, mask = 0xFFu << (group * 8);
  unsigned value = in[threadIdx.x];
  for (unsigned k = 0; k <= group; ++k) {
    box[threadIdx.x] = value;
    __syncwarp(mask);
    value += box[threadIdx.x ^ 3u];
    __syncwarp(mask);
  }
  out[threadIdx.x] = value;
}
TEST(CleanKernels, SyncwarpOfDisjointGroups) {
  expect_clean({.name = "lane_groups", .grid = 1, .block = 64}, lane_groups, 64,
               [](unsigned i, const unsigned* in) { return (in[i] + in[i ^ 3u]) << (i % 32 / 8); });
}

// What lane 0 wrote is ordered before lane 2's read through lane 1, which has waited for both.
__global__ void relay(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, box, [1]);
  const unsigned lane = threadIdx.x;
  if (lane == 0) box[0] = in[0];
  if (lane < 2) __syncwarp(0b011u);
  if (lane == 1 || lane == 2) __syncwarp(0b110u);
  if (lane == 2) out[0] = box[0] + 2;
}
TEST(CleanKernels, OrderPassesThroughAThirdLane) {
  expect_clean({.name = "relay", .grid = 1, .block = 32}, relay, 1,
               [](unsigned, const unsigned* in) { return in[0] + 2; });
}

// All lanes read one word, then one of them writes it.
__global__ void all_read_one_writes(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, word, [2]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) word[warp] = in[warp];
  unsigned sum = 0;
  for (unsigned k = 0; k < 32; ++k) {
    __syncwarp();
    sum += word[warp];
    __syncwarp();
    if (lane == k) word[warp] = word[warp] + k;
  }
  out[threadIdx.x] = sum;
}
TEST(CleanKernels, AllReadThenOneWrites) {
  expect_clean({.name = "all_read_one_writes", .grid = 1, .block = 64}, all_read_one_writes, 64,
               [](unsigned i, const unsigned* in) {
                 unsigned sum = 0, word = in[i / 32];
                 for (unsigned k = 0; k < 32; ++k) sum += word, word += k;
                 return sum;
               });
}

// --- atomics -------------------------------------------------------------------------------------

__global__ void histogram(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, bins, [16]);
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) atomicAdd(&bins[in[i] % 16], 1u);
  __syncthreads();
  if (threadIdx.x < 16) out[threadIdx.x] = bins[threadIdx.x];
}
TEST(CleanKernels, HistogramWithAtomics) {
  expect_clean({.name = "histogram", .grid = 1, .block = 96}, histogram, 16,
               [](unsigned i, const unsigned* in) {
                 unsigned count = 0;
                 for (unsigned k = 0; k < kWords; ++k) count += in[k] % 16 == i;
                 return count;
               });
}

__global__ void global_atomics(const unsigned* in, unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (atomicCAS(&out[0], 0x7F7F7F7Fu, 0u) == 0x7F7F7F7Fu) atomicExch(&out[1], 0u);
  atomicMax(&out[2], in[i]);
  atomicMin(&out[3], in[i]);
}
TEST(CleanKernels, AtomicsOfManyBlocks) {
  expect_clean({.name = "global_atomics", .grid = 32, .block = 128}, global_atomics, 2,
               [](unsigned, const unsigned*) { return 0u; });
}

// --- global memory -------------------------------------------------------------------------------

// Every byte has its own thread, neighbours in a word and in a vector included.
__global__ void own_bytes(const unsigned* in, unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  reinterpret_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(in[i / 4] >> (8 * (i % 4)));
}
TEST(CleanKernels, BytesOfOneWordByManyThreads) {
  expect_clean({.name = "own_bytes", .grid = kWords * 4 / 96, .block = 96}, own_bytes,
               kWords * 4 / 96 * 96 / 4, [](unsigned i, const unsigned* in) { return in[i]; });
}

// A thread's own accesses of several sizes need nothing, and neither do inputs that everybody reads.
__global__ void own_sizes(const unsigned* in, unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  store16(out + 4 * i, load16(in));
  out[4 * i + 1] += in[4 * i];
  store8(out + 4 * i + 2, make_uint2(out[4 * i], out[4 * i + 1]));
  reinterpret_cast<uint8_t*>(out)[16 * i] = 7;
}
TEST(CleanKernels, OneThreadsOwnAccesses) {
  expect_clean({.name = "own_sizes", .grid = 8, .block = 64}, own_sizes, 2048,
               [](unsigned i, const unsigned* in) {
                 const unsigned base = i / 4 * 4, second = in[1] + in[base];
                 return i % 4 == 0 ? (in[0] & ~0xFFu) | 7u : i % 4 == 2 ? in[0] : second;
               });
}

// Global memory is ordered within a block as shared memory is.
__global__ void through_global(const unsigned* in, unsigned* out) {
  unsigned* mine = out + blockIdx.x * 64;
  mine[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  const unsigned other = mine[63 - threadIdx.x];
  __syncthreads();
  mine[threadIdx.x] = other;
}
TEST(CleanKernels, GlobalMemoryWithinABlock) {
  expect_clean({.name = "through_global", .grid = 64, .block = 64}, through_global, 4096,
               [](unsigned i, const unsigned* in) { return in[i / 64 * 64 + 63 - i % 64]; });
}

// The end of a grid orders everything.
__global__ void shifted(const unsigned* in, unsigned* out, unsigned by) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[(i + by) % kWords];
}
TEST(CleanKernels, GridsAreOrdered) {
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    Buffers b;
    unsigned *from = b.in.as<unsigned>(), *to = b.out.as<unsigned>();
    const unsigned first = from[0];
    for (unsigned by : {1u, 700u, 33u, 4095u, 96u}) {
      ASSERT_EQ(simt::fault_of({.name = "shifted", .grid = 32, .block = 128}, shifted,
                               static_cast<const unsigned*>(from), to, by),
                "no fault");
      std::swap(from, to);
    }
    EXPECT_EQ(from[(5 * kWords - 1 - 700 - 33 - 4095 - 96) % kWords], first);
  }
}

// A buffer in the place of a released one begins anew; so does the host's hand between grids.
__global__ void filled(const unsigned*, unsigned* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x;
}
TEST(CleanKernels, BuffersThatComeAndGo) {
  for (unsigned block : {32u, 64u, 128u, 256u}) {
    simt::DeviceBuffer out(kWords * 4, "out");
    const unsigned* const nothing = nullptr;
    ASSERT_EQ(simt::fault_of({.name = "filled", .grid = kWords / block, .block = block}, filled, nothing,
                             out.as<unsigned>()),
              "no fault");
    out.as<unsigned>()[0] = 5;
    Buffers b;
    const unsigned* const from = out.as<unsigned>();
    ASSERT_EQ(simt::fault_of({.name = "shifted", .grid = 32, .block = 128}, shifted, from,
                             b.out.as<unsigned>(), 3u),
              "no fault");
  }
}

struct Record {
  unsigned words[12];
};
__global__ void records(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(Record, stage, [32]);
  stage[threadIdx.x] = reinterpret_cast<const Record*>(in)[blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  reinterpret_cast<Record*>(out)[blockIdx.x * 32 + threadIdx.x] = stage[31 - threadIdx.x];
}
TEST(CleanKernels, WholeObjects) {
  expect_clean(
      {.name = "records", .grid = 10, .block = 32}, records, 3840,
      [](unsigned i, const unsigned* in) { return in[i / 384 * 384 + (31 - i / 12 % 32) * 12 + i % 12]; });
}

// The largest block, and many synchronisations.
__global__ void large(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, box, [1024]);
  const unsigned t = threadIdx.x;
  box[t] = in[t];
  for (unsigned k = 0; k < 50; ++k) {
    __syncthreads();
    const unsigned next = box[(t + 37) % 1024];
    __syncthreads();
    box[t] = next;
    __syncwarp();
    box[t] += box[t ^ 0u];
    __syncwarp();
    box[t] /= 2;
  }
  out[blockIdx.x * blockDim.x + t] = box[t];
}
TEST(CleanKernels, ALargeBlock) {
  expect_clean({.name = "large", .grid = 2, .block = 1024}, large, 1024,
               [](unsigned i, const unsigned* in) { return in[(i + 50 * 37) % 1024]; });
}

}  // namespace
}  // namespace assay::ASSAY_FAST_NAMESPACE
