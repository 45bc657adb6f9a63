// Counters of kernels whose traffic can be counted by hand.
#include "fast/ptx/counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <tuple>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

const char* const kBegin =
    ".reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %rd<8>;\n.shared .align 16 .b8 tile[8192];\n"
    "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [out];\nmov.b32 %r1, tile;\n";

struct Counted {
  Counters counters;
  std::string text;
  std::vector<LineCounters> lines;
  uint64_t of(const std::string& name) const {
    for (const auto& [each, n] : totals_of(counters))
      if (each == name) return n;
    throw std::runtime_error(name);
  }
  uint64_t at(const std::string& instruction, const std::string& column) const {
    const auto& columns = line_columns();
    const auto k = static_cast<size_t>(std::find(columns.begin(), columns.end(), column) - columns.begin());
    for (const LineCounters& line : lines)
      if (line.text.starts_with(instruction)) return line.counts.at(k);
    throw std::runtime_error(instruction);
  }
};
Counted counted(const std::string& body, unsigned threads = 32, unsigned blocks = 1) {
  Counted c;
  c.text = kernel_text(".param .u64 out", kBegin + body + "\nret;");
  Module m(c.text);
  alignas(256) static std::array<uint32_t, 8192> out;
  Memory memory;
  memory.add(out.data(), sizeof out, "out");
  Launch launch;
  launch.block = {threads, 1, 1};
  launch.grid = {blocks, 1, 1};
  launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(out.data())});
  RunOptions options;
  options.count = true;
  c.counters = run(m, "kernel", launch, memory, options);
  c.lines = by_line(m.kernel("kernel"), c.counters, m.text());
  return c;
}
// Every lane stores a word `stride` bytes from the next.
std::string strided(unsigned stride) {
  return "mul.wide.u32 %rd1, %r0, " + std::to_string(stride) +
         ";\nadd.u64 %rd1, %rd0, %rd1;\nst.global.b32 [%rd1], %r0;";
}

// Lanes that reach a label in the middle of straight code wait there for the others: the warp carries out
// once what stands behind it.
TEST(PtxCounters, LanesThatMeetGoOnTogether) {
  const Counted c = counted(
      "setp.lt.u32 %p0, %r0, 16;\n@%p0 bra A;\nadd.u32 %r2, %r0, 1;\nA:\nsub.u32 %r3, %r0, 2;\nxor.b32 %r4, "
      "%r3, 3;");
  EXPECT_EQ(c.at("add.u32", "warps"), 1u);
  EXPECT_EQ(c.at("sub.u32", "warps"), 1u);
  EXPECT_EQ(c.at("xor.b32", "lanes"), 32u);
}

TEST(PtxCounters, SectorsAndLinesOfGlobalMemory) {
  const Counted dense = counted(strided(4)), wide = counted(strided(32)), one = counted(strided(0));
  for (const auto& [c, sectors, lines] :
       {std::tuple(&dense, 4u, 1u), std::tuple(&wide, 32u, 8u), std::tuple(&one, 1u, 1u)}) {
    EXPECT_EQ(c->of("global store requests"), 1u);
    EXPECT_EQ(c->of("global store sectors"), sectors);
    EXPECT_EQ(c->of("global store lines"), lines);
    EXPECT_EQ(c->of("global store bytes"), 128u);
    EXPECT_EQ(c->of("distinct sectors written"), sectors);
    EXPECT_EQ(c->of("global load requests"), 0u);
    EXPECT_EQ(c->at("st.global.b32", "sectors"), sectors);
  }
  // Of 32 lanes that store four bytes 32 apart each sector is asked for in part; of one place it is, too.
  EXPECT_EQ(dense.of("global store partial sectors"), 0u);
  EXPECT_EQ(wide.of("global store partial sectors"), 32u);
  EXPECT_EQ(one.of("global store partial sectors"), 1u);
  // Every other word of eight sectors.
  EXPECT_EQ(counted(strided(8)).of("global store partial sectors"), 8u);
  // Rows that begin or end inside a sector.
  const auto row = [](const std::string& store) {
    const Counted c = counted(
        "cvt.u64.u32 %rd1, %r0;\nshl.b64 %rd2, %rd1, 2;\nadd.u64 %rd1, %rd0, %rd1;\n"
        "add.u64 %rd2, %rd0, %rd2;\n" +
        store);
    return std::pair{c.of("global store sectors"), c.of("global store partial sectors")};
  };
  EXPECT_EQ(row("st.global.b8 [%rd1], %r0;"), (std::pair<uint64_t, uint64_t>{1, 0}));
  EXPECT_EQ(row("st.global.b8 [%rd1+4], %r0;"), (std::pair<uint64_t, uint64_t>{2, 2}));
  EXPECT_EQ(row("st.global.b32 [%rd2+4], %r0;"), (std::pair<uint64_t, uint64_t>{5, 2}));
  // Two blocks that store to one place: twice the requests, the same distinct sectors.
  const Counted twice = counted(strided(4), 32, 2);
  EXPECT_EQ(twice.of("global store sectors"), 8u);
  EXPECT_EQ(twice.of("distinct sectors written"), 4u);
}

TEST(PtxCounters, WavefrontsAndConflictsOfSharedMemory) {
  const auto shared = [](unsigned stride, const std::string& store) {
    return counted("mad.lo.u32 %r2, %r0, " + std::to_string(stride) + ", %r1;\n" + store);
  };
  struct Row {
    unsigned stride;
    const char* store;
    uint64_t wavefronts, conflicts;
  };
  for (const Row& row : {Row{4, "st.shared.b32 [%r2], %r0;", 1, 0},            // a word for each bank
                         Row{8, "st.shared.b32 [%r2], %r0;", 2, 1},            // every other bank
                         Row{128, "st.shared.b32 [%r2], %r0;", 32, 31},        // one bank
                         Row{132, "st.shared.b32 [%r2], %r0;", 1, 0},          // padded
                         Row{0, "ld.shared.b32 %r3, [%r2];", 1, 0},            // broadcast
                         Row{8, "st.shared.v2.b32 [%r2], {%r0, %r0};", 2, 0},  // two phases
                         Row{16, "st.shared.v4.b32 [%r2], {%r0, %r0, %r0, %r0};", 4, 0},     // four
                         Row{32, "st.shared.v4.b32 [%r2], {%r0, %r0, %r0, %r0};", 8, 4}}) {  // each in two
    const Counted c = shared(row.stride, row.store);
    EXPECT_EQ(c.of("shared requests"), 1u);
    EXPECT_EQ(c.of("shared wavefronts"), row.wavefronts) << row.stride << " " << row.store;
    EXPECT_EQ(c.of("shared conflicts"), row.conflicts) << row.stride << " " << row.store;
  }
}

TEST(PtxCounters, InstructionsBranchesBarriersAndAtomics) {
  const Counted c = counted(
      "setp.lt.u32 %p1, %r0, 8;\n@%p1 bra SOME;\nadd.u32 %r4, %r0, 1;\nSOME:\nbar.sync 0;\n"
      "and.b32 %r5, %r0, 3;\nmul.wide.u32 %rd1, %r5, 4;\nadd.u64 %rd1, %rd0, %rd1;\n"
      "red.global.add.u32 [%rd1], 1;",
      64);
  EXPECT_EQ(c.of("guarded branches"), 2u);
  EXPECT_EQ(c.of("divergent branches"), 1u);
  EXPECT_EQ(c.at("@%p1 bra", "divergent"), 1u);
  EXPECT_EQ(c.at("@%p1 bra", "warps"), 2u);
  EXPECT_EQ(c.at("@%p1 bra", "lanes"), 8u);
  EXPECT_EQ(c.at("add.u32 %r4", "warps"), 2u);
  EXPECT_EQ(c.at("add.u32 %r4", "lanes"), 56u);
  EXPECT_EQ(c.of("barriers waited"), 2u);
  EXPECT_EQ(c.of("atomic lanes"), 64u);
  EXPECT_EQ(c.of("atomic collisions"), 56u);
  EXPECT_EQ(c.of("atomic addresses"), 4u);
  uint64_t warps = 0, lanes = 0;
  for (const LineCounters& line : c.lines) warps += line.counts[0], lanes += line.counts[1];
  EXPECT_EQ(warps, c.of("warp instructions"));
  EXPECT_EQ(lanes, c.of("lane instructions"));
}

TEST(PtxCounters, AreEqualInEveryRun) {
  const auto first = counted(strided(12), 96, 3), second = counted(strided(12), 96, 3);
  EXPECT_EQ(totals_of(first.counters), totals_of(second.counters));
}

}  // namespace
}  // namespace assay::ptx
