// Barriers that are objects in shared memory (9.7.13.15): their phases, what they order, and what a kernel
// does wrong with them.
#include <gtest/gtest.h>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr unsigned kThreads = 64;

// %r0 is the thread, %r4 its word of `tile`, %r5 that of the thread in the other warp, %r3 the barrier `bar`;
// %rd1 its word of `out`. Thread 0 is in %p0.
std::string mbarrier_kernel(const std::string& body) {
  return kernel_text(
      ".param .u64 out",
      ".reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n.shared .align 8 .b64 bar;\n.shared .align 8 "
      ".b64 other;\n.shared .align 16 .b8 tile[1024];\n"
      "ld.param.u64 %rd1, [out];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %rd1, %r0, 4, %rd1;\nmov.u32 %r3, bar;\n"
      "mov.u32 %r4, tile;\nxor.b32 %r5, %r0, 32;\nmad.lo.u32 %r5, %r5, 4, %r4;\nmad.lo.u32 %r4, %r0, 4, "
      "%r4;\nsetp.eq.u32 %p0, %r0, 0;\n" +
          body + "\nret;");
}

struct Result {
  std::vector<uint32_t> values = std::vector<uint32_t>(kThreads);
  std::string error;
};

Result result_of(const std::string& body, const std::vector<uint64_t>& orders = {0, 1, 2, 3}) {
  Result o;
  try {
    Module m(mbarrier_kernel(body));
    Memory memory;
    memory.add(o.values.data(), o.values.size() * 4, "out", true, false);
    Launch launch;
    launch.block = {kThreads, 1, 1};
    launch.grid = {2, 1, 1};  // the second block begins with no barrier
    launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(o.values.data())});
    for (const uint64_t order : orders) {
      RunOptions options;
      options.order = order, options.check = order != 0;
      run(m, "kernel", launch, memory, options);
    }
  } catch (const Fault& e) {
    o.error = e.what();
  }
  return o;
}
void expect_error(const std::string& body, const std::vector<const char*>& words) {
  const std::string error = result_of(body).error;
  for (const char* w : words) EXPECT_NE(error.find(w), std::string::npos) << w << " is not in: " << error;
}

std::string init(const std::string& count = "64") {
  return "@%p0 mbarrier.init.shared.b64 [%r3], " + count + ";\nbar.sync 0;\n";
}
std::string wait(const std::string& parity, const std::string& label = "AGAIN") {
  return label + ":\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], " + parity + ";\n@!%p1 bra " +
         label + ";\n";
}
const std::string kStore = "st.shared.u32 [%r4], %r0;\n", kLoad = "ld.shared.u32 %r6, [%r5];\n",
                  kKeep = "st.global.u32 [%rd1], %r6;\n", kArrive = "mbarrier.arrive.shared.b64 _, [%r3];\n";

void expect_exchanged(const std::string& body) {
  const Result o = result_of(body);
  ASSERT_EQ(o.error, "") << body;
  for (unsigned n = 0; n < kThreads; ++n) EXPECT_EQ(o.values[n], n ^ 32) << n;
}

// What stands in `tile` before, so that nobody reads memory without a value.
const std::string kBefore = "mov.u32 %r7, 7;\nst.shared.u32 [%r4], %r7;\n";

// The two blocks write equal values to `out`.
TEST(PtxMbarriers, AnArrivalOrdersAndAWaitLearnsIt) {
  expect_exchanged(init() + kStore + kArrive + wait("0") + kLoad + kKeep);
  // By the state that the arrival gave.
  expect_exchanged("cvt.u64.u32 %rd3, %r3;\ncvta.shared.u64 %rd3, %rd3;\n" + init() + kStore +
                   "mbarrier.arrive.b64 %rd2, [%rd3];\nAGAIN:\nmbarrier.test_wait.shared.b64 %p1, [%r3], "
                   "%rd2;\n@!%p1 bra AGAIN;\n" +
                   kLoad + kKeep);
}

TEST(PtxMbarriers, PhasesFollowEachOther) {
  // Two rounds: the second value replaces the first when everybody has read that.
  const std::string rounds = init() + kStore + kArrive + wait("0", "A") + kLoad + kArrive + wait("1", "B") +
                             "add.u32 %r7, %r0, 100;\nst.shared.u32 [%r4], %r7;\n" + kArrive +
                             wait("0", "C") + "ld.shared.u32 %r7, [%r5];\nmad.lo.u32 %r6, %r6, 1000, %r7;\n" +
                             kKeep;
  const Result o = result_of(rounds);
  ASSERT_EQ(o.error, "");
  for (unsigned n = 0; n < kThreads; ++n) EXPECT_EQ(o.values[n], (n ^ 32) * 1000 + (n ^ 32) + 100) << n;
  // Without the round between, the second value is written while others may still read the first.
  expect_error(replaced(replaced(rounds, kArrive + wait("1", "B"), ""), wait("0", "C"), wait("1", "C")),
               {"a byte that thread", "(st.shared.u32)", "no barrier of the block orders them"});
}

TEST(PtxMbarriers, CountsBytesAndDrops) {
  // Arrivals of a lane for several, of one that expects bytes, and bytes that another lane completes.
  expect_exchanged(init("65") + kStore +
                   "@%p0 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r3], 4096;\n"
                   "@%p0 mbarrier.arrive.noComplete.release.cta.shared.b64 %rd2, [%r3], 1;\n"
                   "@!%p0 mbarrier.arrive.shared.b64 _, [%r3], 1;\n"
                   "setp.eq.u32 %p2, %r0, 40;\n"
                   "@%p2 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r3], 4000;\n"
                   "@%p2 mbarrier.complete_tx.shared.b64 [%r3], 96;\n" +
                   wait("0") + kLoad + kKeep);
  expect_exchanged(init() + "@%p0 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r3], 8;\n" + kStore + kArrive +
                   "@%p0 mbarrier.complete_tx.shared.b64 [%r3], 8;\n" + wait("0") + kLoad + kKeep);
  // Half of the threads leave the barrier in the first phase; the second needs the others alone.
  const Result dropped =
      result_of(init() + "setp.ge.u32 %p2, %r0, 32;\nmov.u32 %r6, 7;\n" + kStore +
                "@%p2 mbarrier.arrive_drop.shared.b64 _, [%r3];\n@%p2 bra OUT;\n" + kArrive + wait("0", "A") +
                kLoad + kArrive + wait("1", "B") + "OUT:\n" + kKeep);
  ASSERT_EQ(dropped.error, "");
  for (unsigned n = 0; n < kThreads; ++n) EXPECT_EQ(dropped.values[n], n < 32 ? n ^ 32 : 7) << n;
  // What a state says of its arrivals: thread 0 came first, of 64.
  const Result counted = result_of("mov.u32 %r6, 0;\n" + init() +
                                   "@%p0 mbarrier.arrive.shared.b64 %rd2, [%r3];\n"
                                   "@%p0 mbarrier.pending_count.b64 %r6, %rd2;\n" +
                                   kKeep);
  ASSERT_EQ(counted.error, "");
  EXPECT_EQ(counted.values[0], 64u);
}

TEST(PtxMbarriers, WhoeverDoesNotWaitIsNamed) {
  expect_error(kBefore + init() + kStore + kArrive + kLoad + kKeep,
               {"a byte that thread", "ld.shared.u32", "no barrier of the block orders them"});
  // A relaxed arrival orders nothing, and neither does a relaxed wait.
  expect_error(kBefore + init() + kStore + "mbarrier.arrive.relaxed.cta.shared.b64 _, [%r3];\n" + wait("0") +
                   kLoad + kKeep,
               {"no barrier of the block orders them"});
  expect_error(kBefore + init() + kStore + kArrive + replaced(wait("0"), "parity", "parity.relaxed.cta") +
                   kLoad + kKeep,
               {"no barrier of the block orders them"});
  // The first answer is no: whoever does not ask again goes on too early.
  expect_error(kBefore + init() + kStore + kArrive +
                   "mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0, 1000000;\n" + kLoad + kKeep,
               {"reads a byte that thread"});
  // The parity of the phase before is always complete.
  expect_error(kBefore + init() + kStore + kArrive + wait("1") + kLoad + kKeep,
               {"phase 1, where 0 of 64 arrivals"});
}

TEST(PtxMbarriers, ADeadlockNamesBarrierAndPhase) {
  expect_error(init("65") + kArrive + wait("0"),
               {"mbarrier.try_wait.parity.shared::cta.b64 is in a deadlock",
                "at the mbarrier at shared offset 0, phase 0, where 64 of 65 arrivals have come"});
  expect_error(init() + kArrive + wait("0", "A") + wait("1", "B"),
               {"deadlock", "phase 1, where 0 of 64 arrivals have come"});
  expect_error(init() + "@%p0 mbarrier.expect_tx.shared.b64 [%r3], 16;\n" + kArrive + wait("0"),
               {"deadlock", "64 of 64 arrivals have come and 16 bytes of copies are missing"});
  expect_error(init() + "@%p0 mbarrier.complete_tx.shared.b64 [%r3], 16;\n" + kArrive + wait("0"),
               {"deadlock", "16 bytes have come that nobody expected"});
  // Lanes that wait at different things are told together.
  expect_error(
      init() + "@%p0 bra WAITS;\n" + kArrive + "bar.sync 1;\nbra OUT;\nWAITS:\n" + wait("0") + "OUT:\n",
      {"deadlock", "63 of 64 arrivals", "for the rest of the warp"});
}

TEST(PtxMbarriers, WhatIsNoBarrierIsNamed) {
  expect_error(kArrive, {"finds no mbarrier at shared offset 0", "no mbarrier.init"});
  expect_error(
      "@%p0 mbarrier.init.shared.b64 [%r3], 1;\n@%p0 mbarrier.inval.shared.b64 [%r3];\n@%p0 "
      "mbarrier.arrive.shared.b64 _, [%r3];\n",
      {"finds no mbarrier", "or mbarrier.inval was"});
  expect_error(init() + "bar.sync 0;\n" + init(),
               {"initialises the mbarrier at shared offset 0 again", "mbarrier.inval must come between"});
  EXPECT_EQ(result_of(init() + "@%p0 mbarrier.inval.shared.b64 [%r3];\nbar.sync 0;\n" + init()).error, "");
  expect_error(init("0"), {"expects 0 arrivals"});
  expect_error(init("1048576"), {"expects 1048576 arrivals"});
  expect_error(init("1") + "@%p0 mbarrier.arrive.shared.b64 _, [%r3], 2;\n",
               {"arrives 2 times at the mbarrier at shared offset 0 in phase 0, where 0 of 1"});
  expect_error(init("1") + "@%p0 mbarrier.arrive.noComplete.shared.b64 %rd2, [%r3], 1;\n",
               {"completes phase 0", ".noComplete"});
  expect_error(init() + kArrive + wait("2"), {"asks for parity 2"});
  expect_error(init() + "@%p0 mbarrier.expect_tx.shared.b64 [%r3], 1048576;\n", {"beyond 2^20-1"});
  expect_error(init("1") +
                   "@!%p0 bra OUT;\nmbarrier.arrive.shared.b64 %rd2, [%r3];\n"
                   "mbarrier.arrive.shared.b64 _, [%r3];\nmbarrier.test_wait.shared.b64 %p1, [%r3], "
                   "%rd2;\nOUT:\n",
               {"asks for a phase that is neither the one before nor phase 2"});
  expect_error("@%p0 mbarrier.init.shared.b64 [%r3+4], 1;\n", {"no multiple of them"});
  expect_error("@%p0 mbarrier.init.b64 [%rd1], 1;\n", {"outside shared memory"});
  const std::string undefined = result_of("@%p0 mbarrier.init.shared.b64 [%r3], %r9;\n", {1}).error;
  EXPECT_NE(undefined.find("takes an undefined operand"), std::string::npos) << undefined;
}

TEST(PtxMbarriers, OrdinaryAccessesAndMissingBarriersAreNamed) {
  expect_error(init() + "@%p0 st.shared.u32 [%r3+4], %r0;\n",
               {"reaches into the mbarrier at shared offset 0"});
  // Also where nothing is checked, as soon as somebody comes to it.
  const Result over = result_of(init() + "@%p0 st.shared.u32 [%r3], %r0;\nbar.sync 0;\n" + kArrive, {0});
  EXPECT_NE(over.error.find("overwritten by something that is no instruction of mbarriers"),
            std::string::npos)
      << over.error;
  // Who comes without knowing that it was initialised, or that the others are done with it.
  expect_error(
      "@!%p0 bra OUT;\nmbarrier.init.shared.b64 [%r3], 2;\nOUT:\nbar.warp.sync 0xFFFFFFFF;\nsetp.eq.u32 "
      "%p2, %r0, 1;\n@%p2 mbarrier.arrive.shared.b64 _, [%r3];\nmov.u32 %r7, other;\nsetp.eq.u32 %p3, "
      "%r0, 32;\n@%p3 bra MORE;\nbra DONE;\nMORE:\nmbarrier.arrive.shared.b64 _, [%r3];\nDONE:\n",
      {"mbarrier"});
  expect_error(init() + kArrive + wait("0") + "@%p0 mbarrier.inval.shared.b64 [%r3];\n", {"mbarrier"});
}

TEST(PtxMbarriers, FormsOfClustersAreRefused) {
  for (const char* statement :
       {"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];", "mapa.u32 %r6, %r3, 0;",
        "mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r3], 16;", "barrier.cluster.arrive;"}) {
    const std::string why = result_of(statement).error;
    EXPECT_NE(why.find("reaches other blocks of a cluster"), std::string::npos) << statement << ": " << why;
  }
}

}  // namespace
}  // namespace assay::ptx
