// Copies that arrive when they are waited for (9.7.9.25.3): what they move, and what a kernel does wrong that
// does not wait.
#include <gtest/gtest.h>

#include "fast/ptx/slice.h"
#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr unsigned kThreads = 64;

// %r0 is the thread, %r4 its 16 bytes of `tile`, %r5 those of the thread in the other warp; %rd1 its 16 bytes
// of `out`, %rd2 those of `in`.
std::string text_of(const std::string& body) {
  return kernel_text(
      ".param .u64 out, .param .u64 in",
      ".reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n.shared .align 16 .b8 tile[2048];\n"
      "ld.param.u64 %rd1, [out];\nld.param.u64 %rd2, [in];\nmov.u32 %r0, %tid.x;\n"
      "mad.wide.u32 %rd1, %r0, 16, %rd1;\nmad.wide.u32 %rd2, %r0, 16, %rd2;\nmov.u32 %r3, tile;\n"
      "mad.lo.u32 %r4, %r0, 16, %r3;\nxor.b32 %r5, %r0, 32;\nmad.lo.u32 %r5, %r5, 16, %r3;\n" +
          body + "\nret;");
}
// What is read at %r5 becomes the thread's output.
const char* const kOut =
    "ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r5];\nst.global.v4.u32 [%rd1], {%r8, %r9, %r10, %r11};\n";

struct Outcome {
  std::vector<uint32_t> values = std::vector<uint32_t>(4 * kThreads);
  Counters counters;
  std::string error;
};
uint32_t given(unsigned word) { return 1000 + word; }

Outcome outcome_of(const std::string& body, bool check = true, bool generic_as_shared = false) {
  Outcome o;
  std::vector<uint32_t> in(4 * kThreads);
  for (unsigned n = 0; n < in.size(); ++n) in[n] = given(n);
  try {
    Module m(text_of(body));
    Memory memory;
    memory.add(o.values.data(), o.values.size() * 4, "out", true, false);
    memory.add(in.data(), in.size() * 4, "in", false);
    Launch launch;
    launch.block = {kThreads, 1, 1};
    launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(o.values.data()),
                                                          reinterpret_cast<uint64_t>(in.data())});
    for (const uint64_t order : {0, 1, 2}) {
      RunOptions options;
      options.order = order, options.check = check, options.count = true, options.poison = 0x7F;
      options.generic_as_shared = generic_as_shared;
      o.counters = run(m, "kernel", launch, memory, options);
    }
  } catch (const Fault& e) {
    o.error = e.what();
  }
  return o;
}
void expect_words(const std::string& error, const std::vector<const char*>& words) {
  for (const char* w : words) EXPECT_NE(error.find(w), std::string::npos) << w << " is not in: " << error;
}
void expect_swapped(const Outcome& o) {
  ASSERT_EQ(o.error, "");
  for (unsigned n = 0; n < 4 * kThreads; ++n) EXPECT_EQ(o.values[n], given(n ^ 128)) << n;
}

const std::string kCopy = "cp.async.cg.shared.global [%r4], [%rd2], 16;\n", kBarrier = "bar.sync 0;\n",
                  kWait = "cp.async.wait_all;\n";

// The lower half of a generic address counts (RunOptions::generic_as_shared).
TEST(PtxCopies, AGenericAddressIsOneOfSharedMemoryWhereThatIsAllowed) {
  const std::string body =
      "mov.u64 %rd4, tile;\ncvta.shared.u64 %rd4, %rd4;\nmad.wide.u32 %rd4, %r0, 16, "
      "%rd4;\ncp.async.cg.shared.global [%rd4], [%rd2], 16;\n" +
      std::string("cp.async.wait_all;\nbar.sync 0;\n") + kOut;
  for (const bool check : {false, true}) {
    expect_swapped(outcome_of(body, check, true));
    expect_words(outcome_of(body, check).error, {"is given a generic address, and .shared asks for one"});
  }
}

TEST(PtxCopies, ACopyArrivesWhereItIsWaitedFor) {
  expect_swapped(outcome_of(kCopy + kWait + kBarrier + kOut));
  expect_swapped(outcome_of(kCopy + "cp.async.commit_group;\ncp.async.wait_group 0;\n" + kBarrier + kOut));
  expect_swapped(
      outcome_of("cp.async.ca.shared::cta.global.L2::128B [%r4+8], [%rd2+8], 8;\n"
                 "cp.async.ca.shared.global [%r4], [%rd2+0], 4;\n"
                 "cp.async.ca.shared.global [%r4+4], [%rd2+4], 4, 4;\n" +
                 kWait + kBarrier + kOut));
}

TEST(PtxCopies, ACopyOfNothingIsZeros) {
  const Outcome o = outcome_of(
      "setp.lt.u32 %p0, %r0, 40;\nselp.b32 %r6, 16, 0, %p0;\n"
      "cp.async.cg.shared.global [%r4], [%rd2], 16, %r6;\n" +
      kWait + kBarrier + kOut);
  ASSERT_EQ(o.error, "");
  for (unsigned n = 0; n < 4 * kThreads; ++n)
    EXPECT_EQ(o.values[n], (n / 4 ^ 32) < 40 ? given(n ^ 128) : 0u) << n;
  // A lane that reads nothing may have any address.
  EXPECT_EQ(outcome_of("setp.eq.u32 %p0, %r0, 3;\n@%p0 mov.u64 %rd2, 0;\nselp.b32 %r6, 0, 16, %p0;\n"
                       "cp.async.cg.shared.global [%r4], [%rd2], 16, %r6;\n" +
                       kWait + kBarrier + kOut)
                .error,
            "");
}

TEST(PtxCopies, WhatIsNotReadIsZeros) {
  // Thread n reads n % 17 of its 16 bytes.
  const Outcome o = outcome_of("rem.u32 %r6, %r0, 17;\ncp.async.ca.shared.global [%r4], [%rd2], 16, %r6;\n" +
                               kWait + kBarrier + kOut);
  ASSERT_EQ(o.error, "");
  for (unsigned n = 0; n < 4 * kThreads; ++n) {
    const unsigned bytes = (n / 4 ^ 32) % 17, before = 4 * (n % 4);
    const uint64_t kept = bytes <= before ? 0 : bytes - before >= 4 ? ~0u : (1u << 8 * (bytes - before)) - 1;
    EXPECT_EQ(o.values[n], given(n ^ 128) & kept) << n;
  }
  // The last lane's bytes end with the buffer; those that it does not read may lie outside.
  EXPECT_EQ(outcome_of("cp.async.ca.shared.global [%r4], [%rd2+16], 8, 0;\n" + kWait).error, "");
  expect_words(
      outcome_of("mov.u32 %r6, 5;\ncp.async.ca.shared.global [%r4], [%rd2+4], 8, %r6;\n" + kWait).error,
      {"no multiple of them: 'in'"});
}

TEST(PtxCopies, GroupsArriveInTheirOrder) {
  // Two stages: the first may be read while the second is on its way.
  const std::string stages =
      "cp.async.cg.shared.global [%r4], [%rd2], 16;\ncp.async.commit_group;\n"
      "cp.async.cg.shared.global [%r4+1024], [%rd2], 16;\ncp.async.commit_group;\n";
  expect_swapped(outcome_of(stages + "cp.async.wait_group 1;\n" + kBarrier + kOut));
  expect_words(outcome_of(stages + "cp.async.wait_group 2;\n" + kBarrier + kOut).error, {"undefined value"});
  const std::string second = replaced(kOut, "[%r5]", "[%r5+1024]");
  expect_swapped(outcome_of(stages + "cp.async.wait_group 0;\n" + kBarrier + second));
  expect_words(outcome_of(stages + "cp.async.wait_group 1;\n" + kBarrier + second).error,
               {"undefined value"});
  // What belongs to no group is not waited for by wait_group.
  expect_words(outcome_of(kCopy + "cp.async.wait_group 0;\n" + kBarrier + kOut).error, {"undefined value"});
}

TEST(PtxCopies, OneInstructionInALoopHasManyCopies) {
  expect_swapped(
      outcome_of("mov.u32 %r6, 0;\nLOOP:\n"
                 "cp.async.ca.shared.global [%r4], [%rd2], 4;\ncp.async.commit_group;\n"
                 "add.u32 %r4, %r4, 4;\nadd.u64 %rd2, %rd2, 4;\nadd.u32 %r6, %r6, 1;\n"
                 "setp.lt.u32 %p0, %r6, 4;\n@%p0 bra LOOP;\ncp.async.wait_group 0;\n" +
                 kBarrier + kOut));
}

TEST(PtxCopies, WhoeverDoesNotWaitIsNamed) {
  expect_words(
      outcome_of(kCopy + kBarrier + kOut).error,
      {"stores an undefined value to 'out'", "memory that nothing was written to", "ld.shared.v4.u32"});
  expect_words(outcome_of(kCopy + kWait + kOut).error, {"undefined value"});
  // A store to where a copy is on its way.
  expect_words(outcome_of(kCopy + "st.shared.u32 [%r5], %r0;\n" + kWait + kBarrier + kOut).error,
               {"cp.async.cg.shared.global of 16 bytes writes a byte that thread 1 writes", "no barrier"});
  // A load of what lay there before, in another warp and with no barrier before the copy.
  expect_words(
      outcome_of("st.shared.v4.u32 [%r4], {%r0, %r0, %r0, %r0};\n" + kBarrier + kOut + kCopy + kWait).error,
      {"thread 32 writes", "(cp.async.cg.shared.global), and no barrier"});
  // Without checks the poison is seen: the copy is later than the load.
  const Outcome o = outcome_of(kCopy + kBarrier + replaced(kOut, "%r5", "%r4") + kWait, false);
  ASSERT_EQ(o.error, "");
  for (const uint32_t v : o.values) EXPECT_EQ(v, 0x7F7F7F7Fu);
}

TEST(PtxCopies, ErrorsOfTheAccessesNameTheCopy) {
  const auto copy = [](const std::string& operands) {
    return outcome_of("cp.async.cg.shared.global " + operands + ";\n" + kWait).error;
  };
  expect_words(copy("[%r4], [%rd2+1008], 16"),
               {"thread 1:", "cp.async.cg.shared.global of 16 bytes outside"});
  expect_words(copy("[%r4+1040], [%rd2], 16"), {"thread 63:", "outside shared memory of 2048"});
  expect_words(copy("[%r4], [%rd2+4], 16"), {"thread 0:", "no multiple of them", "'in'"});
  expect_words(copy("[%r4+8], [%rd2], 16"), {"thread 0:", "no multiple of them"});
  expect_words(copy("[%r4], [%rd2], 16, %r7"), {"takes an undefined operand"});
  expect_words(copy("[%r4], [%rd2], 16, 17"), {"has 17 bytes to read of the 16 that it writes"});
  expect_words(copy("[%r4], [%rd2], 8"), {"does not copy 8 bytes"});
  // Also where nobody waits.
  expect_words(outcome_of("cp.async.cg.shared.global [%r4], [%rd2+1008], 16;\n").error, {"outside"});
}

// 9.7.13.15.15. The barrier `bar` for so many arrivals, at %r6.
std::string with_bar(const std::string& count) {
  return ".shared .align 8 .b64 bar;\nmov.u32 %r6, bar;\nsetp.eq.u32 %p1, %r0, 0;\n"
         "@%p1 mbarrier.init.shared.b64 [%r6], " +
         count + ";\n" + kBarrier;
}
const std::string kAskBar =
    "AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r6], 0;\n@!%p2 bra AGAIN;\n";
const std::string kForeseenArrival = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r6];\n",
                  kOneMoreArrival = "cp.async.mbarrier.arrive.shared::cta.b64 [%r6];\n",
                  kOwnArrival = "mbarrier.arrive.shared.b64 _, [%r6];\n";

TEST(PtxCopies, AnMbarrierHearsOfThem) {
  expect_swapped(outcome_of(with_bar("64") + kCopy + kForeseenArrival + kAskBar + kOut));
  // Without .noinc the arrival is one more, so the threads' own are needed too.
  expect_swapped(outcome_of(with_bar("64") + kCopy + kOneMoreArrival + kOwnArrival + kAskBar + kOut));
  expect_words(outcome_of(with_bar("64") + kCopy + kOneMoreArrival + kAskBar + kOut).error,
               {"deadlock", "0 of 64 arrivals have come"});
  // By a generic address; and two groups of copies with one arrival behind each.
  expect_swapped(outcome_of(with_bar("64") + "cvt.u64.u32 %rd3, %r6;\ncvta.shared.u64 %rd3, %rd3;\n" + kCopy +
                            "cp.async.mbarrier.arrive.noinc.b64 [%rd3];\n" + kAskBar + kOut));
  expect_swapped(outcome_of(with_bar("128") + "cp.async.ca.shared.global [%r4], [%rd2], 8;\n" +
                            kForeseenArrival + "cp.async.ca.shared.global [%r4+8], [%rd2+8], 8;\n" +
                            kForeseenArrival + kAskBar + kOut));
}

TEST(PtxCopies, AnArrivalComesAlsoWhereTheCopiesHaveOrNoneWas) {
  const std::string must = "mbarrier.test_wait.parity.shared.b64 %p2, [%r6], 0;\n@!%p2 trap;\n";
  expect_swapped(outcome_of(with_bar("64") + kCopy + kForeseenArrival + kWait + kBarrier + must + kOut));
  expect_swapped(outcome_of(with_bar("64") + kCopy + "cp.async.commit_group;\n" + kForeseenArrival +
                            "cp.async.wait_group 0;\n" + kBarrier + must + kOut));
  // Before its copies it is too early to ask once.
  expect_words(outcome_of(with_bar("64") + kCopy + kForeseenArrival + must + kOut).error, {"trap"});
  expect_swapped(outcome_of(with_bar("64") + kForeseenArrival + kAskBar + kCopy + kWait + kBarrier + kOut));
}

TEST(PtxCopies, AnArrivalIsNotForWhatComesBehindIt) {
  expect_words(outcome_of(with_bar("64") + kForeseenArrival + kCopy + kAskBar + kOut).error,
               {"undefined value"});
  // A load that does not ask the mbarrier races with the copy.
  expect_words(outcome_of("st.shared.v4.u32 [%r4], {%r0, %r0, %r0, %r0};\n" + with_bar("64") + kCopy +
                          kForeseenArrival + kOut + kAskBar)
                   .error,
               {"writes", "thread", "no barrier"});
  expect_words(outcome_of(".shared .align 8 .b64 bar;\nmov.u32 %r6, bar;\n" + kCopy + kForeseenArrival).error,
               {"thread 0", "finds no mbarrier"});
  expect_words(outcome_of(".shared .align 8 .b64 bar;\n"
                          "cp.async.mbarrier.arrive.noinc.shared::cluster.b64 [bar];\n")
                   .error,
               {"unsupported form"});
}

TEST(PtxCopies, TheyAreCounted) {
  const Counters c = outcome_of(kCopy + kWait + kBarrier + kOut).counters;
  EXPECT_EQ(c.lanes_by_class[static_cast<size_t>(Class::copy)], kThreads);
  EXPECT_EQ(c.loads.bytes, 16 * kThreads);
  EXPECT_EQ(c.loads.requests, kThreads / kLanes);
}

TEST(PtxCopies, ASliceGoesThroughThem) {
  std::vector<uint32_t> out(4 * kThreads), in(4 * kThreads, 7);
  Module m(text_of(kCopy + kWait + kBarrier + kOut));
  const auto run_all = [&](Recorder& r) {
    Memory memory;
    memory.add(out.data(), out.size() * 4, "out");
    memory.add(in.data(), in.size() * 4, "in", false);
    Launch launch;
    launch.block = {kThreads, 1, 1};
    launch.parameters = parameters_of(
        m.entry("kernel"), {reinterpret_cast<uint64_t>(out.data()), reinterpret_cast<uint64_t>(in.data())});
    RunOptions options;
    options.recorder = &r;
    run(m, "kernel", launch, memory, options);
  };
  const auto steps = slice_behind(run_all, "out", 8 * 4 * 5, 32);  // the second word of thread 1
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[0].text, "cp.async.cg.shared.global [%r4], [%rd2], 16");
  EXPECT_EQ(steps[0].memory, "in");
  EXPECT_EQ(steps[0].offset, 4u * (5 ^ 128));
  EXPECT_EQ(steps[0].thread, 33u);
  EXPECT_EQ(steps[1].memory, "shared memory");
  EXPECT_TRUE(steps[1].stores);
  EXPECT_EQ(steps[3].memory, "out");
}

}  // namespace
}  // namespace assay::ptx
