// NVFP4 on the reference (N10), worked by hand: blocks, tiles, zero scales, special values, four over six,
// layouts, the way back.
#include <bit>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

using Codes = std::vector<uint8_t>;
constexpr uint16_t kInf = 0x7F80, kNan = 0xFFC1, kMinusZero = 0x8000;

uint16_t bf16(float v) {  // to nearest even
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
std::vector<uint16_t> bf16s(std::initializer_list<float> values) {
  std::vector<uint16_t> out;
  for (float v : values) out.push_back(bf16(v));
  return out;
}
// Two codes in a byte, the even one low (N6.8).
Codes unpacked(const Codes& bytes) {
  Codes out;
  for (uint8_t b : bytes) {
    out.push_back(b & 15);
    out.push_back(b >> 4);
  }
  return out;
}

struct BlockResult {
  uint8_t scale;
  Codes codes;  // as many as elements were given
};
// One 1x16 block of row data: the elements given, then +0, under a given amax.
BlockResult block(const std::string& keys, uint32_t amax, const std::vector<uint16_t>& x) {
  char given[16];
  std::snprintf(given, sizeof given, "0x%08X", amax);
  const Outputs out =
      run_line("quantize nvfp4 1x16 bf16 dir=row amax=" + std::string(given) + " " + keys,
               {{"x", blob(padded_with_zeros(x, 16))}, {"row.given.amax", blob<uint32_t>({amax})}});
  EXPECT_EQ(out.count("row.amax"), 0u);  // N10.1: a given amax is not written
  BlockResult r{out.u8("row.scale_inv")[0], unpacked(out.u8("row.data"))};
  r.codes.resize(x.size());
  return r;
}
constexpr uint32_t kUnit = 0x45280000;  // 2688: S = 1, so that an amax of 6 has scale 1 and multiplier 1

TEST(Nvfp4,
     OneBlock) {  // N10.2 to N10.9: A = 5.5, b = 1.3984375, S = 43F45D17, scale 112, multiplier 408BA2E8
  const std::vector<uint16_t> x = [] {
    std::vector<uint16_t> v =
        bf16s({0.1f, -0.2f, 0.3f, -0.4f, 0.5f, -0.6f, 0.7f, -0.8f, 0.9f, -1.0f, 1.1f, -1.2f, 1.3f, -1.4f, 0});
    v.push_back(kMinusZero);
    return v;
  }();
  const BlockResult plain = block("", 0x40B00000, x);
  EXPECT_EQ(plain.scale, 0x6E);
  EXPECT_EQ(plain.codes,
            (Codes{0x1, 0xA, 0x3, 0xB, 0x4, 0xD, 0x5, 0xD, 0x6, 0xE, 0x6, 0xF, 0x7, 0xF, 0x0, 0x8}));
  const Outputs packed = run_line("quantize nvfp4 1x16 bf16 dir=row amax=5.5",
                                  {{"x", blob(x)}, {"row.given.amax", blob<uint32_t>({0x40B00000})}});
  EXPECT_EQ(packed.u8("row.data"), (Codes{0xA1, 0xB3, 0xD4, 0xD5, 0xE6, 0xF6, 0xF7, 0x80}));  // N6.8
  // N10.8: 4.375 = bf16(S / 112); with an addition of +0 the last sign goes.
  const BlockResult fast = block("multiplier=bf16_quotient neg_zero=plus", 0x40B00000, x);
  EXPECT_EQ(fast.scale, 0x6E);
  EXPECT_EQ(fast.codes,
            (Codes{0x1, 0xA, 0x3, 0xC, 0x4, 0xD, 0x5, 0xE, 0x6, 0xE, 0x6, 0xF, 0x7, 0xF, 0x0, 0x0}));
}

TEST(Nvfp4, TiesAndSigns) {  // N2.1, N2.5 under scale 1 and multiplier 1
  const BlockResult r = block("", kUnit,
                              bf16s({6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -0.25f, -0.75f, -5,
                                     5.03125f, 0.2578125f, -0x1p-100f, 1.7421875f}));
  EXPECT_EQ(r.scale, 0x38);
  EXPECT_EQ(r.codes, (Codes{7, 0, 2, 2, 4, 4, 6, 6, 8, 10, 14, 7, 1, 8, 3}));
}

TEST(Nvfp4, ZeroScale) {  // N10.6, N10.8: the scale underflows, the multiplier is FLT_MAX, and what is not
                          // zero becomes the largest code
  const std::vector<uint16_t> x = {bf16(1e-6f), bf16(-1e-7f), 0x0000, kMinusZero, 0x0040, 0x8040, 0x0010};
  for (const char* keys : {"", "block=16x16"}) {
    const Outputs out =
        run_line("quantize nvfp4 1x16 bf16 dir=row amax=1 " + std::string(keys),
                 {{"x", blob(padded_with_zeros(x, 16))}, {"row.given.amax", blob<uint32_t>({0x3F800000})}});
    EXPECT_EQ(out.u8("row.scale_inv")[0], 0x00);
    Codes codes = unpacked(out.u8("row.data"));
    codes.resize(x.size());
    EXPECT_EQ(codes, (Codes{7, 15, 0, 8, 4, 12,
                            1}));  // 2^-127 FLT_MAX is just below 2, 2^-129 FLT_MAX just below 1/2
  }
  // The threshold: 2^-10 is a tie with zero. b m = 2^-10 for A = 2688 and b = 6 * 2^-10.
  EXPECT_EQ(block("", kUnit, bf16s({6 * 0x1p-10f})).scale, 0x00);
  EXPECT_EQ(block("", kUnit, {static_cast<uint16_t>(bf16(6 * 0x1p-10f) + 1)}).scale, 0x01);
  EXPECT_EQ(block("", kUnit, {static_cast<uint16_t>(bf16(6 * 0x1p-10f) + 1), bf16(6 * 0x1p-11f)}).codes,
            (Codes{5, 3}));  // multiplier 512: 3 + 1/64, 1.5
}

TEST(Nvfp4, AmaxAndSpecialElements) {  // N10.1, N10.4, N3.1, N2.4
  const Outputs nan = run_line("quantize nvfp4 2x16 bf16",
                               {{"x", blob(padded_with_zeros<uint16_t>({kNan, bf16(-3), bf16(1.5f)}, 32))}});
  EXPECT_EQ(nan.u32("row.amax"), (std::vector<uint32_t>{0x40400000}));
  EXPECT_EQ(nan.u32("col.amax"), (std::vector<uint32_t>{0x40400000}));
  EXPECT_EQ(nan.u8("row.scale_inv")[0], 0x7E);
  EXPECT_EQ(nan.u8("row.data")[0], 0xF7);
  EXPECT_EQ(nan.u8("row.data")[1], 0x05);
  // A block of NaN alone has amax 0 and scale 0; under propagate its scale is NaN (or 448, by the clamp) and
  // all its codes are 7.
  const std::vector<uint16_t> nans(16, kNan);
  EXPECT_EQ(block("", kUnit, nans).scale, 0x00);
  EXPECT_EQ(block("", kUnit, nans).codes, Codes(16, 7));
  const std::vector<uint16_t> one = {kNan, bf16(6), bf16(-1), kMinusZero};
  EXPECT_EQ(block("", kUnit, one).scale, 0x38);
  EXPECT_EQ(block("", kUnit, one).codes, (Codes{7, 7, 10, 8}));
  EXPECT_EQ(block("nan_amax=propagate nan_clamp=propagate", kUnit, one).scale, 0x7F);
  EXPECT_EQ(block("nan_amax=propagate nan_clamp=propagate", kUnit, one).codes, (Codes{7, 7, 7, 7}));
  EXPECT_EQ(block("nan_amax=propagate", kUnit, one).scale, 0x7E);  // min(NaN, FLT_MAX)
  // An infinite element: b = infinity, clamped to FLT_MAX, scale 448, multiplier 1 / 448.
  const BlockResult inf = block("", kUnit, {kInf, 0xFF80, bf16(448), bf16(-2688)});
  EXPECT_EQ(inf.scale, 0x7E);
  EXPECT_EQ(inf.codes, (Codes{7, 15, 2, 15}));
}

TEST(Nvfp4, InfiniteTensorAmax) {  // N10.2
  const std::vector<uint16_t> x =
      padded_with_zeros<uint16_t>({kInf, bf16(-1), 0, kMinusZero}, 48);  // three rows; the others are zeros
  const Outputs unit = run_line("quantize nvfp4 3x16 bf16 dir=row", {{"x", blob(x)}});  // S = 1: scale 448
  EXPECT_EQ(unit.u32("row.amax")[0], 0x7F800000u);
  EXPECT_EQ(unit.u8("row.scale_inv")[0], 0x7E);
  EXPECT_EQ(unit.u8("row.scale_inv")[4], 0x00);
  EXPECT_EQ(unit.u8("row.data")[0], 0x87);  // -1 / 448
  EXPECT_EQ(unit.u8("row.data")[1], 0x80);
  // S = 0 and stays: D is infinite, every product NaN; scale 0, or NaN where b is infinite.
  const std::string rhtrc = " inf_amax=zero nan_tensor_amax=unit nan_clamp=propagate nan_amax=propagate";
  const Outputs zero = run_line("quantize nvfp4 3x16 bf16 dir=row" + rhtrc, {{"x", blob(x)}});
  EXPECT_EQ(zero.u8("row.scale_inv")[0], 0x7F);
  EXPECT_EQ(zero.u8("row.scale_inv")[4], 0x00);
  EXPECT_EQ(zero.u8("row.data"), Codes(24, 0x77));
  // The same by a clamp that drops NaN: the first block has scale 448 and multiplier 1 / (448 D) = 0, the
  // others FLT_MAX.
  const Outputs dropped = run_line("quantize nvfp4 3x16 bf16 dir=row inf_amax=zero", {{"x", blob(x)}});
  EXPECT_EQ(dropped.u8("row.scale_inv")[0], 0x7E);
  EXPECT_EQ(dropped.u8("row.data")[0], 0x87);  // infinity times 0 is NaN
  EXPECT_EQ(dropped.u8("row.data")[1], 0x80);
}

TEST(Nvfp4, ZeroTensor) {  // N10.2: S = 1
  const Outputs out =
      run_line("quantize nvfp4 1x16 bf16", {{"x", blob(padded_with_zeros<uint16_t>({0, kMinusZero}, 16))}});
  EXPECT_EQ(out.u32("row.amax")[0], 0u);
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0u);
  EXPECT_EQ(out.u8("row.data")[0], 0x80);
  EXPECT_EQ(out.u8("col.data")[1], 0x08);  // [16, 1] in bytes of its own
  EXPECT_EQ(run_line("quantize nvfp4 1x16 bf16 dir=row neg_zero=plus",
                     {{"x", blob(std::vector<uint16_t>(16, kMinusZero))}})
                .u8("row.data"),
            Codes(8, 0));
}

TEST(Nvfp4, RowScaled) {  // N10.9: [1, 2, -4, 0...] of A = 4, a row of zeros, [448, ..., 224]
  std::vector<uint16_t> x(3 * 16);
  x[0] = bf16(1);
  x[1] = bf16(2);
  x[2] = bf16(-4);
  x[32] = bf16(448);
  x[47] = bf16(224);
  const Outputs out = run_line("quantize nvfp4 3x16 bf16 row_scaled=1", {{"x", blob(x)}});
  EXPECT_EQ(out.u32("row.amax"), (std::vector<uint32_t>{0x40800000, 0, 0x43E00000}));
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x7E);
  EXPECT_EQ(out.u8("row.scale_inv")[4], 0x00);
  EXPECT_EQ(out.u8("row.scale_inv")[8], 0x7E);
  EXPECT_EQ(out.u8("row.data")[0], 0x53);  // 1.5 and 3
  EXPECT_EQ(out.u8("row.data")[1], 0x0F);
  EXPECT_EQ(out.u8("row.data")[16], 0x07);
  EXPECT_EQ(out.u8("row.data")[23], 0x50);  // 3: under the first row's scales it would be 6
  EXPECT_EQ(out.u32("col.amax"), (std::vector<uint32_t>{0x43E00000, 0x40000000, 0x40800000, 0, 0, 0, 0, 0, 0,
                                                        0, 0, 0, 0, 0, 0, 0x43600000}));
  EXPECT_EQ(out.u8("col.data")[0], 0x00);  // column 0: 1, 0, 448; 1 * 6 / 448 rounds to 0
  EXPECT_EQ(out.u8("col.data")[1], 0x07);
  EXPECT_EQ(out.u8("col.data")[2], 0x07);  // column 1: 2 alone
  EXPECT_EQ(out.u8("col.data")[4], 0x0F);
}

TEST(Nvfp4, Tiles) {  // N10.4, N10.14: one scale for 16x16, repeated for 16 stored rows; the data of the
                      // columns are the transpose
  std::vector<uint16_t> x(20 * 24, bf16(1));
  x[3 * 24 + 5] = bf16(-6);
  x[18 * 24 + 23] = bf16(12);
  const Blob amax = blob<uint32_t>({kUnit});
  const Outputs out = run_line("quantize nvfp4 20x24 bf16 block=16x16 amax=2688",
                               {{"x", blob(x)}, {"row.given.amax", amax}, {"col.given.amax", amax}});
  const Codes row = out.u8("row.scale_inv"), col = out.u8("col.scale_inv");
  // Tiles of row data: amaxes 6, 1; 1, 12. fl(1 * fl(1/6)) is 0.171875 in E4M3; 12 / 6 is 2.
  for (size_t r = 0; r < 128; ++r)
    for (size_t b = 0; b < 4; ++b) {
      EXPECT_EQ(row[r * 4 + b], r >= 20 || b >= 2 ? 0
                                : r < 16          ? (b == 0 ? 0x38 : 0x23)
                                                  : (b == 0 ? 0x23 : 0x40))
          << r << " " << b;
      EXPECT_EQ(col[r * 4 + b], r >= 24 || b >= 2 ? 0
                                : r < 16          ? (b == 0 ? 0x38 : 0x23)
                                                  : (b == 0 ? 0x23 : 0x40))
          << r << " " << b;
    }
  const Codes rows = unpacked(out.u8("row.data")), cols = unpacked(out.u8("col.data"));
  for (size_t r = 0; r < 20; ++r)
    for (size_t c = 0; c < 24; ++c) EXPECT_EQ(rows[r * 24 + c], cols[c * 20 + r]) << r << " " << c;
  EXPECT_EQ(rows[3 * 24 + 5], 15);
  EXPECT_EQ(rows[0], 2);
  EXPECT_EQ(rows[16], 7);  // 1 / 0.171875 = 5.8
  EXPECT_EQ(rows[18 * 24 + 23], 7);
  EXPECT_EQ(rows[19 * 24 + 20], 1);  // 1 / 2
}

TEST(Nvfp4, PartialBlocksAndOddRows) {  // N10.4, N6.8: 3x19 has a block of 3, and rows of 10 bytes; its
                                        // columns have 3 elements in 2 bytes
  std::vector<uint16_t> x(3 * 19, bf16(6));
  for (size_t r = 0; r < 3; ++r) {
    x[r * 19 + 16] = bf16(12);
    x[r * 19 + 17] = x[r * 19 + 18] = bf16(-2);
  }
  const Blob amax = blob<uint32_t>({kUnit});
  const Outputs out = run_line("quantize nvfp4 3x19 bf16 amax=2688",
                               {{"x", blob(x)}, {"row.given.amax", amax}, {"col.given.amax", amax}});
  const Codes row = out.u8("row.data"), col = out.u8("col.data");
  ASSERT_EQ(row.size(), 30u);
  for (size_t r = 0; r < 3; ++r) {
    for (size_t k = 0; k < 8; ++k) EXPECT_EQ(row[r * 10 + k], 0x77);
    EXPECT_EQ(row[r * 10 + 8], 0xA7);  // scale 2: 6, -1
    EXPECT_EQ(row[r * 10 + 9], 0x0A);  // -1 and padding
    EXPECT_EQ(out.u8("row.scale_inv")[r * 4 + 1], 0x40);
  }
  ASSERT_EQ(col.size(), 38u);
  EXPECT_EQ(col[0], 0x77);
  EXPECT_EQ(col[1], 0x07);
  EXPECT_EQ(col[34], 0xFF);  // column 17: -2 under its own scale
}

TEST(Nvfp4, RotatedColumns) {  // N11.2, N11.4: an impulse of 16 in each column becomes 16 times +-4
  std::vector<uint16_t> x(32 * 2);
  x[0] = bf16(16);
  x[16 * 2 + 1] = bf16(-64);
  const Outputs out = run_line("quantize nvfp4 32x2 bf16 col.rht=1 col.sign_mask=0", {{"x", blob(x)}});
  EXPECT_EQ(out.u32("row.amax")[0], 0x42800000u);  // 64
  EXPECT_EQ(out.u32("col.amax")[0], 0x41800000u);  // 16 = 64 / 4
  const Codes col = out.u8("col.data");
  for (size_t k = 0; k < 8; ++k) {
    EXPECT_EQ(col[k], 0x77);  // 4, 4, ...
    EXPECT_EQ(col[8 + k], 0x00);
    EXPECT_EQ(col[16 + k], 0x00);
    EXPECT_EQ(col[24 + k], 0xFF);
  }
  EXPECT_EQ(out.u8("row.data")[0], 0x07);  // rows are not rotated
}

TEST(Nvfp4,
     GemmLayoutIsTheSwizzle) {  // N10.14, N6.3, N6.4: what the stand-alone op makes of the compact scales
  std::vector<uint16_t> x(200 * 90);
  uint32_t state = 3;
  for (uint16_t& e : x) {
    state = state * 1664525u + 1013904223u;
    e = static_cast<uint16_t>(0x3C00 + (state >> 16) % 0x600);
  }
  const Outputs compact = run_line("quantize nvfp4 200x90 bf16", {{"x", blob(x)}}),
                gemm = run_line("quantize nvfp4 200x90 bf16 scales=gemm", {{"x", blob(x)}});
  for (Direction d : kDirections) {
    const Blob swizzled = run_line("swizzle nvfp4 200x90 e4m3 dir=" + std::string(name_of(d)),
                                   {{plane_name(d, "scale_inv"), compact.at(plane_name(d, "scale_inv"))}})
                              .at(plane_name(d, "scale_gemm"));
    EXPECT_EQ(gemm.at(plane_name(d, "scale_gemm")), swizzled);
    EXPECT_EQ(gemm.at(plane_name(d, "data")), compact.at(plane_name(d, "data")));
  }
  const Codes row = compact.u8("row.scale_inv"), tiles = gemm.u8("row.scale_gemm");
  EXPECT_EQ(tiles[(1 * 2 + 1) * 512 + 5 * 16 + 2 * 4 + 1], row[(128 + 64 + 5) * 8 + 5]);  // row 197, block 5
}

// ---- four over six ------------------------------------------------------------------------------

TEST(Nvfp4, FourOverSixChooses) {  // N10.10, N10.11 with S = 1 and A / (6 F) = 1
  // b = 4: scale for 6 is 11/16 (2/3 rounded), for 4 it is 1 and every code is exact.
  const BlockResult four = block("four_over_six=mae", kUnit, bf16s({4, 1, -3}));
  EXPECT_EQ(four.scale, 0x38);
  EXPECT_EQ(four.codes, (Codes{6, 2, 13}));
  // b = 6: exact for 6; 1.5 for 4 makes 6 of 6 but misses 1.
  const BlockResult six = block("four_over_six=mse", kUnit, bf16s({6, 1}));
  EXPECT_EQ(six.scale, 0x38);
  EXPECT_EQ(six.codes, (Codes{7, 2}));
  // b = 9: 1.5 * 6 and 2.25 * 4 are both 9. A tie takes the scale for 6.
  const BlockResult tie = block("four_over_six=mae", kUnit, bf16s({9}));
  EXPECT_EQ(tie.scale, 0x3C);
  EXPECT_EQ(tie.codes, (Codes{7}));
  EXPECT_EQ(block("four_over_six=mae", kUnit, {}).scale, 0x00);
}

TEST(Nvfp4,
     FourOverSixErrors) {  // b = 6: scales 1 and 1.5; elements 4.5 (exact for 4: 3 * 1.5) and 1 (exact for 6)
  // For 6: |4 - 4.5| = 0.5 for each 4.5. For 4: fl(1 / 1.5) -> code 1 (0.5), 0.75: off by 0.25; code of 2
  // / 1.5 = 1.33 is 1.5 -> 2.25: off by 0.25.
  const std::vector<uint16_t> mean =
      bf16s({6, 4.5f, 1, 1, 1});  // 0.5 against 0.75; squared 0.25 against 0.1875
  EXPECT_EQ(block("four_over_six=mae", kUnit, mean).scale, 0x38);
  EXPECT_EQ(block("four_over_six=mse", kUnit, mean).scale, 0x3C);
  for (const char* error : {"mae", "mse"})  // with S = 1 and A / (6 F) = 1 the fast error is the same
    EXPECT_EQ(block("four_over_six_error=fast four_over_six=" + std::string(error), kUnit, mean).scale,
              *error == 'm' && error[1] == 'a' ? 0x38 : 0x3C);
}

TEST(Nvfp4,
     FourOverSixUnder256) {  // N10.10: 448 bounds the scales of F = 256 too; N10.2: A = 1536 gives S = 1
  const BlockResult r = block("four_over_six=mae e4m3_max=256", 0x44C00000, bf16s({4, 1, -3}));
  EXPECT_EQ(r.scale, 0x38);
  EXPECT_EQ(r.codes, (Codes{6, 2, 13}));
  // An amax beyond A: base 320 stays above 256; 320 * 1.5 = 480 becomes 448.
  const BlockResult large = block("four_over_six=mae e4m3_max=256", 0x44C00000, bf16s({1920}));
  EXPECT_EQ(large.scale, 0x7A);  // 320 * 6 = 1920, exact
  const BlockResult four = block("four_over_six=mae e4m3_max=256", 0x44C00000, bf16s({1792}));
  EXPECT_EQ(four.scale, 0x7E);  // 298.7 rounds to 288, 1728; 448 * 4 = 1792
  EXPECT_EQ(four.codes, (Codes{6}));
}

TEST(Nvfp4, FourOverSixTiles) {  // N10.13: rows and columns of a tile choose by the same elements in another
                                 // order, here alike
  std::vector<uint16_t> x(16 * 16, bf16(4));
  x[0] = bf16(1);
  const Blob amax = blob<uint32_t>({kUnit});
  const Outputs out = run_line("quantize nvfp4 16x16 bf16 block=16x16 four_over_six=mse amax=2688",
                               {{"x", blob(x)}, {"row.given.amax", amax}, {"col.given.amax", amax}});
  for (size_t r = 0; r < 16; ++r) {
    EXPECT_EQ(out.u8("row.scale_inv")[4 * r], 0x38);
    EXPECT_EQ(out.u8("col.scale_inv")[4 * r], 0x38);
  }
  EXPECT_EQ(out.u8("row.data")[0], 0x62);
  EXPECT_EQ(out.u8("row.data")[1], 0x66);
}

// The sums of rows add as 8 + 8, 4 + 4, ...: an order that shows where a large error swallows small ones. Row
// 0 errs by 2^24 or 0, the others by a little in the other candidate.
TEST(Nvfp4, FourOverSixTileOrder) {
  // Scale for 6 is 2^8, for 4 it is 384; b = 6 * 256 = 1536 = 4 * 384. A row [1536, e] with e = 128 is exact
  // for 6 (code 1) and off by 64 for 4 (0.333 -> code 1: 192). e = 192 is exact for 4 (code 1) and off by 64
  // for 6 (0.75 is a tie: code 2, 256).
  const auto tile = [](int with_six, int with_four) {
    std::vector<uint16_t> x(16 * 16);
    for (size_t r = 0; r < 16; ++r) x[r * 16] = bf16(1536);
    for (int k = 0; k < with_six; ++k) x[static_cast<size_t>(k) * 16 + 1] = bf16(128);
    for (int k = 0; k < with_four; ++k) x[static_cast<size_t>(k) * 16 + 2] = bf16(192);
    const Outputs out = run_line("quantize nvfp4 16x16 bf16 dir=row block=16x16 four_over_six=mae amax=2688",
                                 {{"x", blob(x)}, {"row.given.amax", blob<uint32_t>({kUnit})}});
    return out.u8("row.scale_inv")[0];
  };
  EXPECT_EQ(tile(3, 2), 0x78);    // 256: two errors against three
  EXPECT_EQ(tile(2, 3), 0x7C);    // 384
  EXPECT_EQ(tile(2, 2), 0x78);    // a tie
  EXPECT_EQ(tile(15, 16), 0x7C);  // every row counts
}

// ---- dequantize ---------------------------------------------------------------------------------

std::vector<uint32_t> dequantized(const std::string& keys, uint32_t amax, uint8_t scale, const Codes& codes) {
  Codes scales(128 * 4), packed(8);
  scales[0] = scale;
  for (size_t i = 0; i < codes.size(); ++i)
    packed[i / 2] = static_cast<uint8_t>(packed[i / 2] | codes[i] << (i % 2 * 4));
  std::vector<uint32_t> y =
      run_line(
          "dequantize nvfp4 1x16 bf16 dir=row out=f32 " + keys,
          {{"row.amax", blob<uint32_t>({amax})}, {"row.scale_inv", blob(scales)}, {"row.data", blob(packed)}})
          .u32("y");
  y.resize(codes.size());
  return y;
}

TEST(Nvfp4, Dequantize) {  // N10.15
  EXPECT_EQ(dequantized("", 0x40B00000, 0x6E, {2, 10, 0, 8, 7}),
            (std::vector<uint32_t>{0x3E6AAAAB, 0xBE6AAAAB, 0, 0x80000000, 0x3FB00000}));
  EXPECT_EQ(dequantized("", 0x3F800000, 0x38, {2}), (std::vector<uint32_t>{0x39C30C31}));  // 1 / 2688
  EXPECT_EQ(dequantized("four_over_six=mae e4m3_max=256", 0x3F800000, 0x38, {2}),
            (std::vector<uint32_t>{0x3A2AAAAB}));  // 1 / 1536
  EXPECT_EQ(dequantized("", 0x40B00000, 0x7F, {2, 0}),
            (std::vector<uint32_t>{0x7FFFFFFF, 0x7FFFFFFF}));  // a NaN scale
  // 448 A overflows although 448 A / 2688 would not; and 0 times infinity is NaN.
  EXPECT_EQ(dequantized("", 0x7F000000, 0x7E, {2, 9, 0}),
            (std::vector<uint32_t>{0x7F800000, 0xFF800000, 0x7FFFFFFF}));
  EXPECT_EQ(dequantized("", 0x3F800000, 0x00, {7, 15}), (std::vector<uint32_t>{0, 0x80000000}));
}

TEST(Nvfp4, DequantizeReadsItsOwnRow) {  // N10.15: row_scaled, columns, GEMM layout
  Codes scales(128 * 4);
  scales[0] = 0x38;
  scales[4] = 0x40;
  const std::vector<uint32_t> y = run_line("dequantize nvfp4 16x2 bf16 dir=col out=f32 row_scaled=1",
                                           {{"col.amax", blob<uint32_t>({0x45280000, 0x45A80000})},
                                            {"col.scale_inv", blob(scales)},
                                            {"col.data", blob(Codes(16, 0x42))}})
                                      .u32("y");
  ASSERT_EQ(y.size(), 32u);
  EXPECT_EQ(y[0], 0x3F800000u);  // column 0: code 2 (1) * 1, then code 4 (2)
  EXPECT_EQ(y[2], 0x40000000u);
  EXPECT_EQ(y[1], 0x40800000u);  // column 1: 1 * 2 * 2
  EXPECT_EQ(y[3], 0x41000000u);
  Codes gemm(128 * 4);
  gemm[0] = 0x38;
  gemm[16] = 0x40;  // row 1
  EXPECT_EQ(run_line("dequantize nvfp4 16x2 bf16 dir=col out=f32 row_scaled=1 scales=gemm",
                     {{"col.amax", blob<uint32_t>({0x45280000, 0x45A80000})},
                      {"col.scale_gemm", blob(gemm)},
                      {"col.data", blob(Codes(16, 0x42))}})
                .u32("y"),
            y);
}

}  // namespace
}  // namespace assay
