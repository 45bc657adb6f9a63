// The GEMM order of scales (N6.3 to N6.6): positions worked by hand, and what becomes of padding.
#include "tests/reference/run_line.h"

namespace assay {
namespace {

struct Position {
  size_t i, j, at;
};
// T = 2: 256 indices that are not contracted, 8 scales along the contracted dimension.
constexpr Position kPositions[] = {{0, 0, 0},      {1, 0, 16},     {32, 0, 4},     {0, 3, 3},       {0, 4, 512},
                                   {33, 5, 533},   {127, 7, 1023}, {128, 0, 1024}, {200, 6, 1674},  {255, 7, 2047}};

TEST(Swizzle, Positions) {   // N6.3
  for (const Position& p : kPositions) {
    std::vector<uint8_t> rows(256 * 8), cols(8 * 256);
    rows[p.i * 8 + p.j] = 0x42;
    cols[p.j * 256 + p.i] = 0x42;
    std::vector<uint8_t> expected(2048);
    expected[p.at] = 0x42;
    EXPECT_EQ(run_line("swizzle mxfp8 256x256 e8m0 dir=row", {{"row.scale_inv", blob(rows)}}).u8("row.scale_gemm"), expected) << p.i << " " << p.j;
    EXPECT_EQ(run_line("swizzle mxfp8 256x256 e8m0 dir=col", {{"col.scale_inv", blob(cols)}}).u8("col.scale_gemm"), expected) << p.i << " " << p.j;
    EXPECT_EQ(run_line("swizzle mxfp8 256x256 e8m0 dir=row inverse=1", {{"row.scale_gemm", blob(expected)}}).u8("row.scale_inv"), rows);   // N6.5
    EXPECT_EQ(run_line("swizzle mxfp8 256x256 e8m0 dir=col inverse=1", {{"col.scale_gemm", blob(expected)}}).u8("col.scale_inv"), cols);
  }
}

TEST(Swizzle, PaddingOfTheInputIsNotLookedAt) {   // N6.6: 2x40 has scales [2, 2] in [128, 4]
  const std::vector<uint8_t> garbage(512, 0xEE);
  std::vector<uint8_t> expected(512);
  expected[0] = expected[1] = expected[16] = expected[17] = 0xEE;
  EXPECT_EQ(run_line("swizzle mxfp8 2x40 e8m0 dir=row", {{"row.scale_inv", blob(garbage)}}).u8("row.scale_gemm"), expected);
  EXPECT_EQ(run_line("swizzle mxfp8 40x2 e8m0 dir=col", {{"col.scale_inv", blob(garbage)}}).u8("col.scale_gemm"), expected);
}

TEST(Swizzle, FloorZeroesThePartialLastBlock) {   // N6.6: 40 holds one whole block of 32
  const std::vector<uint8_t> garbage(512, 0xEE);
  std::vector<uint8_t> expected(512);
  expected[0] = expected[16] = 0xEE;
  EXPECT_EQ(run_line("swizzle mxfp8 2x40 e8m0 dir=row swizzle_extent=floor", {{"row.scale_inv", blob(garbage)}}).u8("row.scale_gemm"), expected);
  EXPECT_EQ(run_line("swizzle mxfp8 40x2 e8m0 dir=col swizzle_extent=floor", {{"col.scale_inv", blob(garbage)}}).u8("col.scale_gemm"), expected);
  EXPECT_EQ(run_line("swizzle mxfp8 31x31 e8m0 dir=row swizzle_extent=floor", {{"row.scale_inv", blob(garbage)}}).u8("row.scale_gemm"), std::vector<uint8_t>(512));
  // Not contracted: never cut.
  std::vector<uint8_t> all(512);
  for (size_t i = 0; i < 40; ++i) all[(i % 32) * 16 + i / 32 * 4] = 0xEE;
  EXPECT_EQ(run_line("swizzle mxfp8 40x32 e8m0 dir=row swizzle_extent=floor", {{"row.scale_inv", blob(garbage)}}).u8("row.scale_gemm"), all);
}

TEST(Swizzle, BackCopiesPaddingToo) {   // N6.5
  std::vector<uint8_t> gemm(512);
  for (size_t i = 0; i < gemm.size(); ++i) gemm[i] = static_cast<uint8_t>(1 + i % 255);
  const std::vector<uint8_t> compact = run_line("swizzle mxfp8 1x1 e8m0 dir=row inverse=1", {{"row.scale_gemm", blob(gemm)}}).u8("row.scale_inv");
  EXPECT_EQ(compact[0], 1);                    // (0, 0)
  EXPECT_EQ(compact[4], gemm[16]);             // (1, 0)
  EXPECT_EQ(compact[127 * 4 + 3], gemm[511]);  // (127, 3)
}

TEST(Swizzle, QuantizeWritesTheSameOrder) {   // N6.3, N6.4
  std::vector<uint16_t> x(40 * 70);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(0x3000 + 37 * i % 0x2000);
  for (const char* d : {"row", "col"}) {
    const std::string tail = std::string(" dir=") + d, name(d);
    const Outputs compact = run_line("quantize mxfp8 40x70 bf16" + tail, {{"x", blob(x)}});
    const Outputs gemm = run_line("quantize mxfp8 40x70 bf16 scales=gemm" + tail, {{"x", blob(x)}});
    const Outputs swizzled = run_line("swizzle mxfp8 40x70 e8m0" + tail, {{name + ".scale_inv", compact.at(name + ".scale_inv")}});
    EXPECT_EQ(gemm.at(name + ".scale_gemm"), swizzled.at(name + ".scale_gemm"));
    EXPECT_EQ(gemm.at(name + ".data"), compact.at(name + ".data"));
    // And a dequantize reads it back (N5.9).
    const Outputs y = run_line("dequantize mxfp8 40x70 bf16" + tail, {{name + ".scale_inv", compact.at(name + ".scale_inv")}, {name + ".data", compact.at(name + ".data")}});
    const Outputs y_gemm =
        run_line("dequantize mxfp8 40x70 bf16 scales=gemm" + tail, {{name + ".scale_gemm", gemm.at(name + ".scale_gemm")}, {name + ".data", gemm.at(name + ".data")}});
    EXPECT_EQ(y.at("y"), y_gemm.at("y"));
  }
}

}  // namespace
}  // namespace assay
