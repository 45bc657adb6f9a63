// Errors of kernels, planted: each is named with its kernel, block, thread and line. Then what lanes do
// together, and in which order.
#include <gtest/gtest.h>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

const char* const kRegisters =
    ".reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n.shared .align 16 .b8 tile[1024];\nmov.u32 "
    "%r0, %tid.x;\nld.param.u64 %rd0, [out];\n";

struct Outcome {
  std::vector<uint32_t> out;
  std::string error;
};
// Runs the body with a block of `threads` and a buffer of a word for each thread, zeroed.
Outcome outcome(const std::string& body, unsigned threads = 64, const RunOptions& options = {},
                unsigned blocks = 1) {
  Outcome o;
  o.out.assign(size_t{threads} * blocks, 0);
  try {
    Module m(kernel_text(".param .u64 out", kRegisters + body + "\nret;"));
    Memory memory;
    memory.add(o.out.data(), o.out.size() * 4, "out");
    Launch launch;
    launch.grid = {blocks, 1, 1};
    launch.block = {threads, 1, 1};
    launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(o.out.data())});
    run(m, "kernel", launch, memory, options);
  } catch (const Fault& e) {
    o.error = e.what();
  }
  return o;
}
std::string error(const std::string& body, unsigned threads = 64) { return outcome(body, threads).error; }
const char* const kStore =
    "mul.wide.u32 %rd1, %r0, 4;\nadd.u64 %rd1, %rd0, %rd1;\nst.global.u32 [%rd1], %r1;\n";

TEST(PtxErrors, OutOfBoundsNamesKernelBlockThreadLinesAndTheNearestAllocation) {
  EXPECT_EQ(error(std::string(".loc 7 61 3\nmov.u32 %r1, 5;\n") + replaced(kStore, "[%rd1]", "[%rd1+16]")),
            "kernel 'kernel' block (0,0,0) thread 60: st.global.u32 of 4 bytes outside every allocation; "
            "nearest below 'out' (256 bytes), offset 256; file 7:61 (PTX line 16)");
  EXPECT_NE(error("ld.global.u32 %r1, [16];")
                .find("thread 0: ld.global.u32 of 4 bytes outside every allocation; nearest above 'out'"),
            std::string::npos);
  EXPECT_NE(error("ld.shared.u32 %r1, [tile+1024];").find("outside shared memory of 1024 bytes, offset 1024"),
            std::string::npos);
  EXPECT_NE(error(".local .b32 own;\nld.local.u32 %r1, [own+4];").find("outside local memory of 4 bytes"),
            std::string::npos);
  EXPECT_NE(error("ld.param.u64 %rd1, [out+8];").find("outside the parameters of 8 bytes"),
            std::string::npos);
}

TEST(PtxErrors, LaunchesThatNoGpuTakes) {
  const auto with = [](const Dim& grid, const Dim& block) -> std::string {
    Module m(kernel_text("", "ret;"));
    Launch launch;
    launch.grid = grid, launch.block = block;
    try {
      run(m, "kernel", launch, Memory());
    } catch (const Fault& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(with({70000, 1, 1}, {1, 1, 1}), "");
  EXPECT_EQ(with({1, 65535, 1}, {1, 1, 64}), "");
  const std::string grid = ", and a GPU takes 2147483647x65535x65535 at most",
                    block = ", and a GPU takes 1024x1024x64 at most";
  EXPECT_NE(with({1, 65536, 1}, {1, 1, 1}).find("a grid of 1x65536x1" + grid), std::string::npos);
  EXPECT_NE(with({1, 1, 70000}, {1, 1, 1}).find("a grid of 1x1x70000" + grid), std::string::npos);
  EXPECT_NE(with({2147483648, 1, 1}, {1, 1, 1}).find("a grid of 2147483648x1x1" + grid), std::string::npos);
  EXPECT_NE(with({1, 1, 1}, {1, 1, 128}).find("a block of 1x1x128" + block), std::string::npos);
  EXPECT_NE(with({0, 1, 1}, {1, 1, 1}).find("is empty"), std::string::npos);
}

TEST(PtxErrors, MisalignedAccesses) {
  EXPECT_NE(error("ld.global.u32 %r1, [%rd0+2];")
                .find("ld.global.u32 of 4 bytes at an address that is no multiple of them: 'out' (256 "
                      "bytes), offset 2"),
            std::string::npos);
  // A vector is aligned as a whole.
  EXPECT_NE(error("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [tile+8];")
                .find("ld.shared.v4.u32 of 16 bytes at an address that is no multiple"),
            std::string::npos);
}

TEST(PtxErrors, WritesToInputsAndConstants) {
  Module m(std::string(kHead) +
           ".const .u32 table = 3;\n.entry kernel(.param .u64 in) { .reg .b64 %rd; .reg .b32 %r; "
           "ld.param.u64 %rd, [in]; ld.const.u32 %r, [table]; st.u32 [%rd], %r; ret; }");
  uint32_t word = 1;
  Memory memory;
  memory.add(&word, 4, "x", false);
  Launch launch;
  launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(&word)});
  try {
    run(m, "kernel", launch, memory);
    FAIL();
  } catch (const Fault& e) {
    EXPECT_NE(std::string(e.what()).find("writes to 'x', which is an input"), std::string::npos) << e.what();
  }
  EXPECT_EQ(word, 1u);
}

TEST(PtxErrors, BarriersThatCannotComplete) {
  // One warp of two waits where the other never comes; the other waits elsewhere.
  const std::string never =
      error("setp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.sync 1;\nbra B;\nA:\nbar.sync 2;\nB:");
  EXPECT_NE(never.find("deadlock"), std::string::npos) << never;
  EXPECT_NE(
      never.find(
          "warp 0 lanes 0xffffffff at PTX line 17 (bar.sync) at barrier 2, where 32 of 64 threads have come"),
      std::string::npos)
      << never;
  EXPECT_NE(never.find("warp 1"), std::string::npos) << never;
  // Half a warp at an aligned barrier, the other half at another.
  const std::string half =
      error("setp.lt.u32 %p0, %r0, 16;\n@%p0 bra A;\nbar.sync 0;\nbra B;\nA:\nbar.sync 0;\nB:", 32);
  EXPECT_NE(half.find("must be reached by the whole warp"), std::string::npos) << half;
  EXPECT_NE(error("bar.sync 0, 48;").find("waits for 48 threads, and a multiple of 32"), std::string::npos);
  EXPECT_NE(error("bar.sync 16;").find("names barrier 16 of 16"), std::string::npos);
}

TEST(PtxErrors, AMissingBarrierShowsInTheOrderOfWarps) {
  // Each thread reads what the thread 32 further wrote; without the barrier the result depends on the order
  // of warps.
  const std::string write =
      "mov.u32 %r5, tile;\nshl.b32 %r2, %r0, 2;\nadd.u32 %r6, %r5, %r2;\nst.shared.u32 [%r6], %r0;\n";
  const std::string read =
      std::string("xor.b32 %r3, %r2, 128;\nadd.u32 %r6, %r5, %r3;\nld.shared.u32 %r1, [%r6];\n") + kStore;
  RunOptions reverse;
  reverse.order = 1;
  EXPECT_EQ(outcome(write + "bar.sync 0;\n" + read).out,
            outcome(write + "bar.sync 0;\n" + read, 64, reverse).out);
  EXPECT_NE(outcome(write + read).out, outcome(write + read, 64, reverse).out);
}

TEST(PtxErrors, LanesThatShuffleMustBeNamedAndPresent) {
  const std::string outside = error("shfl.sync.idx.b32 %r1, %r0, 0, 31, 0xffff;", 32);
  EXPECT_NE(
      outside.find(
          "thread 16: shfl.sync.idx.b32 is carried out by a lane that its mask 0x0000ffff does not name"),
      std::string::npos)
      << outside;
  const std::string deadlock = error(
      "setp.lt.u32 %p0, %r0, 16;\n@%p0 shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;\n@!%p0 vote.sync.all.pred %p1, "
      "%p0, -1;",
      32);
  EXPECT_NE(deadlock.find("lanes 0x0000ffff at PTX line 13 (shfl.sync.idx.b32) for lanes 0xffff0000"),
            std::string::npos)
      << deadlock;
  EXPECT_NE(deadlock.find("lanes 0xffff0000 at PTX line 14 (vote.sync.all.pred)"), std::string::npos)
      << deadlock;
  const std::string absent = error(
      "setp.ge.u32 %p0, %r0, 16;\n@%p0 bra OUT;\nshfl.sync.bfly.b32 %r1, %r0, 16, 31, 0xffff;\nOUT:", 32);
  EXPECT_NE(absent.find("reads lane 16, which takes no part"), std::string::npos) << absent;
}

TEST(PtxErrors, AGenericAddressIsNoneOfSharedMemoryUnlessItsLowerHalfCounts) {
  const std::string body =
      ".shared .align 4 .b8 tile[128];\nmov.u64 %rd4, tile;\ncvta.shared.u64 %rd4, %rd4;\n"
      "mad.wide.u32 %rd4, %r0, 4, %rd4;\nst.shared.u32 [%rd4], %r0;\nld.shared.u32 %r1, [%rd4];\n";
  RunOptions allowed;
  allowed.generic_as_shared = true;
  EXPECT_NE(error(body + kStore, 32).find("st.shared.u32 is given a generic address, and .shared asks"),
            std::string::npos)
      << error(body + kStore, 32);
  for (const bool check : {false, true}) {
    allowed.check = check;
    const auto done = outcome(body + kStore, 32, allowed);
    EXPECT_EQ(done.error, "");
    EXPECT_EQ(done.out[7], 7u);
  }
}

// The halves shuffle apart, each with a mask of its own, and lanes 8 to 15 read lanes of the other half.
TEST(PtxErrors, AShuffleOfAnyLanesGivesAValueThatNobodyWrote) {
  const std::string body =
      "setp.ge.u32 %p0, %r0, 16;\n@%p0 bra OUT;\nshfl.sync.down.b32 %r1, %r0, 8, 31, 0xffff;\nOUT:\n";
  const std::string first_lanes = "setp.ge.u32 %p1, %r0, 8;\n@%p1 bra END;\n", end = "\nEND:";
  RunOptions any, checked;
  any.shuffles_any = checked.shuffles_any = checked.check = true;
  EXPECT_NE(error(body, 32).find("thread 8: shfl.sync.down.b32 reads lane 16, which takes no part"),
            std::string::npos);
  EXPECT_EQ(outcome(body + first_lanes + kStore + end, 32, any).out[7], 15u);
  EXPECT_EQ(outcome(body + first_lanes + kStore + end, 32, checked).error, "");
  const std::string used =
      outcome(body + "setp.ge.u32 %p1, %r0, 9;\n@%p1 bra END;\n" + kStore + end, 32, checked).error;
  EXPECT_NE(used.find("thread 8: st.global.u32 stores an undefined value"), std::string::npos) << used;
  EXPECT_NE(used.find("a lane that takes no part, read at PTX line 14 (shfl.sync.down.b32"),
            std::string::npos)
      << used;
}

TEST(PtxErrors, DivisionByZeroTrapAndEndlessLoops) {
  EXPECT_NE(error("sub.u32 %r1, %r0, 5;\ndiv.u32 %r1, %r0, %r1;").find("thread 5: div.u32 divides by zero"),
            std::string::npos);
  EXPECT_NE(error("trap;").find("trap was reached"), std::string::npos);
  RunOptions few;
  few.most_instructions = 1000000;
  EXPECT_NE(outcome("L: bra L;", 32, few).error.find("does not end"), std::string::npos);
}

// The second of three blocks: the second of three clusters, each of one block.
TEST(PtxSchedule, AClusterIsABlock) {
  std::string body = "mov.u32 %r1, 0;\n";
  for (const char* special :
       {"%clusterid.x", "%nclusterid.x", "%clusterid.y", "%nclusterid.y", "%clusterid.z", "%nclusterid.z",
        "%cluster_ctaid.x", "%cluster_nctaid.x", "%cluster_ctaid.y", "%cluster_nctaid.y", "%cluster_ctaid.z",
        "%cluster_nctaid.z", "%cluster_ctarank", "%cluster_nctarank"})
    body += std::string("mov.u32 %r2, ") + special + ";\nmad.lo.u32 %r1, %r1, 4, %r2;\n";
  const std::string which = "mov.u32 %r2, %ctaid.x;\nadd.u32 %r0, %r0, %r2;\n";
  uint32_t digits = 0;
  for (const uint32_t digit : {1, 3, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}) digits = 4 * digits + digit;
  EXPECT_EQ(outcome(which + body + kStore, 1, {}, 3).out[1], digits);
}

TEST(PtxSchedule, ShufflesMeetAtDifferentLines) {
  // Both halves of a warp shuffle with the mask of all, in two branches.
  const Outcome o = outcome(
      std::string("setp.lt.u32 %p0, %r0, 16;\n@%p0 bra A;\nadd.u32 %r2, %r0, 100;\nshfl.sync.bfly.b32 %r1, "
                  "%r2, 16, 31, -1;\nbra B;\nA:\nshfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;\nB:\n") +
          kStore,
      32);
  ASSERT_EQ(o.error, "");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(o.out[l], l < 16 ? l + 116 : l - 16);
}

TEST(PtxSchedule, ShufflesStayInTheirSegment) {
  // Every mode over widths 8 and 32: from the ISA's own description (9.7.9.6).
  for (const char* mode : {"up", "down", "bfly", "idx"})
    for (uint32_t width : {8u, 32u})
      for (uint32_t step : {0u, 1u, 5u, 9u}) {
        const uint32_t c = (32 - width) << 8 | (std::string(mode) == "up" ? 0 : 31);
        const std::string text = std::string("shfl.sync.") + mode + ".b32 %r1|%p1, %r0, " +
                                 std::to_string(step) + ", " + std::to_string(c) +
                                 ", -1;\n@!%p1 or.b32 %r1, %r1, 0x100;\n" + kStore;
        const Outcome o = outcome(text, 32);
        ASSERT_EQ(o.error, "");
        for (uint32_t l = 0; l < 32; ++l) {
          const uint32_t base = l / width * width;
          int64_t from = mode == std::string("up")     ? int64_t{l} - step
                         : mode == std::string("down") ? l + step
                         : mode == std::string("bfly") ? l ^ step
                                                       : base + step % width;
          const bool inside = mode == std::string("up") ? from >= base : from < base + width;
          EXPECT_EQ(o.out[l], inside ? static_cast<uint32_t>(from) : (l | 0x100))
              << mode << " " << width << " " << step << " lane " << l;
        }
      }
}

TEST(PtxSchedule, LanesThatPartComeTogetherAgain) {
  // A loop of a different length for every lane, and a ballot behind it that all take part in.
  const Outcome o = outcome(
      std::string(
          "mov.u32 %r2, 0;\nL:\nadd.u32 %r2, %r2, 1;\nsetp.le.u32 %p0, %r2, %r0;\n@%p0 bra L;\nsetp.ne.u32 "
          "%p1, %r0, 3;\nvote.sync.ballot.b32 %r1, %p1, -1;\nadd.u32 %r1, %r1, %r2;\n") +
          kStore,
      32);
  ASSERT_EQ(o.error, "");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(o.out[l], 0xFFFFFFF7u + l + 1);
}

TEST(PtxSchedule, ReductionsVotesAndMatches) {
  const auto all = [&](const std::string& body) { return outcome(body + "\n" + kStore, 32).out; };
  EXPECT_EQ(all("redux.sync.add.u32 %r1, %r0, -1;"), std::vector<uint32_t>(32, 496));
  EXPECT_EQ(all("sub.u32 %r2, %r0, 16;\nredux.sync.max.s32 %r1, %r2, -1;"), std::vector<uint32_t>(32, 15));
  EXPECT_EQ(all("sub.u32 %r2, %r0, 16;\nredux.sync.min.s32 %r1, %r2, -1;"),
            std::vector<uint32_t>(32, 0xFFFFFFF0));
  EXPECT_EQ(all("and.b32 %r2, %r0, 1;\nmatch.any.sync.b32 %r1, %r2, -1;")[4], 0x55555555u);
  EXPECT_EQ(all("match.all.sync.b32 %r1|%p1, 7, -1;\n@%p1 add.u32 %r1, %r1, 1;")[9], 0u);
  EXPECT_EQ(all("setp.eq.u32 %p0, %r0, 40;\nvote.sync.any.pred %p1, %p0, -1;\nselp.b32 %r1, 1, 2, %p1;")[0],
            2u);
  EXPECT_EQ(all("elect.sync _|%p1, -1;\nselp.b32 %r1, 1, 0, %p1;")[0], 1u);
}

TEST(PtxSchedule, BarriersCountThreadsAndReduce) {
  const Outcome sum =
      outcome(std::string("setp.lt.u32 %p0, %r0, 40;\nbar.red.popc.u32 %r1, 0, %p0;\n") + kStore, 96);
  ASSERT_EQ(sum.error, "");
  EXPECT_EQ(sum.out, std::vector<uint32_t>(96, 40));
  // Producers arrive and go on; consumers wait for them.
  const Outcome named =
      outcome(std::string("setp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.sync 3, 64;\nmov.u32 %r1, 2;\nbra "
                          "B;\nA:\nmov.u32 %r1, 1;\nbar.arrive 3, 64;\nB:\n") +
                  kStore,
              64);
  ASSERT_EQ(named.error, "");
  EXPECT_EQ(named.out[0], 1u);
  EXPECT_EQ(named.out[63], 2u);
  // Threads that have left are not waited for.
  const Outcome left = outcome(
      std::string("setp.ge.u32 %p0, %r0, 32;\n@%p0 ret;\nbar.sync 0;\nmov.u32 %r1, 9;\n") + kStore, 64);
  ASSERT_EQ(left.error, "");
  EXPECT_EQ(left.out[31], 9u);
}

TEST(PtxSchedule, AtomicsTakeTheirTurn) {
  const Outcome o = outcome(
      "atom.global.add.u32 %r1, [%rd0], 1;\nred.global.max.u32 [%rd0+4], %r0;\natom.global.cas.b32 %r2, "
      "[%rd0+8], 0, %r0;\natom.shared.exch.b32 %r3, [tile], %r0;",
      64, {}, 4);
  ASSERT_EQ(o.error, "");
  EXPECT_EQ(o.out[0], 256u);
  EXPECT_EQ(o.out[1], 63u);
  EXPECT_EQ(o.out[2], 1u);  // thread 0 stores its 0, thread 1 then finds 0
}

TEST(PtxSchedule, OrdersOfBlocksAndWarpsVisitAllOfThem) {
  for (uint64_t order : {0, 1, 2, 7, 1000003}) {
    RunOptions options;
    options.order = order;
    const Outcome o = outcome(
        std::string("mov.u32 %r2, %ctaid.x;\nmad.lo.u32 %r0, %r2, 96, %r0;\nadd.u32 %r1, %r0, 1;\n") + kStore,
        96, options, 7);
    ASSERT_EQ(o.error, "");
    for (uint32_t n = 0; n < o.out.size(); ++n) ASSERT_EQ(o.out[n], n + 1);
  }
}

TEST(PtxCounters, InstructionsSectorsAndBytes) {
  std::vector<uint32_t> data(64);
  Module m(
      kernel_text(".param .u64 out", std::string(kRegisters) + "mov.u32 %r1, 1;\n" + kStore +
                                         "setp.lt.u32 %p0, %r0, 8;\n@%p0 ld.global.u8 %r2, [%rd1];\nret;"));
  Memory memory;
  memory.add(data.data(), 256, "out");
  Launch launch;
  launch.block = {64, 1, 1};
  launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(data.data())});
  RunOptions options;
  options.count = true;
  const Counters c = run(m, "kernel", launch, memory, options);
  EXPECT_EQ(c.warp_instructions, 18u);
  EXPECT_EQ(c.lane_instructions, 18u * 32 - 24 - 32);  // the load: 8 lanes of one warp, none of the other
  EXPECT_EQ(c.stores.requests, 2u);
  EXPECT_EQ(c.stores.bytes, 256u);
  EXPECT_EQ(c.loads.requests, 1u);
  EXPECT_EQ(c.loads.bytes, 8u);
  EXPECT_GE(c.stores.sectors, 8u);  // nine where the buffer begins within a sector
  EXPECT_LE(c.stores.sectors, 10u);
}

}  // namespace
}  // namespace assay::ptx
