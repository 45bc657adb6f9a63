// Memory around a plane: what is written near it is named, and what is written far from it ends the process.
#include "compare/process/guarded_memory.h"

#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace assay {
namespace {

TEST(GuardedMemory, HasTheAlignmentAndNoBetterOne) {
  for (const size_t alignment : {1u, 2u, 16u, 256u, 4096u})
    for (const size_t bytes : {0u, 1u, 255u, 4096u, 16384u, 300001u}) {
      const GuardedBuffer b("x", bytes, alignment);
      const auto at = reinterpret_cast<uintptr_t>(b.bytes().data());
      EXPECT_EQ(at % (2 * alignment), alignment) << bytes;
      EXPECT_EQ(b.bytes().size(), bytes);
      std::memset(b.bytes().data(), 0x11, bytes);
      EXPECT_FALSE(b.trespass());
    }
}

TEST(GuardedMemory, NamesTheByteThatWasWrittenNearby) {
  for (const size_t bytes : {1u, 100u, 8192u})
    for (const int64_t off : {-256, -255, -1, 0, 1, 254, 255}) {
      const GuardedBuffer b("row.data", bytes, 16);
      std::byte* const at = b.bytes().data() + (off < 0 ? off : static_cast<int64_t>(bytes) + off);
      *at = std::byte{0x5A};
      const std::string where =
          off < 0 ? std::to_string(-off) + " before the start" : std::to_string(off) + " past the end";
      EXPECT_EQ(b.trespass(), "row.data: byte " + where + " was written (5A)");
    }
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(GuardedBuffer("x", 100, 16).trespass());  // of what was there before
}

TEST(GuardedMemory, AFarWriteEndsTheProcessAndIsTold) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto write = [](int64_t off) {
    tell_far_writes();
    const GuardedBuffer other("other", 5000, 64), b("row.data", 100, 1), another("another", 5000, 64);
    *const_cast<volatile std::byte*>(b.bytes().data() + off) = std::byte{0xEE};
  };
  EXPECT_EXIT(write(100 + 1000), testing::KilledBySignal(SIGSEGV),
              "it (wrote|reached) outside of its planes: byte 1000 past the end of row.data");
  EXPECT_EXIT(write(100 + 900000), testing::KilledBySignal(SIGSEGV), "byte 900000 past the end of row.data");
  EXPECT_EXIT(write(-5000), testing::KilledBySignal(SIGSEGV), "byte 5000 before the start of row.data");
  EXPECT_EXIT((tell_far_writes(), std::raise(SIGSEGV)), testing::KilledBySignal(SIGSEGV), "^$");
}

}  // namespace
}  // namespace assay
