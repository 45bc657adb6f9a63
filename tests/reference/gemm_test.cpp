// The op gemm, worked by hand: which elements meet in which layout, what each sum rounds, where scales,
// amaxes, c and bias come in.
#include "reference/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "fixtures/inputs.h"
#include "reference/rounding.h"
#include "reference/tensor_core.h"
#include "tests/reference/run_line.h"

namespace assay {
namespace {

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
Blob f32(const std::vector<float>& x) {
  std::vector<uint32_t> words;
  for (float v : x) words.push_back(bits(v));
  return blob(words);
}
std::vector<float> floats(const Blob& b) {
  std::vector<float> out;
  for (uint32_t w : codes<uint32_t>(b)) out.push_back(std::bit_cast<float>(w));
  return out;
}
// D as floats of a line with out=f32.
std::vector<float> d_of(std::string_view line, const std::map<std::string, Blob>& given) {
  return floats(run_line(line, given).at("d"));
}

// Every input as make_inputs draws it, and d.
Outputs drawn(const std::string& line, int threads = 1) {
  const auto reference = make_reference_subject();
  const auto inputs = make_inputs(problem(line), *reference);
  if (!inputs) throw std::runtime_error(line + ": " + inputs.error().text());
  std::map<std::string, Blob> given;
  for (const PlaneData& plane : *inputs) given[plane.plane.name] = plane.bytes;
  return run_line(line, given, threads);
}

// N16.1: A = [[1, 2], [3, 4], [5, 6]] (m, k), B = [[1, 10], [100, 1000]] (n, k) in each of the three layouts.
TEST(Gemm, Operands) {
  const Blob a = f32({1, 2, 3, 4, 5, 6}), a_columns = f32({1, 3, 5, 2, 4, 6}), b = f32({1, 10, 100, 1000}),
             b_columns = f32({1, 100, 10, 1000});
  const std::vector<float> d = {21, 43, 65, 2100, 4300, 6500};  // [N, M]
  for (const char* sum : {"f32_sequential", "exact", "hopper_tf32"}) {
    const std::string line = std::string("gemm a=identity b=identity 3x2x2 f32 out=f32 sum=") + sum;
    EXPECT_EQ(d_of(line + " op=TN", {{"a.data", a}, {"b.data", b}}), d) << sum;
    EXPECT_EQ(d_of(line + " op=NN", {{"a.data", a_columns}, {"b.data", b}}), d) << sum;
    EXPECT_EQ(d_of(line + " op=NT", {{"a.data", a_columns}, {"b.data", b_columns}}), d) << sum;
  }
  // Transposed columns: stored [M, K] and [N, K] whatever the letter.
  const std::map<std::string, Blob> fp8 = {{"a.scale_inv", f32({2})},
                                           {"a.data", blob<uint8_t>({0x38, 0x40})},
                                           {"b.scale_inv", f32({0.5})},
                                           {"b.data", blob<uint8_t>({0x30, 0x38})}};
  for (const char* op : {"TN", "NN", "NT"})  // (1, 2) . (0.5, 1)
    for (const char* sum : {"f32_sequential", "exact", "hopper_fp8_split", "hopper_fp8_fast"})
      EXPECT_EQ(
          d_of(std::string("gemm a=fp8_current b=fp8_delayed 1x1x2 out=f32 op=") + op + " sum=" + sum, fp8),
          std::vector<float>{2.5})
          << op << sum;
}

// N16.2, N16.3: products and sums of three rows, in the order of k and without a fused operation.
TEST(Gemm, SumInSequenceAndExactly) {
  const Blob b = f32({1, 1, 1});
  const auto sums = [&](const std::vector<float>& a) {
    std::vector<float> out;
    for (const char* sum : {"f32_sequential", "exact"})
      out.push_back(d_of(std::string("gemm a=identity b=identity 1x1x3 f32 out=f32 sum=") + sum,
                         {{"a.data", f32(a)}, {"b.data", b}})[0]);
    return out;
  };
  EXPECT_EQ(sums({0x1p24f, 1, -0x1p24f}), (std::vector<float>{0, 1}));
  EXPECT_EQ(sums({-0x1p24f, 0x1p24f, 1}), (std::vector<float>{1, 1}));
  EXPECT_EQ(sums({0x1p24f, 1, 1}), (std::vector<float>{0x1p24f, 0x1p24f + 2}));
  EXPECT_EQ(sums({0x1p127f, 0x1p127f, -0x1p127f}), (std::vector<float>{INFINITY, 0x1p127f}));
  EXPECT_EQ(sums({INFINITY, 1, 1})[0], INFINITY);
  EXPECT_EQ(sums({INFINITY, 1, 1})[1], INFINITY);
  for (const std::vector<float>& a : {std::vector<float>{NAN, 1, 1}, {INFINITY, 1, -INFINITY}})
    EXPECT_TRUE(std::isnan(sums(a)[0]) && std::isnan(sums(a)[1]));
  // (1 + 2^-12)^2 - 1 = 2^-11 + 2^-24, the last bit lost where the product is rounded alone.
  const float x = 1 + 0x1p-12f;
  const std::map<std::string, Blob> squares = {{"a.data", f32({-1, x})}, {"b.data", f32({1, x})}};
  EXPECT_EQ(d_of("gemm a=identity b=identity 1x1x2 f32 out=f32", squares)[0], 0x1p-11f);
  EXPECT_EQ(d_of("gemm a=identity b=identity 1x1x2 f32 out=f32 sum=exact", squares)[0], 0x1p-11f + 0x1p-24f);
  // Sums of zero are +0, nothing summed too.
  for (const char* sum : {"f32_sequential", "exact", "hopper_tf32"}) {
    const std::string line = std::string(" f32 out=f32 sum=") + sum;
    EXPECT_EQ(
        run_line("gemm a=identity b=identity 1x1x1" + line, {{"a.data", f32({-0.0f})}, {"b.data", f32({1})}})
            .u32("d"),
        std::vector<uint32_t>{0})
        << sum;
    EXPECT_EQ(run_line("gemm a=identity b=identity 1x2x0" + line, {}).u32("d"), (std::vector<uint32_t>{0, 0}))
        << sum;
  }
}

// Binary64 where it is exact, a superaccumulator where it is not: rows that only differ by a term that
// decides.
TEST(Gemm, ExactSumOfAnyValues) {
  EXPECT_EQ(d_of("gemm a=identity b=identity 1x1x4 f32 out=f32 sum=exact",
                 {{"a.data", f32({0x1p60f, 1, 0x1p-60f, -0x1p60f})}, {"b.data", f32({1, 1, 1, 1})}})[0],
            1);
  EXPECT_EQ(d_of("gemm a=identity b=identity 1x1x3 f32 out=f32 sum=exact",
                 {{"a.data", f32({1, 0x1p-24f, 0x1p-80f})}, {"b.data", f32({1, 1, 0x1p-60f})}})[0],
            1 + 0x1p-23f);
  EXPECT_EQ(d_of("gemm a=identity b=identity 1x1x2 f32 out=f32 sum=exact",
                 {{"a.data", f32({1, 0x1p-24f})}, {"b.data", f32({1, 1})}})[0],
            1);
}

// N16.4, N16.5: K of 160 codes. 2^-13 beside 1 is lost in a chain; what stands in another chain of 128 is not
// cut by it.
TEST(Gemm, Chains) {
  std::vector<uint8_t> one(160, 0), ones(160, 0x38);  // 0x38 = 1
  one[0] = 0x7E;    // 448: exponent 8, grid 2^-5 in a step with it, and in one after it
  one[1] = 0x01;    // 2^-9
  one[40] = 0x08;   // 2^-6
  one[150] = 0x10;  // 2^-5
  one[151] = 0x08;
  const std::map<std::string, Blob> given = {
      {"a.scale_inv", f32({1})}, {"a.data", blob(one)}, {"b.scale_inv", f32({1})}, {"b.data", blob(ones)}};
  const std::string line = "gemm a=fp8_current b=fp8_current 1x1x160 out=f32 sum=";
  EXPECT_EQ(d_of(line + "hopper_fp8_fast", given)[0], 448 + 0x1p-5f);
  EXPECT_EQ(d_of(line + "hopper_fp8_split", given)[0], 448 + 0x1p-5f + 0x1p-6f);
  EXPECT_EQ(d_of(line + "exact", given)[0], 448 + 0x1p-9f + 0x1p-6f + 0x1p-5f + 0x1p-6f);
  // The result has 13 fraction bits: 8192 + 2, but not + 1, in a step of 32 products.
  std::vector<uint8_t> large(32, 0), factor(32, 0x38);
  large[0] = factor[0] = 0x6C;  // 96 = 1.5 2^6: exponent 12, value 9216 = 1.125 2^13
  large[1] = 0x38;
  const std::map<std::string, Blob> step = {{"a.scale_inv", f32({1})},
                                            {"a.data", blob(large)},
                                            {"b.scale_inv", f32({1})},
                                            {"b.data", blob(factor)}};
  EXPECT_EQ(d_of("gemm a=fp8_current b=fp8_current 1x1x32 out=f32 sum=hopper_fp8_fast", step)[0], 9217);
  large[2] = 0x30;  // 0.5, on the grid of 2^-1, below the 13th bit of 9217.5
  EXPECT_EQ(d_of("gemm a=fp8_current b=fp8_current 1x1x32 out=f32 sum=hopper_fp8_fast",
                 {{"a.scale_inv", f32({1})},
                  {"a.data", blob(large)},
                  {"b.scale_inv", f32({1})},
                  {"b.data", blob(factor)}})[0],
            9217);
  // bf16: a step takes 16. 1 and 2^-26 are cut in one step; in two, the second begins with 1.
  std::vector<uint16_t> x(32, 0), y(32, 0x3F80);
  x[0] = 0x3F80;
  for (size_t i = 1; i < 5; ++i) x[i] = 0x3280;    // 2^-26
  for (size_t i = 16; i < 20; ++i) x[i] = 0x3300;  // 2^-25
  EXPECT_EQ(d_of("gemm a=identity b=identity 1x1x32 out=f32 sum=hopper_f16",
                 {{"a.data", blob(x)}, {"b.data", blob(y)}})[0],
            1 + 0x1p-23f);
  // tf32: 1 + 2^-10 is kept, 2^-11 is cut toward zero; steps of 8.
  EXPECT_EQ(d_of("gemm a=identity b=identity 1x1x1 f32 out=f32 sum=hopper_tf32",
                 {{"a.data", f32({-1 - 0x1p-10f - 0x1p-11f})}, {"b.data", f32({1})}})[0],
            -1 - 0x1p-10f);
  EXPECT_EQ(d_of("gemm a=identity b=identity 1x1x1 f32 out=f32 sum=hopper_tf32",
                 {{"a.data", f32({0x1p-136f + 0x1p-137f})}, {"b.data", f32({1})}})[0],
            0x1p-136f);
}

TEST(TensorCore, AStepHasAsManyProductsAsTheCoreTakes) {
  const reference::TensorCore& core = reference::kHopperFp8;
  const std::vector<reference::Factor> most(static_cast<size_t>(core.length), reference::Factor{1, 0});
  EXPECT_EQ(reference::tensor_core_step(core, most, most, 0.0), core.length);
  std::vector<reference::Factor> more = most;
  more.push_back({1, 0});
  EXPECT_THROW(reference::tensor_core_step(core, more, more, 0.0), std::invalid_argument);
  EXPECT_THROW(reference::tensor_core_step(core, most, more, 0.0), std::invalid_argument);
  EXPECT_THROW(reference::tensor_core_step(core, std::span(most).first(1), std::span(most).first(2), 0.0),
               std::invalid_argument);
}

// N16.4: subnormal E4M3 has the exponent -6, subnormal E5M2 -14, each in a product with the other.
TEST(Gemm, MixedSubnormals) {
  const reference::Factor e4 = reference::factor_of(0x1p-9, -6), e5 = reference::factor_of(0x1p-16, -14);
  EXPECT_EQ(e4.exponent, -6);
  EXPECT_EQ(e5.exponent, -14);
  // 2^-25 with exponent -20: the grid is 2^-33, so 2^-34 is lost though 2^-25 alone would keep it.
  const reference::Factor small = {0x1p-20, -20}, tiny = {0x1p-14, -14};
  EXPECT_EQ(
      reference::tensor_core_step(reference::kHopperFp8, std::vector{e4, small}, std::vector{e5, tiny}, 0.0),
      0x1p-25);
  EXPECT_EQ(
      reference::tensor_core_step(reference::kHopperFp8, std::vector{reference::Factor{0x1p-9, -9}, small},
                                  std::vector{reference::Factor{0x1p-16, -16}, tiny}, 0.0),
      0x1p-25 + 0x1p-34);
}

// N16.6: the scales are multiplied first. acc = 3, scales 1 + 2^-12 and 1 + 2^-12: 1 + 2^-11 (2^-24 a tie, to
// even), then 3 + 3 2^-11.
TEST(Gemm, ScalesOfASum) {
  const float s = 1 + 0x1p-12f;
  const std::map<std::string, Blob> given = {{"a.scale_inv", f32({s})},
                                             {"a.data", blob<uint8_t>({0x44})},
                                             {"b.scale_inv", f32({s})},
                                             {"b.data", blob<uint8_t>({0x38})}};
  const float folded = 3 * (1 + 0x1p-11f), apart = 3 * s * s;
  ASSERT_NE(folded, apart);
  EXPECT_EQ(d_of("gemm a=fp8_current b=fp8_current 1x1x1 out=f32 sum=hopper_fp8_split", given)[0], folded);
  EXPECT_EQ(d_of("gemm a=fp8_current b=fp8_current 1x1x1 out=f32 sum=hopper_fp8_fast", given)[0], folded);
}

// N16.7: what is rounded first, and one rounding of the second product with the sum.
TEST(Gemm, BlockwiseScales) {
  std::vector<uint8_t> a(129, 0), b(129, 0x38);
  a[0] = 0x44;                                         // 3 in the first block of k
  a[128] = 0x38;                                       // 1 in the second
  const float s = 0x1.65464cp+0f, t = 0x1.d4e1f4p+0f;  // such that the order shows
  // Compact scales: 1x128 [2, M up to 4], 128x128 [1, 2 up to 4].
  const auto given = [&](bool square_a, bool square_b, float sa, float sb) {
    const auto plane = [](bool square, float x) {
      return square ? f32({x, 2, 0, 0}) : f32({x, 0, 0, 0, 2, 0, 0, 0});
    };
    return std::map<std::string, Blob>{{"a.scale_inv", plane(square_a, sa)},
                                       {"a.data", blob(a)},
                                       {"b.scale_inv", plane(square_b, sb)},
                                       {"b.data", blob(b)}};
  };
  const auto expected = [](float first, float second) {
    return std::fma(1.0f * 2, 2.0f, std::fma(3.0f * first, second, 0.0f));
  };
  const float together = std::fma(1.0f, 2.0f * 2.0f, std::fma(3.0f, s * t, 0.0f));
  ASSERT_NE(expected(s, t), expected(t, s));
  ASSERT_NE(expected(s, t), together);
  ASSERT_NE(expected(t, s), together);
  const std::string line = "gemm a=fp8_block b=fp8_block 1x1x129 out=f32 sum=hopper_fp8_split ";
  EXPECT_EQ(d_of(line, given(false, false, t, s))[0], expected(s, t));               // both 1x128: b's first
  EXPECT_EQ(d_of(line + "a.block=128x128", given(true, false, t, s))[0], together);  // cuBLASLt on an H100
  EXPECT_EQ(d_of(line + "b.block=128x128", given(false, true, s, t))[0], together);
  // The last addition is fused: y = 2^24, and 1 + 2^-23 squared is above a tie by less than a rounded product
  // shows.
  a[0] = 0x78;  // 256
  b[0] = 0x78;
  std::map<std::string, Blob> tie = given(false, false, 256, 1);
  tie["a.scale_inv"] = f32({256, 0, 0, 0, 1 + 0x1p-23f, 0, 0, 0});
  tie["b.scale_inv"] = f32({1, 0, 0, 0, 1, 0, 0, 0});
  EXPECT_EQ(d_of(line, tie)[0], 0x1p24f + 2);
  tie["b.scale_inv"] = f32(
      {1, 0, 0, 0, 1 - 0x1p-23f, 0, 0, 0});  // (1 + 2^-23)(1 - 2^-23) = 1 - 2^-46: rounds to 1 alone, a tie
  tie["a.scale_inv"] = f32({257, 0, 0, 0, 1 + 0x1p-23f, 0, 0, 0});  // y = 2^24 + 2^16: even, a tie goes down
  EXPECT_EQ(d_of(line, tie)[0], 0x1p24f + 0x1p16f);
  tie["a.scale_inv"] = f32({std::bit_cast<float>(0x43800001u), 0, 0, 0, 1 + 0x1p-23f, 0, 0,
                            0});  // y = 2^24 + 2: odd, a tie goes up, below it down
  EXPECT_EQ(d_of(line, tie)[0], 0x1p24f + 2);
}

// N16.8: sum 3, then alpha, beta c and bias in this order, each rounded.
TEST(Gemm, Epilogue) {
  const auto d = [](const std::string& keys, std::map<std::string, Blob> given, float a = 3) {
    given["a.data"] = f32({a});
    given["b.data"] = f32({1});
    return run_line("gemm a=identity b=identity 1x1x1 f32 " + keys, given);
  };
  const auto word = [&](const std::string& keys, std::map<std::string, Blob> given, float a = 3) {
    return std::bit_cast<float>(d("out=f32 " + keys, std::move(given), a).u32("d")[0]);
  };
  EXPECT_EQ(word("", {}), 3);
  EXPECT_EQ(word("alpha=-2", {}), -6);
  EXPECT_EQ(word("alpha=0", {}), 0);
  EXPECT_EQ(word("alpha=2 beta=0.5 bias=f32", {{"c", f32({8})}, {"bias", f32({100})}}), 110);
  EXPECT_EQ(word("beta=1 bias=f32", {{"c", f32({0x1p24f})}, {"bias", f32({-0x1p24f})}}, 1),
            0);  // 1 is lost before the bias comes
  EXPECT_EQ(word("beta=0x3F800800", {{"c", f32({1 + 0x1p-12f})}}, -1 - 0x1p-11f),
            0);  // no fma: beta c is rounded alone
  EXPECT_EQ(word("bias=bf16", {{"bias", blob<uint16_t>({0x3F80})}}), 4);
  EXPECT_EQ(word("bias=f16", {{"bias", blob<uint16_t>({0x3C00})}}), 4);
  EXPECT_EQ(word("beta=-0", {}), 3);                              // c is not read, there is none
  EXPECT_EQ(d("out=bf16", {}, 1 + 0x1p-8f).u16("d")[0], 0x3F80);  // a tie, to even
  EXPECT_EQ(d("out=f16 beta=1", {{"c", blob<uint16_t>({0x3C00})}}, 65504).u16("d")[0], 0x7BFF);
  EXPECT_EQ(d("out=f16", {}, 65520).u16("d")[0], 0x7C00);
  EXPECT_EQ(d("out=e4m3", {}, 1e9f).u8("d")[0], 0x7E);  // saturates
  EXPECT_EQ(d("out=e5m2", {}, -INFINITY).u8("d")[0], 0xFB);
  EXPECT_EQ(d("out=e4m3", {}, NAN).u8("d")[0], 0x7F);
  EXPECT_EQ(d("out=f32", {}, -NAN).u32("d")[0], 0x7FFFFFFFu);
  EXPECT_EQ(d("out=bf16", {}, NAN).u16("d")[0], 0x7FFF);
}

// The bias belongs to m, c to (n, m).
TEST(Gemm, BiasAndCByElement) {
  EXPECT_EQ(d_of("gemm a=identity b=identity 3x2x1 f32 out=f32 beta=1 bias=f32",
                 {{"a.data", f32({1, 2, 3})},
                  {"b.data", f32({1, 2})},
                  {"c", f32({10, 20, 30, 40, 50, 60})},
                  {"bias", f32({100, 200, 300})}}),
            (std::vector<float>{111, 222, 333, 142, 254, 366}));
}

// N16.9: amaxes of rows come after the sum, by fl(fl(v B) A), or folded where one is the tensor's.
TEST(Gemm, RowScaled) {
  // One block of 16 codes 6 = E2M1 0x7 each, scale 0x79 = 288: with an amax of 1 an element is fl(6 fl(288
  // fl(1 / 2688))).
  const auto row = [](int rows) { return blob(std::vector<uint8_t>(static_cast<size_t>(8 * rows), 0x77)); };
  const auto scales = [](int rows) {
    std::vector<uint8_t> out(128 * 4, 0);
    for (int r = 0; r < rows; ++r) out[static_cast<size_t>(4 * r)] = 0x79;
    return blob(out);
  };
  const float element = 6 * (288 * (1.0f / 2688));
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += element * element;
  const float x = 0x1.eac8c8p+0f, y = 0x1.7eaa22p+0f, z = 0x1.3ad25ap+0f;  // such that the order shows
  std::map<std::string, Blob> given = {{"a.amax", f32({x, y})},    {"a.scale_inv", scales(2)},
                                       {"a.data", row(2)},         {"b.amax", f32({z})},
                                       {"b.scale_inv", scales(1)}, {"b.data", row(1)}};
  const auto both = d_of("gemm a=nvfp4 b=nvfp4 2x1x16 out=f32 row_scaled=1", given);
  EXPECT_EQ(both, (std::vector<float>{(sum * z) * x, (sum * z) * y}));
  const auto one = d_of("gemm a=nvfp4 b=nvfp4 2x1x16 out=f32 a.row_scaled=1", given);
  EXPECT_EQ(one, (std::vector<float>{sum * (x * z), sum * (y * z)}));
  EXPECT_NE(both, one);
  EXPECT_NE(both, (std::vector<float>{(sum * x) * z, (sum * y) * z}));
  EXPECT_NE(d_of("gemm a=nvfp4 b=nvfp4 2x1x16 out=f32 row_scaled=1 sum=exact", given), both);
}

// Equal bytes for any number of threads; and what the line draws is not symmetric, so that exchanged operands
// show.
TEST(Gemm, ThreadsAndDrawnInput) {
  for (const char* line : {"gemm a=mxfp8 b=nvfp4 33x29x64 op=NT fill=wide beta=2 bias=bf16",
                           "gemm a=fp8_block b=fp8_block 40x24x300 a.block=128x128 sum=hopper_fp8_split",
                           "gemm a=identity b=identity 19x23x50 sum=hopper_f16"})
    EXPECT_EQ(drawn(line).at("d"), drawn(line, 3).at("d")) << line;
  const std::vector<uint16_t> d = drawn("gemm a=fp8_current b=fp8_current 8x8x16").u16("d");
  int equal = 0;
  for (size_t n = 0; n < 8; ++n)
    for (size_t m = 0; m < n; ++m) equal += d[8 * n + m] == d[8 * m + n];
  EXPECT_LT(equal, 8);
}

// N16.12: a product of MX or NVFP4 operands is that of their bf16 values, whatever the layout; where bf16
// holds every value the exact sum is no other.
TEST(Gemm, ThroughBf16) {
  // 1.5 * 2^1, 3 * 2^-1 against 448 * 2^0, -2 * 2^0.
  const std::map<std::string, Blob> given = {{"a.scale_inv", blob(padded_with_zeros<uint8_t>({128}, 512))},
                                             {"a.data", blob<uint8_t>({0x3C, 0x44})},
                                             {"b.scale_inv", blob(padded_with_zeros<uint8_t>({127}, 512))},
                                             {"b.data", blob<uint8_t>({0x7E, 0xC0})}};
  EXPECT_EQ(d_of("gemm a=mxfp8 b=mxfp8 1x1x2 out=f32 sum=hopper_f16", given),
            std::vector<float>{1.5f * 2 * 448 - 3.0f * 2 * 2});
  for (const char* op : {"TN", "NN", "NT"}) {
    for (const auto& [formats, amax] : {std::pair{"a=mxfp8 b=mxfp4", ""},
                                        {"a=nvfp4 b=mxfp8", " a.amax=2688"},
                                        {"a=identity b=nvfp4", " b.amax=1344"}}) {
      const std::string line =
          std::string("gemm ") + formats + " 48x32x64 fill=exact_sums out=f32 op=" + op + amax;
      EXPECT_EQ(drawn(line + " sum=hopper_f16").at("d"), drawn(line + " sum=exact").at("d")) << line;
    }
  }
  // An amax that is no multiple of 2688 leaves values that bf16 must round: the sum then is that of the
  // rounded ones.
  const std::string rounds = "gemm a=nvfp4 b=identity 16x16x32 fill=normal out=f32 a.amax=3";
  EXPECT_NE(drawn(rounds + " sum=hopper_f16").at("d"), drawn(rounds + " sum=exact").at("d"));
}

// N16.11: small integers, powers of two as scales: no sum has anything to round.
TEST(Gemm, IntegersAreExactUnderEverySum) {
  for (const char* op : {"TN", "NN", "NT"}) {
    const std::string fp8 =
        std::string("gemm a=fp8_current b=fp8_current 17x13x200 pow2=1 fill=exact_sums out=f32 op=") + op;
    for (const char* sum : {"f32_sequential", "hopper_fp8_split", "hopper_fp8_fast"})
      EXPECT_EQ(drawn(fp8 + " sum=" + sum).at("d"), drawn(fp8 + " sum=exact").at("d")) << op << sum;
    const std::string plain =
        std::string("gemm a=identity b=identity 17x13x200 fill=exact_sums out=f32 op=") + op;
    for (const char* sum : {"f32_sequential", "hopper_f16"})
      EXPECT_EQ(drawn(plain + " sum=" + sum).at("d"), drawn(plain + " sum=exact").at("d")) << op << sum;
  }
}

}  // namespace
}  // namespace assay
