// Kernels with a race planted in each. The race checker must find it in every order and name both lines,
// which are marked
// `// <- name`. Built for the preset `race` only.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "fast/launch.h"
#include "fast/simt/device_buffer.h"
#include "tests/simt/shared.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

using RacyKernelsDeathTest = simt::DeathTest;
using simt::fault_of;
using simt::marked;

constexpr unsigned kFull = 0xFFFFFFFFu;

const std::vector<simt::ExecutorOptions>& orders() {
  static const std::vector<simt::ExecutorOptions> kOrders = [] {
    std::vector<simt::ExecutorOptions> all;
    for (uint64_t order = 0; order < 12; ++order) all.push_back({.order = order});
    all.push_back({.threads = 3, .order = 99});
    all.push_back({.order = 5, .poison = 0});
    return all;
  }();
  return kOrders;
}

bool names(const std::string& text, const std::string& line) {
  for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1))
    if (at + line.size() == text.size() ||
        std::string_view(",\n:;").find(text[at + line.size()]) != std::string_view::npos)
      return true;
  return false;
}

// The findings of a report: each begins "  data race: " or the like.
std::vector<std::string> findings(const std::string& text) {
  std::vector<std::string> found;
  for (size_t at = text.find("\n  "); at != std::string::npos;) {
    size_t end = text.find("\n  ", at + 1);
    while (end != std::string::npos && text[end + 3] == ' ') end = text.find("\n  ", end + 1);
    found.push_back(text.substr(at + 3, end - at - 3));
    at = end;
  }
  return found;
}

struct Expected {
  std::string what;                // "data race"
  std::vector<std::string> parts;  // all in one finding; lines as marked() gives them
};

// Every order finds each of the expected, and calls it by the kernel's name.
template <class... P, class... A>
void expect_found(const std::vector<Expected>& expected, const LaunchConfig& config, void (*kernel)(P...),
                  A... args) {
  for (const simt::ExecutorOptions& o : orders()) {
    simt::UseOptions use(o);
    const std::string text = fault_of(config, kernel, args...);
    EXPECT_NE(text.find("kernel '" + std::string(config.name) + "'"), std::string::npos) << text;
    const std::vector<std::string> all = findings(text);
    for (const Expected& e : expected)
      EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                              [&](const std::string& f) {
                                return f.starts_with(e.what) &&
                                       std::all_of(e.parts.begin(), e.parts.end(), [&](const std::string& p) {
                                         return p.starts_with("tests/") ? names(f, p)
                                                                        : f.find(p) != std::string::npos;
                                       });
                              }))
          << e.what << " " << testing::PrintToString(e.parts) << " under " << to_text(o) << " not in\n"
          << text;
  }
}
template <class... P, class... A>
void expect_race(const std::vector<std::string>& parts, const LaunchConfig& config, void (*kernel)(P...),
                 A... args) {
  expect_found({{"data race", parts}}, config, kernel, args...);
}

struct Buffers {
  simt::DeviceBuffer in{64 * 1024, "in"}, out{64 * 1024, "out"};
};

// --- a tile quantizer with shuffles and a transpose through shared memory, and what may be wrong with it ---

enum class Bug {
  none,
  no_barrier,
  past_the_array,
  past_the_row,
  never_written,
  some_at_the_barrier,
  shuffle_in_a_branch,
  shared_scale
};

// 64 x 64 tiles of 16-bit numbers, 256 threads. A row's eighth gives 8 bytes; a maximum over 32 elements
// gives one scale byte.
template <Bug kBug>
__global__ void __launch_bounds__(256)
    tile(const uint16_t* in, int rows, int cols, uint8_t* codes, uint8_t* scales, uint16_t* turned) {
  ASSAY_SHARED_ALIGNED(16, uint16_t, tile, [64][72]);
  const int thread = static_cast<int>(threadIdx.x), row0 = static_cast<int>(blockIdx.y) * 64,
            col0 = static_cast<int>(blockIdx.x) * 64;
  for (int pass = 0; pass < 2; ++pass) {
    const int item = pass * 256 + thread, row = item / 8, group = item % 8;
    const uint4 raw = load16(in + (row0 + row) * cols + col0 + group * 8);
    if (kBug != Bug::never_written || row != 17) store16(&tile[row][group * 8], raw);  // <- tile is filled
    if (kBug == Bug::past_the_array && item == 4 * rows - 1) {
      const int beyond = row + 1;
      tile[beyond][group] = 0x7FFF;  // <- past the array
    }
    if (kBug == Bug::past_the_row && item == 2 * rows - 1) {
      const int beyond = 72 + group;
      tile[row][beyond] = 0x7FFF;  // <- past the row
    }
    unsigned best = max(max(raw.x, raw.y), max(raw.z, raw.w));
    if (kBug == Bug::shuffle_in_a_branch) {
      if (group < 7) best = max(best, __shfl_xor_sync(kFull, best, 1));  // <- shuffle in a branch
    } else {
      best = max(best, __shfl_xor_sync(kFull, best, 1));
      best = max(best, __shfl_xor_sync(kFull, best, 2));
    }
    store8(codes + (row0 + row) * cols + col0 + group * 8, make_uint2(raw.x ^ raw.y, raw.z ^ raw.w));
    const int wrong = kBug == Bug::shared_scale && group == 0 && blockIdx.x == 1 ? 1 : 0;
    const int place = (row0 + row) * (cols / 32) + col0 / 32 + group / 4 - wrong;
    if (group % 4 == 0) scales[place] = static_cast<uint8_t>(best);  // <- scale
  }
  if (kBug == Bug::some_at_the_barrier) {
    if (thread >= 8) __syncthreads();  // <- some at the barrier
  } else if (kBug != Bug::no_barrier) {
    __syncthreads();
  }
  for (int pass = 0; pass < 16; ++pass) {
    const int item = pass * 256 + thread, col = item / 64, row = item % 64;
    turned[(col0 + col) * rows + row0 + row] = tile[row][col];  // <- tile is read
  }
}

struct Tile {
  static constexpr int kRows = 128, kCols = 128;
  simt::DeviceBuffer in{kRows * kCols * 2, "in"}, codes{kRows * kCols, "codes"},
      scales{kRows * kCols / 32, "scales"};
  simt::DeviceBuffer turned{kRows * kCols * 2, "turned"};
  static constexpr LaunchConfig config{.name = "tile", .grid = dim3(kCols / 64, kRows / 64), .block = 256};
  template <Bug kBug> std::string run() {
    return fault_of(config, tile<kBug>, in.as<uint16_t>(), kRows, kCols, codes.as<uint8_t>(),
                    scales.as<uint8_t>(), turned.as<uint16_t>());
  }
  template <Bug kBug> void expect(const std::vector<Expected>& expected) {
    expect_found(expected, config, tile<kBug>, in.as<uint16_t>(), kRows, kCols, codes.as<uint8_t>(),
                 scales.as<uint8_t>(), turned.as<uint16_t>());
  }
  template <Bug kBug> void expect_fault(const std::vector<std::string>& parts) {
    for (const simt::ExecutorOptions& o : orders()) {
      simt::UseOptions use(o);
      const std::string text = run<kBug>();
      for (const std::string& part : parts)
        EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' under " << to_text(o) << " in\n"
                                                      << text;
    }
  }
};

TEST(RacyKernels, TheTileIsCleanWithoutABug) {
  for (const simt::ExecutorOptions& o : orders()) {
    simt::UseOptions use(o);
    EXPECT_EQ(Tile().run<Bug::none>(), "no fault");
  }
}
TEST(RacyKernels, MissingBarrier) {
  Tile().expect<Bug::no_barrier>(
      {{"data race",
        {"shared array 'tile' (9216 bytes", "write of 16 bytes by block (", "read of 2 bytes by block (",
         marked("tile is filled"), marked("tile is read"), "no barrier of the block between them; "}}});
}
TEST(RacyKernels, WriteOutsideASharedArray) {
  Tile t;
  t.expect<Bug::past_the_array>({{"access outside every shared array",
                                  {"shared array 'tile' (9216 bytes", "at byte offset 9230",
                                   "write of 2 bytes", marked("past the array")}}});
  t.expect_fault<Bug::past_the_array>({"written outside shared array 'tile'"});
}
TEST(RacyKernels, WritePastARowInsideTheArray) {
  Tile().expect<Bug::past_the_row>(
      {{"data race",
        {"write of 2 bytes", "write of 16 bytes", marked("past the row"), marked("tile is filled")}}});
}
TEST(RacyKernels, BarrierForSomeThreads) {
  Tile t;
  t.expect_fault<Bug::some_at_the_barrier>(
      {"threads wait at a barrier that other threads of the block exited without reaching",
       marked("some at the barrier")});
  t.expect<Bug::some_at_the_barrier>({{"data race", {marked("tile is filled"), marked("tile is read")}}});
}
TEST(RacyKernels, ShuffleInABranch) {
  Tile().expect_fault<Bug::shuffle_in_a_branch>(
      {"__shfl_xor_sync with mask ffffffff, " + marked("shuffle in a branch")});
}
TEST(RacyKernels, SharedCellsNeverWritten) {
  Tile().expect<Bug::never_written>(
      {{"uninitialised shared read",
        {"shared array 'tile' (9216 bytes", "read of 2 bytes", marked("tile is read")}}});
}
TEST(RacyKernels, TwoBlocksWriteOneScale) {
  Tile().expect<Bug::shared_scale>(
      {{"data race",
        {"buffer 'scales' (512 bytes)", "write of 1 byte by block (0,", "write of 1 byte by block (1,",
         marked("scale"), "blocks of one grid are not ordered"}}});
}

__global__ void misaligned(const uint8_t* in, uint8_t* out) {
  if (threadIdx.x == 5) out[0] = static_cast<uint8_t>(load16(in + 8 * threadIdx.x).x);  // <- misaligned
}
TEST(RacyKernels, MisalignedVectorLoad) {
  Buffers b;
  for (const simt::ExecutorOptions& o : orders()) {
    simt::UseOptions use(o);
    const std::string text = fault_of({.name = "misaligned", .grid = 2, .block = 32}, misaligned,
                                      b.in.as<uint8_t>(), b.out.as<uint8_t>());
    EXPECT_NE(text.find("at " + marked("misaligned") + ": vector load from a misaligned address"),
              std::string::npos)
        << text;
  }
}

__global__ void no_predicate(const uint16_t* in, uint16_t* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i];
}
TEST_F(RacyKernelsDeathTest, MissingPredicateOfTheTail) {
  simt::DeviceBuffer in(2000, "in", 16), out(2000, "out", 16);
  for (const simt::ExecutorOptions& o : {simt::ExecutorOptions{.order = 0}, simt::ExecutorOptions{.order = 1},
                                         simt::ExecutorOptions{.order = 7}}) {
    simt::UseOptions use(o);
    EXPECT_EXIT(launch({.name = "no_predicate", .grid = 4, .block = 256}, no_predicate, in.as<uint16_t>(),
                       out.as<uint16_t>()),
                testing::ExitedWithCode(simt::kMemoryFaultStatus),
                "reads out of bounds: buffer 'in' .2000 bytes. at offset 20");
  }
}

// --- reductions ----------------------------------------------------------------------------------

__global__ void amax(const unsigned* in, unsigned n, unsigned* out) {
  ASSAY_SHARED(unsigned, parts, [32]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned a = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    a = max(a, in[i]);
  a = __reduce_max_sync(kFull, a);
  if (lane == 0) parts[warp] = a;  // <- part is written
  if (warp == 0) {
    a = __reduce_max_sync(kFull, lane < blockDim.x / 32 ? parts[lane] : 0u);  // <- parts are read
    if (lane == 0) atomicMax(out, a);
  }
}
// Reverse order runs the reading warp last, and so never shows it in the result.
TEST(RacyKernels, ReductionWithoutItsBarrier) {
  Buffers b;
  expect_found({{"data race", {marked("part is written"), marked("parts are read"), "shared array 'parts'"}}},
               {.name = "amax", .grid = 8, .block = 256}, amax, b.in.as<unsigned>(), 8192u,
               b.out.as<unsigned>());
}

// The classic tree whose last steps trust the lanes of a warp to run in lockstep.
__global__ void tree(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, sum, [128]);
  const unsigned t = threadIdx.x;
  sum[t] = in[t];
  __syncthreads();
  for (unsigned step = 64; step >= 32; step /= 2) {
    if (t < step) sum[t] += sum[t + step];
    __syncthreads();
  }
  for (unsigned step = 16; step > 0; step /= 2)
    if (t < step) {
      const unsigned other = sum[t + step];  // <- lockstep read
      sum[t] += other;                       // <- lockstep write
    }
  if (t == 0) out[blockIdx.x] = sum[0];
}
TEST(RacyKernels, ReductionTailWithoutSyncwarp) {
  Buffers b;
  expect_race(
      {marked("lockstep read"), marked("lockstep write"), "no __syncwarp or barrier between these lanes"},
      {.name = "tree", .grid = 2, .block = 128}, tree, b.in.as<unsigned>(), b.out.as<unsigned>());
}

// Used twice without a barrier between: the second call's writers overtake the first call's reader.
ASSAY_DEVICE unsigned block_max(unsigned value) {
  ASSAY_SHARED(unsigned, parts, [32]);
  const unsigned best = __reduce_max_sync(kFull, value);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = best;  // <- helper writes
  __syncthreads();
  unsigned all = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) all = max(all, parts[w]);  // <- helper reads
  return all;
}
__global__ void helper_twice(const unsigned* in, unsigned* out) {
  const unsigned first = block_max(in[threadIdx.x]), second = block_max(in[threadIdx.x + 128]);
  out[threadIdx.x] = first + second;
}
TEST(RacyKernels, HelperCalledTwice) {
  Buffers b;
  expect_race({marked("helper writes"), marked("helper reads"), "from tests/simt/racy_kernels.cpp:"},
              {.name = "helper_twice", .grid = 1, .block = 128}, helper_twice, b.in.as<unsigned>(),
              b.out.as<unsigned>());
}

__global__ void scan(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, sum, [128]);
  const unsigned t = threadIdx.x;
  sum[t] = in[t];
  __syncthreads();
  for (unsigned step = 1; step < 128; step *= 2) {
    const unsigned before = t >= step ? sum[t - step] : 0;  // <- scan reads
    sum[t] += before;                                       // <- scan writes
    __syncthreads();
  }
  out[t] = sum[t];
}
TEST(RacyKernels, ScanWithOneBarrierOfTwo) {
  Buffers b;
  expect_race({marked("scan reads"), marked("scan writes")}, {.name = "scan", .grid = 1, .block = 128}, scan,
              b.in.as<unsigned>(), b.out.as<unsigned>());
}

__global__ void histogram(const uint8_t* in, unsigned* out) {
  ASSAY_SHARED(unsigned, bins, [16]);
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  unsigned& bin = bins[in[threadIdx.x] % 16];
  const unsigned old = bin;  // <- bin is read
  bin = old + 1;             // <- bin is raised
  __syncthreads();
  if (threadIdx.x < 16) out[threadIdx.x] = bins[threadIdx.x];
}
TEST(RacyKernels, HistogramWithoutAtomics) {
  Buffers b;
  expect_found({{"data race", {marked("bin is read"), marked("bin is raised")}},
                {"data race", {"write of 4 bytes", marked("bin is raised")}}},
               {.name = "histogram", .grid = 1, .block = 96}, histogram, b.in.as<uint8_t>(),
               b.out.as<unsigned>());
}

// --- staging -------------------------------------------------------------------------------------

// Dynamic shared memory as a ring of stages: fill, wait, use.
enum class Stage { read_before_filled, no_barrier_after_fill, no_barrier_before_refill };
template <Stage kStage> __global__ void staged(const unsigned* in, unsigned* out) {
  ASSAY_DYNAMIC_SHARED(unsigned, stage);
  const unsigned t = threadIdx.x, n = blockDim.x;
  unsigned sum = 0;
  for (unsigned k = 0; k < 4; ++k) {
    unsigned* mine = stage + k % 2 * n;
    if (kStage == Stage::read_before_filled) sum += mine[t];  // <- read before the fill
    mine[t] = in[k * n + t];                                  // <- fill
    if (kStage != Stage::no_barrier_after_fill) __syncthreads();
    sum += mine[n - 1 - t];  // <- use
    if (kStage == Stage::no_barrier_after_fill) __syncthreads();
  }
  out[blockIdx.x * n + t] = sum;
}
// One barrier a pass suffices for a ring of two, so the missing one must be found in a ring of one.
__global__ void refilled(const unsigned* in, unsigned* out) {
  ASSAY_DYNAMIC_SHARED(unsigned, stage);
  const unsigned t = threadIdx.x, n = blockDim.x;
  unsigned sum = 0;
  for (unsigned k = 0; k < 4; ++k) {
    stage[t] = in[k * n + t];  // <- refill
    __syncthreads();
    sum += stage[n - 1 - t];  // <- use before the refill
  }
  out[blockIdx.x * n + t] = sum;
}
constexpr LaunchConfig staged_config(const char* name) {
  return {.name = name, .grid = 2, .block = 64, .dynamic_shared_bytes = 2 * 64 * 4};
}
TEST(RacyKernels, ReadBeforeTheCopyArrived) {
  Buffers b;
  expect_found({{"uninitialised shared read", {"'dynamic shared memory'", marked("read before the fill")}}},
               staged_config("read_before"), staged<Stage::read_before_filled>, b.in.as<unsigned>(),
               b.out.as<unsigned>());
}
TEST(RacyKernels, NoBarrierAfterTheCopy) {
  Buffers b;
  expect_race({"'dynamic shared memory'", marked("fill"), marked("use")}, staged_config("no_barrier_after"),
              staged<Stage::no_barrier_after_fill>, b.in.as<unsigned>(), b.out.as<unsigned>());
}
TEST(RacyKernels, NoBarrierBeforeTheRefill) {
  Buffers b;
  expect_race({marked("refill"), marked("use before the refill")}, staged_config("refilled"), refilled,
              b.in.as<unsigned>(), b.out.as<unsigned>());
}

// Warp 0 produces for the others through a ring of two; the barrier that hands a slot back is missing.
__global__ void produced(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, slots, [2][32]);
  const unsigned lane = threadIdx.x % 32;
  const bool producer = threadIdx.x < 32;
  unsigned sum = 0;
  if (producer) slots[0][lane] = in[lane];
  __syncthreads();
  for (unsigned k = 0; k < 6; ++k) {
    if (producer) slots[(k + 1) % 2][lane] = in[(k + 1) * 32 + lane];  // <- producer
    else sum += slots[k % 2][31 - lane];                               // <- consumer
    if (k % 2 == 0) __syncthreads();
  }
  out[threadIdx.x] = sum;
}
TEST(RacyKernels, DoubleBufferWithOneBarrierMissing) {
  Buffers b;
  expect_race({marked("producer"), marked("consumer")}, {.name = "produced", .grid = 1, .block = 96},
              produced, b.in.as<unsigned>(), b.out.as<unsigned>());
}

// The consumer looks at the slot without waiting.
__global__ void unwaited(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, slot, [32]);
  if (threadIdx.x < 32) slot[threadIdx.x] = in[threadIdx.x];  // <- slot is filled
  else out[threadIdx.x] = slot[threadIdx.x - 32];             // <- slot is used
}
TEST(RacyKernels, ConsumerDoesNotWait) {
  Buffers b;
  expect_race({marked("slot is filled"), marked("slot is used")},
              {.name = "unwaited", .grid = 1, .block = 64}, unwaited, b.in.as<unsigned>(),
              b.out.as<unsigned>());
}

// One array for two purposes.
__global__ void reused(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, scratch, [64]);
  const unsigned t = threadIdx.x;
  scratch[t] = in[t];
  __syncthreads();
  const unsigned turned = scratch[63 - t];  // <- first purpose
  scratch[t] = turned * 3;                  // <- second purpose
  __syncthreads();
  out[t] = scratch[(t + 7) % 64];
}
TEST(RacyKernels, ArrayReusedWithoutABarrier) {
  Buffers b;
  expect_race({marked("first purpose"), marked("second purpose")}, {.name = "reused", .grid = 1, .block = 64},
              reused, b.in.as<unsigned>(), b.out.as<unsigned>());
}

// --- warps ---------------------------------------------------------------------------------------

enum class Sync { none, shuffle, half, late };
template <Sync kSync> __global__ void exchange(unsigned* out) {
  ASSAY_SHARED(unsigned, box, [64]);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  box[threadIdx.x] = threadIdx.x;  // <- box is filled
  if (kSync == Sync::shuffle) __shfl_xor_sync(kFull, 1, 1);
  if (kSync == Sync::half) __syncwarp(lane < 16 ? 0x0000FFFFu : 0xFFFF0000u);
  if (kSync == Sync::late) __syncwarp();
  const unsigned from = kSync == Sync::late ? (threadIdx.x + 32) % 64 : warp * 32 + (lane ^ 16u);
  out[threadIdx.x] = box[from];  // <- box is read
}
TEST(RacyKernels, LockstepAssumed) {
  Buffers b;
  expect_race(
      {marked("box is filled"), marked("box is read"), "no __syncwarp or barrier between these lanes"},
      {.name = "exchange", .grid = 1, .block = 64}, exchange<Sync::none>, b.out.as<unsigned>());
}
TEST(RacyKernels, AShuffleOrdersNoMemory) {
  Buffers b;
  expect_race({marked("box is filled"), marked("box is read")}, {.name = "exchange", .grid = 1, .block = 64},
              exchange<Sync::shuffle>, b.out.as<unsigned>());
}
TEST(RacyKernels, SyncwarpOfTheWrongLanes) {
  Buffers b;
  expect_race({marked("box is filled"), marked("box is read")}, {.name = "exchange", .grid = 1, .block = 64},
              exchange<Sync::half>, b.out.as<unsigned>());
}
TEST(RacyKernels, SyncwarpWhereTheBlockMustWait) {
  Buffers b;
  expect_race({marked("box is filled"), marked("box is read"), "no barrier of the block between them"},
              {.name = "exchange", .grid = 1, .block = 64}, exchange<Sync::late>, b.out.as<unsigned>());
}

// Lane 9 alone has not waited; 31 other lanes have, and are remembered with it.
__global__ void one_late_reader(unsigned* out) {
  ASSAY_SHARED(unsigned, word, [1]);
  if (threadIdx.x == 0) word[0] = 1;
  __syncwarp();
  out[threadIdx.x] = word[0];  // <- everybody reads
  if (threadIdx.x != 9) __syncwarp(~(1u << 9));
  if (threadIdx.x == 4) word[0] = 2;  // <- one writes
}
TEST(RacyKernels, OneOfManyReadersIsNotWaitedFor) {
  Buffers b;
  expect_race({marked("everybody reads"), marked("one writes"), "thread (9,0,0)", "thread (4,0,0)"},
              {.name = "one_late_reader", .grid = 1, .block = 32}, one_late_reader, b.out.as<unsigned>());
}

// The writer has read the word last, and is ordered after itself; the others' reads must not be forgotten for
// its.
__global__ void last_reader_writes(unsigned* out) {
  ASSAY_SHARED(unsigned, word, [1]);
  if (threadIdx.x == 0) word[0] = 1;
  __syncthreads();
  const unsigned seen = word[0];              // <- word is read by all
  if (threadIdx.x == 63) word[0] = seen + 1;  // <- word is written by one
  out[threadIdx.x] = seen;
}
TEST(RacyKernels, AReaderWhoWrites) {
  Buffers b;
  expect_race({marked("word is read by all"), marked("word is written by one"),
               "no barrier of the block between them"},
              {.name = "last_reader_writes", .grid = 1, .block = 64}, last_reader_writes,
              b.out.as<unsigned>());
}

__global__ void same_value(unsigned* out) {
  ASSAY_SHARED(unsigned, flag, [1]);
  flag[0] = 1;  // <- everybody raises the flag
  __syncthreads();
  out[threadIdx.x] = flag[0];
}
TEST(RacyKernels, EqualValuesRaceToo) {
  Buffers b;
  expect_race({marked("everybody raises the flag"), "write of 4 bytes"},
              {.name = "same_value", .grid = 1, .block = 64}, same_value, b.out.as<unsigned>());
}

// --- atomics -------------------------------------------------------------------------------------

__global__ void peek(unsigned* out) {
  ASSAY_SHARED(unsigned, best, [1]);
  if (threadIdx.x == 0) best[0] = 0;
  __syncthreads();
  atomicMax(&best[0], threadIdx.x);  // <- atomic maximum
  out[threadIdx.x] = best[0];        // <- plain read
}
TEST(RacyKernels, PlainReadBesideAnAtomic) {
  Buffers b;
  expect_race({marked("atomic maximum"), marked("plain read"), "atomic of 4 bytes", "and only one is atomic"},
              {.name = "peek", .grid = 1, .block = 64}, peek, b.out.as<unsigned>());
}
__global__ void late_zero(unsigned* out) {
  ASSAY_SHARED(unsigned, count, [1]);
  if (threadIdx.x == 0) count[0] = 0;  // <- count is cleared
  atomicAdd(&count[0], 1u);            // <- count is raised
  __syncthreads();
  out[threadIdx.x] = count[0];
}
TEST(RacyKernels, ClearedWhileOthersCount) {
  Buffers b;
  expect_race({marked("count is cleared"), marked("count is raised")},
              {.name = "late_zero", .grid = 1, .block = 64}, late_zero, b.out.as<unsigned>());
}
__global__ void two_widths(unsigned* out) {
  if (threadIdx.x == 0) atomicAdd(reinterpret_cast<unsigned long long*>(out), 1ull);  // <- wide atomic
  if (threadIdx.x == 1) atomicAdd(out + 1, 1u);                                       // <- narrow atomic
}
TEST(RacyKernels, AtomicsOfTwoWidths) {
  Buffers b;
  expect_race({marked("wide atomic"), marked("narrow atomic"), "atomic of 8 bytes", "atomic of 4 bytes"},
              {.name = "two_widths", .grid = 1, .block = 32}, two_widths, b.out.as<unsigned>());
}
__global__ void best_of_all(const unsigned* in, unsigned* out) {
  atomicMax(out, in[blockIdx.x]);  // <- result is raised
  out[1 + blockIdx.x] = out[0];    // <- result is read early
}
TEST(RacyKernels, AtomicResultReadByAnotherBlock) {
  Buffers b;
  expect_race({marked("result is raised"), marked("result is read early"),
               "blocks of one grid are not ordered, and only one is atomic"},
              {.name = "best_of_all", .grid = 16, .block = 1}, best_of_all, b.in.as<unsigned>(),
              b.out.as<unsigned>());
}

// --- global memory -------------------------------------------------------------------------------

__global__ void two_writers(uint8_t* out) {
  if (threadIdx.x == 0) out[0] = static_cast<uint8_t>(blockIdx.x);  // <- both blocks write
}
TEST(RacyKernels, TwoBlocksWriteOneByte) {
  Buffers b;
  expect_race({"buffer 'out' (65536 bytes) at offset 0", "write of 1 byte by block (0,0,0) thread (0,0,0)",
               "write of 1 byte by block (1,0,0) thread (0,0,0)", marked("both blocks write")},
              {.name = "two_writers", .grid = 2, .block = 32}, two_writers, b.out.as<uint8_t>());
}
__global__ void neighbours_output(unsigned* data) {
  data[blockIdx.x] = blockIdx.x;                                   // <- own output
  data[64 + blockIdx.x] = data[(blockIdx.x + 1) % gridDim.x] + 1;  // <- neighbour's output
}
TEST(RacyKernels, ReadsWhatAnotherBlockWrites) {
  Buffers b;
  expect_race({marked("own output"), marked("neighbour's output")},
              {.name = "neighbours_output", .grid = 5, .block = 1}, neighbours_output, b.out.as<unsigned>());
}
__global__ void last_block_writes(unsigned* data) {
  const unsigned seen = data[0];                        // <- read by every block
  if (blockIdx.x == gridDim.x - 1) data[0] = seen + 1;  // <- written by the last
  data[1 + blockIdx.x] = seen;
}
TEST(RacyKernels, ABlockThatReadsAndWrites) {
  Buffers b;
  expect_race({marked("read by every block"), marked("written by the last"), "blocks of one grid"},
              {.name = "last_block_writes", .grid = 5, .block = 1}, last_block_writes, b.out.as<unsigned>());
}
// Publishing by a relaxed counter: the last block reads everybody's part, which nothing orders before its
// read.
__global__ void last_block(unsigned* parts, unsigned* count, unsigned* out) {
  parts[blockIdx.x] = blockIdx.x;  // <- part is published
  if (atomicAdd(count, 1u) + 1 == gridDim.x) {
    unsigned sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];  // <- parts are summed
    out[0] = sum;
  }
}
TEST(RacyKernels, LastBlockWithoutAFence) {
  for (const simt::ExecutorOptions& o : orders()) {
    simt::UseOptions use(o);
    simt::DeviceBuffer parts(64, "parts"), count(4, "count"), out(4, "out");
    *count.as<unsigned>() = 0;
    const std::string text = fault_of({.name = "last_block", .grid = 8, .block = 1}, last_block,
                                      parts.as<unsigned>(), count.as<unsigned>(), out.as<unsigned>());
    EXPECT_TRUE(names(text, marked("part is published")) && names(text, marked("parts are summed")))
        << to_text(o) << text;
  }
}
__global__ void overlapping_tiles(const uint16_t* in, uint16_t* out) {
  const unsigned i = blockIdx.x * 64 + threadIdx.x;
  if (threadIdx.x <= 64) out[i] = in[i];  // <- tile of 65
}
TEST(RacyKernels, TilesThatOverlapByOne) {
  Buffers b;
  expect_race({marked("tile of 65"), "by block (0,0,0) thread (64,0,0)", "by block (1,0,0) thread (0,0,0)",
               "at offset 128"},
              {.name = "overlapping_tiles", .grid = 2, .block = 96}, overlapping_tiles, b.in.as<uint16_t>(),
              b.out.as<uint16_t>());
}
__global__ void byte_in_a_word(uint8_t* out) {
  if (blockIdx.x == 0) reinterpret_cast<unsigned*>(out)[threadIdx.x] = 0x01010101u;  // <- whole word
  else if (threadIdx.x == 3) out[4 * threadIdx.x + 3] = 2;                           // <- last byte of a word
}
TEST(RacyKernels, AByteOfAnotherBlocksWord) {
  Buffers b;
  expect_race({marked("whole word"), marked("last byte of a word"),
               "write of 4 bytes by block (0,0,0) thread (3,0,0)", "write of 1 byte", "at offset 15"},
              {.name = "byte_in_a_word", .grid = 2, .block = 8}, byte_in_a_word, b.out.as<uint8_t>());
}
__global__ void read_modify_word(uint8_t* out) {
  unsigned* word = reinterpret_cast<unsigned*>(out) + threadIdx.x / 4;
  const unsigned shift = threadIdx.x % 4 * 8;
  *word = (*word & ~(0xFFu << shift)) | threadIdx.x << shift;  // <- byte set by its word
}
TEST(RacyKernels, BytesSetThroughTheirWord) {
  Buffers b;
  expect_race({marked("byte set by its word")}, {.name = "read_modify_word", .grid = 1, .block = 32},
              read_modify_word, b.out.as<uint8_t>());
}
__global__ void transpose_in_place(uint16_t* data, unsigned n) {
  const unsigned row = blockIdx.x, col = threadIdx.x;
  const uint16_t mine = data[row * n + col];  // <- element is read
  data[col * n + row] = mine;                 // <- element is turned
}
TEST(RacyKernels, TransposeInPlace) {
  Buffers b;
  expect_race({marked("element is read"), marked("element is turned"), "blocks of one grid are not ordered"},
              {.name = "transpose_in_place", .grid = 16, .block = 16}, transpose_in_place,
              b.out.as<uint16_t>(), 16u);
}
__global__ void smoothed(unsigned* data) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned next = data[i + 1];  // <- neighbour is read
  data[i] += next;                    // <- own is changed
}
TEST(RacyKernels, NeighbourUpdatedInPlace) {
  Buffers b;
  expect_race({marked("neighbour is read"), marked("own is changed"), "buffer 'out'"},
              {.name = "smoothed", .grid = 1, .block = 40}, smoothed, b.out.as<unsigned>());
}
struct Record {
  unsigned words[12];
};
__global__ void records(const Record* in, Record* out) {
  out[threadIdx.x / 2] = in[threadIdx.x];  // <- record is copied
}
TEST(RacyKernels, WholeObjectsCopied) {
  Buffers b;
  expect_race({marked("record is copied"), "buffer 'out'"}, {.name = "records", .grid = 1, .block = 8},
              records, b.in.as<Record>(), b.out.as<Record>());
}
__global__ void copied_bytes(const uint8_t* in, uint8_t* out, unsigned bytes) {
  std::memcpy(out + threadIdx.x * 20, in, bytes);  // <- bytes are copied
}
TEST(RacyKernels, BytesCopied) {
  Buffers b;
  expect_race({marked("bytes are copied"), "write of 24 bytes"},
              {.name = "copied_bytes", .grid = 1, .block = 8}, copied_bytes, b.in.as<uint8_t>(),
              b.out.as<uint8_t>(), 24u);
}

// --- shared memory: padding ----------------------------------------------------------------------

// A row is read by vectors that reach into its padding, which nobody writes.
__global__ void padding_read(const unsigned* in, unsigned* out) {
  ASSAY_SHARED_ALIGNED(16, unsigned, rows, [8][36]);
  for (unsigned c = threadIdx.x; c < 33; c += 32)
    for (unsigned r = 0; r < 8; ++r) rows[r][c] = in[r * 33 + c];
  __syncthreads();
  if (threadIdx.x < 8)
    store16(out + 4 * threadIdx.x, load16(&rows[threadIdx.x][32]));  // <- reads the padding
}
TEST(RacyKernels, UninitialisedPadding) {
  Buffers b;
  expect_found({{"uninitialised shared read",
                 {marked("reads the padding"), "read of ", "shared array 'rows' (1152 bytes"}}},
               {.name = "padding_read", .grid = 1, .block = 32}, padding_read, b.in.as<unsigned>(),
               b.out.as<unsigned>());
}
// A pitch of 33 against bank conflicts, which one store forgets.
__global__ void wrong_pitch(const unsigned* in, unsigned* out) {
  ASSAY_SHARED(unsigned, flat, [32 * 33]);
  const unsigned t = threadIdx.x;
  flat[t * 33] = in[t];                                      // <- pitch 33
  if (t < 31) flat[(t + 1) * 32 + 31 - t % 2] = in[t + 32];  // <- pitch 32
  __syncthreads();
  out[t] = flat[t * 33];
}
TEST(RacyKernels, PaddingMisindexed) {
  Buffers b;
  expect_race({marked("pitch 33"), marked("pitch 32"), "shared array 'flat'"},
              {.name = "wrong_pitch", .grid = 1, .block = 32}, wrong_pitch, b.in.as<unsigned>(),
              b.out.as<unsigned>());
}
__global__ void atomic_on_nothing(unsigned* out) {
  ASSAY_SHARED(unsigned, count, [1]);
  atomicAdd(&count[0], 1u);  // <- counts from nothing
  __syncthreads();
  out[threadIdx.x] = count[0];
}
TEST(RacyKernels, AtomicOnAnUninitialisedCell) {
  Buffers b;
  expect_found({{"uninitialised shared read", {marked("counts from nothing"), "atomic of 4 bytes"}}},
               {.name = "atomic_on_nothing", .grid = 2, .block = 32}, atomic_on_nothing,
               b.out.as<unsigned>());
}
// What the block before left there is not this block's.
__global__ void left_by_another_block(unsigned* out) {
  ASSAY_SHARED(unsigned, word, [1]);
  if (blockIdx.x % 2 == 0 && threadIdx.x == 0) word[0] = 1;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = word[0];  // <- reads another block's leavings
}
TEST(RacyKernels, SharedMemoryDoesNotOutliveItsBlock) {
  Buffers b;
  expect_found({{"uninitialised shared read", {marked("reads another block's leavings")}}},
               {.name = "left_by_another_block", .grid = 6, .block = 32}, left_by_another_block,
               b.out.as<unsigned>());
}
__global__ void read_outside(unsigned* out, unsigned at) {
  ASSAY_SHARED(unsigned, few, [8]);
  if (threadIdx.x < 8) few[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = few[threadIdx.x == 7 ? at : 0];  // <- reads outside
}
TEST(RacyKernels, ReadOutsideASharedArray) {
  Buffers b;
  expect_found(
      {{"access outside every shared array",
        {marked("reads outside"), "read of 4 bytes", "shared array 'few' (32 bytes", "at byte offset 36"}}},
      {.name = "read_outside", .grid = 1, .block = 8}, read_outside, b.out.as<unsigned>(), 9u);
}

// --- reports -------------------------------------------------------------------------------------

// One line, one pair, many bytes and threads: one finding with a count.
TEST(RacyKernels, OneFindingForEachPairOfLines) {
  Tile t;
  const std::string text = t.run<Bug::no_barrier>();
  EXPECT_TRUE(text.starts_with("kernel 'tile': 1 data race\n  data race: shared array 'tile'")) << text;
  EXPECT_EQ(findings(text).size(), 2u) << text;  // and the order
  EXPECT_NE(text.find(" such pairs\n  order forward, poison 7f"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  simt::UseOptions use({.threads = 4});
  EXPECT_EQ(t.run<Bug::no_barrier>(), text) << "reports do not depend on the number of OS threads";
}

// Accesses are counted, not their bytes: here two of two bytes each.
TEST(RacyKernels, CountsAccesses) {
  Buffers b;
  const std::string text = fault_of({.name = "overlapping_tiles", .grid = 2, .block = 96}, overlapping_tiles,
                                    b.in.as<uint16_t>(), b.out.as<uint16_t>());
  EXPECT_NE(text.find("\n    blocks of one grid are not ordered\n  order forward"), std::string::npos)
      << text;
}

// A faulty grid leaves nothing behind for the next.
TEST(RacyKernels, CleanAfterAFault) {
  Tile t;
  EXPECT_NE(t.run<Bug::no_barrier>(), "no fault");
  EXPECT_EQ(t.run<Bug::none>(), "no fault");
  EXPECT_NE(t.run<Bug::shared_scale>(), "no fault");
  EXPECT_EQ(t.run<Bug::none>(), "no fault");
}

}  // namespace
}  // namespace assay::ASSAY_FAST_NAMESPACE
