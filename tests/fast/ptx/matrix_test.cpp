// ldmatrix and stmatrix: which element lies in which half of which lane's register, and what is refused.
#include <gtest/gtest.h>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr const char* kDeclarations =
    ".reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<12>;\n.reg .b64 %rd<4>;\n.shared .align 16 .b8 "
    "tile[512];\n"
    "mov.u32 %r0, %tid.x;\nshl.b32 %r9, %r0, 4;\nmov.u32 %r8, tile;\nadd.u32 %r8, %r8, %r9;\n"
    "ld.param.u64 %rd0, [out];\ncvt.u64.u32 %rd1, %r9;\nadd.u64 %rd1, %rd0, %rd1;\n";
// Row n of the tile is the eight numbers from 8n, two in a register, written by thread n.
constexpr const char* kFill =
    "mul.lo.u32 %r1, %r0, 0x00080008;\nadd.u32 %r1, %r1, 0x00010000;\nadd.u32 %r2, %r1, 0x00020002;\n"
    "add.u32 %r3, %r1, 0x00040004;\nadd.u32 %r4, %r1, 0x00060006;\nst.shared.v4.b32 [%r8], {%r1, %r2, %r3, "
    "%r4};\n"
    "bar.sync 0;\n";
constexpr const char* kStoreFour = "st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};\n";

struct Result {
  std::vector<uint16_t> out = std::vector<uint16_t>(256);
  std::string error;
};
Result result_of(const std::string& body, bool check = false) {
  Result r;
  try {
    Module m(kernel_text(".param .u64 out", kDeclarations + body + "ret;"));
    Memory memory;
    memory.add(reinterpret_cast<std::byte*>(r.out.data()), 512, "out");
    Launch launch;
    launch.block = {32, 1, 1};
    launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(r.out.data())});
    RunOptions options;
    options.check = check;
    run(m, "kernel", launch, memory, options);
  } catch (const Fault& e) {
    r.error = e.what();
  }
  return r;
}

TEST(PtxMatrix, LoadsGiveEachLaneTwoElementsOfARowOrOfAColumn) {
  for (const bool transposed : {false, true})
    for (const bool check : {false, true}) {
      const std::string load = std::string("ldmatrix.sync.aligned.m8n8.x4") + (transposed ? ".trans" : "") +
                               ".shared.b16 {%r1, %r2, %r3, %r4}, [%r8];\n";
      const Result r = result_of(kFill + load + kStoreFour, check);
      ASSERT_EQ(r.error, "");
      for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned matrix = 0; matrix < 4; ++matrix)
          for (unsigned half = 0; half < 2; ++half) {
            const unsigned a = lane / 4, b = 2 * (lane % 4) + half;
            const unsigned row = transposed ? b : a, column = transposed ? a : b;
            EXPECT_EQ(r.out[8 * lane + 2 * matrix + half], 64 * matrix + 8 * row + column)
                << transposed << " lane " << lane << " matrix " << matrix << " half " << half;
          }
    }
}

TEST(PtxMatrix, StoresAreTheirInverse) {
  for (const bool transposed : {false, true})
    for (const bool check : {false, true}) {
      // Lane l holds the numbers 2l and 2l + 1 of each matrix, which count 64 elements each.
      const std::string store =
          std::string("mul.lo.u32 %r1, %r0, 0x00020002;\nadd.u32 %r1, %r1, 0x00010000;\n") +
          "add.u32 %r2, %r1, 0x00400040;\nadd.u32 %r3, %r2, 0x00400040;\n"
          "add.u32 %r4, %r3, 0x00400040;\nstmatrix.sync.aligned.m8n8.x4" +
          (transposed ? ".trans" : "") +
          ".shared.b16 [%r8], {%r1, %r2, %r3, %r4};\nbar.sync 0;\n"
          "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r8];\n";
      const Result r = result_of(store + kStoreFour, check);
      ASSERT_EQ(r.error, "");
      for (unsigned n = 0; n < 256; ++n)
        EXPECT_EQ(r.out[n], transposed ? n / 64 * 64 + 8 * (n % 8) + n % 64 / 8 : n)
            << transposed << " " << n;
    }
}

TEST(PtxMatrix, OneAndTwoMatricesAskForTheAddressesOfTheirRowsAlone) {
  // Lanes from 8 on hold an address outside of everything.
  const std::string far = "setp.ge.u32 %p1, %r0, 8;\n@%p1 mov.u32 %r8, 0x00FFFFF0;\n",
                    zeros = "mov.u32 %r2, 0;\nmov.u32 %r3, 0;\nmov.u32 %r4, 0;\n",
                    one = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [%r8];\n",
                    two = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r8];\n";
  const Result r = result_of(kFill + far + one + zeros + kStoreFour);
  ASSERT_EQ(r.error, "");
  for (unsigned lane = 0; lane < 32; ++lane) EXPECT_EQ(r.out[8 * lane], 2 * lane);
  EXPECT_NE(result_of(kFill + far + two + zeros + kStoreFour).error.find("thread 8: ldmatrix"),
            std::string::npos);
}

TEST(PtxMatrix, AMatrixInRegistersIsTransposed) {
  // Lane l holds the elements 2l and 2l + 1 of the first matrix; the destination may be the source.
  const std::string numbers = "mul.lo.u32 %r1, %r0, 0x00020002;\nadd.u32 %r1, %r1, 0x00010000;\n",
                    move = "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1;\n",
                    store = "mov.u32 %r2, 0;\nmov.u32 %r3, 0;\nmov.u32 %r4, 0;\n" + std::string(kStoreFour);
  for (const bool check : {false, true}) {
    const Result r = result_of(numbers + move + store, check);
    ASSERT_EQ(r.error, "");
    for (unsigned n = 0; n < 64; ++n) EXPECT_EQ(r.out[n / 2 * 8 + n % 2], 8 * (n % 8) + n / 8) << n;
  }
  // Lane 3 has elements 6 and 7 of row 0, which go to columns 0 of rows 6 and 7: lanes 24 and 28.
  const std::string undefined = numbers + "setp.eq.u32 %p1, %r0, 3;\n@%p1 mov.b32 %r1, %r7;\n" + move;
  EXPECT_EQ(result_of(undefined +
                          "setp.eq.u32 %p2, %r0, 24;\nsetp.eq.or.u32 %p2, %r0, 28, %p2;\n@%p2 mov.u32 %r1, "
                          "0;\n" +
                          store,
                      true)
                .error,
            "");
  EXPECT_NE(
      result_of(undefined + store, true).error.find("thread 24: st.global.v4.b32 stores an undefined value"),
      std::string::npos)
      << result_of(undefined + store, true).error;
  EXPECT_NE(result_of(numbers + "setp.eq.u32 %p1, %r0, 5;\n@%p1 ret;\n" + move)
                .error.find("is carried out by a part"),
            std::string::npos);
}

TEST(PtxMatrix, WhatIsWrongNamesTheLane) {
  const std::string load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r8];\n",
                    generic = "ldmatrix.sync.aligned.m8n8.x4.b16 {%r1, %r2, %r3, %r4}, [%rd1];\n";
  const auto error = [](const std::string& body, bool check = false) { return result_of(body, check).error; };
  EXPECT_NE(error(kFill + ("add.u32 %r8, %r8, 8;\n" + load))
                .find("thread 0: ldmatrix.sync.aligned.m8n8.x4.shared.b16 of 16 bytes at an address"),
            std::string::npos);
  EXPECT_NE(error(kFill + ("add.u32 %r8, %r8, 16;\n" + load)).find("thread 31: ldmatrix"), std::string::npos);
  EXPECT_NE(
      error(kFill + ("setp.eq.u32 %p1, %r0, 5;\n@!%p1 " + load)).find("is carried out by a part of its warp"),
      std::string::npos)
      << error(kFill + ("setp.eq.u32 %p1, %r0, 5;\n@!%p1 " + load));
  EXPECT_NE(error(kFill + generic).find("outside shared memory"), std::string::npos)
      << error(kFill + generic);
  // Values that nobody wrote come out of memory with the matrix, and stay what they are on their way in.
  EXPECT_NE(error(load + kStoreFour, true).find("stores an undefined value"), std::string::npos)
      << error(load + kStoreFour, true);
  EXPECT_NE(error("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r0, %r0, %r5, %r0};\nbar.sync 0;\n"
                  "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r8];\n" +
                      std::string(kStoreFour),
                  true)
                .find("thread 16: st.global.v4.b32 stores an undefined value"),
            std::string::npos);
  EXPECT_NE(error(kFill + ("mov.b32 %r8, %r7;\n" + load), true).find("is given an undefined address"),
            std::string::npos);
}

}  // namespace
}  // namespace assay::ptx
