// The choices of other libraries (N17), worked by hand.
#include <bit>
#include <cmath>
#include <limits>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

using Codes = std::vector<uint8_t>;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kMinusNan = std::bit_cast<float>(0xFFC00001u);
uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }
float above(float v) { return std::bit_cast<float>(bits(v) + 1); }  // away from zero
float below(float v) { return std::bit_cast<float>(bits(v) - 1); }

std::map<std::string, Blob> f32(const Floats& x) { return {{"x", blob(x)}}; }

// FP8 codes of x as it is: per-tensor FP8 under a scale of 1.
Codes cast(const std::string& keys, const Floats& x) {
  auto in = f32(x);
  in["row.given.scale"] = blob<float>({1});
  return run_line("quantize fp8_delayed 1x" + std::to_string(x.size()) + " f32 dir=row " + keys, in)
      .u8("row.data");
}

// The two codes of each byte.
Codes unpacked(const Codes& bytes) {
  Codes out;
  for (uint8_t b : bytes) out.insert(out.end(), {static_cast<uint8_t>(b & 15), static_cast<uint8_t>(b >> 4)});
  return out;
}
// E2M1 codes of x as it is: a block that 6 gives a scale of 1 (N15.2); 6 is added in front and left out
// again.
Codes cast_e2m1(const std::string& keys, Floats x) {
  const size_t n = x.size();
  x.insert(x.begin(), 6.0f);
  x.resize(32);
  const Outputs out = run_line("quantize mxfp4 1x32 f32 dir=row " + keys, f32(x));
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x7F);
  const Codes codes = unpacked(out.u8("row.data"));
  EXPECT_EQ(codes[0], 7);
  return {codes.begin() + 1, codes.begin() + 1 + static_cast<ptrdiff_t>(n)};
}

TEST(Flavours, TiesOfE4m3) {  // N17.1
  // Halfway between 0 and 2^-9, 2^-9 and 2^-8, 1 and 1.125, 1.125 and 1.25, 15/8 and 2, 448 and the 480 that
  // E4M3 lacks.
  const Floats ties = {0x1p-10f, 0x1.8p-9f, 1.0625f, 1.1875f, 1.9375f, 464};
  EXPECT_EQ(cast("", ties), (Codes{0x00, 0x02, 0x38, 0x3A, 0x40, 0x7E}));
  EXPECT_EQ(cast("element_ties=even", ties), (Codes{0x00, 0x02, 0x38, 0x3A, 0x40, 0x7E}));
  EXPECT_EQ(cast("element_ties=zero", ties), (Codes{0x00, 0x01, 0x38, 0x39, 0x3F, 0x7E}));
  EXPECT_EQ(cast("element_ties=away", ties), (Codes{0x01, 0x02, 0x39, 0x3A, 0x40, 0x7E}));
  EXPECT_EQ(cast("element_ties=away", {-0x1p-10f, -1.0625f}), (Codes{0x81, 0xB9}));  // by magnitude
  EXPECT_EQ(cast("element_ties=zero", {-0x1p-10f, -1.1875f}), (Codes{0x80, 0xB9}));
  for (const char* rule : {"even", "zero", "away"}) {  // what is no tie goes to the nearest
    const std::string keys = std::string("element_ties=") + rule;
    EXPECT_EQ(cast(keys, {below(0x1p-10f), above(0x1p-10f), below(1.0625f), above(1.0625f), below(1.1875f),
                          above(1.1875f)}),
              (Codes{0x00, 0x01, 0x38, 0x39, 0x39, 0x3A}))
        << rule;
    EXPECT_EQ(cast(keys, {0x1p-149f, 0, -0.0f, kInf, -kInf, kMinusNan}),
              (Codes{0x00, 0x00, 0x80, 0x7E, 0xFE, 0x7F}))
        << rule;
  }
}

TEST(Flavours, TheTieAboveTheLargest) {  // N17.1 decides whether 464 and 61440 overflow, N17.2 what then
  EXPECT_EQ(cast("element_ties=even element_overflow=nan", {464}), (Codes{0x7E}));  // 448 is even
  EXPECT_EQ(cast("element_ties=zero element_overflow=nan", {464}), (Codes{0x7E}));
  EXPECT_EQ(cast("element_ties=away element_overflow=nan", {464, -464}), (Codes{0x7F, 0xFF}));
  EXPECT_EQ(cast("element=e5m2 element_ties=even element_overflow=nan", {61440}),
            (Codes{0x7C}));  // 57344 is odd
  EXPECT_EQ(cast("element=e5m2 element_ties=zero element_overflow=nan", {61440}), (Codes{0x7B}));
  EXPECT_EQ(cast("element=e5m2 element_ties=away element_overflow=nan", {61440}), (Codes{0x7C}));
}

TEST(Flavours, TiesOfE5m2AndE2m1) {                // N17.1
  const Floats ties = {0x1p-17f, 1.125f, 1.375f};  // 0 and 2^-16, 1 and 1.25, 1.25 and 1.5
  EXPECT_EQ(cast("element=e5m2", ties), (Codes{0x00, 0x3C, 0x3E}));
  EXPECT_EQ(cast("element=e5m2 element_ties=zero", ties), (Codes{0x00, 0x3C, 0x3D}));
  EXPECT_EQ(cast("element=e5m2 element_ties=away", ties), (Codes{0x01, 0x3D, 0x3E}));
  const Floats all = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -0.25f, -5};
  EXPECT_EQ(cast_e2m1("", all), (Codes{0, 2, 2, 4, 4, 6, 6, 8, 14}));
  EXPECT_EQ(cast_e2m1("element_ties=zero", all), (Codes{0, 1, 2, 3, 4, 5, 6, 8, 14}));
  EXPECT_EQ(cast_e2m1("element_ties=away", all), (Codes{1, 2, 3, 4, 5, 6, 7, 9, 15}));
}

TEST(Flavours, OverflowToNan) {  // N17.2
  const Floats x = {448, 464, above(464), -465, 0x1p120f, kInf, -kInf, kMinusNan, -1};
  EXPECT_EQ(cast("", x), (Codes{0x7E, 0x7E, 0x7E, 0xFE, 0x7E, 0x7E, 0xFE, 0x7F, 0xB8}));
  EXPECT_EQ(cast("element_overflow=nan", x), (Codes{0x7E, 0x7E, 0x7F, 0xFF, 0x7F, 0x7F, 0xFF, 0x7F, 0xB8}));
  const Floats wide = {57344, below(61440), 61440, -61440, kInf, -kInf, kMinusNan};
  EXPECT_EQ(cast("element=e5m2", wide), (Codes{0x7B, 0x7B, 0x7B, 0xFB, 0x7B, 0xFB, 0x7F}));
  EXPECT_EQ(cast("element=e5m2 element_overflow=nan", wide),
            (Codes{0x7B, 0x7B, 0x7C, 0xFC, 0x7C, 0xFC, 0x7F}));
}

TEST(Flavours, RoundedTwice) {  // N17.3
  // 1 + 1/16 is the tie between 38 and 39. What lies above it by less than half of BF16's 2^-7, or by less
  // than F16's 2^-10, becomes the tie.
  const Floats x = {1.0625f + 0x1p-12f, 1.0625f + 0x1p-10f, 1.0625f + 0x1p-8f, above(1.0625f + 0x1p-8f),
                    below(1.0625f)};
  EXPECT_EQ(cast("", x), (Codes{0x39, 0x39, 0x39, 0x39, 0x38}));
  EXPECT_EQ(
      cast("pre_round=bf16", x),
      (Codes{0x38, 0x38, 0x38, 0x39, 0x38}));  // the third is a tie of BF16: to 1.0625, which is even there
  EXPECT_EQ(cast("pre_round=f16_rz", x),
            (Codes{0x38, 0x39, 0x39, 0x39, 0x38}));  // the last becomes 1.0625 - 2^-10
  EXPECT_EQ(cast("pre_round=bf16 element_ties=away", {below(1.0625f)}), (Codes{0x39}));
  EXPECT_EQ(cast("pre_round=f16_rz element_ties=away", {below(1.0625f)}), (Codes{0x38}));
  // 2^-10 is the tie below E4M3's least value; F16 steps by 2^-20 there. Its subnormals step by 2^-24: E5M2's
  // tie 2^-17 is one.
  EXPECT_EQ(cast("pre_round=f16_rz", {0x1p-10f + 0x1p-20f, 0x1p-10f + 0x1p-21f}), (Codes{0x01, 0x00}));
  EXPECT_EQ(cast("", {0x1p-10f + 0x1p-21f}), (Codes{0x01}));
  EXPECT_EQ(cast("element=e5m2 pre_round=f16_rz", {0x1p-17f + 0x1p-24f, 0x1p-17f + 0x1p-25f}),
            (Codes{0x01, 0x00}));
  EXPECT_EQ(cast("element=e5m2", {0x1p-17f + 0x1p-25f}), (Codes{0x01}));
}

TEST(Flavours, RoundedToTheNearestF16First) {  // N17.3
  // F16 steps by 2^-10 here: what lies above the tie by half of that or less becomes the tie.
  const Floats x = {1.0625f + 0x1p-12f, 1.0625f + 0x1p-11f, above(1.0625f + 0x1p-11f), below(1.0625f)};
  EXPECT_EQ(cast("pre_round=f16", x), (Codes{0x38, 0x38, 0x39, 0x38}));
  EXPECT_EQ(cast("pre_round=f16 element_ties=away", {below(1.0625f)}), (Codes{0x39}));
  EXPECT_EQ(cast("element=e5m2 element_overflow=nan pre_round=f16", {65519, 65520, kMinusNan, -0x1p-26f}),
            (Codes{0x7C, 0x7C, 0x7F, 0x80}));
}

TEST(Flavours, RoundedTwiceAtTheEnds) {  // N17.3: BF16 overflows to infinity (N2.3), F16 toward zero stops at
                                         // 65504 (N2.6)
  const Floats x = {0x1.FFFFFEp127f, kInf, -kInf, kMinusNan, -0.0f, -0x1p-140f, 0x1p-149f};
  EXPECT_EQ(cast("pre_round=bf16", x), (Codes{0x7E, 0x7E, 0xFE, 0x7F, 0x80, 0x80, 0x00}));
  EXPECT_EQ(cast("pre_round=f16_rz", x), (Codes{0x7E, 0x7E, 0xFE, 0x7F, 0x80, 0x80, 0x00}));
  EXPECT_EQ(cast("element=e5m2 element_overflow=nan pre_round=bf16", x),
            (Codes{0x7C, 0x7C, 0xFC, 0x7F, 0x80, 0x80, 0x00}));
  EXPECT_EQ(cast("element=e5m2 element_overflow=nan pre_round=f16_rz", x),
            (Codes{0x7C, 0x7C, 0xFC, 0x7F, 0x80, 0x80, 0x00}));  // 65504 is nearer to 65536
  EXPECT_EQ(cast("element=e5m2 element_overflow=nan element_ties=zero pre_round=f16_rz", {61440 + 0x1p-5f}),
            (Codes{0x7B}));  // F16 steps by 32: 61440, a tie
  EXPECT_EQ(cast("element=e5m2 element_overflow=nan element_ties=zero", {61440 + 0x1p-5f}), (Codes{0x7C}));
  EXPECT_EQ(cast("pre_round=bf16 neg_zero=plus", {-0.0f, -0x1p-140f}), (Codes{0x00, 0x80}));  // after N5.6
}

TEST(Flavours, Zeros) {  // N17.4
  const Floats x = {0, -0.0f, 0x1p-20f, -0x1p-20f, -0x1p-149f, -1};
  EXPECT_EQ(cast("neg_zero=keep", x), (Codes{0x00, 0x80, 0x00, 0x80, 0x80, 0xB8}));
  EXPECT_EQ(cast("neg_zero=plus", x), (Codes{0x00, 0x00, 0x00, 0x80, 0x80, 0xB8}));
  EXPECT_EQ(cast("neg_zero=drop", x), (Codes{0x00, 0x00, 0x00, 0x00, 0x00, 0xB8}));
  EXPECT_EQ(cast("neg_zero=minus", x), (Codes{0x80, 0x80, 0x00, 0x80, 0x80, 0xB8}));
  EXPECT_EQ(cast_e2m1("neg_zero=drop", x), (Codes{0, 0, 0, 0, 0, 10}));
  EXPECT_EQ(cast_e2m1("neg_zero=minus", x), (Codes{8, 8, 0, 8, 8, 10}));
  // Under round=sr an exact zero never moves, and what is drawn to zero loses its sign as well.
  Floats block(16, -0.0f);
  block[15] = 6;
  const std::string sr = "quantize nvfp4 1x16 f32 dir=row round=sr amax=2688 neg_zero=";
  EXPECT_EQ(unpacked(run_line(sr + "keep", f32(block)).u8("row.data"))[0], 8);
  EXPECT_EQ(unpacked(run_line(sr + "drop", f32(block)).u8("row.data"))[0], 0);
  block.assign(16, -0x1p-30f);
  block[15] = 6;
  for (uint8_t code : unpacked(run_line(sr + "drop", f32(block)).u8("row.data")))
    EXPECT_TRUE(code == 0 || code == 7);  // a byte of 255 draws it up once in 256: it does not here
}

// ---- FP8 ----------------------------------------------------------------------------------------

struct Divided {
  uint32_t scale, scale_inv;
  Codes codes;
  bool operator==(const Divided&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Divided& d) {
  out << std::hex << d.scale << " " << d.scale_inv;
  for (uint8_t c : d.codes) out << " " << static_cast<int>(c);
  return out;
}
// fp8_current under a given amax.
Divided current(const std::string& keys, const Floats& x) {
  const std::string line = "quantize fp8_current 1x" + std::to_string(x.size()) + " f32 dir=row " + keys;
  auto in = f32(x);
  in["row.given.amax"] = blob<uint32_t>({*problem(line).row->amax});
  const Outputs out = run_line(line, in);
  return {out.u32("row.scale")[0], out.u32("row.scale_inv")[0], out.u8("row.data")};
}

TEST(Flavours, DecodeScaleFirst) {  // N17.5
  // amax 11: 11 / 448 is 3CC92492, while 1 / fl(448 / 11) is the next binary32 above.
  EXPECT_EQ(current("amax=11", {1}).scale_inv, 0x3CC92493u);
  EXPECT_EQ(current("amax=11 scale_order=decode_first", {1}).scale_inv, 0x3CC92492u);
  EXPECT_EQ(current("amax=11 scale_order=decode_divide", {1}).scale_inv, 0x3CC92492u);
  // amax 1/8: 448 / amax is 3584, d = 39924925 is above 1 / 3584, fl(1 / d) just below 3584. x * 3584, x *
  // 455FFFFF and x / d then fall on different sides of two midpoints: (0.5625 + 0.625) / 2 and (0.625 +
  // 0.6875) / 2.
  const Floats x = {std::bit_cast<float>(0x391B6DB8u), std::bit_cast<float>(0x392DB6DBu)};
  EXPECT_EQ(current("amax=0.125", x), (Divided{0x45600000, 0x39924925, {0x31, 0x32}}));
  EXPECT_EQ(current("amax=0.125 scale_order=decode_first", x),
            (Divided{0x455FFFFF, 0x39924925, {0x30, 0x31}}));
  EXPECT_EQ(current("amax=0.125 scale_order=decode_divide", x),
            (Divided{0x455FFFFF, 0x39924925, {0x31, 0x31}}));
}

TEST(Flavours, DecodeScaleOfSpecialAmax) {  // N17.5, N3.2, N3.4
  const Floats x = {0, -1, 500, kInf, kMinusNan};
  for (const char* order : {"scale_order=decode_first", "scale_order=decode_divide"}) {
    const std::string keys = std::string(" ") + order;
    for (const char* amax : {"amax=0", "amax=inf", "amax=nan"})
      EXPECT_EQ(current(amax + keys, x), (Divided{0x3F800000, 0x3F800000, {0x00, 0xB8, 0x7E, 0x7E, 0x7F}}))
          << amax << keys;
    EXPECT_EQ(current("amax=0 pow2=1" + keys, {3}), (Divided{0x3F800000, 0x3F800000, {0x44}})) << keys;
    // 1e-4 = 38D1B717; / 448 = 346FACAD, and its reciprocal 4A88B800.
    EXPECT_EQ(current("amax=0 eps=1e-4" + keys, {0}), (Divided{0x4A88B800, 0x346FACAD, {0x00}})) << keys;
    // 2^-149 / 448 is 0, and what follows is IEEE's: 1 / 0 infinite, 0 * infinity and 0 / 0 NaN. N3.5 does
    // not apply.
    EXPECT_EQ(current("amax=1e-45 scale_limit=source_max" + keys, {0, 0x1p-149f, -1}),
              (Divided{0x7F800000, 0, {0x7F, 0x7E, 0xFE}}))
        << keys;
  }
  // An infinite amax that is not special: d is infinite, 1 / d is 0.
  EXPECT_EQ(current("amax=inf inf_amax=zero scale_order=decode_first", x),
            (Divided{0, 0x7F800000, {0x00, 0x80, 0x00, 0x7F, 0x7F}}));
  EXPECT_EQ(current("amax=inf inf_amax=zero scale_order=decode_divide neg_zero=plus", x),
            (Divided{0, 0x7F800000, {0x00, 0x00, 0x00, 0x7F, 0x7F}}));
}

TEST(Flavours, AmaxOfZeroIsDivided) {  // N17.15, N17.16
  const Floats x = {0, -1, 500, -0.0f, kMinusNan};
  for (const char* order : {"", " scale_order=decode_first", " scale_order=decode_divide", " pow2=1",
                            " scale_division=reciprocal", " scale_order=decode_divide pow2=1"}) {
    const std::string keys = std::string("amax=0 zero_amax=divided") + order;
    EXPECT_EQ(current(keys, x), (Divided{0x7F800000, 0, {0x7F, 0xFE, 0x7E, 0x7F, 0x7F}})) << keys;
    EXPECT_EQ(current(keys + " nan_code=negative", x),
              (Divided{0x7F800000, 0, {0xFF, 0xFE, 0x7E, 0xFF, 0xFF}}))
        << keys;
    // eps is an amax like any other (N3.2).
    EXPECT_EQ(current(keys + " eps=448", {0, 3}), current(std::string("amax=0 eps=448") + order, {0, 3}));
  }
  const Outputs zeros = run_line(
      "quantize fp8_block 1x256 f32 dir=row zero_amax=divided scale_order=decode_divide", f32(Floats(256)));
  EXPECT_EQ(zeros.u32("row.scale_inv")[0], 0u);
  EXPECT_EQ(zeros.u8("row.data")[0], 0x7F);
  // The scale code 00 is 2^-127, flushed to 0; the block beside it is a block like any other.
  Floats two(64);
  two[32] = 448;
  for (const char* element : {"e4m3", "e5m2"}) {
    const std::string line =
        std::string("quantize mxfp8 1x64 f32 dir=row zero_amax=divided element=") + element;
    const Outputs out = run_line(line, f32(two)), negative = run_line(line + " nan_code=negative", f32(two));
    EXPECT_EQ(out.u8("row.scale_inv")[0], 0x00);
    EXPECT_EQ(out.u8("row.data")[0], 0x7F);
    EXPECT_EQ(negative.u8("row.data")[31], 0xFF);
    EXPECT_EQ(out.u8("row.data")[33], 0x00);
    EXPECT_EQ(negative.u8("row.data")[32], out.u8("row.data")[32]);
  }
}

TEST(Flavours, AmaxOfZeroGivesEpsilon) {  // N17.15
  const auto made = [](const std::string& source, const std::string& keys, float amax) {
    const std::string line = "quantize fp8_current 1x1 " + source +
                             " dir=row amax=" + (amax == 0 ? "0" : "1e-45") + " zero_amax=epsilon " + keys;
    const Outputs out = run_line(line, {{"row.given.amax", blob<uint32_t>({*problem(line).row->amax})}});
    return out.u32("row.scale_inv")[0];
  };
  for (const char* keys : {"", "scale_order=decode_first", "scale_order=decode_divide", "pow2=1",
                           "scale_order=decode_divide scale_division=in_source"}) {
    EXPECT_EQ(made("f32", keys, 0), bits(0x1p-23f)) << keys;
    EXPECT_EQ(made("bf16", keys, 0), bits(0x1p-7f)) << keys;
    EXPECT_EQ(made("f16", keys, 0), bits(0x1p-10f)) << keys;
  }
  // 2^-149 / 448 is 0 as well; an encode scale of it is not.
  EXPECT_EQ(made("f32", "scale_order=decode_divide", 1e-45f), bits(0x1p-23f));
  EXPECT_NE(made("f32", "", 1e-45f), bits(0x1p-23f));
  EXPECT_EQ(current("amax=0 zero_amax=epsilon scale_order=decode_divide", {0, 0x1p-23f, -1}),
            (Divided{0x4B000000, 0x34000000, {0x00, 0x38, 0xFE}}));
  const Outputs zeros = run_line(
      "quantize fp8_block 1x256 f32 dir=row zero_amax=epsilon scale_order=decode_divide", f32(Floats(256)));
  EXPECT_EQ(zeros.u32("row.scale_inv")[0], bits(0x1p-23f));
  EXPECT_FALSE(parse_line("quantize mxfp8 1x32 f32 zero_amax=epsilon"));
}

// Overflow is no NaN, and keeps its own sign.
TEST(Flavours, NanCodeOfOverflow) {  // N17.2, N17.16
  EXPECT_EQ(current("amax=448 nan_code=negative element_overflow=nan", {500, -500, kMinusNan}).codes,
            (Codes{0x7F, 0xFF, 0xFF}));
}

TEST(Flavours, DecodeScalePowerOfTwo) {  // N17.5: d is raised, where N3.6 floors the encode scale
  EXPECT_EQ(current("amax=448 pow2=1 scale_order=decode_first", {448}),
            (Divided{0x3F800000, 0x3F800000, {0x7E}}));
  EXPECT_EQ(current("amax=449 pow2=1 scale_order=decode_first", {449}),
            (Divided{0x3F000000, 0x40000000, {0x76}}));  // 224.5 to 224
  EXPECT_EQ(current("amax=225 pow2=1 scale_order=decode_divide", {225}),
            (Divided{0x3F800000, 0x3F800000, {0x76}}));
  // Where d is 0 or not above 2^-149 it becomes that; 1 / 2^-149 overflows, a division does not.
  EXPECT_EQ(current("amax=1e-45 pow2=1 scale_order=decode_first", {0x1p-149f, 0}),
            (Divided{0x7F800000, 1, {0x7E, 0x7F}}));
  EXPECT_EQ(current("amax=1e-45 pow2=1 scale_order=decode_divide", {0x1p-149f, 0}),
            (Divided{0x7F800000, 1, {0x38, 0x00}}));
  EXPECT_EQ(current("amax=inf inf_amax=zero pow2=1 scale_order=decode_first", {1}),
            (Divided{0, 0x7F800000, {0x00}}));
}

TEST(Flavours, DecodeScaleOfBlocks) {  // N17.5 for fp8_block, N9.6
  Floats x(128);
  x[0] = 449;
  const Outputs out = run_line("quantize fp8_block 1x128 f32 dir=row scale_order=decode_first", f32(x));
  EXPECT_EQ(out.u32("row.scale_inv")[0], 0x40000000u);
  EXPECT_EQ(out.u8("row.data")[0], 0x76);
  EXPECT_EQ(run_line("quantize fp8_block 1x128 f32 dir=row scale_order=decode_first scales=gemm", f32(x))
                .u8("row.scale_gemm")[0],
            0x80);
  const Outputs chain =
      run_line("scale_chain fp8_block 1x2 f32 pow2=0 scale_order=decode_first", f32({11, 0.125f}));
  EXPECT_EQ(chain.u32("scale_inv"), (std::vector<uint32_t>{0x3CC92492, 0x39924925}));
  EXPECT_EQ(chain.u32("scale")[1], 0x455FFFFFu);
}

// ---- E8M0 ---------------------------------------------------------------------------------------

Codes e8m0(const std::string& format, const std::string& keys, const Floats& amax) {
  return run_line("scale_chain " + format + " 1x" + std::to_string(amax.size()) + " f32 " + keys, f32(amax))
      .u8("scale_inv");
}

TEST(Flavours, E8m0OfE4m3) {  // N17.6: emax 8, m 3
  // 256 = 2^8; 448 = 1.75 * 2^8, MAX; 480, 495.99 and 496 = 1.9375 * 2^8, which half a unit (16) brings to
  // 2^9; 384 = 1.5 * 2^8, which E2M1's (64) does not, 448 which it does.
  const Floats a = {256, above(256), 384, below(448), 448, 480, below(496), 496, 512};
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=floor", a),
            (Codes{0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x80}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=ceil", a), (Codes{0x7F, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=even", a), (Codes{0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x80, 0x80}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=even_e2m1", a),
            (Codes{0x7F, 0x7F, 0x7F, 0x7F, 0x80, 0x80, 0x80, 0x80, 0x80}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=up", a), (Codes{0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x80, 0x80, 0x80, 0x80}));
  // p = fl(a * 3B124925), a little more than a / 448: 0.571, .., 0.857, 1 for the neighbour of 448 as well,
  // 1, 1.07, .., 1.107, 1.143.
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=down", a), (Codes{0x7E, 0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=down", {below(below(448))}), (Codes{0x7E}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=nearest", a),
            (Codes{0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=nearest", {below(672), 672, 896}),
            (Codes{0x7F, 0x80, 0x80}));  // p of 672 is 1.5000001
}

TEST(Flavours, E8m0OfE5m2) {  // N17.6: emax 15, m 2
  const Floats a = {32768, 57344, below(61440), 61440,
                    65536};  // 2^15, 1.75 and 1.875 of it, 2^16; half a unit is 4096
  EXPECT_EQ(e8m0("mxfp8", "element=e5m2 mx_scale=floor", a), (Codes{0x7F, 0x7F, 0x7F, 0x7F, 0x80}));
  EXPECT_EQ(e8m0("mxfp8", "element=e5m2 mx_scale=even", a), (Codes{0x7F, 0x7F, 0x7F, 0x80, 0x80}));
  EXPECT_EQ(e8m0("mxfp8", "element=e5m2 mx_scale=even_e2m1", a), (Codes{0x7F, 0x80, 0x80, 0x80, 0x80}));
}

TEST(Flavours, E8m0OfE2m1) {  // N17.6: emax 2, m 1; p = fl(a / 6)
  const Floats a = {4, above(4), 6, below(7), 7, 8, below(9), 9, 12};
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=floor", a),
            (Codes{0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x80, 0x80, 0x80, 0x80}));
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=ceil", a), (Codes{0x7F, 0x80, 0x80, 0x80, 0x80, 0x80, 0x81, 0x81, 0x81}));
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=even", a),
            (Codes{0x7F, 0x7F, 0x7F, 0x7F, 0x80, 0x80, 0x80, 0x80, 0x80}));  // 7 + 1 is 8
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=even_e2m1", a), e8m0("mxfp4", "mx_scale=even", a));
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=down", a), (Codes{0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x80}));
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=nearest", a),
            (Codes{0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x80, 0x80}));  // 9 / 6 is 1.5: half, and up
}

TEST(Flavours, E8m0AtTheEnds) {  // N17.6, N17.7
  const Floats a = {0,         0x1p-149f, 0x1p-126f,       0x1p-119f, above(0x1p-119f),
                    0x1p-118f, 0x1p127f,  0x1.FFFFFEp127f, kMinusNan};
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=floor", a),
            (Codes{0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xF6, 0xF6, 0xFF}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=ceil", a), (Codes{0x00, 0x00, 0x00, 0x00, 0x01, 0x01, 0xF6, 0xF7, 0xFF}));
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=even", a), (Codes{0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xF6, 0xF7,
                                                      0xFF}));  // 2^127 and half a unit: below 2^128
  EXPECT_EQ(e8m0("mxfp8", "mx_scale=even_e2m1", a),
            (Codes{0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xF6, 0xF7, 0xFF}));
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=floor", {0x1p-125f, 0x1p-124f, 0x1.FFFFFEp127f}),
            (Codes{0x00, 0x01, 0xFC}));
  // p of 6 * 2^-127 is 2^-127, half of the fraction field of a subnormal: not above half; so is that of the
  // next binary32, rounded. 9 * 2^-126 gives half of 2^-126's.
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=nearest",
                 {above(0x1.8p-125f), above(above(0x1.8p-125f)), 0x1.8p-124f, below(0x1.2p-123f), 0x1.2p-123f,
                  0x1p-149f, 0}),
            (Codes{0x00, 0x01, 0x01, 0x01, 0x02, 0x00, 0x00}));
  EXPECT_EQ(e8m0("mxfp4", "mx_scale=down", {0x1.8p-125f, below(0x1.8p-124f), 0x1.8p-124f, 0}),
            (Codes{0x00, 0x00, 0x01, 0x00}));
  for (const char* rule : {"up", "floor", "ceil", "even", "even_e2m1", "down", "nearest"})
    for (const char* format : {"mxfp8", "mxfp4"}) {
      const std::string keys = std::string("mx_scale=") + rule;
      EXPECT_EQ(e8m0(format, keys, {kInf, kMinusNan, 0}), (Codes{0xFE, 0xFF, 0x00})) << keys;
      EXPECT_EQ(e8m0(format, keys + " mx_inf=nan", {kInf, kMinusNan, 0, 0x1.FFFFFEp127f})[0], 0xFF) << keys;
      EXPECT_NE(e8m0(format, keys + " mx_inf=nan", {0x1.FFFFFEp127f})[0], 0xFF) << keys;
    }
}

TEST(Flavours, FloorSaturatesElements) {  // N17.6, N2.2: 500 under the scale 2^0
  Floats x(32);
  x[0] = 500;
  x[1] = -480;
  const Outputs floor = run_line("quantize mxfp8 1x32 f32 dir=row mx_scale=floor", f32(x)),
                nan = run_line("quantize mxfp8 1x32 f32 dir=row mx_scale=floor element_overflow=nan", f32(x));
  EXPECT_EQ(floor.u8("row.scale_inv")[0], 0x7F);
  EXPECT_EQ(floor.u8("row.data")[0], 0x7E);
  EXPECT_EQ(nan.u8("row.data")[0], 0x7F);
  EXPECT_EQ(nan.u8("row.data")[1], 0xFF);
  x[2] = kInf;  // mx_inf=nan: every element of the block is NaN
  EXPECT_EQ(run_line("quantize mxfp8 1x32 f32 dir=row mx_scale=floor mx_inf=nan", f32(x)).u8("row.data"),
            Codes(32, 0x7F));
}

// ---- NVFP4 --------------------------------------------------------------------------------------

struct Pair {
  float amax, block;
};
struct Nvfp4Chain {
  uint32_t encode, scale, factor;
};
Nvfp4Chain chain(const std::string& keys, Pair pair) {
  const Outputs out = run_line("scale_chain nvfp4 1x2 f32 " + keys, f32({pair.amax, pair.block}));
  return {out.u32("encode_scale")[0], out.u8("scale_inv")[0], out.u32("multiplier")[0]};
}
uint32_t step(const std::string& keys, Pair pair, const std::string& what) {
  LineCase c("scale_chain nvfp4 1x2 f32 " + keys, f32({pair.amax, pair.block}));
  for (const TraceStep& s : make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 0))
    if (s.what.starts_with(what)) return s.bits;
  return 0xDEADDEAD;
}
// S = 3E7FD9A3, P = 40801332, and every order of the steps gives its own v and its own factor.
const Pair kAllDiffer = {std::bit_cast<float>(0x46281931u), std::bit_cast<float>(0x45349310u)};

TEST(Flavours, Nvfp4ScaleOrders) {  // N17.8
  const auto v = [](const std::string& keys) { return step(keys, kAllDiffer, "scaled amax"); };
  EXPECT_EQ(v("nvfp4_scale=folded"), 0x42F0A002u);          // fl(b * fl(S / 6)), with C for 1 / 6
  EXPECT_EQ(v("nvfp4_scale=quotient_first"), 0x42F0A000u);  // fl(fl(b / 6) * S)
  EXPECT_EQ(v("nvfp4_scale=product_first"), 0x42F0A001u);   // fl(S * fl(b * C))
  EXPECT_EQ(v("nvfp4_scale=decode"), 0x42F09FFFu);          // fl(fl(b / 6) / P)
  EXPECT_EQ(v("nvfp4_scale=decode_product"), 0x42F0A000u);  // fl(b / fl(6 * P))
  EXPECT_EQ(v("nvfp4_scale=unit"), 0x43F0C415u);            // fl(b / 6)
  EXPECT_EQ(chain("", kAllDiffer).encode, 0x3E7FD9A3u);
  EXPECT_EQ(chain("", kAllDiffer).scale, 0x6F);  // 120
  EXPECT_EQ(chain("nvfp4_scale=unit", kAllDiffer).encode, 0x3F800000u);
  EXPECT_EQ(chain("nvfp4_scale=unit", kAllDiffer).scale, 0x7E);  // 481.5 saturates
  EXPECT_EQ(chain("nvfp4_scale=unit", kAllDiffer).factor, bits(1.0f / 448));
}

TEST(Flavours, Nvfp4Factors) {  // N17.10 with s = 120
  EXPECT_EQ(chain("multiplier=reciprocal", kAllDiffer).factor, 0x3B087413u);
  EXPECT_EQ(chain("multiplier=quotient", kAllDiffer).factor, 0x3B087413u);           // fl(S / s)
  EXPECT_EQ(chain("multiplier=decode_reciprocal", kAllDiffer).factor, 0x3B087412u);  // fl(fl(1 / P) / s)
  EXPECT_EQ(chain("multiplier=divide_product", kAllDiffer).factor, 0x43F023FEu);     // fl(s * P): a divisor
  EXPECT_EQ(chain("multiplier=divide_quotient", kAllDiffer).factor, 0x43F023FDu);    // fl(s / S)
  // A block of 1e-6 under an amax of 1 has the scale 0.
  const Pair vanishing = {1, 1e-6f};
  for (const char* m : {"multiplier=reciprocal", "multiplier=quotient", "multiplier=decode_reciprocal"})
    EXPECT_EQ(chain(m, vanishing).factor, 0x7F7FFFFFu) << m;  // N10.3
  for (const char* m : {"multiplier=divide_product", "multiplier=divide_quotient"})
    EXPECT_EQ(chain(m, vanishing).factor, 0u) << m;  // a divisor of 0
  for (const char* m :
       {"reciprocal", "bf16_quotient", "quotient", "decode_reciprocal", "divide_product", "divide_quotient"})
    EXPECT_EQ(chain("zero_multiplier=zero multiplier=" + std::string(m), vanishing).factor, 0u) << m;
}

// One block under a given amax of 1.
Codes block(const std::string& keys, Floats x) {
  x.resize(16);
  auto in = f32(x);
  in["row.given.amax"] = blob<float>({1});
  return unpacked(run_line("quantize nvfp4 1x16 f32 dir=row amax=1 " + keys, in).u8("row.data"));
}

TEST(Flavours, ElementsUnderAVanishingScale) {  // N17.10, N2.4
  const Floats x = {1e-6f, -1e-6f, 0, -0.0f};
  const auto first = [&](const std::string& keys) {
    Codes c = block(keys, x);
    c.resize(4);
    return c;
  };
  EXPECT_EQ(first(""), (Codes{7, 15, 0, 8}));  // times FLT_MAX
  EXPECT_EQ(first("zero_multiplier=zero"), (Codes{0, 8, 0, 8}));
  EXPECT_EQ(first("zero_multiplier=zero neg_zero=plus"), (Codes{0, 0, 0, 0}));  // x * 0 is an exact zero
  EXPECT_EQ(first("multiplier=divide_product"), (Codes{7, 15, 7, 7}));          // 0 / 0 is a NaN
  EXPECT_EQ(first("multiplier=divide_quotient zero_multiplier=zero"), (Codes{0, 8, 0, 8}));
  EXPECT_EQ(block("zero_multiplier=zero", {kMinusNan})[0], 7);
}

TEST(Flavours, TinyMultiplierUnderAVanishingScale) {  // N17.10
  const Floats x = {1e-6f, -1e-6f, 0, -0.0f};
  const auto first = [&](const std::string& keys) {
    Codes c = block(keys, x);
    c.resize(4);
    return c;
  };
  EXPECT_EQ(first("zero_multiplier=tiny"), (Codes{0, 8, 0, 8}));
  EXPECT_EQ(first("zero_multiplier=tiny neg_zero=plus"), (Codes{0, 8, 0, 0}));  // x * 1e-8 is no zero
  EXPECT_EQ(chain("zero_multiplier=tiny", {1, 0}).factor, 0x322BCC77u);
  EXPECT_EQ(chain("zero_multiplier=tiny multiplier=divide_twice", {1, 0}).factor, 0x322BCC77u);
}

TEST(Flavours, DividedTwice) {  // N17.8, N17.10
  const std::string keys = "nvfp4_scale=decode_first multiplier=divide_twice";
  // The tensor amax 7 * 2688: P = 7. b = 42: fl(fl(42 / 7) / 6) = 1.
  EXPECT_EQ(step(keys, {18816, 42}, "scaled amax"), bits(1));
  EXPECT_EQ(chain(keys, {18816, 42}).scale, 0x38);
  EXPECT_EQ(chain(keys, {18816, 42}).factor, bits(1));  // s itself
  // P = 0.3 rounded: fl(fl(b / P) / 6) and fl(fl(b / 6) / P) differ for this b.
  const float p = 806.4f / 2688, b = 1.7f;
  EXPECT_EQ(step(keys, {806.4f, b}, "scaled amax"), bits(b / p / 6));
  auto in = f32({42, 12.25f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  in["row.given.amax"] = blob<float>({18816});
  const Outputs out = run_line("quantize nvfp4 1x16 f32 dir=row amax=18816 element_ties=zero " + keys, in);
  EXPECT_EQ(unpacked(out.u8("row.data"))[1], 3);  // 12.25 / 7 is the tie 1.75
  // Zeros of a block of zeros are 0 / 0: 7 by N2.4, or the code of -0.
  const auto zeros = [&](const std::string& more) {
    auto given = f32(Floats(16));
    given["row.given.amax"] = blob<float>({2688});
    return unpacked(
        run_line("quantize nvfp4 1x16 f32 dir=row amax=2688 " + keys + more, given).u8("row.data"))[0];
  };
  EXPECT_EQ(zeros(""), 7);
  EXPECT_EQ(zeros(" nan_code=minus_zero"), 8);
  EXPECT_EQ(zeros(" nan_code=minus_zero neg_zero=drop"), 8);
  EXPECT_FALSE(parse_line("quantize nvfp4 1x16 f32 nan_code=negative"));
  EXPECT_FALSE(parse_line("quantize mxfp8 1x32 f32 nan_code=minus_zero"));
}

TEST(Flavours, ScalesOfGguf) {  // N17.11; unit: v = fl(b / 6), so b = 6 v for v of few digits
  const auto scale = [](float v) {
    return static_cast<uint8_t>(chain("nvfp4_scale=unit scale_round=away_240", {1, 6 * v}).scale);
  };
  const std::vector<std::pair<float, int>> rows = {
      {0, 0x00},         {0x1p-11f, 0x00}, {0x1p-10f, 0x01},  {0x1.8p-9f, 0x02}, {0x1.Cp-7f, 0x07},
      {0x1.Fp-7f, 0x07}, {0x1p-6f, 0x08},  {0x1.1p-6f, 0x09}, {0x1.3p-6f, 0x0A}, {1, 0x38},
      {1.0625f, 0x39},   {1.1875f, 0x3A},  {1.875f, 0x3F},    {1.9375f, 0x40},   {224, 0x76},
      {240, 0x77},       {247, 0x77},      {248, 0x7E},       {256, 0x7E},       {448, 0x7E}};
  for (const auto& [v, code] : rows) EXPECT_EQ(scale(v), code) << v;
  // The last value below 2^-10: fl(512 v + 0.5) is 1.
  EXPECT_EQ(chain("nvfp4_scale=unit scale_round=away_240", {1, below(0x1.8p-8f)}).scale, 0x01);
  EXPECT_EQ(chain("nvfp4_scale=unit scale_round=away_240", {1, below(below(below(0x1.8p-8f)))}).scale, 0x00);
}

TEST(Flavours, GivenDecodeScale) {  // N17.5, N3.12
  // 10.9375 / 7 is the tie 1.5625; fl(1 / 7) is above 1 / 7, and the product is above the tie. 69.1875 / 41
  // is the tie 1.6875; fl(1 / 41) is below 1 / 41.
  const auto made = [](const std::string& keys) {
    auto in = f32({10.9375f, 69.1875f});
    in["row.given.scale"] = blob<float>({7, 41});
    in["row.prior.amax"] = blob<float>({20, 20});
    return run_line("quantize fp8_delayed 2x1 f32 dir=row row_scaled=1 " + keys, in);
  };
  const Outputs divided = made("scale_order=decode_divide"), times = made("scale_order=decode_first"),
                encode = made("");
  EXPECT_EQ(divided.u8("row.data"), (Codes{0x3C, 0x3E}));
  EXPECT_EQ(times.u8("row.data"), (Codes{0x3D, 0x3D}));
  EXPECT_EQ(encode.u8("row.data"), (Codes{0x6A, 0x7E}));  // 76.5625, and 2836 saturates
  for (const Outputs* out : {&divided, &times}) {
    EXPECT_EQ(out->u32("row.scale_inv"), (std::vector<uint32_t>{bits(7), bits(41)}));
    EXPECT_EQ(out->u32("row.amax"),
              (std::vector<uint32_t>{bits(20), bits(69.1875f)}));  // of each row, after its own
  }
  EXPECT_EQ(encode.u32("row.scale_inv"), (std::vector<uint32_t>{bits(1.0f / 7), bits(1.0f / 41)}));
}

TEST(Flavours, Nvfp4UnderAGivenDecodeScale) {  // N17.8, N17.10: the tensor amax is P
  const std::string keys = "nvfp4_scale=given_product multiplier=product_reciprocal";
  // P = 0.5, b = 7: v = 7 / 3, s = 2.25, 1 / (2.25 * 0.5).
  const auto c = chain(keys, {0.5f, 7});
  EXPECT_EQ(c.encode, 0x40000000u);  // S = 1 / P
  EXPECT_EQ(c.scale, 0x41);
  EXPECT_EQ(step(keys, {0.5f, 7}, "scaled amax"), bits(7.0f / 3));
  EXPECT_EQ(c.factor, 0x3F638E39u);
  EXPECT_EQ(chain(keys, {0.5f, 0}).factor, bits(kInf));  // no minimum
  EXPECT_EQ(chain(keys + " zero_multiplier=zero", {0.5f, 0}).factor, 0u);
}

TEST(Flavours, DivisionAndProductOfElements) {  // N17.10
  // amax 7 * 2688 and a block of 42: P = 7, S = fl(1 / 7), s = 1. 12.25 / 7 is the tie 1.75; fl(1 / 7) is
  // above 1 / 7 by 4.5e-8 of it, and 12.25 times that rounds to 1.7500001.
  auto in = f32({42, 12.25f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  in["row.given.amax"] = blob<float>({18816});
  const auto code = [&](const std::string& keys) {
    const Outputs out = run_line("quantize nvfp4 1x16 f32 dir=row amax=18816 element_ties=zero " + keys, in);
    EXPECT_EQ(out.u8("row.scale_inv")[0], 0x38);
    return unpacked(out.u8("row.data"))[1];
  };
  EXPECT_EQ(code("multiplier=divide_product"), 3);
  EXPECT_EQ(code("multiplier=quotient"), 4);
}

TEST(Flavours,
     Nvfp4WithoutATensorScale) {  // N17.8: S = P = 1 whatever the tensor's amax, which is stored all the same
  Floats x(16);
  x[0] = 6;
  x[1] = -1.5f;
  const Outputs out = run_line("quantize nvfp4 1x16 f32 dir=row nvfp4_scale=unit", f32(x));
  EXPECT_EQ(out.u32("row.amax")[0], bits(6));
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x38);
  EXPECT_EQ(unpacked(out.u8("row.data"))[0], 7);
  EXPECT_EQ(unpacked(out.u8("row.data"))[1], 11);
}

TEST(Flavours, Nvfp4SpecialAmax) {                             // N17.8 has no special case of P; N10.3
  EXPECT_EQ(chain("nvfp4_scale=decode", {0, 0}).scale, 0x7E);  // 0 / 0 is a NaN, whose minimum is FLT_MAX
  EXPECT_EQ(chain("nvfp4_scale=decode nan_clamp=propagate", {0, 0}).scale, 0x7F);
  EXPECT_EQ(chain("nvfp4_scale=decode_product", {0, 1}).scale, 0x7E);  // 1 / 0
  EXPECT_EQ(chain("nvfp4_scale=decode", {kInf, 1}).scale, 0x00);       // P is infinite
  EXPECT_EQ(chain("nvfp4_scale=quotient_first", {0, 0}).scale, 0x00);  // S is 1 (N10.2)
  EXPECT_EQ(chain("nvfp4_scale=unit", {kMinusNan, 6}).scale, 0x38);
  EXPECT_EQ(chain("nvfp4_scale=unit", {1, kMinusNan}).scale, 0x7E);
  EXPECT_EQ(chain("nvfp4_scale=unit nan_clamp=propagate nvfp4_floor=least_normal", {1, kMinusNan}).scale,
            0x7F);  // N17.9: a NaN stays
  EXPECT_EQ(chain("multiplier=decode_reciprocal nvfp4_scale=unit nvfp4_floor=one", {0, 0}).factor,
            0x3F800000u);
}

TEST(Flavours, ScalesThatVanish) {  // N17.9; unit: v = fl(b / 6)
  const auto scale = [](const std::string& floor, float b) {
    return chain("nvfp4_scale=unit nvfp4_floor=" + floor, {1, b}).scale;
  };
  // v = 0; 2^-11, which rounds to 0 (least code 2^-9); 2^-9; just below 2^-6, 2^-6; 1.
  const Floats b = {0, 6 * 0x1p-11f, 6 * 0x1p-9f, 6 * 0x1.Cp-7f, 6 * 0x1p-6f, 6};
  const auto scales = [&](const std::string& floor) {
    Codes out;
    for (float v : b) out.push_back(static_cast<uint8_t>(scale(floor, v)));
    return out;
  };
  EXPECT_EQ(scales("none"), (Codes{0x00, 0x00, 0x01, 0x07, 0x08, 0x38}));
  EXPECT_EQ(scales("least_normal"), (Codes{0x08, 0x08, 0x08, 0x08, 0x08, 0x38}));
  EXPECT_EQ(scales("one"), (Codes{0x38, 0x01, 0x01, 0x07, 0x08, 0x38}));
  EXPECT_EQ(scales("eighth"), (Codes{0x20, 0x20, 0x01, 0x07, 0x08, 0x38}));
}

TEST(Flavours, ScalesRoundedUp) {  // N17.11
  const auto scale = [](const std::string& keys, float b) {
    return static_cast<uint8_t>(chain("nvfp4_scale=unit scale_round=rp " + keys, {1, b}).scale);
  };
  EXPECT_EQ(scale("", 6), 0x38);
  EXPECT_EQ(scale("", above(6)), 0x39);
  EXPECT_EQ(scale("", 6 * 1.125f), 0x39);
  EXPECT_EQ(scale("", 0), 0x00);
  EXPECT_EQ(scale("", 0x1p-149f), 0x00);  // fl(b / 6) is 0 already
  EXPECT_EQ(scale("", 0x1p-140f), 0x01);  // 2^-9
  EXPECT_EQ(scale("", 6 * 0x1p-9f), 0x01);
  EXPECT_EQ(scale("", above(6 * 0x1p-9f)), 0x02);
  EXPECT_EQ(scale("", 6 * 448), 0x7E);
  EXPECT_EQ(scale("", 6 * 449), 0x7E);
  EXPECT_EQ(scale("", kInf), 0x7E);
  EXPECT_EQ(scale("", kMinusNan), 0x7E);  // N10.3
  EXPECT_EQ(scale("nan_clamp=propagate", kMinusNan), 0x7F);
}

// ---- division of scales (N17.14) ----------------------------------------------------------------

struct Scales {
  uint32_t scale, scale_inv;
  bool operator==(const Scales&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Scales& s) {
  return out << std::hex << s.scale << " " << s.scale_inv;
}
// fp8_current of a zero of `source` under a given amax.
Scales scales(const std::string& source, const std::string& keys) {
  const std::string line = "quantize fp8_current 1x1 " + source + " dir=row " + keys;
  const Outputs out = run_line(line, {{"row.given.amax", blob<uint32_t>({*problem(line).row->amax})}});
  return {out.u32("row.scale")[0], out.u32("row.scale_inv")[0]};
}

TEST(ScaleDivision, EncodeScale) {  // N3.3, N3.7
  // amax 3: 448 / 3 is 149.33333, fl(1 / 3) = 3EAAAAAB lies above 1 / 3.
  EXPECT_EQ(scales("bf16", "amax=3"), (Scales{0x43155555, 0x3BDB6DB7}));
  EXPECT_EQ(scales("bf16", "amax=3 scale_division=divide"), (Scales{0x43155555, 0x3BDB6DB7}));
  EXPECT_EQ(scales("bf16", "amax=3 scale_division=reciprocal"), (Scales{0x43155556, 0x3BDB6DB6}));
  // bf16: 1 / 3 is 0.333984375, 448 times that 149.625, which becomes 150 (149 with one rounding); 1 / 150
  // becomes 3BDA.
  EXPECT_EQ(scales("bf16", "amax=3 scale_division=in_source"), (Scales{0x43160000, 0x3BDA0000}));
  // f16: 0.333251953125, 149.296875, 149.25; 1 / 149.25 becomes 0.00670 = 1756 * 2^-18.
  EXPECT_EQ(scales("f16", "amax=3 scale_division=in_source"), (Scales{0x43154000, 0x3BDB8000}));
  EXPECT_EQ(scales("f32", "amax=3 scale_division=in_source"),
            scales("f32", "amax=3 scale_division=reciprocal"));
  EXPECT_EQ(scales("bf16", "element=e5m2 amax=3"), (Scales{0x46955555, 0x385B6DB7}));
  EXPECT_EQ(scales("bf16", "element=e5m2 amax=3 scale_division=reciprocal"),
            (Scales{0x46955556, 0x385B6DB6}));
  // An element between what 149.33 and what 150 make of it: 1.015625 of a midpoint at 152.
  const auto code = [](const std::string& keys) {
    return run_line("quantize fp8_current 1x1 bf16 dir=row amax=3 " + keys,
                    {{"x", blob<uint16_t>({0x3F82})}, {"row.given.amax", blob<float>({3})}})
        .u8("row.data")[0];
  };
  EXPECT_EQ(code("scale_division=reciprocal"), 0x71);
  EXPECT_EQ(code("scale_division=in_source"), 0x72);
}

TEST(ScaleDivision, DecodeScale) {  // N17.5
  for (const char* order : {" scale_order=decode_first", " scale_order=decode_divide"}) {
    const std::string keys = std::string("amax=3") + order + " scale_division=";
    EXPECT_EQ(scales("bf16", keys + "divide"), (Scales{0x43155555, 0x3BDB6DB7})) << order;
    EXPECT_EQ(scales("bf16", keys + "reciprocal"), (Scales{0x43155555, 0x3BDB6DB8}))
        << order;  // 3 * fl(1 / 448), of 3B124925
    EXPECT_EQ(scales("bf16", keys + "in_source"), (Scales{0x43160000, 0x3BDB0000})) << order;
    EXPECT_EQ(scales("f16", keys + "in_source"), (Scales{0x43156000, 0x3BDB6000})) << order;
    EXPECT_EQ(scales("f32", keys + "in_source"), scales("f32", keys + "divide"))
        << order;  // one division, unlike N3.3
  }
}

TEST(ScaleDivision, PowersOfTwo) {  // N3.6, N17.5: of what is rounded already
  EXPECT_EQ(scales("bf16", "amax=225 pow2=1"), (Scales{0x3F800000, 0x3F800000}));  // 1.99
  EXPECT_EQ(scales("bf16", "amax=225 pow2=1 scale_division=in_source"),
            (Scales{0x40000000, 0x3F000000}));  // becomes 2
  EXPECT_EQ(scales("bf16", "amax=449 pow2=1 scale_order=decode_first scale_division=reciprocal"),
            (Scales{0x3F000000, 0x40000000}));
  EXPECT_EQ(scales("bf16", "amax=449 pow2=1 scale_order=decode_first scale_division=in_source"),
            (Scales{0x3F800000, 0x3F800000}));  // 1.002 becomes 1
  EXPECT_EQ(scales("f16", "amax=7e-37 pow2=1 scale_order=decode_first scale_division=in_source"),
            (Scales{0x7F800000, 1}));  // d is 0: 2^-149, which f16 lacks
}

TEST(ScaleDivision, SpecialAmax) {  // N3.2, N3.4, N3.5
  for (const char* source : {"bf16", "f16", "f32"})
    for (const char* division : {" scale_division=reciprocal", " scale_division=in_source"}) {
      for (const char* order : {"", " scale_order=decode_first", " scale_order=decode_divide"})
        for (const char* amax : {"amax=0", "amax=inf", "amax=nan"})
          EXPECT_EQ(scales(source, std::string(amax) + order + division), (Scales{0x3F800000, 0x3F800000}))
              << source << amax << order << division;
      EXPECT_EQ(scales(source, std::string("amax=inf inf_amax=zero") + division), (Scales{0, 0x7F800000}));
      EXPECT_EQ(scales(source, std::string("amax=inf inf_amax=zero scale_order=decode_first") + division),
                (Scales{0, 0x7F800000}));
      EXPECT_EQ(scales(source, std::string("amax=0 eps=3") + division),
                scales(source, std::string("amax=3") + division));  // 3 is in each
    }
  // FLT_MAX is not rounded, its reciprocal 2^-128 is.
  EXPECT_EQ(scales("bf16", "amax=1e-37 scale_division=reciprocal"), (Scales{0x7F7FFFFF, 0x00200000}));
  EXPECT_EQ(scales("bf16", "amax=1e-37 scale_division=in_source"), (Scales{0x7F7FFFFF, 0x00200000}));
  EXPECT_EQ(scales("f16", "amax=1e-37 scale_division=in_source"), (Scales{0x7F7FFFFF, 0}));
  EXPECT_EQ(scales("f16", "amax=0.0001 scale_division=in_source"),
            (Scales{0x7F7FFFFF, 0}));  // 4.48 million is infinite in f16
  EXPECT_EQ(scales("f16", "amax=0.0001 scale_division=in_source scale_limit=source_max"),
            (Scales{0x477FE000, 0x37800000}));  // 65504, 256 * 2^-24
  // 1 / FLT_MAX has 22 digits left: 2^-128, and 448 times that loses the last place of 448 / FLT_MAX.
  EXPECT_EQ(scales("bf16", "amax=3.4028234663852886e38").scale, 0x03E00001u);
  EXPECT_EQ(scales("bf16", "amax=3.4028234663852886e38 scale_division=reciprocal").scale, 0x03E00000u);
  EXPECT_EQ(scales("f16", "amax=3.4028234663852886e38 scale_division=in_source"),
            (Scales{0, 0x7F800000}));  // 1 / amax is 0 in f16
}

TEST(ScaleDivision, RowsAndBlocks) {                      // N3.12, N9.2, N17.12
  const Blob x = blob<uint16_t>({0x4040, 0, 0x40A0, 0});  // 3, 0; 5, 0
  const Outputs rows =
      run_line("quantize fp8_current 2x2 bf16 dir=row row_scaled=1 scale_division=in_source", {{"x", x}});
  EXPECT_EQ(rows.u32("row.scale"),
            (std::vector<uint32_t>{
                0x43160000,
                0x42B30000}));  // 1 / 5 becomes 0.2001953125, 448 times that 89.6875, which becomes 89.5
  std::vector<uint16_t> block(128);
  block[0] = 0x4040;
  block[1] = 0x3F90;  // 1.125
  const auto fp8_block = [&](const std::string& keys) {
    return run_line("quantize fp8_block 1x128 bf16 dir=row pow2=0 " + keys, {{"x", blob(block)}});
  };
  EXPECT_EQ(fp8_block("").u32("row.scale_inv")[0], 0x3BDB6DB7u);
  EXPECT_EQ(fp8_block("scale_division=reciprocal").u32("row.scale_inv")[0], 0x3BDB6DB6u);
  EXPECT_EQ(fp8_block("scale_division=in_source").u32("row.scale_inv")[0], 0x3BDA0000u);
  EXPECT_EQ(fp8_block("scale_order=decode_first scale_division=reciprocal").u32("row.scale_inv")[0],
            0x3BDB6DB8u);
  EXPECT_EQ(fp8_block("scale_order=decode_first scale_division=in_source").u32("row.scale_inv")[0],
            0x3BDB0000u);
  // A given d stands; 1 / d is 149.33334, 149 in bf16, and 1.125 times that 168.00001 or 167.625: 168 lies
  // between the codes of 160 and 176.
  const auto given = [&](const std::string& division) {
    return run_line(
        "quantize fp8_block 1x128 bf16 dir=row pow2=0 scale_order=decode_first scale_from=scale "
        "scale_division=" +
            division,
        {{"x", blob(block)}, {"row.given.scale_inv", blob<uint32_t>({0x3BDB6DB6})}});
  };
  EXPECT_EQ(given("reciprocal").u32("row.scale_inv")[0], 0x3BDB6DB6u);
  EXPECT_EQ(given("in_source").u32("row.scale_inv")[0], 0x3BDB6DB6u);
  EXPECT_EQ(given("reciprocal").u8("row.data")[1], 0x73);
  EXPECT_EQ(given("in_source").u8("row.data")[1], 0x72);
  const Outputs chains = run_line("scale_chain fp8_block 1x1 f32 pow2=0 scale_division=in_source", f32({3}));
  EXPECT_EQ(chains.u32("scale")[0], 0x43155556u);  // its source is f32
  EXPECT_EQ(chains.u32("scale_inv")[0], 0x3BDB6DB6u);
}

// A step of the first element of a block whose largest is 7, under a given tensor amax.
uint32_t step_of(const std::string& source, const std::string& keys, const std::string& what) {
  const bool f16 = source == "f16";
  const std::string line = "quantize nvfp4 1x16 " + source + " dir=row " + keys;
  LineCase c(line,
             {{"x", blob(padded_with_zeros<uint16_t>({static_cast<uint16_t>(f16 ? 0x4700 : 0x40E0)}, 16))},
              {"row.given.amax", blob<uint32_t>({*problem(line).row->amax})}});
  for (const TraceStep& s : make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 0))
    if (s.what.starts_with(what)) return s.bits;
  return 0xDEADDEAD;
}

TEST(ScaleDivision, Nvfp4TensorScales) {  // N10.2, N17.8
  const auto s = [](const std::string& source, const std::string& keys) {
    return step_of(source, keys, "encode scale");
  };
  const auto p = [](const std::string& source, const std::string& keys) {
    return step_of(source, "nvfp4_scale=decode " + keys, "amax / (F * 6)");
  };
  EXPECT_EQ(s("bf16", "amax=5"), 0x44066666u);  // 537.6
  EXPECT_EQ(s("bf16", "amax=5 scale_division=reciprocal"), 0x44066667u);
  EXPECT_EQ(s("bf16", "amax=5 scale_division=in_source"),
            0x44070000u);  // 2688 * 0.2001953125 is 538.125, which becomes 540 (536 with one rounding)
  EXPECT_EQ(s("f16", "amax=5 scale_division=in_source"), 0x44066000u);         // 537.5
  EXPECT_EQ(s("bf16", "amax=7 four_over_six=mae e4m3_max=256"), 0x435B6DB7u);  // 1536 / 7
  EXPECT_EQ(s("bf16", "amax=7 four_over_six=mae e4m3_max=256 scale_division=reciprocal"), 0x435B6DB8u);
  EXPECT_EQ(s("bf16", "amax=7 four_over_six=mae e4m3_max=256 scale_division=in_source"), 0x435B0000u);
  EXPECT_EQ(p("bf16", "amax=61"), 0x3CB9E79Eu);
  EXPECT_EQ(p("bf16", "amax=61 scale_division=reciprocal"), 0x3CB9E79Fu);  // 61 * 39C30C31
  EXPECT_EQ(p("bf16", "amax=61 scale_division=in_source"), 0x3CBA0000u);
  EXPECT_EQ(p("f16", "amax=61 scale_division=in_source"), 0x3CB9E000u);
  // What the minimum and N10.2 put in place is not rounded.
  EXPECT_EQ(s("bf16", "amax=1e-37 scale_division=in_source"), 0x7F7FFFFFu);
  EXPECT_EQ(s("f16", "amax=0.01 scale_division=in_source"), 0x7F7FFFFFu);
  EXPECT_EQ(s("f16", "amax=1e20 scale_division=in_source"),
            0x3F800000u);  // 1 / amax is 0 in f16, and S of 0 becomes 1
  for (const char* division : {"scale_division=reciprocal ", "scale_division=in_source "}) {
    const std::string keys = division;
    EXPECT_EQ(s("bf16", keys + "amax=0"), 0x3F800000u) << division;
    EXPECT_EQ(s("bf16", keys + "amax=inf"), 0x3F800000u) << division;
    EXPECT_EQ(s("bf16", keys + "amax=inf inf_amax=zero"), 0u) << division;
    EXPECT_EQ(s("bf16", keys + "amax=nan"), 0x7F7FFFFFu) << division;
    EXPECT_EQ(s("bf16", keys + "amax=nan nan_clamp=propagate"), 0x7FFFFFFFu) << division;
    EXPECT_EQ(s("bf16", keys + "amax=nan nan_tensor_amax=unit"), 0x3F800000u) << division;
    EXPECT_EQ(s("bf16", keys + "amax=5 nvfp4_scale=unit"), 0x3F800000u) << division;
    EXPECT_EQ(step_of("bf16", keys + "amax=5 nvfp4_scale=unit multiplier=divide_product", "amax / (F * 6)"),
              0x3F800000u)
        << division;
  }
  EXPECT_EQ(chain("scale_division=in_source", {5, 7}).encode, 0x44066667u);  // its source is f32
  EXPECT_EQ(chain("scale_division=reciprocal", {5, 7}).encode, 0x44066667u);
}

TEST(ScaleDivision,
     Nvfp4BlockScales) {  // N17.8 of b = 7 under an amax of 5: S = 540, P = 3AF4, 7 / 6 = 3F95 in bf16
  const auto v = [](const std::string& source, const std::string& order, const std::string& division) {
    return step_of(source, "amax=5 nvfp4_scale=" + order + " scale_division=" + division, "scaled amax");
  };
  EXPECT_EQ(v("bf16", "folded", "in_source"), 0x441D8000u);          // 7 * fl(540 * C) = 630
  EXPECT_EQ(v("bf16", "quotient_first", "in_source"), 0x441D2600u);  // 1.1640625 * 540 = 628.59375
  EXPECT_EQ(v("bf16", "product_first", "in_source"), 0x441D8001u);   // b times C is not rounded again
  EXPECT_EQ(v("bf16", "decode", "in_source"), 0x441C53EFu);          // 1.1640625 / P
  EXPECT_EQ(v("bf16", "decode_product", "in_source"), 0x441CAD77u);  // 7 / fl(6 * P)
  EXPECT_EQ(v("bf16", "decode_first", "in_source"),
            0x441CAD77u);  // neither 7 / P nor its sixth is rounded again
  EXPECT_EQ(v("bf16", "unit", "in_source"), 0x3F950000u);
  EXPECT_EQ(v("f16", "quotient_first", "in_source"), 0x441CD088u);  // 1.1669921875 * 537.5
  EXPECT_EQ(v("f16", "unit", "in_source"), 0x3F956000u);
  EXPECT_EQ(v("bf16", "quotient_first", "reciprocal"), 0x441CCCCDu);
  EXPECT_EQ(v("bf16", "quotient_first", "divide"), 0x441CCCCCu);
  EXPECT_EQ(v("bf16", "unit", "reciprocal"), 0x3F955555u);
  // Four over six divides b by 6 in binary32 (N10.10). Under an amax of 448 S is 6 by every division, and a
  // block of 5.75 has the tie of 5.5 and 6: to 6, but 5.75 / 6 in bf16 is less.
  const auto scale = [](const std::string& keys) {
    const std::map<std::string, Blob> in = {{"x", blob(padded_with_zeros<uint16_t>({0x40B8}, 16))},
                                            {"row.given.amax", blob<float>({448})}};
    return run_line("quantize nvfp4 1x16 bf16 dir=row amax=448 " + keys, in).u8("row.scale_inv")[0];
  };
  EXPECT_EQ(scale("nvfp4_scale=quotient_first"), 0x4C);
  EXPECT_EQ(scale("nvfp4_scale=quotient_first scale_division=in_source"), 0x4B);
  EXPECT_EQ(scale("four_over_six=mae"), scale("four_over_six=mae scale_division=in_source"));
}

// ---- given scales -------------------------------------------------------------------------------

TEST(Flavours, GivenScalesOfMxfp8) {  // N17.12, N6.2
  Floats x(64 * 32, 1.0f);            // two blocks down the columns
  x[40 * 32 + 3] = 100;
  auto in = f32(x);
  std::vector<uint8_t> scales(2 * 32, 0x7F);  // [cdiv(M, 32), K]
  scales[32 + 3] = 0x80;
  in["col.given.scale_inv"] = blob(scales);
  const Outputs out = run_line("quantize mxfp8 64x32 f32 dir=col scale_from=scale", in);
  EXPECT_EQ(out.u8("col.scale_inv")[3], 0x7F);
  EXPECT_EQ(out.u8("col.scale_inv")[128 + 3], 0x80);
  EXPECT_EQ(out.u8("col.data")[0], 0x38);
  EXPECT_EQ(out.u8("col.data")[31 * 32 + 3], 0x38);
  EXPECT_EQ(out.u8("col.data")[32 * 32 + 3], 0x30);  // 1/2
  EXPECT_EQ(out.u8("col.data")[40 * 32 + 3], 0x64);  // 50 is a tie of 48 and 52: even
  std::vector<uint8_t> rows(64, 0x7F);               // [M, 1]
  rows[40] = 0xFF;
  auto row_in = f32(x);
  row_in["row.given.scale_inv"] = blob(rows);
  const Outputs row = run_line("quantize mxfp8 64x32 f32 dir=row scale_from=scale", row_in);
  EXPECT_EQ(row.u8("row.scale_inv")[4 * 40], 0xFF);
  EXPECT_EQ(row.u8("row.data")[40 * 32], 0x7F);
  EXPECT_EQ(row.u8("row.data")[41 * 32], 0x38);
}

TEST(Flavours, GivenAmaxOfMxfp8) {  // N17.12: the rule applies to what is given
  auto in = f32(Floats(32, 1.0f));
  in["row.given.block_amax"] = blob<float>({480});
  EXPECT_EQ(run_line("quantize mxfp8 1x32 f32 dir=row scale_from=amax", in).u8("row.scale_inv")[0], 0x80);
  EXPECT_EQ(run_line("quantize mxfp8 1x32 f32 dir=row scale_from=amax", in).u8("row.data")[0], 0x30);
  EXPECT_EQ(
      run_line("quantize mxfp8 1x32 f32 dir=row scale_from=amax mx_scale=floor", in).u8("row.scale_inv")[0],
      0x7F);
}

TEST(Flavours, GivenScalesOfSquareBlocks) {  // N17.12: a square block reads its first entry
  auto in = f32(Floats(32 * 32, 1.0f));
  std::vector<uint8_t> scales(32, 0x70);
  scales[0] = 0x7E;
  in["row.given.scale_inv"] = blob(scales);
  const Outputs out = run_line("quantize mxfp8 32x32 f32 dir=row block=32x32 scale_from=scale", in);
  for (size_t r = 0; r < 32; ++r) EXPECT_EQ(out.u8("row.scale_inv")[4 * r], 0x7E);
  EXPECT_EQ(out.u8("row.data"), Codes(32 * 32, 0x40));  // 2
}

TEST(Flavours, GivenScalesOfFp8Block) {  // N17.12, N17.5, N9.4: block-major
  auto in = f32(Floats(2 * 256, 3.0f));
  in["row.given.scale_inv"] =
      blob<uint32_t>({bits(1), bits(2), bits(0.5f),
                      0xFF812345});  // [cdiv(K, 128), M]: row 0 and 1 of block 0, then of block 1
  const Outputs out =
      run_line("quantize fp8_block 2x256 f32 dir=row scale_order=decode_divide scale_from=scale", in);
  EXPECT_EQ(out.u32("row.scale_inv"), (std::vector<uint32_t>{bits(1), bits(2), 0, 0, bits(0.5f), 0xFF812345,
                                                             0, 0}));  // N1.3: a NaN's payload is only moved
  EXPECT_EQ(out.u8("row.data")[0], 0x44);                              // 3
  EXPECT_EQ(out.u8("row.data")[128], 0x4C);                            // 6
  EXPECT_EQ(out.u8("row.data")[256], 0x3C);                            // 1.5
  EXPECT_EQ(out.u8("row.data")[256 + 128], 0x7F);
  in = f32(Floats(2 * 256, 3.0f));
  in["row.given.block_amax"] = blob<float>({448, 896, 0, 112});
  const Outputs amax = run_line("quantize fp8_block 2x256 f32 dir=row scale_from=amax", in);
  EXPECT_EQ(amax.u32("row.scale_inv"),
            (std::vector<uint32_t>{bits(1), bits(2), 0, 0, bits(1), bits(0.25f), 0, 0}));  // N3.4 for 0
  auto square = f32(Floats(128 * 256, 3.0f));
  square["row.given.scale_inv"] = blob<float>({2, 4});
  const Outputs tiles = run_line(
      "quantize fp8_block 128x256 f32 dir=row block=128x128 scale_order=decode_first scale_from=scale",
      square);
  EXPECT_EQ(tiles.u32("row.scale_inv"), (std::vector<uint32_t>{bits(2), bits(4), 0, 0}));
  EXPECT_EQ(tiles.u8("row.data")[127], 0x3C);  // 1.5
  EXPECT_EQ(tiles.u8("row.data")[128], 0x34);  // 0.75
}

TEST(Flavours, GivenScalesOfNvfp4) {  // N17.12: the tensor's amax is still computed
  Floats x(32, 1.0f);
  x[0] = 2688;
  auto in = f32(x);
  in["row.given.scale_inv"] = blob<uint8_t>({0x7E, 0x30});  // 448, 0.5
  const Outputs out = run_line("quantize nvfp4 1x32 f32 dir=row scale_from=scale nvfp4_floor=one", in);
  EXPECT_EQ(out.u32("row.amax")[0], bits(2688));
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x7E);
  EXPECT_EQ(out.u8("row.scale_inv")[1], 0x30);
  const Codes codes = unpacked(out.u8("row.data"));
  EXPECT_EQ(codes[0], 7);
  EXPECT_EQ(codes[16], 4);                                  // 2
  in["row.given.scale_inv"] = blob<uint8_t>({0x00, 0x7F});  // stored as given: N17.9 is of computed scales
  const Outputs special = run_line("quantize nvfp4 1x32 f32 dir=row scale_from=scale nvfp4_floor=one", in);
  EXPECT_EQ(special.u8("row.scale_inv")[0], 0x00);
  EXPECT_EQ(special.u8("row.scale_inv")[1], 0x7F);
}

TEST(Flavours, GivenScalesOfMxfp4Columns) {  // N17.12, N15.4: stored transposed, [K, cdiv(M, 32)]
  Floats x(64 * 2);
  for (size_t r = 0; r < 64; ++r) x[2 * r] = 1, x[2 * r + 1] = 3;
  auto in = f32(x);
  in["col.given.scale_inv"] = blob<uint8_t>({0x7F, 0x7E, 0x80, 0x7D});
  const Outputs out = run_line("quantize mxfp4 64x2 f32 dir=col scale_from=scale", in);
  const Codes codes = unpacked(out.u8("col.data"));
  EXPECT_EQ(codes[0], 2);        // 1
  EXPECT_EQ(codes[32], 4);       // 1 / 2^-1
  EXPECT_EQ(codes[64], 3);       // 3 / 2
  EXPECT_EQ(codes[64 + 32], 7);  // 3 / 2^-2
  EXPECT_EQ(out.u8("col.scale_inv")[4], 0x80);
}

}  // namespace
}  // namespace assay
