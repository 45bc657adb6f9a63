// Device buffers: where they lie, what guards them, and how a process ends that touches what it may not.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "fast/launch.h"
#include "fast/simt/device_buffer.h"
#include "fast/simt/fiber.h"
#include "fast/simt/sanitizer.h"
#include "tests/simt/shared.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

using simt::DeviceBuffer;
using Align = DeviceBuffer::Align;
const auto kExit = testing::ExitedWithCode(simt::kMemoryFaultStatus);

TEST(DeviceBuffers, AlignmentAndContents) {
  for (size_t alignment : {1u, 2u, 4u, 16u, 256u, 4096u})
    for (size_t bytes : {0u, 1u, 5u, 16u, 100u, 4095u, 4096u, 4097u, 100000u}) {
      simt::UseOptions use({.poison = 0x3C});
      DeviceBuffer loose(bytes, "loose", alignment), tight(bytes, "tight", alignment, Align::exactly);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(loose.data()) % alignment, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tight.data()) % (2 * alignment), alignment);
      EXPECT_EQ(loose.size(), bytes);
      for (std::byte b : loose.bytes()) ASSERT_EQ(b, std::byte{0x3C});
      std::memset(tight.data(), 1, bytes);
      EXPECT_FALSE(loose.intact());
      EXPECT_FALSE(tight.intact());
    }
  EXPECT_THROW(DeviceBuffer(1, "odd", 3), std::invalid_argument);
  EXPECT_THROW(DeviceBuffer(1, "huge", 8192), std::invalid_argument);
  EXPECT_THROW(DeviceBuffer(size_t{1} << 40, "huge"), std::bad_alloc);
}

TEST(DeviceBuffers, BuffersDoNotOverlap) {
  std::vector<DeviceBuffer> buffers;
  for (size_t i = 0; i < 200; ++i)
    buffers.emplace_back(i * 37 % 9000, "b" + std::to_string(i), size_t{1} << (i % 9));
  for (size_t i = 0; i < 200; ++i) std::memset(buffers[i].data(), static_cast<int>(i), buffers[i].size());
  for (size_t i = 0; i < 200; ++i) {
    EXPECT_FALSE(buffers[i].intact());
    for (std::byte b : buffers[i].bytes()) ASSERT_EQ(b, std::byte(i));
  }
  DeviceBuffer moved = std::move(buffers[7]);
  EXPECT_EQ(moved.size(), 7 * 37u);
  EXPECT_EQ(buffers[7].data(), nullptr);
  buffers[7] = std::move(moved);
  EXPECT_EQ(buffers[7].size(), 7 * 37u);
}

TEST(DeviceBuffers, ThousandsAreCheap) {
  const std::byte* first = DeviceBuffer(5000, "warm").data();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20000; ++i) {
    DeviceBuffer b(5000, "again");
    ASSERT_EQ(b.data(), first) << "memory is reused";
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(),
            2.0);  // 0.02 s when measured; a system call for each would still pass, a new mapping would not
}

TEST(DeviceBuffers, AnInputThatWasWrittenIsNamedWithItsPlace) {
  DeviceBuffer x(100, "x"), empty(0, "empty");
  const std::vector<std::byte> given(100, std::byte{7});
  std::memcpy(x.data(), given.data(), given.size());
  EXPECT_FALSE(x.changed_from(given));
  EXPECT_FALSE(empty.changed_from({}));
  x.data()[99] = std::byte{8};
  ASSERT_TRUE(x.changed_from(given));
  EXPECT_EQ(*x.changed_from(given), "buffer 'x' (100 bytes) at offset 99 was written, and is an input");
}

__attribute__((no_sanitize("address"))) void poke(std::byte* p) { *p = std::byte{1}; }

TEST(DeviceBuffers, WritesAroundAreFound) {
  DeviceBuffer b(100, "slack", 64);
  poke(b.data() + 101);
  ASSERT_TRUE(b.intact());
  EXPECT_EQ(*b.intact(), "buffer 'slack' (100 bytes) at offset 101, 1 past the end was written");
  DeviceBuffer c(64, "front", 64);
  poke(c.data() - 3);
  ASSERT_TRUE(c.intact());
  EXPECT_EQ(*c.intact(), "buffer 'front' (64 bytes) at offset -3, before the start was written");
  EXPECT_FALSE(DeviceBuffer(100, "next", 64).intact());
}

__global__ void write_at(uint8_t* p, long offset) {
  if (blockIdx.x == 1 && threadIdx.x == 2) p[offset] = 1;
}
__global__ void read_at(const uint8_t* p, long offset, uint8_t* out) {
  if (blockIdx.x == 1 && threadIdx.x == 2) *out = p[offset];
}
constexpr LaunchConfig kPoke = {.name = "poke", .grid = 2, .block = 4};

using MemoryFaultsDeathTest = simt::DeathTest;

// The very first byte past the end, without any sanitizer.
TEST_F(MemoryFaultsDeathTest, OneBytePastTheEnd) {
  uint8_t out;
  for (const simt::ExecutorOptions& o :
       {simt::ExecutorOptions{}, {.threads = 2, .order = 1}, {.threads = 3, .order = 17}}) {
    simt::UseOptions use(o);
    for (auto [bytes, alignment] :
         {std::pair<size_t, size_t>{256, 256}, {4096, 16}, {5000, 8}, {30, 2}, {7, 1}}) {
      DeviceBuffer x(bytes, "x", alignment);
      const long end = static_cast<long>(bytes);
      const std::string where = "block \\(1,0,0\\) thread \\(2,0,0\\) [a-z]+ out of bounds: buffer 'x' \\(" +
                                std::to_string(bytes) + " bytes\\) at offset " + std::to_string(bytes) +
                                ", 0 past the end";
      EXPECT_EXIT(launch(kPoke, write_at, x.as<uint8_t>(), end), kExit, "kernel 'poke' " + where);
      EXPECT_EXIT(launch(kPoke, read_at, x.as<uint8_t>(), end, &out), kExit, "kernel 'poke' " + where);
      launch(kPoke, write_at, x.as<uint8_t>(), end - 1);
    }
  }
}

TEST_F(MemoryFaultsDeathTest, OtherPlaces) {
  DeviceBuffer x(8192, "x");
  EXPECT_EXIT(launch(kPoke, write_at, x.as<uint8_t>(), -1L), kExit,
              "buffer 'x' .8192 bytes. at offset -1, before the start");
  EXPECT_EXIT(launch(kPoke, write_at, x.as<uint8_t>(), 8192L + 3000), kExit,
              "at offset 11192, 3000 past the end");
  EXPECT_EXIT(launch(kPoke, write_at, x.as<uint8_t>(), 20L << 30), kExit, "buffer '[a-z]+'");
  EXPECT_EXIT(launch(kPoke, write_at, static_cast<uint8_t*>(nullptr), 64L), kExit,
              "address 0x40, which is no device buffer");
#if defined(__x86_64__)
  EXPECT_EXIT(launch(kPoke, write_at, x.as<uint8_t>(), 8192L), kExit, "writes out of bounds");
  uint8_t out;
  EXPECT_EXIT(launch(kPoke, read_at, x.as<uint8_t>(), 8192L, &out), kExit, "reads out of bounds");
#endif
}

// Outside kernels a fault goes to whoever handled it before.
TEST_F(MemoryFaultsDeathTest, FaultsOutsideKernelsAreNotOurs) {
  const auto go = [] {
    signal(SIGSEGV, [](int) { _exit(3); });
    DeviceBuffer x(16, "x", 16);
    x.as<volatile uint8_t>()[16] = 1;
  };
  EXPECT_EXIT(go(), testing::ExitedWithCode(3), "");
}

unsigned recurse(unsigned depth) {
  volatile char frame[1000];
  frame[depth % 1000] = 1;
  return depth == 0 ? 0 : recurse(depth - 1) + static_cast<unsigned>(frame[depth % 1000]);
}
__global__ void deep(unsigned depth, unsigned* out) { *out = recurse(depth); }
TEST_F(MemoryFaultsDeathTest, StackOverflow) {
  unsigned out = 0;
  launch({.name = "deep", .grid = 1, .block = 1}, deep, 50u, &out);
  EXPECT_EQ(out, 50u);
  for (int threads : {1, 2}) {
    simt::UseOptions use({.threads = threads});
    EXPECT_EXIT(launch({.name = "deep", .grid = 4, .block = 1}, deep, 100000u, &out), kExit,
                "kernel 'deep'.*stack of [0-9]+ KB overflowed");
  }
}

}  // namespace
}  // namespace assay::ASSAY_FAST_NAMESPACE
