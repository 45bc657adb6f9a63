// The slice behind a stored value: through arithmetic, packed codes, shared memory, shuffles, atomics,
// another launch; what it leaves out.
#include "fast/ptx/slice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

const char* const kBegin =
    ".reg .pred %p<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<32>;\n.reg .f32 %f<16>;\n.reg .b64 %rd<8>;\n"
    ".shared .align 16 .b8 tile[1024];\nmov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [in];\n"
    "ld.param.u64 %rd1, [out];\nmul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd0, %rd2;\n"
    "add.u64 %rd4, %rd1, %rd2;\nld.global.b32 %r1, [%rd3];\n";

// Runs bodies one after another as launches of a warp on `in` and `out`, of a word for each lane, and slices
// one word of out.
struct Case {
  std::vector<uint32_t> in = std::vector<uint32_t>(32), out = std::vector<uint32_t>(32);
  unsigned threads = 32, blocks = 1;

  std::vector<SliceStep> slice(const std::vector<std::string>& bodies, uint64_t bit, unsigned bits = 32) {
    const auto run_all = [&](Recorder& recorder) {
      Memory memory;
      memory.add(in.data(), in.size() * 4, "in", false);
      memory.add(out.data(), out.size() * 4, "out");
      std::fill(out.begin(), out.end(), 0);
      modules.clear();
      for (const std::string& body : bodies) {
        Module& m = *modules.emplace_back(std::make_unique<Module>(
            kernel_text(".param .u64 in, .param .u64 out", kBegin + body + "\nret;")));
        Launch launch;
        launch.block = {threads, 1, 1};
        launch.grid = {blocks, 1, 1};
        launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(in.data()),
                                                              reinterpret_cast<uint64_t>(out.data())});
        RunOptions options;
        options.recorder = &recorder;
        run(m, "kernel", launch, memory, options);
      }
    };
    return slice_behind(run_all, "out", bit, bits);
  }
  std::vector<std::unique_ptr<Module>> modules;
};

// "ld.global.b32 t3 in+12 = 7" of each step.
std::vector<std::string> texts(const std::vector<SliceStep>& steps) {
  std::vector<std::string> out;
  for (const SliceStep& s : steps)
    out.push_back(s.text.substr(0, s.text.find(' ')) + " t" + std::to_string(s.thread) +
                  (s.memory.empty() ? "" : " " + s.memory + "+" + std::to_string(s.offset)) + " = " +
                  std::to_string(s.value));
  return out;
}
using Texts = std::vector<std::string>;

TEST(PtxSlice, FollowsValuesAndNotAddresses) {
  Case c;
  for (uint32_t n = 0; n < 32; ++n) c.in[n] = 10 * n;
  const auto steps = c.slice(
      {"add.u32 %r2, %r1, 1;\nmul.lo.u32 %r3, %r2, %r2;\nadd.u32 %r9, %r0, 7;\nst.global.b32 [%rd4], %r3;"},
      3 * 32);
  EXPECT_EQ(texts(steps), (Texts{"ld.global.b32 t3 in+12 = 30", "add.u32 t3 = 31", "mul.lo.u32 t3 = 961",
                                 "st.global.b32 t3 out+12 = 961"}));
  EXPECT_EQ(steps[1].text, "add.u32 %r2, %r1, 1");
  EXPECT_EQ(steps[0].line, 18u);
}

TEST(PtxSlice, FollowsTheOperandThatAMaximumOrASelectionTook) {
  Case c;
  c.in = {5, 9};
  c.in.resize(32);
  const std::string body =
      "ld.global.b32 %r2, [%rd0+4];\nmax.u32 %r3, %r1, %r2;\nmov.b32 %r4, 77;\nsetp.gt.u32 %p1, %r3, 100;\n"
      "selp.b32 %r5, %r4, %r3, %p1;\nst.global.b32 [%rd4], %r5;";
  EXPECT_EQ(texts(c.slice({body}, 0)),
            (Texts{"ld.global.b32 t0 in+4 = 9", "max.u32 t0 = 9", "setp.gt.u32 t0 = 0", "selp.b32 t0 = 9",
                   "st.global.b32 t0 out+0 = 9"}));
}

// Two codes in a byte: the slice of one has nothing of the other, also where both are 0.
TEST(PtxSlice, TellsPackedCodesApart) {
  Case c;
  for (const uint32_t low : {0u, 5u}) {
    c.in[0] = low, c.in[1] = 3;
    const std::string body =
        "ld.global.b32 %r2, [%rd0+4];\nadd.u32 %r3, %r1, 0;\nshl.b32 %r4, %r2, 4;\nor.b32 %r5, %r3, %r4;\n"
        "st.global.b32 [%rd4], %r5;";
    const Texts of_low = texts(c.slice({body}, 0, 4)), of_high = texts(c.slice({body}, 4, 4));
    EXPECT_EQ(std::count(of_low.begin(), of_low.end(), "ld.global.b32 t0 in+4 = 3"), 0);
    EXPECT_EQ(std::count(of_low.begin(), of_low.end(), "ld.global.b32 t0 in+0 = " + std::to_string(low)), 1);
    EXPECT_EQ(std::count(of_high.begin(), of_high.end(), "ld.global.b32 t0 in+4 = 3"), 1);
    EXPECT_EQ(std::count(of_high.begin(), of_high.end(), "ld.global.b32 t0 in+0 = " + std::to_string(low)),
              0);
  }
}

TEST(PtxSlice, ThroughSharedMemoryToAnotherThread) {
  Case c;
  for (uint32_t n = 0; n < 32; ++n) c.in[n] = n + 100;
  const std::string body =
      "mov.b32 %r8, tile;\nmad.lo.u32 %r9, %r0, 4, %r8;\nst.shared.b32 [%r9], %r1;\nbar.sync 0;\n"
      "xor.b32 %r10, %r0, 31;\nmad.lo.u32 %r9, %r10, 4, %r8;\nld.shared.b32 %r2, [%r9];\n"
      "st.global.b32 [%rd4], %r2;";
  EXPECT_EQ(texts(c.slice({body}, 0)),
            (Texts{"ld.global.b32 t31 in+124 = 131", "st.shared.b32 t31 shared memory+124 = 131",
                   "ld.shared.b32 t0 shared memory+124 = 131", "st.global.b32 t0 out+0 = 131"}));
}

TEST(PtxSlice, ThroughShufflesToTheLaneThatWasRead) {
  Case c;
  for (uint32_t n = 0; n < 32; ++n) c.in[n] = n + 100;
  const std::string body =
      "shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;\nadd.u32 %r3, %r2, 1;\nst.global.b32 [%rd4], %r3;";
  EXPECT_EQ(texts(c.slice({body}, 32)), (Texts{"ld.global.b32 t4 in+16 = 104", "shfl.sync.bfly.b32 t1 = 104",
                                               "add.u32 t1 = 105", "st.global.b32 t1 out+4 = 105"}));
}

// A maximum of a whole block by atomics, over blocks and launches: the slice is that of the lane which made
// it.
TEST(PtxSlice, ThroughAtomicsAndAnotherLaunch) {
  Case c;
  for (uint32_t n = 0; n < 32; ++n) c.in[n] = n == 7 ? 1000 : n;
  const std::string first = "add.u32 %r2, %r1, 1;\natom.global.max.u32 %r3, [%rd1], %r2;";
  const std::string second =
      "setp.ne.u32 %p1, %r0, 0;\n@%p1 bra END;\nld.global.b32 %r2, [%rd1];\nadd.u32 %r3, %r2, 5;\n"
      "st.global.b32 [%rd1+8], %r3;\nEND:";
  const auto steps = c.slice({first, second}, 64);
  EXPECT_EQ(texts(steps), (Texts{"ld.global.b32 t7 in+28 = 1000", "add.u32 t7 = 1001",
                                 "atom.global.max.u32 t7 out+0 = 1001", "ld.global.b32 t0 out+0 = 1001",
                                 "add.u32 t0 = 1006", "st.global.b32 t0 out+8 = 1006"}));
  EXPECT_EQ(steps[0].launch, 0u);
  EXPECT_EQ(steps.back().launch, 1u);
}

// A value that another block stored: only that block is kept beside the last.
TEST(PtxSlice, ThroughAnotherBlock) {
  Case c;
  c.blocks = 4;
  for (uint32_t n = 0; n < 32; ++n) c.in[n] = n;
  const std::string body =
      "mov.u32 %r5, %ctaid.x;\nmad.lo.u32 %r6, %r5, 100, %r1;\nsetp.ne.u32 %p1, %r5, 1;\n"
      "@!%p1 st.global.b32 [%rd4], %r6;\nsetp.ne.u32 %p2, %r5, 3;\n@%p2 bra END;\nsetp.ne.u32 %p2, %r0, 0;\n"
      "@%p2 bra END;\nld.global.b32 %r7, [%rd1+20];\nst.global.b32 [%rd1], %r7;\nEND:";
  const auto steps = c.slice({body}, 0);
  ASSERT_EQ(texts(steps).back(), "st.global.b32 t0 out+0 = 105");
  EXPECT_EQ(steps.back().block.x, 3u);
  EXPECT_EQ(steps.front().block.x, 1u);
  EXPECT_EQ(steps.front().thread, 5u);
}

TEST(PtxSlice, MatricesMoveTheirElements) {
  Case c;
  for (uint32_t n = 0; n < 32; ++n) c.in[n] = 0x10000 * (2 * n + 1) + 2 * n;  // element k is k
  const std::string body =
      "mov.b32 %r8, tile;\nmad.lo.u32 %r9, %r0, 4, %r8;\nst.shared.b32 [%r9], %r1;\nbar.sync 0;\n"
      "and.b32 %r10, %r0, 7;\nmad.lo.u32 %r11, %r10, 16, %r8;\n"
      "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r12}, [%r11];\nst.global.b32 [%rd4], %r12;";
  // Lane 0 holds elements (0, 0) and (1, 0) of the matrix.
  const auto steps = c.slice({body}, 16, 16);
  EXPECT_EQ(texts(steps).front(), "ld.global.b32 t4 in+16 = " + std::to_string(0x10000 * 9 + 8));
}

TEST(PtxSlice, NothingIsBehindWhatNobodyWrites) {
  Case c;
  EXPECT_TRUE(c.slice({"st.global.b32 [%rd1], %r1;"}, 64).empty());
}

}  // namespace
}  // namespace assay::ptx
