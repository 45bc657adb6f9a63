// NaN, infinities, zeros and extremes in whole quantizations, worked by hand.
#include <bit>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

uint16_t bf16(float v) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
}  // for values that BF16 has
constexpr uint16_t kInf = 0x7F80, kMinusInf = 0xFF80, kNan = 0xFFC1, kMinusZero = 0x8000;

struct BlockResult {
  uint8_t scale;
  std::vector<uint8_t> codes;  // as many as elements were given
};
// One 1x32 block of row data: the elements given, then +0.
template <class Code> BlockResult block(const std::string& keys, const std::vector<Code>& x) {
  const Outputs out =
      run_line("quantize mxfp8 1x32 " + std::string(sizeof(Code) == 2 ? "bf16" : "f32") + " dir=row " + keys,
               {{"x", blob(padded_with_zeros(x, 32))}});
  BlockResult r{out.u8("row.scale_inv")[0], out.u8("row.data")};
  EXPECT_EQ(std::vector<uint8_t>(r.codes.begin() + static_cast<ptrdiff_t>(x.size()), r.codes.end()),
            std::vector<uint8_t>(32 - x.size(), r.scale == 0xFF ? 0x7F : 0x00));
  r.codes.resize(x.size());
  return r;
}
using Codes = std::vector<uint8_t>;

TEST(SpecialValues, ZeroBlock) {  // N5.3, N5.6
  const std::vector<uint16_t> x = {0x0000, kMinusZero};
  const BlockResult keep = block("", x), plus = block("neg_zero=plus", x);
  EXPECT_EQ(keep.scale, 0x00);
  EXPECT_EQ(keep.codes, (Codes{0x00, 0x80}));
  EXPECT_EQ(plus.scale, 0x00);
  EXPECT_EQ(plus.codes, (Codes{0x00, 0x00}));
}

TEST(SpecialValues, OnlyAnExactZeroLosesItsSign) {  // N5.6: -2^-20 rounds to zero and stays negative
  const std::vector<uint16_t> x = {bf16(448), bf16(-0x1p-20f), kMinusZero};
  EXPECT_EQ(block("", x).codes, (Codes{0x7E, 0x80, 0x80}));
  EXPECT_EQ(block("neg_zero=plus", x).codes, (Codes{0x7E, 0x80, 0x00}));
  // 2^-149 * 2^-8 rounds to zero already in binary32 (scale 87: 448 * 2^8); the exact product is no zero.
  const std::vector<uint32_t> tiny = {std::bit_cast<uint32_t>(448.0f * 256), 0x80000001};
  EXPECT_EQ(block("neg_zero=plus", tiny).scale, 0x87);
  EXPECT_EQ(block("neg_zero=plus", tiny).codes, (Codes{0x7E, 0x80}));
}

TEST(SpecialValues, NanInABlock) {  // N5.1, N5.7, N2.4
  const std::vector<uint16_t> x = {kNan, bf16(448), bf16(1), kMinusZero};
  const BlockResult ignore = block("", x), propagate = block("nan_amax=propagate", x);
  EXPECT_EQ(ignore.scale, 0x7F);
  EXPECT_EQ(ignore.codes, (Codes{0x7F, 0x7E, 0x38, 0x80}));
  EXPECT_EQ(propagate.scale, 0xFF);
  EXPECT_EQ(propagate.codes, (Codes{0x7F, 0x7F, 0x7F, 0x7F}));
}

TEST(SpecialValues, AllNan) {
  const std::vector<uint16_t> x(32, kNan);
  EXPECT_EQ(block("", x).scale, 0x00);
  EXPECT_EQ(block("", x).codes, Codes(32, 0x7F));
  EXPECT_EQ(block("nan_amax=propagate", x).scale, 0xFF);
}

TEST(SpecialValues, NanReachesAllOfASquareBlock) {  // N5.7, N5.8
  std::vector<uint16_t> x(64 * 64, bf16(1));
  x[5 * 64 + 40] = kNan;
  const Outputs out = run_line("quantize mxfp8 64x64 bf16 block=32x32 nan_amax=propagate", {{"x", blob(x)}});
  for (int64_t r = 0; r < 128; ++r)
    for (int64_t b = 0; b < 4; ++b)
      EXPECT_EQ(out.u8("row.scale_inv")[static_cast<size_t>(r * 4 + b)],
                r < 64 && b < 2 ? (r < 32 && b == 1 ? 0xFF : 0x77) : 0)
          << r << " " << b;
  EXPECT_EQ(out.u8("row.data"), out.u8("col.data"));
  EXPECT_EQ(out.u8("row.data")[31 * 64 + 63], 0x7F);
  EXPECT_EQ(out.u8("row.data")[32 * 64 + 63], 0x78);  // 1 * 2^8
  EXPECT_EQ(out.u8("col.scale_inv")[31], 0x77);
  EXPECT_EQ(out.u8("col.scale_inv")[32], 0xFF);
  EXPECT_EQ(out.u8("col.scale_inv")[128 + 32], 0x77);
}

TEST(SpecialValues, InfinityInABlock) {  // N5.3: FE; multiplier 2^-127, a subnormal (N5.4)
  const std::vector<uint16_t> x = {kInf, kMinusInf,      bf16(1),        bf16(-1),
                                   kNan, bf16(0x1p127f), bf16(0x1p117f), bf16(0x1.02p117f)};
  const BlockResult r = block("", x);
  EXPECT_EQ(r.scale, 0xFE);
  EXPECT_EQ(r.codes,
            (Codes{0x7E, 0xFE, 0x00, 0x80, 0x7F, 0x38, 0x00, 0x01}));  // 2^117 becomes 2^-10, a tie with zero
  const std::vector<uint16_t> wide = {kInf, bf16(0x1p110f), bf16(0x1.02p110f)};
  EXPECT_EQ(block("element=e5m2", wide).scale, 0xFE);
  EXPECT_EQ(block("element=e5m2", wide).codes, (Codes{0x7B, 0x00, 0x01}));
}

TEST(SpecialValues, LargestFinite) {  // FLT_MAX * 2^-120 is just below 256 and rounds to it
  const std::vector<uint32_t> f32 = {0x7F7FFFFF, 0xFF7FFFFF};
  EXPECT_EQ(block("", f32).scale, 0xF7);
  EXPECT_EQ(block("", f32).codes, (Codes{0x78, 0xF8}));
  EXPECT_EQ(block("element=e5m2", f32).scale, 0xF0);
  EXPECT_EQ(block("element=e5m2", f32).codes, (Codes{0x78, 0xF8}));  // 2^15
  const std::vector<uint16_t> half = {0x7F7F};
  EXPECT_EQ(block("", half).scale, 0xF7);
  EXPECT_EQ(block("", half).codes, (Codes{0x78}));
}

TEST(SpecialValues, SubnormalBlock) {  // N5.3: scale 00, multiplier 2^127
  const BlockResult r = block("", std::vector<uint32_t>{0x00000001, 0x00400000, 0x007FFFFF, 0x80400000});
  EXPECT_EQ(r.scale, 0x00);
  EXPECT_EQ(r.codes, (Codes{0x00, 0x38, 0x40, 0xB8}));  // 2^-22, 1, just below 2, -1
}

TEST(SpecialValues, PartialBlock) {  // N5.1: the second block has one element
  std::vector<uint16_t> x(33, bf16(448));
  x[32] = bf16(1);
  const Outputs out = run_line("quantize mxfp8 1x33 bf16 dir=row", {{"x", blob(x)}});
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x7F);
  EXPECT_EQ(out.u8("row.scale_inv")[1], 0x77);
  EXPECT_EQ(out.u8("row.data")[32], 0x78);
}

// ---- FP8 blockwise ------------------------------------------------------------------------------

struct Fp8Block {
  uint32_t scale_inv;
  Codes codes;  // as many as elements were given
};
// One 1x128 block of row data: the elements given, then +0.
template <class Code> Fp8Block fp8_block(const std::string& keys, const std::vector<Code>& x) {
  const Outputs out = run_line(
      "quantize fp8_block 1x128 " + std::string(sizeof(Code) == 2 ? "bf16" : "f32") + " dir=row " + keys,
      {{"x", blob(padded_with_zeros(x, 128))}});
  Fp8Block r{out.u32("row.scale_inv")[0], out.u8("row.data")};
  r.codes.resize(x.size());
  return r;
}

TEST(SpecialValues, Fp8BlockOfZeros) {  // N3.4: scale 1; N5.6
  const std::vector<uint16_t> x = {0x0000, kMinusZero};
  EXPECT_EQ(fp8_block("", x).scale_inv, 0x3F800000u);
  EXPECT_EQ(fp8_block("", x).codes, (Codes{0x00, 0x80}));
  EXPECT_EQ(fp8_block("neg_zero=plus", x).codes, (Codes{0x00, 0x00}));
  EXPECT_EQ(fp8_block("eps=7", x).scale_inv, 0x3C800000u);  // N3.2: 448 / 7
}

TEST(SpecialValues, Fp8BlockPowersOfTwoByDefault) {  // N9.2: 448 / 3 = 149.33 is floored to 128; N3.7
  const std::vector<uint16_t> x = {bf16(3), bf16(-1)};
  EXPECT_EQ(fp8_block("", x).scale_inv, 0x3C000000u);
  EXPECT_EQ(fp8_block("", x).codes, (Codes{0x7C, 0xF0}));  // 384, -128
  EXPECT_EQ(fp8_block("pow2=0", x).scale_inv, 0x3BDB6DB7u);
  EXPECT_EQ(fp8_block("pow2=0", x).codes, (Codes{0x7E, 0xF1}));  // 448, -149.33: nearer to 144 than to 160
}

TEST(SpecialValues, Fp8BlockWithNan) {  // N9.1: it does not take part; N2.4
  const std::vector<uint16_t> x = {kNan, bf16(448), bf16(1)};
  EXPECT_EQ(fp8_block("", x).scale_inv, 0x3F800000u);
  EXPECT_EQ(fp8_block("", x).codes, (Codes{0x7F, 0x7E, 0x38}));
  EXPECT_EQ(fp8_block("", std::vector<uint16_t>(128, kNan)).scale_inv, 0x3F800000u);
}

TEST(SpecialValues, Fp8BlockWithInfinity) {  // N3.4, N3.7
  const std::vector<uint16_t> x = {kInf, kMinusInf, bf16(1), bf16(-1000), kNan};
  EXPECT_EQ(fp8_block("", x).scale_inv, 0x3F800000u);
  EXPECT_EQ(fp8_block("", x).codes, (Codes{0x7E, 0xFE, 0x38, 0xFE, 0x7F}));
  EXPECT_EQ(fp8_block("inf_amax=zero", x).scale_inv, 0x7F800000u);
  EXPECT_EQ(fp8_block("inf_amax=zero", x).codes, (Codes{0x7F, 0x7F, 0x00, 0x80, 0x7F}));
  const std::map<std::string, Blob> in = {{"x", blob(padded_with_zeros(x, 128))}};
  EXPECT_EQ(
      run_line("quantize fp8_block 1x128 bf16 dir=row inf_amax=zero scales=gemm", in).u8("row.scale_gemm")[3],
      0xFF);  // N9.6
}

TEST(SpecialValues, Fp8BlockOfSubnormals) {  // N3.5 to N3.7: 448 / 2^-133 overflows
  const std::vector<uint16_t> x = {0x0001, 0x8001};
  EXPECT_EQ(fp8_block("", x).scale_inv, 0x00400000u);            // 2^127
  EXPECT_EQ(fp8_block("", x).codes, (Codes{0x08, 0x88}));        // 2^-6
  EXPECT_EQ(fp8_block("pow2=0", x).scale_inv, 0x00200000u);      // FLT_MAX
  EXPECT_EQ(fp8_block("pow2=0", x).codes, (Codes{0x10, 0x90}));  // just below 2^-5
  EXPECT_EQ(fp8_block("pow2=0 scale_limit=source_max", x).scale_inv, 0x00202020u);
  EXPECT_EQ(
      run_line("quantize fp8_block 1x128 bf16 dir=row scales=gemm", {{"x", blob(padded_with_zeros(x, 128))}})
          .u8("row.scale_gemm")[0],
      0x00);  // N9.6
  // An F16 block reaches the limit only by way of eps: 65504 and its reciprocal.
  const Outputs half =
      run_line("quantize fp8_block 1x128 f16 dir=row pow2=0 eps=1e-40 scale_limit=source_max",
               {{"x", blob(std::vector<uint16_t>(128))}});
  EXPECT_EQ(half.u32("row.scale_inv")[0], 0x37801002u);
}

TEST(SpecialValues, DequantizeFp8Block) {  // N9.5, N2.3, N1.3
  std::vector<uint8_t> data(128, 0x38);
  data[1] = 0x7E;
  data[2] = 0x7F;
  const auto y = [&](uint32_t scale_inv, const std::string& out) {
    return run_line("dequantize fp8_block 1x128 bf16 dir=row out=" + out,
                    {{"row.data", blob(data)}, {"row.scale_inv", blob<uint32_t>({scale_inv, 0, 0, 0})}});
  };
  const std::vector<uint32_t> large = y(0x7F000000, "f32").u32("y");
  EXPECT_EQ(large[0], 0x7F000000u);
  EXPECT_EQ(large[1], 0x7F800000u);
  EXPECT_EQ(large[2], 0x7FFFFFFFu);
  EXPECT_EQ(y(0xFFC00001, "f32").u32("y")[0], 0x7FFFFFFFu);
  EXPECT_EQ(y(0x3F808000, "bf16").u16("y")[0], 0x3F80);  // a tie
  EXPECT_EQ(y(0x3F818000, "bf16").u16("y")[0], 0x3F82);
}

// ---- MXFP4 --------------------------------------------------------------------------------------

// One 1x32 block of row data, unpacked: the elements given, then +0.
template <class Code> BlockResult fp4_block(const std::string& keys, const std::vector<Code>& x) {
  const Outputs out =
      run_line("quantize mxfp4 1x32 " + std::string(sizeof(Code) == 2 ? "bf16" : "f32") + " dir=row " + keys,
               {{"x", blob(padded_with_zeros(x, 32))}});
  BlockResult r{out.u8("row.scale_inv")[0], {}};
  const Codes bytes = out.u8("row.data");
  for (size_t i = 0; i < x.size(); ++i) r.codes.push_back(i % 2 == 0 ? bytes[i / 2] % 16 : bytes[i / 2] / 16);
  return r;
}

TEST(SpecialValues, Mxfp4EveryCodeAndTie) {  // N15.3, N2.1, N2.2: scale 1; ties go to the even code
  const std::vector<uint16_t> x = {bf16(0),        bf16(0.5f),   bf16(1),      bf16(1.5f),  bf16(2),
                                   bf16(3),        bf16(4),      bf16(6),      bf16(0.25f), bf16(0.75f),
                                   bf16(1.25f),    bf16(1.75f),  bf16(2.5f),   bf16(3.5f),  bf16(5),
                                   bf16(-5.0625f), bf16(-0.25f), bf16(-0.375f)};
  EXPECT_EQ(fp4_block("", x).scale, 0x7F);
  EXPECT_EQ(fp4_block("", x).codes, (Codes{0, 1, 2, 3, 4, 5, 6, 7, 0, 2, 2, 4, 4, 6, 6, 0xF, 8, 9}));
}

TEST(SpecialValues, Mxfp4ZeroNanInfinity) {  // N15.1, N5.6, N5.7, N2.4, N5.3
  const std::vector<uint16_t> zeros = {0x0000, kMinusZero}, nan = {kNan, bf16(6), kMinusZero},
                              infinite = {kInf, kMinusInf, bf16(1), bf16(-1), bf16(0x1p126f)};
  EXPECT_EQ(fp4_block("", zeros).scale, 0x00);
  EXPECT_EQ(fp4_block("", zeros).codes, (Codes{0, 8}));
  EXPECT_EQ(fp4_block("neg_zero=plus", zeros).codes, (Codes{0, 0}));
  EXPECT_EQ(fp4_block("", nan).scale, 0x7F);
  EXPECT_EQ(fp4_block("", nan).codes, (Codes{7, 7, 8}));
  EXPECT_EQ(fp4_block("nan_amax=propagate", nan).scale, 0xFF);
  EXPECT_EQ(fp4_block("nan_amax=propagate", nan).codes, (Codes{7, 7, 7}));
  EXPECT_EQ(fp4_block("", infinite).scale, 0xFE);
  EXPECT_EQ(fp4_block("", infinite).codes, (Codes{7, 0xF, 0, 8, 1}));  // 2^126 * 2^-127
}

TEST(SpecialValues, Mxfp4ExtremesAndSubnormals) {  // N15.2, N5.4
  const BlockResult largest =
      fp4_block("", std::vector<uint32_t>{0x7F7FFFFF, 0xFF7FFFFF});  // FLT_MAX / 6 lies above 2^125
  EXPECT_EQ(largest.scale, 0xFD);
  EXPECT_EQ(largest.codes, (Codes{6, 0xE}));  // just below 4
  const BlockResult tiny =
      fp4_block("", std::vector<uint32_t>{0x00000001, 0x00400000, 0x007FFFFF, 0x80200000});
  EXPECT_EQ(tiny.scale, 0x00);
  EXPECT_EQ(tiny.codes, (Codes{0, 2, 4, 9}));  // 2^-22, 1, just below 2, -0.5
}

TEST(SpecialValues, DequantizeMxfp4) {  // N5.9, N15.3, N6.8
  std::vector<uint8_t> scales(128 * 4);
  scales[0] = 0xFE;
  scales[4] = 0x00;
  scales[8] = 0xFF;
  const std::vector<uint8_t> data = {0x72, 0x09, 0x82, 0x01, 0x20, 0x00};  // 3x3: 1 6 -0.5 / 1 -0 0.5 / 0 1 0
  const auto y = run_line("dequantize mxfp4 3x3 bf16 dir=row out=f32",
                          {{"row.data", blob(data)}, {"row.scale_inv", blob(scales)}})
                     .u32("y");
  EXPECT_EQ(y, (std::vector<uint32_t>{0x7F000000, 0x7F800000, 0xFE800000, 0x00400000, 0x80000000, 0x00200000,
                                      0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF}));
}

// ---- dequantize ---------------------------------------------------------------------------------

TEST(SpecialValues, DequantizeMxfp8) {  // N5.9, N2.3, N1.3
  std::vector<uint8_t> scales(128 * 4);
  scales[0] = 0xFE;
  scales[4] = 0x00;
  scales[8] = 0xFF;
  std::vector<uint8_t> data(3 * 32, 0x38);  // 1
  data[0] = 0x7E;
  data[1] = 0xFF;
  data[32] = 0x80;
  const auto y = [&](const std::string& out) {
    return run_line("dequantize mxfp8 3x32 bf16 dir=row out=" + out,
                    {{"row.data", blob(data)}, {"row.scale_inv", blob(scales)}});
  };
  const std::vector<uint32_t> f32 = y("f32").u32("y");
  EXPECT_EQ(f32[0], 0x7F800000u);  // 448 * 2^127 overflows
  EXPECT_EQ(f32[1], 0x7FFFFFFFu);  // NaN code
  EXPECT_EQ(f32[2], 0x7F000000u);  // 2^127
  EXPECT_EQ(f32[32], 0x80000000u);
  EXPECT_EQ(f32[33], 0x00400000u);  // 2^-127
  EXPECT_EQ(f32[64], 0x7FFFFFFFu);  // scale FF
  const std::vector<uint16_t> bf = y("bf16").u16("y"), half = y("f16").u16("y");
  EXPECT_EQ(bf[33], 0x0040);
  EXPECT_EQ(bf[64], 0x7FFF);
  EXPECT_EQ(half[2], 0x7C00);  // 2^127 overflows F16
  EXPECT_EQ(half[32], 0x8000);
  EXPECT_EQ(half[33], 0x0000);
  EXPECT_EQ(half[64], 0x7FFF);
}

TEST(SpecialValues, DequantizePerTensor) {  // N3.10: 448 * FLT_MAX overflows; the columns' data are [K, M]
  const Outputs out = run_line(
      "dequantize fp8_current 1x3 bf16 dir=col out=f32 element=e5m2",
      {{"col.data", blob<uint8_t>({0x7B, 0xFC, 0x7D})}, {"col.scale_inv", blob<uint32_t>({0x7F7FFFFF})}});
  EXPECT_EQ(out.u32("y"), (std::vector<uint32_t>{0x7F800000, 0xFF800000, 0x7FFFFFFF}));
}

TEST(SpecialValues, DequantizeRoundsTwice) {
  // N3.10: 1.125 * 3F8238E4 lies 2^-24 above 3F928000. In binary32 it is 3F928000, a BF16 tie whose even side
  // is 3F92; rounded only once, the product would be 3F93.
  const std::map<std::string, Blob> in = {{"row.data", blob<uint8_t>({0x39})},
                                          {"row.scale_inv", blob<uint32_t>({0x3F8238E4})}};
  EXPECT_EQ(run_line("dequantize fp8_current 1x1 bf16 dir=row out=f32", in).u32("y")[0], 0x3F928000u);
  EXPECT_EQ(run_line("dequantize fp8_current 1x1 bf16 dir=row out=bf16", in).u16("y")[0], 0x3F92);
  const std::map<std::string, Blob> one = {{"row.data", blob<uint8_t>({0x38})},
                                           {"row.scale_inv", blob<uint32_t>({0x3F80FFFF})}};
  EXPECT_EQ(run_line("dequantize fp8_current 1x1 bf16 dir=row out=bf16", one).u16("y")[0],
            0x3F81);  // to nearest, here upwards
}

// ---- per-tensor FP8 -----------------------------------------------------------------------------

Outputs delayed(const std::string& keys, uint32_t scale, uint32_t prior, const std::vector<uint16_t>& x) {
  return run_line("quantize fp8_delayed 1x" + std::to_string(x.size()) + " bf16 dir=row " + keys,
                  {{"x", blob(x)},
                   {"row.given.scale", blob<uint32_t>({scale})},
                   {"row.prior.amax", blob<uint32_t>({prior})}});
}

TEST(SpecialValues, NegativeGivenScale) {  // N3.11, N3.8
  const std::vector<uint16_t> x = {0x0000, kMinusZero, bf16(1), kMinusInf, kNan};
  const Outputs keep = delayed("", 0xC0000000, 0, x);  // -2
  EXPECT_EQ(keep.u8("row.data"), (Codes{0x80, 0x00, 0xC0, 0x7E, 0x7F}));
  EXPECT_EQ(keep.u32("row.scale_inv")[0], 0xBF000000u);
  EXPECT_EQ(keep.u32("row.amax")[0], 0x7F800000u);  // N3.1: infinities take part
  EXPECT_EQ(delayed("neg_zero=plus", 0xC0000000, 0, x).u8("row.data"), (Codes{0x00, 0x00, 0xC0, 0x7E, 0x7F}));
}

TEST(SpecialValues, ZeroGivenScale) {  // N3.7; 0 * infinity is NaN
  const Outputs out = delayed("", 0x00000000, 0, {bf16(5), bf16(-5), kInf});
  EXPECT_EQ(out.u8("row.data"), (Codes{0x00, 0x80, 0x7F}));
  EXPECT_EQ(out.u32("row.scale_inv")[0], 0x7F800000u);
}

TEST(SpecialValues, NanGivenScale) {  // N1.3
  const Outputs out = delayed("", 0xFFC00001, 0, {bf16(5)});
  EXPECT_EQ(out.u8("row.data"), (Codes{0x7F}));
  EXPECT_EQ(out.u32("row.scale_inv")[0], 0x7FFFFFFFu);
}

TEST(SpecialValues, AmaxAccumulates) {  // N3.1
  const std::vector<uint16_t> x = {bf16(-3), kNan, bf16(2)};
  EXPECT_EQ(delayed("", 0x3F800000, 0x00000000, x).u32("row.amax")[0], 0x40400000u);
  EXPECT_EQ(delayed("", 0x3F800000, 0x40800000, x).u32("row.amax")[0], 0x40800000u);
  EXPECT_EQ(delayed("", 0x3F800000, 0x00000000, {kNan}).u32("row.amax")[0], 0x00000000u);
  EXPECT_EQ(delayed("", 0x3F800000, 0xFFC00001, x).u32("row.amax")[0], 0x7FFFFFFFu);   // N1.3
  EXPECT_EQ(delayed("", 0x3F800000, 0x40800000, {}).u32("row.amax")[0], 0x40800000u);  // an empty tensor
}

TEST(SpecialValues, StoredAmaxIsTheOneBeforeEps) {  // N3.2: scale 448 / 7, amax 3
  const Outputs out =
      run_line("quantize fp8_current 1x2 bf16 dir=row eps=7", {{"x", blob<uint16_t>({bf16(-3), bf16(2)})}});
  EXPECT_EQ(out.u32("row.amax")[0], 0x40400000u);
  EXPECT_EQ(out.u32("row.scale")[0], 0x42800000u);
  EXPECT_EQ(out.u8("row.data"), (Codes{0xF4, 0x70}));  // -192, 128
}

TEST(SpecialValues, GivenAmax) {  // N3.1: scale 448 / 14, whatever the tensor holds; no amax is written
  const Outputs out = run_line(
      "quantize fp8_current 1x2 bf16 dir=row amax=14",
      {{"x", blob<uint16_t>({bf16(100), bf16(1)})}, {"row.given.amax", blob<uint32_t>({0x41600000})}});
  EXPECT_EQ(out.count("row.amax"), 0u);
  EXPECT_EQ(out.u32("row.scale")[0], 0x42000000u);
  EXPECT_EQ(out.u8("row.data"), (Codes{0x7E, 0x60}));  // saturated; 32
}

TEST(SpecialValues, CurrentScalingOfInfinityAndNothing) {  // N3.4, N3.1
  const std::vector<uint16_t> x = {kInf, bf16(1), bf16(-1000), kNan};
  const Outputs unit = run_line("quantize fp8_current 1x4 bf16 dir=row", {{"x", blob(x)}});
  EXPECT_EQ(unit.u32("row.amax")[0], 0x7F800000u);
  EXPECT_EQ(unit.u32("row.scale")[0], 0x3F800000u);
  EXPECT_EQ(unit.u8("row.data"), (Codes{0x7E, 0x38, 0xFE, 0x7F}));
  const Outputs zero = run_line("quantize fp8_current 1x4 bf16 dir=row inf_amax=zero", {{"x", blob(x)}});
  EXPECT_EQ(zero.u32("row.scale_inv")[0], 0x7F800000u);
  EXPECT_EQ(zero.u8("row.data"), (Codes{0x7F, 0x00, 0x80, 0x7F}));
  const Outputs empty = run_line("quantize fp8_current 0x4 bf16", {{"x", {}}});
  EXPECT_EQ(empty.u32("row.amax")[0], 0u);
  EXPECT_EQ(empty.u32("col.scale")[0], 0x3F800000u);
}

}  // namespace
}  // namespace assay
