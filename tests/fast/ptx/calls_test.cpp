// Calls of functions and branches by an index (9.7.12.4, 9.7.12.5).
#include <gtest/gtest.h>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr unsigned kThreads = 64;

// A module of functions and a kernel whose thread number is in %r0 and which stores %r1 for its thread.
std::string module_of(const std::string& functions, const std::string& body) {
  std::string kernel =
      kernel_text(".param .u64 out",
                  ".reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd0, [out];\n"
                  "mov.u32 %r0, %tid.x;\nmad.wide.u32 %rd0, %r0, 4, %rd0;\nmov.u32 %r1, 0;\n" +
                      body + "\nst.global.u32 [%rd0], %r1;\nret;");
  return replaced(kernel, ".visible", functions + ".visible");
}

struct Outcome {
  std::vector<uint32_t> values;
  std::string error;
};
Outcome outcome_of(const std::string& functions, const std::string& body) {
  Outcome o;
  o.values.resize(kThreads);
  try {
    Module m(module_of(functions, body));
    Memory memory;
    memory.add(o.values.data(), o.values.size() * 4, "out", true, false);
    Launch launch;
    launch.block = {kThreads, 1, 1};
    launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(o.values.data())});
    for (const uint64_t order : {0, 1, 2}) {
      std::fill(o.values.begin(), o.values.end(), 0u);
      RunOptions options;
      options.order = order;
      options.check = true;
      run(m, "kernel", launch, memory, options);
    }
  } catch (const Fault& e) {
    o.error = e.what();
  }
  return o;
}
void expect_words(const std::string& error, const std::vector<const char*>& words) {
  for (const char* w : words) EXPECT_NE(error.find(w), std::string::npos) << w << " is not in: " << error;
}

// Twice its argument, or 99 where that is 3: a function that returns from two places.
const char* const kTwice =
    ".func (.param .b32 result) twice(.param .b32 given)\n{\n.reg .b32 %r<4>;\n.reg .pred %p;\n"
    "ld.param.b32 %r0, [given];\nsetp.eq.u32 %p, %r0, 3;\n@%p bra OUT;\nadd.u32 %r0, %r0, %r0;\n"
    "st.param.b32 [result], %r0;\nret;\nOUT:\nst.param.b32 [result], 99;\nret;\n}\n";
const char* const kCallTwice =
    "{\n.param .b32 given;\n.param .b32 back;\nst.param.b32 [given], %r0;\ncall.uni (back), twice, (given);\n"
    "ld.param.b32 %r1, [back];\n}";

TEST(PtxCalls, LanesReturnFromDifferentPlaces) {
  const Outcome o = outcome_of(kTwice, kCallTwice);
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], t == 3 ? 99 : 2 * t);
}

TEST(PtxCalls, AGuardedCallIsThatOfItsLanes) {
  const Outcome o =
      outcome_of(kTwice, "setp.lt.u32 %p0, %r0, 40;\n" +
                             replaced(kCallTwice, "call.uni", "st.param.b32 [back], 7;\n@%p0 call"));
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], t >= 40 ? 7 : t == 3 ? 99 : 2 * t);
}

TEST(PtxCalls, AFunctionCallsAnotherWithAStruct) {
  const std::string functions =
      std::string(".func (.param .b32 result) sum(.param .align 8 .b8 pair[8]);\n") + kTwice +
      ".func (.param .b32 result) sum(.param .align 8 .b8 pair[8])\n{\n.reg .b32 %r<4>;\n"
      "ld.param.v2.b32 {%r0, %r1}, [pair];\n{\n.param .b32 p;\n.param .b32 q;\nst.param.b32 [p], %r0;\n"
      "call.uni (q), twice, (p);\nld.param.b32 %r2, [q];\n}\nadd.u32 %r2, %r2, %r1;\n"
      "st.param.b32 [result], %r2;\nret;\n}\n";
  const Outcome o = outcome_of(
      functions,
      "{\n.param .align 8 .b8 p[8];\n.param .b32 q;\nst.param.b32 [p], %r0;\nst.param.b32 [p+4], 1000;\n"
      "call (q), sum, (p);\nld.param.b32 %r1, [q];\n}");
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], (t == 3 ? 99 : 2 * t) + 1000);
}

TEST(PtxCalls, CallsInALoopKeepTheirLanesApart) {
  const Outcome o = outcome_of(
      ".func (.param .b32 r) next(.param .b32 a)\n{\n.reg .b32 %r<2>;\nld.param.b32 %r0, [a];\n"
      "add.u32 %r0, %r0, 3;\nst.param.b32 [r], %r0;\nret;\n}\n",
      "mov.u32 %r2, %r0;\nLOOP:\n{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %r1;\n"
      "call.uni (b), next, (a);\nld.param.b32 %r1, [b];\n}\nsetp.ne.u32 %p0, %r2, 0;\nsub.u32 %r2, %r2, 1;\n"
      "@%p0 bra LOOP;");
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], 3 * (t + 1));
}

TEST(PtxCalls, ExitInAFunctionLeavesTheKernel) {
  const Outcome o = outcome_of(
      ".func leave(.param .b32 a)\n{\n.reg .b32 %r;\n.reg .pred %p;\nld.param.b32 %r, [a];\n"
      "setp.gt.u32 %p, %r, 9;\n@%p exit;\nret;\n}\n",
      "mov.u32 %r1, 5;\n{\n.param .b32 a;\nst.param.b32 [a], %r0;\ncall leave, (a);\n}");
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], t > 9 ? 0u : 5u);
}

TEST(PtxCalls, WhatIsNotUnderstoodRefusesTheKernel) {
  const auto refusal = [](const std::string& functions, const std::string& body) {
    return outcome_of(functions, body).error;
  };
  expect_words(refusal("", kCallTwice), {"PTX line ", "there is no function 'twice'"});
  expect_words(refusal(".extern .func (.param .b32 r) twice(.param .b32 a);\n", kCallTwice),
               {"'twice' has no body in this module"});
  expect_words(refusal(kTwice, replaced(kCallTwice, ".b32 given;", ".b64 given;")),
               {"'given' has 8 bytes", "'given' of 'twice' has 4"});
  expect_words(refusal(kTwice, replaced(kCallTwice, "(back), twice", "twice")),
               {"'twice' has 1 parameters or results, not 0"});
  expect_words(refusal(kTwice, replaced(kCallTwice, "(given);", "(%r0);")), {"'%r0' is no .param variable"});
  expect_words(refusal(kTwice, replaced(kCallTwice, "twice,", "%rd0,")), {"in a register ('%rd0')"});
  expect_words(refusal(".func (.reg .b32 r) twice(.reg .b32 a) { ret; }\n", kCallTwice),
               {"takes its parameter 'r' in a register"});
  expect_words(refusal(".func again() { call again; ret; }\n", "call again;"), {"'again' calls itself"});
  expect_words(refusal(replaced(kTwice, "@%p bra OUT;", "@%p bra THERE;"), kCallTwice),
               {"there is no label 'THERE'"});
  expect_words(refusal("", "st.param.b32 [out], %r0;"), {"writes to a parameter of the entry"});
}

TEST(PtxCalls, AnArgumentThatNobodyWroteIsFound) {
  const std::string error =
      outcome_of(kTwice, replaced(kCallTwice, "st.param.b32 [given], %r0;\n", "")).error;
  expect_words(error, {"thread 0", "bra is guarded by an undefined predicate"});
}

TEST(PtxCalls, AFailedAssertionSaysWhat) {
  const Outcome o = outcome_of(
      ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) "
      ".noreturn;\n.global .align 1 .b8 text[6] = {97, 32, 62, 32, 48, 0};\n",
      "setp.ne.u32 %p0, %r0, 37;\n@%p0 bra WELL;\n{\n.param .b64 a;\n.param .b64 b;\n.param .b32 c;\n"
      ".param .b64 d;\n.param .b64 e;\nmov.u64 %rd1, text;\ncvta.global.u64 %rd1, %rd1;\n"
      "st.param.b64 [a], %rd1;\ncall.uni __assertfail, (a, b, c, d, e);\n}\nWELL:");
  expect_words(o.error, {"thread 37", "the assertion 'a > 0' failed"});
}

const char* const kIndexed =
    "rem.u32 %r2, %r0, 3;\nbrx.idx.uni %r2, TABLE;\nTABLE: .branchtargets ZERO, ONE, TWO;\n"
    "TWO: add.u32 %r1, %r1, 30;\nbra END;\nZERO: add.u32 %r1, %r1, 10;\nbra END;\n"
    "ONE: add.u32 %r1, %r1, 20;\nEND:";

TEST(PtxCalls, LanesBranchByTheirIndex) {
  const Outcome o = outcome_of("", kIndexed);
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], 10 * (t % 3 + 1));
}

TEST(PtxCalls, AnIndexBehindTheTableIsAnError) {
  expect_words(outcome_of("", replaced(kIndexed, "%r0, 3;", "%r0, 5;")).error,
               {"thread 3", "has index 3 of 3 targets"});
  expect_words(outcome_of("", replaced(kIndexed, "rem.u32 %r2, %r0, 3;", "")).error,
               {"takes an undefined operand"});
  expect_words(outcome_of("", replaced(kIndexed, "%r2, TABLE;", "%r2, END;")).error,
               {"there is no label 'END'"});
}

}  // namespace
}  // namespace assay::ptx
