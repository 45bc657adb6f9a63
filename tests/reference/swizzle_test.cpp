// The GEMM order of scales (N6.3 to N6.6): positions worked by hand, and what becomes of padding.
#include <stdexcept>

#include "reference/swizzle.h"
#include "tests/reference/run_line.h"

namespace assay {
namespace {

struct Position {
  size_t i, j, at;
};
// T = 2: 256 indices that are not contracted, 8 scales along the contracted dimension.
constexpr Position kPositions[] = {{0, 0, 0},      {1, 0, 16},    {32, 0, 4},     {0, 3, 3},
                                   {0, 4, 512},    {33, 5, 533},  {127, 7, 1023}, {128, 0, 1024},
                                   {200, 6, 1674}, {255, 7, 2047}};

TEST(Swizzle, Positions) {  // N6.3
  for (const Position& p : kPositions) {
    std::vector<uint8_t> rows(256 * 8), cols(8 * 256);
    rows[p.i * 8 + p.j] = 0x42;
    cols[p.j * 256 + p.i] = 0x42;
    std::vector<uint8_t> expected(2048);
    expected[p.at] = 0x42;
    EXPECT_EQ(
        run_line("swizzle mxfp8 256x256 e8m0 dir=row", {{"row.scale_inv", blob(rows)}}).u8("row.scale_gemm"),
        expected)
        << p.i << " " << p.j;
    EXPECT_EQ(
        run_line("swizzle mxfp8 256x256 e8m0 dir=col", {{"col.scale_inv", blob(cols)}}).u8("col.scale_gemm"),
        expected)
        << p.i << " " << p.j;
    EXPECT_EQ(run_line("swizzle mxfp8 256x256 e8m0 dir=row inverse=1", {{"row.scale_gemm", blob(expected)}})
                  .u8("row.scale_inv"),
              rows);  // N6.5
    EXPECT_EQ(run_line("swizzle mxfp8 256x256 e8m0 dir=col inverse=1", {{"col.scale_gemm", blob(expected)}})
                  .u8("col.scale_inv"),
              cols);
  }
}

TEST(Swizzle, PaddingOfTheInputIsNotLookedAt) {  // N6.6: 2x40 has scales [2, 2] in [128, 4]
  const std::vector<uint8_t> garbage(512, 0xEE);
  std::vector<uint8_t> expected(512);
  expected[0] = expected[1] = expected[16] = expected[17] = 0xEE;
  EXPECT_EQ(
      run_line("swizzle mxfp8 2x40 e8m0 dir=row", {{"row.scale_inv", blob(garbage)}}).u8("row.scale_gemm"),
      expected);
  EXPECT_EQ(
      run_line("swizzle mxfp8 40x2 e8m0 dir=col", {{"col.scale_inv", blob(garbage)}}).u8("col.scale_gemm"),
      expected);
}

TEST(Swizzle, FloorZeroesThePartialLastBlock) {  // N6.6: 40 holds one whole block of 32
  const std::vector<uint8_t> garbage(512, 0xEE);
  std::vector<uint8_t> expected(512);
  expected[0] = expected[16] = 0xEE;
  EXPECT_EQ(
      run_line("swizzle mxfp8 2x40 e8m0 dir=row swizzle_extent=floor", {{"row.scale_inv", blob(garbage)}})
          .u8("row.scale_gemm"),
      expected);
  EXPECT_EQ(
      run_line("swizzle mxfp8 40x2 e8m0 dir=col swizzle_extent=floor", {{"col.scale_inv", blob(garbage)}})
          .u8("col.scale_gemm"),
      expected);
  EXPECT_EQ(
      run_line("swizzle mxfp8 31x31 e8m0 dir=row swizzle_extent=floor", {{"row.scale_inv", blob(garbage)}})
          .u8("row.scale_gemm"),
      std::vector<uint8_t>(512));
  // Not contracted: never cut.
  std::vector<uint8_t> all(512);
  for (size_t i = 0; i < 40; ++i) all[(i % 32) * 16 + i / 32 * 4] = 0xEE;
  EXPECT_EQ(
      run_line("swizzle mxfp8 40x32 e8m0 dir=row swizzle_extent=floor", {{"row.scale_inv", blob(garbage)}})
          .u8("row.scale_gemm"),
      all);
}

TEST(Swizzle, BackCopiesPaddingToo) {  // N6.5
  std::vector<uint8_t> gemm(512);
  for (size_t i = 0; i < gemm.size(); ++i) gemm[i] = static_cast<uint8_t>(1 + i % 255);
  const std::vector<uint8_t> compact =
      run_line("swizzle mxfp8 1x1 e8m0 dir=row inverse=1", {{"row.scale_gemm", blob(gemm)}})
          .u8("row.scale_inv");
  EXPECT_EQ(compact[0], 1);                    // (0, 0)
  EXPECT_EQ(compact[4], gemm[16]);             // (1, 0)
  EXPECT_EQ(compact[127 * 4 + 3], gemm[511]);  // (127, 3)
}

// ---- scales of 128 (N9.6) -----------------------------------------------------------------------

constexpr uint32_t kOne = 0x3F800000;

TEST(Swizzle,
     EachScaleOf128StandsFourTimes) {  // 33x256: compact [2, 36] block-major, GEMM [33, 8] in [128, 8], T = 2
  std::vector<uint32_t> compact(2 * 36);
  compact[36 + 32] =
      0x3E000000;           // 2^-3 of row 32, block 1: columns 4 to 7 of row 32, (0*2 + 1) * 512 + 0*16 + 1*4
  compact[1] = 0x40000000;  // 2 of row 1, block 0: 1*16
  compact[34] = 0x40000000;  // padding is not looked at
  std::vector<uint8_t> expected(1024);
  for (size_t copy = 0; copy < 4; ++copy) expected[516 + copy] = 0x7C, expected[16 + copy] = 0x80;
  for (const std::string d : {"row", "col"}) {  // both directions lie alike
    const std::string line =
        std::string("swizzle fp8_block ") + (d == "row" ? "33x256" : "256x33") + " f32 dir=" + d;
    EXPECT_EQ(run_line(line, {{d + ".scale_inv", blob(compact)}}).u8(d + ".scale_gemm"), expected) << d;
  }
}

TEST(Swizzle, EachTileOf128StandsInAllItsRows) {  // 130x128: tiles [2, 1] in [2, 4]; rows 128 and 129 begin
                                                  // the second 128
  std::vector<uint32_t> compact(2 * 4);
  compact[0] = kOne;
  compact[1] = compact[5] = 0x40000000;  // padding
  compact[4] = 0x40800000;               // 4
  std::vector<uint8_t> expected(1024);
  for (size_t i = 0; i < 512; ++i) expected[i] = 0x7F;
  for (size_t copy = 0; copy < 4; ++copy) expected[512 + copy] = expected[528 + copy] = 0x81;
  for (const std::string d : {"row", "col"}) {
    const std::string line = std::string("swizzle fp8_block ") + (d == "row" ? "130x128" : "128x130") +
                             " f32 block=128x128 dir=" + d;
    EXPECT_EQ(run_line(line, {{d + ".scale_inv", blob(compact)}}).u8(d + ".scale_gemm"), expected) << d;
  }
}

TEST(Swizzle, OnlyTheExponentOfAScaleIsKept) {
  struct Row {
    uint32_t scale_inv;
    uint8_t code;
  };
  for (const Row& row :
       {Row{0xBFE00000, 0x7F}, Row{0x3FFFFFFF, 0x7F}, Row{0x00000000, 0x00}, Row{0x80000000, 0x00},
        Row{0x00400000, 0x00}, Row{0x007FFFFF, 0x00}, Row{0x00800000, 0x01}, Row{0x7F7FFFFF, 0xFE},
        Row{0x7F800000, 0xFF}, Row{0xFF800000, 0xFF}, Row{0x7FC00001, 0xFF}})
    EXPECT_EQ(
        run_line("swizzle fp8_block 1x1 f32", {{"row.scale_inv", blob<uint32_t>({row.scale_inv, 0, 0, 0})}})
            .u8("row.scale_gemm")[0],
        row.code)
        << std::hex << row.scale_inv;
}

TEST(Swizzle, BackTakesTheFirstCopy) {    // N9.6, N5.9
  std::vector<uint8_t> gemm(1024, 0xEE);  // 2x256: 8 codes a row
  gemm[0] = 0x00;                         // (0, 0): 2^-127
  gemm[16] = 0xFF;                        // (1, 0): NaN
  gemm[512] = 0x80;                       // (0, 4): 2
  gemm[512 + 16] = 0xFE;                  // (1, 4): 2^127
  EXPECT_EQ(run_line("swizzle fp8_block 2x256 f32 inverse=1", {{"row.scale_gemm", blob(gemm)}})
                .u32("row.scale_inv"),
            (std::vector<uint32_t>{0x00400000, 0x7FFFFFFF, 0, 0, 0x40000000, 0x7F000000, 0, 0}));
  EXPECT_EQ(run_line("swizzle fp8_block 2x256 f32 block=128x128 inverse=1", {{"row.scale_gemm", blob(gemm)}})
                .u32("row.scale_inv"),
            (std::vector<uint32_t>{0x00400000, 0x40000000, 0, 0}));
  EXPECT_EQ(run_line("swizzle fp8_block 256x2 f32 dir=col inverse=1", {{"col.scale_gemm", blob(gemm)}})
                .u32("col.scale_inv"),
            (std::vector<uint32_t>{0x00400000, 0x7FFFFFFF, 0, 0, 0x40000000, 0x7F000000, 0, 0}));
}

TEST(Swizzle, DequantizeReadsTheCopyOfItsElement) {  // N9.6, N5.9: the code of row i at j / 32
  std::vector<uint8_t> gemm(512);
  for (size_t copy = 0; copy < 4; ++copy)
    gemm[copy] = static_cast<uint8_t>(0x7F + copy), gemm[16 + copy] = static_cast<uint8_t>(0x83 + copy);
  const std::vector<uint8_t> ones(2 * 128, 0x38);
  for (const std::string block : {"1x128", "128x128"}) {
    const std::vector<uint32_t> y =
        run_line("dequantize fp8_block 2x128 bf16 out=f32 scales=gemm block=" + block,
                 {{"row.scale_gemm", blob(gemm)}, {"row.data", blob(ones)}})
            .u32("y");
    for (size_t i = 0; i < 2; ++i)
      for (size_t j = 0; j < 128; ++j)
        EXPECT_EQ(y[i * 128 + j], kOne + static_cast<uint32_t>(4 * i + j / 32) * 0x800000u)
            << block << " " << i << " " << j;
  }
}

TEST(Swizzle, ScalesOfTransposedColumnsMoveLikeRows) {  // N6.6: 8 * 32 elements of 256 columns in MXFP4, 8 *
                                                        // 16 in NVFP4
  for (const Position& p : kPositions) {
    std::vector<uint8_t> compact(256 * 8), expected(2048);
    compact[p.i * 8 + p.j] = expected[p.at] = 0x42;
    for (const auto& [line, d] :
         {std::pair<std::string, std::string>{"swizzle mxfp4 256x256 e8m0 dir=row", "row"},
          {"swizzle mxfp4 256x256 e8m0 dir=col", "col"},
          {"swizzle nvfp4 256x128 e4m3 dir=row", "row"},
          {"swizzle nvfp4 128x256 e4m3 dir=col", "col"}}) {
      EXPECT_EQ(run_line(line, {{d + ".scale_inv", blob(compact)}}).u8(d + ".scale_gemm"), expected)
          << line << " " << p.i << " " << p.j;
      EXPECT_EQ(run_line(line + " inverse=1", {{d + ".scale_gemm", blob(expected)}}).u8(d + ".scale_inv"),
                compact)
          << line << " " << p.i << " " << p.j;
    }
  }
}

TEST(Swizzle, QuantizeWritesTheSameOrder) {  // N6.3, N6.4
  std::vector<uint16_t> x(40 * 170);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(0x3000 + 37 * i % 0x2000);
  for (const std::string format : {"mxfp8", "mxfp4", "fp8_block"})
    for (const std::string d : {"row", "col"}) {
      const std::string tail = " " + format + " 40x170 bf16 dir=" + d,
                        source = format == "fp8_block" ? " f32" : " e8m0";
      const Outputs compact = run_line("quantize" + tail, {{"x", blob(x)}});
      const Outputs gemm = run_line("quantize" + tail + " scales=gemm", {{"x", blob(x)}});
      const Outputs swizzled = run_line("swizzle " + format + " 40x170" + source + " dir=" + d,
                                        {{d + ".scale_inv", compact.at(d + ".scale_inv")}});
      EXPECT_EQ(gemm.at(d + ".scale_gemm"), swizzled.at(d + ".scale_gemm")) << tail;
      EXPECT_EQ(gemm.at(d + ".data"), compact.at(d + ".data")) << tail;
      // And back, and a dequantize reads either (N5.9, N9.5, N9.6).
      const Outputs back = run_line("swizzle " + format + " 40x170" + source + " inverse=1 dir=" + d,
                                    {{d + ".scale_gemm", gemm.at(d + ".scale_gemm")}});
      EXPECT_EQ(back.at(d + ".scale_inv"), compact.at(d + ".scale_inv")) << tail;
      const Outputs y = run_line("dequantize" + tail, {{d + ".scale_inv", compact.at(d + ".scale_inv")},
                                                       {d + ".data", compact.at(d + ".data")}});
      const Outputs y_gemm =
          run_line("dequantize" + tail + " scales=gemm",
                   {{d + ".scale_gemm", gemm.at(d + ".scale_gemm")}, {d + ".data", gemm.at(d + ".data")}});
      EXPECT_EQ(y.at("y"), y_gemm.at("y")) << tail;
    }
}

// No tile of 128 x 4 is written or read in part.
TEST(Swizzle, RefusesScalesThatFillNoTile) {
  using reference::Bytes, reference::to_gemm, reference::from_gemm;
  for (const auto& [rows, cols] : {std::pair{127, 4}, {128, 3}, {4, 128}}) {
    EXPECT_THROW(to_gemm(Bytes::Zero(rows, cols), false), std::invalid_argument) << rows << "x" << cols;
    EXPECT_THROW(from_gemm(Bytes::Zero(rows, cols), false), std::invalid_argument) << rows << "x" << cols;
    EXPECT_THROW(to_gemm(Bytes::Zero(cols, rows), true), std::invalid_argument) << rows << "x" << cols;
    EXPECT_THROW(from_gemm(Bytes::Zero(cols, rows), true), std::invalid_argument) << rows << "x" << cols;
  }
}

}  // namespace
}  // namespace assay
