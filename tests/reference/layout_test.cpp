// Where the bytes of data and scales stand: directions, transposes, padding.
#include "tests/reference/run_line.h"

namespace assay {
namespace {

// Finite BF16 values of many magnitudes and both signs.
std::vector<uint16_t> mixed(size_t count) {
  std::vector<uint16_t> x(count);
  uint32_t state = 12345;
  for (uint16_t& v : x) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<uint16_t>((state >> 16 & 0x807F) | (0x3A00 + (state >> 8 & 0x0C80)));
  }
  return x;
}
std::vector<uint16_t> transposed(const std::vector<uint16_t>& x, size_t rows, size_t cols) {
  std::vector<uint16_t> out(x.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) out[c * rows + r] = x[r * cols + c];
  return out;
}

TEST(Layout, Mxfp8ColumnsAreTheRowsOfTheTranspose) {  // N5.1, N6.1, N6.2
  constexpr size_t kRows = 70, kCols = 45;
  const std::vector<uint16_t> x = mixed(kRows * kCols);
  const Outputs out = run_line("quantize mxfp8 70x45 bf16 dir=col", {{"x", blob(x)}});
  const Outputs turned =
      run_line("quantize mxfp8 45x70 bf16 dir=row", {{"x", blob(transposed(x, kRows, kCols))}});
  for (size_t r = 0; r < kRows; ++r)
    for (size_t c = 0; c < kCols; ++c)
      EXPECT_EQ(out.u8("col.data")[r * kCols + c], turned.u8("row.data")[c * kRows + r]);
  // [3, 45] in [4, 128] against [45, 3] in [128, 4]
  for (size_t b = 0; b < 4; ++b)
    for (size_t c = 0; c < 128; ++c)
      EXPECT_EQ(out.u8("col.scale_inv")[b * 128 + c], turned.u8("row.scale_inv")[c * 4 + b]);
}

TEST(Layout, PaddingIsZero) {  // N6.4: 96x160 has scales [96, 5] in [128, 8] and [3, 160] in [4, 256]
  const std::vector<uint16_t> ones(96 * 160, 0x3F80);
  const Outputs out = run_line("quantize mxfp8 96x160 bf16", {{"x", blob(ones)}});
  ASSERT_EQ(out.at("row.scale_inv").size(), 128u * 8);
  ASSERT_EQ(out.at("col.scale_inv").size(), 4u * 256);
  for (size_t r = 0; r < 128; ++r)
    for (size_t b = 0; b < 8; ++b)
      EXPECT_EQ(out.u8("row.scale_inv")[r * 8 + b], r < 96 && b < 5 ? 0x77 : 0x00) << r << " " << b;
  for (size_t b = 0; b < 4; ++b)
    for (size_t c = 0; c < 256; ++c)
      EXPECT_EQ(out.u8("col.scale_inv")[b * 256 + c], b < 3 && c < 160 ? 0x77 : 0x00) << b << " " << c;
  const Outputs gemm = run_line("quantize mxfp8 96x160 bf16 scales=gemm", {{"x", blob(ones)}});
  for (const char* plane : {"row.scale_gemm", "col.scale_gemm"}) {
    size_t written = 0;
    for (uint8_t code : gemm.u8(plane)) {
      EXPECT_TRUE(code == 0x77 || code == 0x00);
      written += code == 0x77;
    }
    EXPECT_EQ(written, std::string(plane) == "row.scale_gemm" ? 96u * 5 : 3u * 160);
  }
}

TEST(Layout, SquareBlocks) {  // N5.8: tiles of 33x65 are 32x32, 32x32, 32x1 and below them 1x32, 1x32, 1x1
  std::vector<uint16_t> x(33 * 65, 0x3F80);
  x[31 * 65 + 31] = 0x43E0;  // 448, last of the first tile
  x[32 * 65 + 64] = 0x4380;  // 256, alone in the last
  const Outputs out = run_line("quantize mxfp8 33x65 bf16 block=32x32", {{"x", blob(x)}});
  const auto row = [&](size_t r, size_t b) { return out.u8("row.scale_inv")[r * 4 + b]; };
  const auto col = [&](size_t b, size_t c) { return out.u8("col.scale_inv")[b * 128 + c]; };
  for (size_t r = 0; r < 32; ++r) EXPECT_EQ(row(r, 0), 0x7F);
  for (size_t c = 0; c < 32; ++c) EXPECT_EQ(col(0, c), 0x7F);
  EXPECT_EQ(row(0, 1), 0x77);
  EXPECT_EQ(row(32, 0), 0x77);
  EXPECT_EQ(row(32, 2), 0x7F);
  EXPECT_EQ(col(1, 64), 0x7F);
  EXPECT_EQ(col(0, 32), 0x77);
  EXPECT_EQ(out.at("row.data"), out.at("col.data"));
  EXPECT_EQ(out.u8("row.data")[0], 0x38);   // 1 in the first tile
  EXPECT_EQ(out.u8("row.data")[32], 0x78);  // 2^8 in the second
}

TEST(Layout, PerTensorColumnsAreTheByteTranspose) {  // N3.9
  const std::vector<uint16_t> x = mixed(37 * 41);
  for (const char* format : {"fp8_current", "fp8_delayed"}) {
    const std::map<std::string, Blob> one = {{"row.given.scale", blob<uint32_t>({0x41234567})},
                                             {"col.given.scale", blob<uint32_t>({0x41234567})}};
    std::map<std::string, Blob> in =
        std::string(format) == "fp8_delayed" ? one : std::map<std::string, Blob>{};
    in["x"] = blob(x);
    const Outputs out = run_line(std::string("quantize ") + format + " 37x41 bf16", in);
    for (size_t r = 0; r < 37; ++r)
      for (size_t c = 0; c < 41; ++c)
        EXPECT_EQ(out.u8("col.data")[c * 37 + r], out.u8("row.data")[r * 41 + c]);
    EXPECT_EQ(out.at("col.amax"), out.at("row.amax"));
    EXPECT_EQ(out.at("col.scale_inv"), out.at("row.scale_inv"));
    // And back (N3.10).
    std::map<std::string, Blob> row = {{"row.data", out.at("row.data")},
                                       {"row.scale_inv", out.at("row.scale_inv")}};
    std::map<std::string, Blob> col = {{"col.data", out.at("col.data")},
                                       {"col.scale_inv", out.at("col.scale_inv")}};
    const std::string line = std::string("dequantize ") + format + " 37x41 bf16 dir=";
    EXPECT_EQ(run_line(line + "row", row).at("y"), run_line(line + "col", col).at("y"));
  }
}

TEST(Layout, TwoCodesInAByte) {  // N6.8, N15.4: columns of 3x2 are 2x3, and every stored row of 3 ends in a
                                 // padding code of 0
  const std::vector<uint16_t> x = {0x3F80, 0xC000, 0x4040,
                                   0x4080, 0x40C0, 0xBF00};  // 1 -2 / 3 4 / 6 -0.5: codes 2 C / 5 6 / 7 9
  const Outputs out = run_line("quantize mxfp4 3x2 bf16", {{"x", blob(x)}});
  // Scales of 2, 4 and 6 along the rows are 2^-1, 1, 1; down the columns 1 and 1 (6 / 6, 4 / 6).
  EXPECT_EQ(out.u8("row.data"), (std::vector<uint8_t>{0xE4, 0x65, 0x97}));
  EXPECT_EQ(out.u8("col.data"), (std::vector<uint8_t>{0x52, 0x07, 0x6C, 0x09}));
  const std::vector<uint8_t> rows = out.u8("row.scale_inv"),
                             cols = out.u8("col.scale_inv");  // [3, 1] and [2, 1] in [128, 4]
  for (size_t i = 0; i < 512; ++i) {
    EXPECT_EQ(rows[i], i == 0 ? 0x7E : i == 4 || i == 8 ? 0x7F : 0) << i;
    EXPECT_EQ(cols[i], i == 0 || i == 4 ? 0x7F : 0) << i;
  }
  // And back, the padding code unread.
  std::vector<uint8_t> data = out.u8("col.data");
  data[1] |= 0xF0;
  EXPECT_EQ(run_line("dequantize mxfp4 3x2 bf16 dir=row",
                     {{"row.data", out.at("row.data")}, {"row.scale_inv", out.at("row.scale_inv")}})
                .u16("y"),
            x);
  EXPECT_EQ(run_line("dequantize mxfp4 3x2 bf16 dir=col",
                     {{"col.data", blob(data)}, {"col.scale_inv", out.at("col.scale_inv")}})
                .u16("y"),
            x);
}

TEST(Layout,
     Mxfp4ColumnsAreTheRowsOfTheTranspose) {  // N15.4: byte for byte, data and scales, in both layouts
  const std::vector<uint16_t> x = mixed(70 * 45);
  for (const std::string scales : {"compact", "gemm"}) {
    const Outputs out = run_line("quantize mxfp4 70x45 bf16 dir=col scales=" + scales, {{"x", blob(x)}});
    const Outputs turned =
        run_line("quantize mxfp4 45x70 bf16 dir=row scales=" + scales, {{"x", blob(transposed(x, 70, 45))}});
    EXPECT_EQ(out.at("col.data"), turned.at("row.data"));
    const std::string plane = scales == "gemm" ? "scale_gemm" : "scale_inv";
    EXPECT_EQ(out.at("col." + plane), turned.at("row." + plane));
  }
}

TEST(Layout, BlockScalesOfLinesAreBlockMajor) {  // N9.1, N9.4: 2x300 has row scales [3, 2] in [3, 4] and
                                                 // column scales [1, 300]
  std::vector<uint16_t> x(2 * 300, 0x3F80);
  x[127] = 0x4000;        // 2, last of block 0 in row 0
  x[300 + 128] = 0x4080;  // 4, first of block 1 in row 1
  x[300 + 299] = 0x4100;  // 8, last of the short block 2 in row 1
  const Outputs out = run_line("quantize fp8_block 2x300 bf16", {{"x", blob(x)}});
  // 448 / 1, 2, 4, 8 floored to powers of two: 256, 128, 64, 32.
  const uint32_t k1 = 0x3B800000, k2 = 0x3C000000, k4 = 0x3C800000, k8 = 0x3D000000;
  EXPECT_EQ(out.u32("row.scale_inv"), (std::vector<uint32_t>{k2, k1, 0, 0, k1, k4, 0, 0, k1, k8, 0, 0}));
  const std::vector<uint32_t> cols = out.u32("col.scale_inv");
  ASSERT_EQ(cols.size(), 300u);
  for (size_t c = 0; c < 300; ++c)
    EXPECT_EQ(cols[c], c == 127 ? k2 : c == 128 ? k4 : c == 299 ? k8 : k1) << c;
  // 1 * 256, 2 * 128 in row 0; 1 * 128 beside the 2. The columns scale each element alone, or with the one
  // above it.
  EXPECT_EQ(out.u8("row.data")[0], 0x70);
  EXPECT_EQ(out.u8("row.data")[127], 0x78);
  EXPECT_EQ(out.u8("row.data")[128], 0x78);
  EXPECT_EQ(out.u8("col.data")[2 * 127], 0x78);
  EXPECT_EQ(out.u8("col.data")[2 * 127 + 1], 0x70);
}

TEST(Layout,
     BlockScalesOfTiles) {  // N9.4: 130x257 has tiles [2, 3] in [2, 4]; of the transpose [3, 2] in [3, 4]
  std::vector<uint16_t> x(130 * 257, 0x3F80);
  x[127 * 257 + 128] = 0x4000;  // 2 in tile (0, 1)
  x[128 * 257] = 0x4080;        // 4 in tile (1, 0)
  x[129 * 257 + 256] = 0x4100;  // 8 in tile (1, 2), which is 2x1
  const Outputs out = run_line("quantize fp8_block 130x257 bf16 block=128x128", {{"x", blob(x)}});
  const uint32_t k1 = 0x3B800000, k2 = 0x3C000000, k4 = 0x3C800000, k8 = 0x3D000000;
  EXPECT_EQ(out.u32("row.scale_inv"), (std::vector<uint32_t>{k1, k2, k1, 0, k4, k1, k8, 0}));
  EXPECT_EQ(out.u32("col.scale_inv"), (std::vector<uint32_t>{k1, k4, 0, 0, k2, k1, 0, 0, k1, k8, 0, 0}));
  const std::vector<uint8_t> rows = out.u8("row.data"), cols = out.u8("col.data");
  for (size_t r = 0; r < 130; ++r)
    for (size_t c = 0; c < 257; ++c) EXPECT_EQ(cols[c * 130 + r], rows[r * 257 + c]);  // N9.3
  EXPECT_EQ(out.u8("row.data")[0], 0x78);                                              // 1 * 256
  EXPECT_EQ(out.u8("row.data")[128], 0x70);              // 1 * 128, beside the 2
  EXPECT_EQ(out.u8("row.data")[128 * 257 + 256], 0x60);  // 1 * 32, above the 8
}

TEST(Layout, BlockColumnsAreTheRowsOfTheTranspose) {  // N9.3: quantized from x, not from the rows
  const std::vector<uint16_t> x = mixed(200 * 45);
  for (const std::string keys : {"", " block=128x128", " pow2=0 eps=0.01", " scales=gemm"}) {
    const Outputs out = run_line("quantize fp8_block 200x45 bf16 dir=col" + keys, {{"x", blob(x)}});
    const Outputs turned =
        run_line("quantize fp8_block 45x200 bf16 dir=row" + keys, {{"x", blob(transposed(x, 200, 45))}});
    for (const auto& [name, bytes] : turned)
      EXPECT_EQ(out.at("col" + name.substr(3)), bytes) << keys << " " << name;
  }
}

TEST(Layout, IdentityCopies) {  // N7.1: NaN payloads included
  const std::vector<uint16_t> x = {0x7F81, 0xFFC3, 0x8000, 0x0001, 0x3F80, 0xFF80};
  const Outputs out = run_line("quantize identity 2x3 bf16", {{"x", blob(x)}});
  EXPECT_EQ(out.u16("row.data"), x);
  EXPECT_EQ(out.u16("col.data"), x);
  EXPECT_EQ(run_line("dequantize identity 2x3 bf16 dir=col", {{"col.data", blob(x)}}).u16("y"), x);
}

}  // namespace
}  // namespace assay
