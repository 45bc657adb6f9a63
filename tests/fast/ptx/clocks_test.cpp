// Registers that tell the time: here the count of what lanes have done.
#include <gtest/gtest.h>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr unsigned kThreads = 64;

struct Clocks {
  std::vector<uint64_t> values = std::vector<uint64_t>(4 * kThreads);
  std::string error;
};

// %rd2 to %rd5 are the thread's four results.
Clocks clocks_of(const std::string& body, const RunOptions& options = {}, unsigned blocks = 1) {
  Clocks o;
  try {
    Module m(kernel_text(
        ".param .u64 out",
        ".reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<16>;\nld.param.u64 %rd1, "
        "[out];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %rd1, %r0, 32, %rd1;\nmov.u64 %rd2, "
        "0;\nmov.u64 %rd3, 0;\nmov.u64 %rd4, 0;\nmov.u64 %rd5, 0;\n" +
            body +
            "\nst.global.v2.u64 [%rd1], {%rd2, %rd3};\nst.global.v2.u64 [%rd1+16], {%rd4, %rd5};\nret;"));
    Memory memory;
    memory.add(o.values.data(), o.values.size() * 8, "out", true, false);
    Launch launch;
    launch.block = {kThreads, 1, 1};
    launch.grid = {blocks, 1, 1};
    launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(o.values.data())});
    run(m, "kernel", launch, memory, options);
  } catch (const Fault& e) {
    o.error = e.what();
  }
  return o;
}

TEST(PtxClocks, TheyGrowWithEveryReading) {
  const Clocks o = clocks_of(
      "mov.u64 %rd2, %clock64;\nmov.u64 %rd3, %globaltimer;\nmov.b64 %rd4, %globaltimer;\n@%p0 add.s32 %r1, "
      "%r0, 1;\nmov.u64 %rd5, %clock64;");
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t)
    for (unsigned k = 1; k < 4; ++k)
      EXPECT_GT(o.values[4 * t + k], o.values[4 * t + k - 1]) << "thread " << t << ", reading " << k;
}

// One warp comes first: seven instructions of 32 lanes each before the mov, and the mov itself.
TEST(PtxClocks, TheyCountInstructionsOfLanes) {
  const std::string body = "mov.u64 %rd2, %clock64;\nmov.u64 %rd3, %clock64;";
  for (const bool check : {false, true}) {
    RunOptions options;
    options.check = check;
    const Clocks o = clocks_of(body, options);
    ASSERT_EQ(o.error, "");
    EXPECT_EQ(o.values[0], 8u * 32) << check;
    EXPECT_EQ(o.values[1], 9u * 32) << check;
    // The warp before has carried out twelve.
    EXPECT_EQ(o.values[size_t{4} * 32], (12u + 8) * 32) << check;
  }
}

TEST(PtxClocks, TheyGoOnFromBlockToBlock) {
  const std::string body = "mov.u64 %rd2, %globaltimer;";
  EXPECT_EQ(clocks_of(body, {}, 2).values[0], (2 * 11u + 8) * 32);  // the last block's stay in `out`
}

TEST(PtxClocks, PartsAreThoseOfTheWhole) {
  const Clocks o = clocks_of(
      "mov.u32 %r1, %clock;\nmov.u32 %r2, %clock_hi;\nmov.u32 %r3, %globaltimer_lo;\nmov.u32 %r4, "
      "%globaltimer_hi;\nmov.u64 %rd2, %clock64;\ncvt.u64.u32 %rd3, %r1;\ncvt.u64.u32 %rd4, %r3;\nor.b32 "
      "%r2, %r2, %r4;\nmov.u64 %rd6, %gridid;\ncvt.u64.u32 %rd5, %r2;\nor.b64 %rd5, %rd5, %rd6;");
  ASSERT_EQ(o.error, "");
  EXPECT_EQ(o.values[1], 8u * 32);
  EXPECT_EQ(o.values[2], 10u * 32);
  EXPECT_EQ(o.values[0], 12u * 32);
  EXPECT_EQ(o.values[3], 0u);
}

// A kernel that waits for time to pass comes to an end.
TEST(PtxClocks, AWaitForTimeEnds) {
  const Clocks o = clocks_of(
      "mov.u64 %rd2, %globaltimer;\nadd.u64 %rd3, %rd2, 100000;\nAGAIN:\nmov.u64 %rd4, "
      "%globaltimer;\nsetp.lt.u64 %p0, %rd4, %rd3;\n@%p0 bra AGAIN;");
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_GE(o.values[4 * t + 2], o.values[4 * t + 1]);
}

TEST(PtxClocks, OthersThanMovAreRefused) {
  for (const auto& [statement, words] :
       {std::pair{"add.u32 %r1, %clock, 1;", "'add.u32' reads a clock, which is understood of mov to one"},
        std::pair{"mov.b64 {%r1, %r2}, %clock64;",
                  "'mov.b64' reads a clock, which is understood of mov to one"},
        std::pair{"mov.u32 %r1, %clock64;", "'%clock64' has 64 bits, the operand 32"},
        std::pair{"cvt.u32.u64 %r1, %clock64;",
                  "'cvt.u32.u64' reads a clock, which is understood of mov to one"},
        std::pair{"mov.u64 %rd2, %clock;", "'%clock' has 32 bits, the operand 64"}}) {
    const std::string error = clocks_of(statement).error;
    EXPECT_TRUE(error.starts_with("PTX line ") && error.find(words) != error.npos)
        << statement << ": " << error;
  }
}

}  // namespace
}  // namespace assay::ptx
