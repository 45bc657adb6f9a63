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

// Functions of one number: f0 adds 1 to it, and each of f1, f2, ... calls the one before it twice.
std::string doubling(int functions) {
  std::string all;
  for (int f = 0; f < functions; ++f) {
    const std::string call = "{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %n;\ncall.uni (b), f" +
                             std::to_string(f - 1) + ", (a);\nld.param.b32 %n, [b];\n}\n";
    all += ".func (.param .b32 r) f" + std::to_string(f) + "(.param .b32 n)\n{\n.reg .b32 %n;\n" +
           "ld.param.b32 %n, [n];\n" + (f == 0 ? "add.u32 %n, %n, 1;\n" : call + call) +
           "st.param.b32 [r], %n;\nret;\n}\n";
  }
  return all;
}

// A function is read once more for each call: f0 2^6 times, which is allowed, and 2^16 times, which is not.
TEST(PtxCalls, FunctionsThatDoubleWhatThereIsToReadAreRefused) {
  const Outcome few = outcome_of(doubling(7), replaced(kCallTwice, "twice", "f6"));
  ASSERT_EQ(few.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(few.values[t], t + 64);
  expect_words(outcome_of(doubling(17), replaced(kCallTwice, "twice", "f16")).error,
               {"PTX line ", "the body is too long, with the functions it calls"});
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

// The argument of a call through a register has the name of a function, which is not called here.
TEST(PtxCalls, AnArgumentMayHaveTheNameOfAFunction) {
  const std::string prototype = "P: .callprototype (.param .b32 _) _ (.param .b32 _);\n";
  const Outcome o = outcome_of(
      std::string(kTwice) +
          ".func (.param .b32 r) down(.param .b32 a)\n{\n.reg .b32 %r<4>;\n.reg .b64 %f;\n.reg .pred %p;\n"
          "ld.param.b32 %r0, [a];\nmov.u32 %r1, 100;\nsetp.eq.u32 %p, %r0, 0;\n@%p bra OUT;\n{\n"
          ".param .b32 twice;\n.param .b32 back;\nsub.u32 %r2, %r0, 1;\nst.param.b32 [twice], %r2;\n"
          "mov.u64 %f, down;\n" +
          prototype +
          "call (back), %f, (twice), P;\nld.param.b32 %r1, [back];\n}\nOUT:\nadd.u32 %r1, %r1, %r0;\n"
          "st.param.b32 [r], %r1;\nret;\n}\n",
      "{\n.param .b32 a;\n.param .b32 b;\nand.b32 %r2, %r0, 3;\nst.param.b32 [a], %r2;\n"
      "call (b), down, (a);\nld.param.b32 %r1, [b];\n}");
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], 100 + (t % 4) * (t % 4 + 1) / 2);
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
  expect_words(refusal(kTwice, replaced(kCallTwice, "twice,", "%rd0,")), {"there is no label ''"});
  expect_words(refusal(".func (.reg .b32 r) twice(.reg .b32 a) { ret; }\n", kCallTwice),
               {"takes its parameter 'r' in a register"});
  expect_words(refusal(replaced(kTwice, "@%p bra OUT;", "@%p bra THERE;"), kCallTwice),
               {"there is no label 'THERE'"});
  expect_words(refusal("", "st.param.b32 [out], %r0;"), {"writes to a parameter of the entry"});
}

// Functions of one argument, and a call of the one whose address is in %rd1.
const char* const kThree =
    ".func (.param .b32 r) times3(.param .b32 a)\n{\n.reg .b32 %r;\nld.param.b32 %r, [a];\n"
    "mul.lo.u32 %r, %r, 3;\nst.param.b32 [r], %r;\nret;\n}\n";
const char* const kCallThrough =
    "{\n.param .b32 given;\n.param .b32 back;\nst.param.b32 [given], %r0;\n"
    "PROTOTYPE: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
    "call (back), %rd1, (given), PROTOTYPE;\nld.param.b32 %r1, [back];\n}";
const char* const kChosen =
    "mov.u64 %rd1, twice;\nmov.u64 %rd2, times3;\nand.b32 %r2, %r0, 1;\nsetp.eq.u32 %p0, %r2, 0;\n"
    "selp.b64 %rd1, %rd1, %rd2, %p0;\n";
uint32_t twice_or_thrice(unsigned t) { return t % 2 ? 3 * t : t == 3 ? 99 : 2 * t; }

TEST(PtxCalls, LanesCallTheFunctionsThatTheirRegistersName) {
  const std::string functions = std::string(kTwice) + kThree;
  for (const std::string& how : {std::string(kCallThrough),
                                 replaced(kCallThrough, ".callprototype (.param .b32 _) _ (.param .b32 _)",
                                          ".calltargets twice, times3"),
                                 replaced(replaced(kCallThrough, "call (", "@%p1 call ("), "{\n.param",
                                          "setp.ge.u32 %p1, %r0, 0;\n{\n.param")}) {
    const Outcome o = outcome_of(functions, kChosen + how);
    ASSERT_EQ(o.error, "");
    for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], twice_or_thrice(t)) << how;
  }
}

TEST(PtxCalls, AddressesOfFunctionsLieInTables) {
  const std::string functions =
      std::string(kTwice) + kThree + ".global .align 8 .u64 table[2] = {twice, generic(times3)};\n";
  const Outcome o =
      outcome_of(functions,
                 "and.b32 %r2, %r0, 1;\nmov.u64 %rd2, table;\nmad.wide.u32 %rd2, %r2, 8, %rd2;\n"
                 "ld.global.u64 %rd1, [%rd2];\n" +
                     std::string(kCallThrough));
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], twice_or_thrice(t));
}

TEST(PtxCalls, ARegisterThatNamesNoFunctionIsAnError) {
  const std::string functions = std::string(kTwice) + kThree;
  expect_words(
      outcome_of(functions, kChosen + replaced(kCallThrough, "call (", "mov.u64 %rd1, 4660;\ncall (")).error,
      {"thread ", "goes to 0x0000000000001234, which is the address of no function that it may call"});
  // A function whose parameters are others is none that the prototype lets it call.
  expect_words(outcome_of(functions + ".func other(.param .b64 a) { ret; }\n",
                          kChosen + replaced(kCallThrough, "call (", "mov.u64 %rd1, other;\ncall ("))
                   .error,
               {"which is the address of no function that it may call"});
  expect_words(outcome_of(functions, kCallThrough).error,
               {"no function whose address is taken has the parameters of 'PROTOTYPE'"});
  expect_words(
      outcome_of(functions, kChosen + replaced(kCallThrough, "given), PROTOTYPE", "given), NONE")).error,
      {"PTX line ", "there is no label 'NONE'"});
  expect_words(outcome_of(functions,
                          kChosen + replaced(kCallThrough, ".callprototype (.param .b32 _) _ (.param .b32 _)",
                                             ".calltargets twice, thrice"))
                   .error,
               {"there is no function 'thrice' with a body"});
}

// 1 for 0, else n times that of n - 1 (modulo 2^32): a register and a local variable live across the call.
const char* const kFactorial =
    ".func (.param .b32 r) factorial(.param .b32 n)\n{\n.reg .b32 %n, %m;\n.reg .pred %p;\n.reg .b64 %at;\n"
    ".local .align 8 .b8 kept[8];\nld.param.b32 %n, [n];\nsetp.eq.u32 %p, %n, 0;\n@%p bra LEAF;\n"
    "mov.u64 %at, kept;\nst.local.b32 [%at+4], %n;\nsub.u32 %m, %n, 1;\n{\n.param .b32 given;\n.param .b32 "
    "back;\n"
    "st.param.b32 [given], %m;\ncall.uni (back), factorial, (given);\nld.param.b32 %m, [back];\n}\n"
    "mul.lo.u32 %m, %m, %n;\nld.local.b32 %n, [kept+4];\nadd.u32 %m, %m, %n;\n@!%p st.param.b32 [r], "
    "%m;\nret;\n"
    "LEAF:\nst.param.b32 [r], 1;\nret;\n}\n";
uint32_t factorial(uint32_t n) { return n == 0 ? 1 : factorial(n - 1) * n + n; }
const char* const kCallFactorial =
    "and.b32 %r2, %r0, 15;\n{\n.param .b32 given;\n.param .b32 back;\nst.param.b32 [given], %r2;\n"
    "call.uni (back), factorial, (given);\nld.param.b32 %r1, [back];\n}\n";

TEST(PtxCalls, AFunctionMayCallItself) {
  const Outcome o = outcome_of(kFactorial, kCallFactorial);
  ASSERT_EQ(o.error, "");
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], factorial(t % 16)) << t;
}

// f(n) = f(n-1) + f(n-2), through another function and through a register.
TEST(PtxCalls, FunctionsMayCallEachOther) {
  const std::string head =
      ".func (.param .b32 r) minus1(.param .b32 n);\n"
      ".func (.param .b32 r) fib(.param .b32 n)\n{\n.reg .b32 %n, %a, %b;\n.reg .pred %p;\n.reg .b64 %f;\n"
      "ld.param.b32 %n, [n];\nsetp.lt.u32 %p, %n, 2;\n@%p bra LEAF;\n"
      "{\n.param .b32 x;\n.param .b32 y;\nst.param.b32 [x], %n;\ncall (y), minus1, (x);\nld.param.b32 %a, "
      "[y];\n}\n"
      "sub.u32 %n, %n, 2;\nmov.u64 %f, fib;\n"
      "{\n.param .b32 x;\n.param .b32 y;\nst.param.b32 [x], %n;\nP: .callprototype (.param .b32 _) _ (.param "
      ".b32 _);\n"
      "call (y), %f, (x), P;\nld.param.b32 %b, [y];\n}\nadd.u32 %n, %a, %b;\nLEAF:\nst.param.b32 [r], "
      "%n;\nret;\n}\n"
      ".func (.param .b32 r) minus1(.param .b32 n)\n{\n.reg .b32 %n;\nld.param.b32 %n, [n];\nsub.u32 %n, %n, "
      "1;\n"
      "{\n.param .b32 x;\n.param .b32 y;\nst.param.b32 [x], %n;\ncall (y), fib, (x);\nld.param.b32 %n, "
      "[y];\n}\n"
      "st.param.b32 [r], %n;\nret;\n}\n";
  const Outcome o = outcome_of(head, replaced(replaced(kCallFactorial, "factorial", "fib"), "15", "7"));
  ASSERT_EQ(o.error, "");
  const uint32_t kFib[] = {0, 1, 1, 2, 3, 5, 8, 13};
  for (unsigned t = 0; t < kThreads; ++t) EXPECT_EQ(o.values[t], kFib[t % 8]) << t;
}

TEST(PtxCalls, AStackThatDoesNotEndIsAnError) {
  expect_words(
      outcome_of(replaced(kFactorial, "setp.eq.u32 %p, %n, 0;", "setp.eq.u32 %p, %n, 77;"), kCallFactorial)
          .error,
      {"thread ", "PTX line ", "calls within calls that need more than the stack of 32768 bytes"});
  // One thread of the block that goes too deep is named.
  expect_words(
      outcome_of(kFactorial, "setp.eq.u32 %p0, %r0, 41;\n" + replaced(kCallFactorial, "{\n.param",
                                                                      "@%p0 mov.u32 %r2, 100000;\n{\n.param"))
          .error,
      {"thread 41", "calls within calls"});
  expect_words(outcome_of(replaced(kFactorial, "kept[8]", "kept[40000]"), kCallFactorial).error,
               {"'factorial' calls itself and needs ", "bytes for a call, of 32768"});
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
