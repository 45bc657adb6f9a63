// Text: what a module is made of, and text that is none. Whatever is read, the answer is a Fault with a line,
// never a crash.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fast/ptx/one_entry.h"
#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

std::string refusal(const std::string& text) {
  try {
    Module m(text);
    for (const std::string& name : m.entries()) m.kernel(name);
  } catch (const Fault& e) {
    return e.what();
  }
  return "";
}

const char* const kWhole = R"(// a comment
.version 8.7
.target sm_90a, debug
.address_size 64
.file 1 "quantize.cu"
.section .debug_abbrev { .b8 1, 2; .b8 0 }
.global .align 16 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 0xff};
.global .u64 where = generic(table) + 2;
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 result) helper(.param .b32 x) { .reg .b32 %r; ret; }
.visible .entry first(.param .u64 .ptr .global .align 16 out, .param .align 8 .b8 pair[12], .param .f32 factor)
.maxntid 128, 1, 1
.minnctapersm 2
{
  .pragma "nounroll";
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  .shared .align 8 .b8 own[24];
  .local .align 4 .b8 depot[12];
  .loc 1 17 3
  ld.param.u64 %rd0, [out];
  ld.param.u32 %r0, [pair+8];
  mov.u32 %r1, dynamic;
  mov.u64 %rd1, table;
  ld.global.u8 %r2, [%rd1+7];
  ld.global.u64 %rd2, [where];
  ld.u8 %r3, [%rd2];
  { .reg .b8 both; .reg .b16 %h; cvt.u8.u32 both, %r3; mov.b16 %h, {both, 0}; cvt.u32.u16 %r4, %h; }
  st.global.v4.b32 [ %rd0 + 0 ], {%r0, %r1, %r2, %r4};
  setp.eq.u32 %p0, %r0, -1;
  @!%p0 bra $L_end;
  trap;
$L_end:
  ret;
}
)";

TEST(PtxText, AModuleIsRead) {
  Module m(kWhole);
  EXPECT_EQ(m.version(), "8.7");
  EXPECT_EQ(m.target(), "sm_90a,debug");
  EXPECT_EQ(m.entries(), std::vector<std::string>{"first"});
  const Entry& e = m.entry("first");
  EXPECT_EQ(e.signature(), "first(.u64 .ptr out, .b8 pair[12], .f32 factor)");
  EXPECT_EQ(e.parameter_bytes, 24u);
  EXPECT_EQ(e.parameters[1].offset, 8u);
  EXPECT_EQ(e.greatest_block[0], 128u);
  alignas(16) uint32_t out[4] = {};
  Memory memory;
  memory.add(out, sizeof out, "out");
  Launch launch;
  launch.dynamic_shared = 64;
  launch.parameters = parameters_of(e, {reinterpret_cast<uint64_t>(out), 0, 0});
  const uint32_t third = 41;
  std::memcpy(launch.parameters.data() + 16, &third, 4);
  run(m, "first", launch, memory);
  EXPECT_EQ(out[0], 41u);
  EXPECT_EQ(out[1], 32u);  // behind the 24 bytes of `own`, aligned to 16
  EXPECT_EQ(out[2], 255u);
  EXPECT_EQ(out[3], 3u);  // table[2], by its generic address
}

TEST(PtxText, AFunctionIsNoReasonToRefuseAnEntryThatDoesNotCallIt) { EXPECT_EQ(refusal(kWhole), ""); }

TEST(PtxText, EveryPrefixIsReadOrRefused) {
  const std::string whole = kWhole;
  for (size_t length = 0; length < whole.size(); ++length) refusal(whole.substr(0, length));
}

// One sign or word changed at random: read or refused.
TEST(PtxText, ChangedTextIsReadOrRefused) {
  Draw draw;
  const std::string signs = "{}[]();,.@!%_-+0x9fa \n\"/*|<>:";
  size_t refused = 0;
  for (int n = 0; n < 20000; ++n) {
    std::string text = kWhole;
    for (uint64_t k = draw() % 3 + 1; k > 0; --k) {
      const size_t at = draw() % text.size();
      switch (draw() % 3) {
        case 0: text[at] = signs[draw() % signs.size()]; break;
        case 1: text.erase(at, draw() % 6 + 1); break;
        default: text.insert(at, 1, signs[draw() % signs.size()]);
      }
    }
    refused += !refusal(text).empty();
  }
  EXPECT_GT(refused, 5000u);
}

TEST(PtxText, MistakesAreNamedWithTheirLine) {
  const auto body = [](const std::string& text) { return refusal(kernel_text("", text)); };
  EXPECT_EQ(refusal(""), "PTX line 1: the text is no PTX module: it has no .version");
  EXPECT_EQ(refusal("hello"), "PTX line 1: 'hello' is no directive of a module that is understood");
  EXPECT_EQ(body(".reg .b32 %r;\n{\nret;"), "PTX line 5: a body does not end");
  EXPECT_EQ(body("ret"), "PTX line 6: expected an operand, found '}'");
  EXPECT_EQ(body("\nbra away;"), "PTX line 7: there is no label 'away'");
  EXPECT_EQ(body("a:\na:\nret;"), "PTX line 7: label 'a' stands twice");
  EXPECT_EQ(body(".reg .b32 %r<9999999>;"),
            "PTX line 6: '%r' has 9999999 registers, and a kernel has at most 1048576");
  EXPECT_EQ(body(".shared .align 0 .b8 tile[4];"), "PTX line 6: an alignment is no power of two up to 1024");
  EXPECT_EQ(body(".shared .b8 tile[99999999];"),
            "PTX line 6: variable 'tile' goes beyond the 16777216 bytes that a kernel may have");
  EXPECT_EQ(
      body(".reg .b32 %r1; mov.u32 %r1, %envreg2;"),
      "PTX line 6: '%envreg2' belongs to the driver: barriers of a whole grid read it, and they are refused");
  EXPECT_EQ(body(".reg .b32 %r;\nadd.u32 %r, %r, 99999999999999999999;"),
            "PTX line 7: '99999999999999999999' is no number of 64 bits");
  EXPECT_EQ(body(".reg .b32 %r;\nadd.rn.f33 %r, %r, %r;").find("PTX line 7: unsupported form 'add.rn.f33'"),
            0u);
  EXPECT_EQ(body("{ .param .b32 p; }"), "");
  EXPECT_EQ(body("/* a comment"), "PTX line 6: a comment does not end");
}

TEST(PtxText, LabelsAndRegistersLiveInTheirScope) {
  const auto body = [](const std::string& text) { return refusal(kernel_text("", text)); };
  EXPECT_EQ(body("{ L: bra L; }\n{ L: bra L; }\nret;"), "");
  EXPECT_NE(body("{ L: }\nbra L;").find("no label 'L'"), std::string::npos);
  EXPECT_NE(body("{ .reg .b32 %r; }\nmov.b32 %r, 1;").find("'%r' is no register"), std::string::npos);
}

// As TransformerEngine's inline text has it.
TEST(PtxText, NoBlankNeedStandBeforeTheTypeOfARegister) {
  EXPECT_EQ(evaluate("{\n.reg.b32 twice;\nadd.u32 twice, $a, $a;\nmov.b32 $d, twice;\n}", 32, {{32, {7}}}),
            std::vector<uint64_t>{14});
}

TEST(PtxText, LaunchesThatDoNotFitPrintTheSignature) {
  Module m(kWhole);
  const auto refused = [&](const Launch& launch) -> std::string {
    try {
      run(m, "first", launch, Memory{});
    } catch (const Fault& e) {
      return e.what();
    }
    return "";
  };
  Launch launch;
  EXPECT_EQ(refused(launch),
            "entry first(.u64 .ptr out, .b8 pair[12], .f32 factor): takes 24 bytes of parameters, not 0");
  launch.block = {256, 1, 1};
  EXPECT_NE(refused(launch).find("blocks of 256x1x1, but .maxntid is 128x1x1"), std::string::npos);
  launch.block = {32, 64, 1};
  EXPECT_NE(refused(launch).find("more than 1024 threads"), std::string::npos);
  EXPECT_THROW(m.entry("second"), Fault);
}

constexpr char kTwoEntries[] =
    ".version 8.8\n.target sm_90a, debug\n.address_size 64\n"
    ".visible .entry first(.param .u64 p)\n{\n ret;\n}\n"
    ".visible .entry second(\n .param .u64 p\n)\n{\n .local .b8 d[4];\n .loc 1 7 0\n mov.u32 %r1, %tid.x;\n"
    "$L_1:\n @%p1 bra $L_1;\n call.uni (r),\n f,\n (a);\n ret;\n}\n"
    ".section .debug_str\n{\n.b8 0\n}\n";

TEST(PtxOneEntry, IsKeptAndItsStatementsAreNumbered) {
  const auto text = one_entry(kTwoEntries, "second", Lines::numbered);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text,
            ".version 8.8\n.target sm_90a\n.address_size 64\n.file 1 \"kernel.ptx\"\n"
            ".visible .entry second(\n .param .u64 p\n)\n{\n .local .b8 d[4];\n"
            ".loc 1 14 0\n mov.u32 %r1, %tid.x;\n$L_1:\n.loc 1 16 0\n @%p1 bra $L_1;\n"
            ".loc 1 17 0\n call.uni (r),\n f,\n (a);\n.loc 1 20 0\n ret;\n}\n");
  EXPECT_EQ(
      *one_entry(kTwoEntries, "first", Lines::left_out),
      ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry first(.param .u64 p)\n{\n ret;\n}\n");
  EXPECT_FALSE(one_entry(kTwoEntries, "sec", Lines::numbered));
}

// Ranks that are threads launch the kernels of one module.
TEST(PtxText, ThreadsMayDecodeKernelsAtOnce) {
  constexpr int kEntries = 300, kThreads = 8;
  std::string text = kHead;
  for (int n = 0; n < kEntries; ++n)
    text += ".visible .entry k" + std::to_string(n) + "()\n{\n.reg .b32 %r<4>;\nadd.u32 %r0, %r1, " +
            std::to_string(n) + ";\nret;\n}\n";
  Module m(text);
  std::atomic<int> ready = 0, faults = 0;
  std::vector<std::vector<const Kernel*>> got(kThreads, std::vector<const Kernel*>(kEntries));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (++ready; ready < kThreads;) std::this_thread::yield();
      for (int n = 0; n < kEntries; ++n) try {
          got[t][n] = &m.kernel("k" + std::to_string(n));
        } catch (const Fault&) {
          ++faults;
        }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(faults, 0);
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(got[t], got[0]);
}

}  // namespace
}  // namespace assay::ptx
