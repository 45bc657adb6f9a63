// Products and sums that ptxas may fuse: which pairs are taken, and what the fused kernel gives.
#include "fast/ptx/contraction.h"

#include <gtest/gtest.h>

#include <bit>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

// a, b and c are %f1, %f2 and %f3; the result is %f9.
std::string text_of(const std::string& body) {
  return kernel_text(".param .u64 out, .param .f32 a, .param .f32 b, .param .f32 c",
                     ".reg .pred %p<4>;\n.reg .f32 %f<12>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd0, [out];\n"
                     "ld.param.f32 %f1, [a];\nld.param.f32 %f2, [b];\nld.param.f32 %f3, [c];\n" +
                         body + "\nst.global.f32 [%rd0], %f9;\nret;");
}

// The product is 1 + 2^-11 + 2^-24, a tie that rounds to 1 + 2^-11.
constexpr float kA = 1.0f + 0x1p-12f, kB = kA, kRounded = 1.0f + 0x1p-11f, kC = -kRounded, kLost = 0x1p-24f;

// The result of one thread, as it stands and with every pair fused.
struct Both {
  float apart = 0, fused = 0;
  size_t pairs = 0;
};
Both both(const std::string& body) {
  Module m(text_of(body));
  const auto pairs = contractions(m.kernel("kernel"));
  const Kernel together = contracted(m.kernel("kernel"), pairs);
  const auto result = [&](const Kernel* in_place) {
    float out = 0;
    Memory memory;
    memory.add(&out, 4, "out");
    Launch launch;
    launch.parameters =
        parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(&out), std::bit_cast<uint32_t>(kA),
                                          std::bit_cast<uint32_t>(kB), std::bit_cast<uint32_t>(kC)});
    RunOptions options;
    options.in_place = in_place;
    run(m, "kernel", launch, memory, options);
    return out;
  };
  return {result(nullptr), result(&together), pairs.size()};
}

TEST(PtxContraction, ProductsAndSumsWithoutARoundingAreFused) {
  struct Case {
    const char* sum;
    float apart, fused;
  };
  for (const Case& c : {Case{"add.f32 %f9, %f8, %f3;", 0, kLost}, Case{"add.f32 %f9, %f3, %f8;", 0, kLost},
                        Case{"sub.f32 %f9, %f8, %f3;", 2 * kRounded, 2 * kRounded},
                        Case{"sub.f32 %f9, %f3, %f8;", -2 * kRounded, -2 * kRounded},
                        Case{"neg.f32 %f7, %f3;\nsub.f32 %f9, %f8, %f7;", 0, kLost},
                        Case{"neg.f32 %f7, %f3;\nsub.f32 %f9, %f7, %f8;", 0, -kLost}}) {
    const Both b = both(std::string("mul.f32 %f8, %f1, %f2;\n") + c.sum);
    EXPECT_EQ(b.pairs, 1u) << c.sum;
    EXPECT_EQ(b.apart, c.apart) << c.sum;
    EXPECT_EQ(b.fused, c.fused) << c.sum;
  }
}

// What ptxas fuses too, as its machine code shows: over copies and negations, with .sat, and packed elements.
TEST(PtxContraction, CopiesNegationsAndPackedElementsAreNoHindrance) {
  struct Case {
    const char* body;
    float apart, fused;
  };
  for (const Case& c : {
           Case{"mul.f32 %f8, %f1, %f2;\nmov.f32 %f7, %f8;\nadd.f32 %f9, %f7, %f3;", 0, kLost},
           Case{".reg .b32 %x;\nmul.f32 %f8, %f1, %f2;\nmov.b32 %x, %f8;\nmov.b32 %f7, %x;\nadd.f32 %f9, "
                "%f7, %f3;",
                0, kLost},
           Case{"mul.f32 %f8, %f1, %f2;\nneg.f32 %f7, %f8;\nsub.f32 %f9, %f7, %f3;", 0, -kLost},
           Case{"neg.f32 %f6, %f3;\nmul.f32 %f8, %f1, %f2;\nneg.f32 %f7, %f8;\nadd.f32 %f9, %f6, %f7;", 0,
                -kLost},
           Case{"mul.f32 %f8, %f1, %f2;\nadd.sat.f32 %f9, %f8, %f3;", 0, kLost},
           Case{"mul.f32 %f8, %f1, %f2;\nneg.f32 %f7, %f8;\nsub.sat.f32 %f9, %f7, %f3;", 0, 0},
           Case{".reg .b64 %x<4>;\nmov.b64 %x0, {%f1, %f1};\nmov.b64 %x1, {%f3, %f3};\nmul.f32x2 %x2, %x0, "
                "%x0;\n"
                "add.f32x2 %x3, %x2, %x1;\nmov.b64 {%f9, %f8}, %x3;",
                0, kLost},
           Case{".reg .b32 %x<4>;\n.reg .b16 %h<2>;\nmov.b32 %x0, 0x3C103C10;\nmov.b32 %x1, 0xBC20BC20;\n"
                "mul.f16x2 %x2, %x0, %x0;\nadd.f16x2 %x3, %x2, %x1;\nmov.b32 {%h0, %h1}, %x3;\ncvt.f32.f16 "
                "%f9, %h1;",
                0, 0x1p-12f},
       }) {
    const Both b = both(c.body);
    EXPECT_EQ(b.pairs, 1u) << c.body;
    EXPECT_EQ(b.apart, c.apart) << c.body;
    EXPECT_EQ(b.fused, c.fused) << c.body;
  }
}

TEST(PtxContraction, WhatMustStayApartStaysApart) {
  for (const char* body : {
           "mul.rn.f32 %f8, %f1, %f2;\nadd.f32 %f9, %f8, %f3;",                       // the product rounds
           "mul.f32 %f8, %f1, %f2;\nadd.rn.f32 %f9, %f8, %f3;",                       // the sum rounds
           "mul.f32 %f8, %f1, %f2;\nadd.f32 %f9, %f8, %f3;\nmax.f32 %f9, %f9, %f8;",  // the product is used
                                                                                      // again
           "mul.f32 %f8, %f1, %f2;\nadd.f32 %f9, %f8, %f8;",                          // twice by the sum
           "mul.f32 %f8, %f1, %f2;\nadd.f32 %f9, %f8, %f3;\nfma.rn.f32 %f9, %f8, %f8, %f9;",
           "mul.f32 %f8, %f1, %f2;\nbra A;\nA:\nadd.f32 %f9, %f8, %f3;",         // another stretch of code
           "mul.f32 %f8, %f1, %f2;\nmov.f32 %f1, %f3;\nadd.f32 %f9, %f8, %f3;",  // an operand changed
           "mul.ftz.f32 %f8, %f1, %f2;\nadd.f32 %f9, %f8, %f3;",                 // one of them flushes
           "mul.f32 %f8, %f1, %f2;\nabs.f32 %f7, %f8;\nadd.f32 %f9, %f7, %f3;",  // more than a sign
           "mul.f32 %f8, %f1, %f2;\nmov.f32 %f7, %f8;\nadd.f32 %f9, %f7, %f8;",  // the copy and itself
       })
    EXPECT_EQ(both(body).pairs, 0u) << body;
  // Of a sum of two products one is fused.
  EXPECT_EQ(both("mul.f32 %f8, %f1, %f2;\nmul.f32 %f7, %f3, %f3;\nadd.f32 %f9, %f8, %f7;").pairs, 1u);
}

// ptxas fuses these too, as its machine code shows.
TEST(PtxContraction, AProductMayBeTakenBySeveralSumsAndOverBarriers) {
  const Both two =
      both("mul.f32 %f8, %f1, %f2;\nadd.f32 %f7, %f8, %f3;\nsub.f32 %f6, %f8, %f3;\nmin.f32 %f9, %f7, %f6;");
  EXPECT_EQ(two.pairs, 2u);
  EXPECT_EQ(two.fused, kLost);
  const Both over = both("mul.f32 %f8, %f1, %f2;\nbar.sync 0;\nbar.warp.sync 1;\nadd.f32 %f9, %f8, %f3;");
  EXPECT_EQ(over.pairs, 1u);
  EXPECT_EQ(over.fused, kLost);
}

TEST(PtxContraction, ProductsThatAreNotTriedAreKnown) {
  const auto lines = [](const std::string& body) {
    Module m(text_of(body));
    const Kernel& k = m.kernel("kernel");
    std::vector<uint32_t> out;
    for (const uint32_t n : untried(k, contractions(k))) out.push_back(k.code[n].line);
    return out;
  };
  EXPECT_EQ(lines("mul.f32 %f1, %f1, %f2;\nadd.f32 %f9, %f1, %f3;"), std::vector<uint32_t>{13});
  EXPECT_EQ(lines("mul.f32 %f8, %f1, %f2;\nmov.f32 %f1, %f3;\nadd.f32 %f9, %f8, %f1;"),
            std::vector<uint32_t>{13});
  EXPECT_TRUE(lines("mul.f32 %f8, %f1, %f2;\nadd.f32 %f9, %f8, %f3;").empty());
  EXPECT_TRUE(lines("mul.f32 %f8, %f1, %f2;\nadd.rn.f32 %f9, %f8, %f3;").empty());
}

TEST(PtxContraction, APairIsNamedWithItsLines) {
  Module m(text_of(".loc 7 61 3\nmul.f32 %f8, %f1, %f2;\nadd.f32 %f9, %f8, %f3;"));
  const Kernel& k = m.kernel("kernel");
  const auto pairs = contractions(k);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(to_text(k, pairs[0]), "file 7:61, PTX line 14 (mul.f32) and 15 (add.f32)");
}

}  // namespace
}  // namespace assay::ptx
