// Floating-point instructions against the host's own arithmetic under its four rounding modes, and against
// exact sums in binary128.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include "fast/ptx/hopper_functions.h"
#include "tests/fast/ptx/every_pattern.h"
#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

float f32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint32_t bits32(float v) { return std::bit_cast<uint32_t>(v); }
bool is_nan(uint64_t v) { return (v & 0x7FFFFFFF) > 0x7F800000; }

// Boundaries of binary32, each with its neighbours: zeros, subnormal numbers, powers of two, halves, the
// largest, infinity, NaN.
std::vector<uint64_t> boundaries() {
  std::vector<uint64_t> out;
  for (uint32_t v :
       {0x00000000u, 0x00000001u, 0x00400000u, 0x007FFFFFu, 0x00800000u, 0x01000000u, 0x33800000u,
        0x3F000000u, 0x3F800000u, 0x3FC00000u, 0x40000000u, 0x4B000000u, 0x4B800000u, 0x5F000000u,
        0x7E800000u, 0x7F000000u, 0x7F7FFFFFu, 0x7F800000u, 0x7FC00000u, 0x7F800001u})
    for (int step : {-1, 0, 1})
      for (uint32_t sign : {0u, 0x80000000u})
        out.push_back((v + static_cast<uint32_t>(step)) % 0x80000000u | sign);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}
// Pairs or triples: the boundaries with each other, and random operands, of which every second has an
// exponent near its neighbour's.
std::vector<Column> operands(size_t count, size_t random) {
  std::vector<Column> c(count);
  const auto edges = boundaries();
  for (uint64_t a : edges)
    for (uint64_t b : edges) {
      c[0].values.push_back(a), c[1].values.push_back(b);
      if (count > 2) c[2].values.push_back(edges[(a * 31 + b * 17) % edges.size()]);
    }
  Draw draw;
  for (size_t n = 0; n < random; ++n) {
    const uint64_t first = draw() & 0xFFFFFFFF;
    uint64_t product = first;
    for (size_t k = 0; k < count; ++k) {
      uint64_t v = k ? draw() & 0xFFFFFFFF : first;
      if (n % 2 && k == 1) v = (v & 0x807FFFFF) | (((first >> 23) + draw() % 5 - 2) & 0xFF) << 23;
      if (n % 2 && k == 2) v = (v & 0x807FFFFF) | ((product >> 23) & 0xFF) << 23;
      if (k < 2) product = k ? bits32(f32(product) * f32(v)) : v;
      c[k].values.push_back(v);
    }
  }
  return c;
}

enum class Op { add, sub, mul, div, fma };
// What the host's processor makes of it under the rounding mode that is set. Not inlined, and volatile:
// nothing is computed before the mode is set.
[[gnu::noinline]] float by_host(Op op, float x, float y, float z) {
  volatile float a = x, b = y, c = z, v = 0;
  switch (op) {
    case Op::add: v = a + b; break;
    case Op::sub: v = a - b; break;
    case Op::mul: v = a * b; break;
    case Op::div: v = a / b; break;
    case Op::fma: v = std::fma(a, b, c); break;
  }
  return v;
}

constexpr struct {
  const char* name;
  int mode;
} kModes[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

TEST(PtxFloat, ArithmeticIsTheHostsUnderFourRoundings) {
  constexpr struct {
    const char* name;
    Op op;
    size_t count;
  } kOps[] = {{"add", Op::add, 2},
              {"sub", Op::sub, 2},
              {"mul", Op::mul, 2},
              {"div", Op::div, 2},
              {"fma", Op::fma, 3}};
  for (const auto& op : kOps) {
    const auto c = operands(op.count, 1000000);
    for (const auto& mode : kModes) {
      const std::string text =
          std::string(op.name) + "." + mode.name + ".f32 $d, $a, $b" + (op.count > 2 ? ", $c;" : ";");
      const auto got = evaluate(text, 32, c);
      std::fesetround(mode.mode);
      std::vector<uint32_t> want(got.size());
      for (size_t n = 0; n < got.size(); ++n)
        want[n] = bits32(
            by_host(op.op, f32(c[0].values[n]), f32(c[1].values[n]), op.count > 2 ? f32(c[2].values[n]) : 0));
      std::fesetround(FE_TONEAREST);
      int shown = 0;
      for (size_t n = 0; n < got.size() && shown < 3; ++n)
        if (got[n] != (is_nan(want[n]) ? 0x7FFFFFFFu : want[n]))
          ++shown, ADD_FAILURE() << text << std::hex << " of " << c[0].values[n] << ", " << c[1].values[n]
                                 << (op.count > 2 ? c[2].values[n] : 0) << " gives " << got[n] << ", not "
                                 << want[n];
    }
  }
}

// One rounding of roots or reciprocals, by the host's processor.
void expect_unary(bool root, size_t mode, const std::vector<uint64_t>& a) {
  const std::string text = std::string(root ? "sqrt." : "rcp.") + kModes[mode].name + ".f32 $d, $a;";
  const auto got = evaluate(text, 32, {Column{32, a}});
  std::fesetround(kModes[mode].mode);
  std::vector<uint32_t> want;
  want.reserve(a.size());
  for (uint64_t v : a) {
    volatile float x = f32(v), y = 0;
    y = root ? std::sqrt(x) : 1.0f / x;
    want.push_back(bits32(y));
  }
  std::fesetround(FE_TONEAREST);
  for (size_t n = 0; n < got.size(); ++n)
    if (const uint32_t expected = is_nan(want[n]) ? 0x7FFFFFFFu : want[n]; got[n] != expected)
      FAIL() << text << std::hex << " of " << a[n] << " gives " << got[n] << ", not " << expected;
}

// A sample, or, where ASSAY_PTX_EXHAUSTIVE is set (ci/ptx_long), all 2^32 patterns: some minutes for each.
class PtxFloatUnary : public testing::TestWithParam<std::tuple<bool, size_t>> {};
TEST_P(PtxFloatUnary, RootsAndReciprocalsAreTheHosts) {
  const auto [root, mode] = GetParam();
  if (!std::getenv("ASSAY_PTX_EXHAUSTIVE")) {
    auto a = boundaries();
    Draw draw;
    for (int n = 0; n < 250000; ++n) a.push_back(draw() & 0xFFFFFFFF);
    return expect_unary(root, mode, a);
  }
  with_every_pattern([r = root, m = mode](const std::vector<uint64_t>& a) { expect_unary(r, m, a); });
}
INSTANTIATE_TEST_SUITE_P(Patterns, PtxFloatUnary,
                         testing::Combine(testing::Bool(), testing::Range(size_t{0}, std::size(kModes))),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param) ? "sqrt_" : "rcp_") +
                                  kModes[std::get<1>(p.param)].name;
                         });

TEST(PtxFloat, FtzFlushesOperandsAndResults) {
  const auto c = operands(2, 20000);
  const auto flush = [](float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; };
  const auto got = evaluate("mul.ftz.f32 $d, $a, $b;", 32, c);
  for (size_t n = 0; n < got.size(); ++n) {
    const double exact = double{flush(f32(c[0].values[n]))} * double{flush(f32(c[1].values[n]))};
    // .ftz compares the exact product with the least normal number, not the rounded one: seen on an H100.
    const float want = std::fabs(exact) < 0x1p-126 ? std::copysign(0.0f, static_cast<float>(exact))
                                                   : static_cast<float>(exact);
    ASSERT_EQ(got[n], want != want ? 0x7FFFFFFFu : bits32(want))
        << std::hex << c[0].values[n] << " " << c[1].values[n];
  }
  const auto sat = evaluate("add.sat.f32 $d, $a, $b;", 32, c);
  for (size_t n = 0; n < sat.size(); ++n) {
    const float v = f32(c[0].values[n]) + f32(c[1].values[n]);
    ASSERT_EQ(f32(sat[n]), v != v ? 0.0f : std::clamp(v, 0.0f, 1.0f));
    ASSERT_FALSE(sat[n] >> 31) << std::hex << c[0].values[n];  // zeros of .sat are +0
  }
}

// The exact results lie just below the least normal number and round up to it. With .ftz they become zero. An
// H100 showed that for mul; fma and div are taken to follow it.
TEST(PtxFloat, FtzAsksTheExactResult) {
  const uint64_t below_one = 0x3F7FFFFF, least = 0x00800000, half = 0x3F000000, above_one = 0x3F800001;
  const std::vector<Column> two = {{32, {below_one, below_one, 0xBF7FFFFF}}, {32, {least, least + 1, least}}};
  const auto both = [&](const std::string& op, const std::string& operands, const std::vector<Column>& c) {
    return std::pair{evaluate(op + ".rn.f32 $d, " + operands, 32, c),
                     evaluate(op + ".rn.ftz.f32 $d, " + operands, 32, c)};
  };
  const auto [product, flushed] = both("mul", "$a, $b;", two);
  EXPECT_EQ(product, (std::vector<uint64_t>{least, least, 0x80800000}));
  EXPECT_EQ(flushed, (std::vector<uint64_t>{0, least, 0x80000000}));
  const auto [fused, fused_flushed] = both("fma", "$a, $b, 0f00000000;", two);
  EXPECT_EQ(fused, product);
  EXPECT_EQ(fused_flushed, flushed);
  const auto [quotient, quotient_flushed] =
      both("div", "$a, $b;", {{32, {least, least, least + 1}}, {32, {above_one, half, above_one}}});
  EXPECT_EQ(quotient, (std::vector<uint64_t>{0x007FFFFF, 0x01000000, least}));
  EXPECT_EQ(quotient_flushed, (std::vector<uint64_t>{0, 0x01000000, least}));
}

// A NaN of binary64 keeps the payload of the last operand that is a NaN. Without such an operand it is
// negative.
TEST(PtxFloat, NaNsOfBinary64) {
  const uint64_t first = 0x7FF0000000000123, second = 0xFFF8000000000456, one = 0x3FF0000000000000,
                 infinity = 0x7FF0000000000000, minus = infinity | uint64_t{1} << 63,
                 quiet = 0x7FF8000000000123, made = 0xFFF8000000000000;
  const std::vector<Column> c = {{64, {first, one, first, second, infinity, minus}},
                                 {64, {one, second, second, first, minus, infinity}}};
  EXPECT_EQ(evaluate("add.rn.f64 $d, $a, $b;", 64, c),
            (std::vector<uint64_t>{quiet, second, second, quiet, made, made}));
  EXPECT_EQ(evaluate("mul.rn.f64 $d, $a, $b;", 64, c),
            (std::vector<uint64_t>{quiet, second, second, quiet, minus, minus}));
  EXPECT_EQ(evaluate("fma.rn.f64 $d, $a, $b, $b;", 64, c),
            (std::vector<uint64_t>{quiet, second, second, quiet, minus, made}));
  EXPECT_EQ(evaluate("fma.rn.f64 $d, 0d3ff0000000000000, $a, $b;", 64, c),
            (std::vector<uint64_t>{quiet, second, second, quiet, made, made}));
  EXPECT_EQ(evaluate("div.rn.f64 $d, $a, $b;", 64, c),
            (std::vector<uint64_t>{quiet, second, quiet, second, made, made}));
  EXPECT_EQ(evaluate("sqrt.rn.f64 $d, $a;", 64, c),
            (std::vector<uint64_t>{quiet, one, quiet, second, infinity, made}));
}

TEST(PtxFloat, ExtremesOfNaNAndZeros) {
  const uint64_t nan = 0x7FC12345, one = 0x3F800000, minus = 0xBF800000, zero = 0, minus_zero = 0x80000000;
  const std::vector<Column> c = {{32, {nan, one, nan, zero, minus_zero, one, minus}},
                                 {32, {one, nan, nan, minus_zero, zero, minus, one}}};
  EXPECT_EQ(evaluate("min.f32 $d, $a, $b;", 32, c),
            (std::vector<uint64_t>{one, one, 0x7FFFFFFF, minus_zero, minus_zero, minus, minus}));
  EXPECT_EQ(evaluate("max.f32 $d, $a, $b;", 32, c),
            (std::vector<uint64_t>{one, one, 0x7FFFFFFF, zero, zero, one, one}));
  EXPECT_EQ(evaluate("max.NaN.f32 $d, $a, $b;", 32, c),
            (std::vector<uint64_t>{0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, zero, zero, one, one}));
  EXPECT_EQ(evaluate("max.f32 $d, $a, $b, 0f40000000;", 32, c), std::vector<uint64_t>(7, 0x40000000));
  // Of magnitudes, in which -0 is +0; a NaN loses, or wins.
  EXPECT_EQ(evaluate("max.abs.f32 $d, $a, $b, 0f00000000;", 32, c),
            (std::vector<uint64_t>{one, one, zero, zero, zero, one, one}));
  EXPECT_EQ(evaluate("max.NaN.abs.f32 $d, $a, $b, 0fC0400000;", 32, c),
            (std::vector<uint64_t>{0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0x40400000, 0x40400000, 0x40400000,
                                   0x40400000}));
  EXPECT_EQ(evaluate("min.abs.f32 $d, $a, $b, 0fBF000000;", 32, c),
            (std::vector<uint64_t>{0x3F000000, 0x3F000000, 0x3F000000, zero, zero, 0x3F000000, 0x3F000000}));
  EXPECT_EQ(evaluate("min.ftz.abs.f32 $d, $a, $b, 0f80000001;", 32, {{32, {one}}, {32, {minus}}}),
            (std::vector<uint64_t>{zero}));
  EXPECT_EQ(
      evaluate("max.xorsign.abs.f32 $d, $a, $b;", 32, {{32, {one, minus}}, {32, {0xC0000000, 0xC0000000}}}),
      (std::vector<uint64_t>{0xC0000000, 0x40000000}));
  // Of pairs of bf16: -3 and 2, 1 and -NaN, NaN and NaN; 1 and 1. The low half has the first of each two.
  const std::vector<Column> pairs = {{32, {0x3F80C040, 0x3F807FC0}}, {32, {0xFFC04000, 0x3F80FFC0}}};
  EXPECT_EQ(evaluate("max.xorsign.abs.bf16x2 $d, $a, $b;", 32, pairs),
            (std::vector<uint64_t>{0xBF80C040, 0x3F807FFF}));
  EXPECT_EQ(evaluate("min.NaN.xorsign.abs.bf16x2 $d, $a, $b;", 32, pairs),
            (std::vector<uint64_t>{0x7FFFC000, 0x3F807FFF}));
  EXPECT_EQ(evaluate("min.xorsign.abs.f16 $d, $a, $b;", 16, {{16, {0xC000, 0x3C00}}, {16, {0x3C00, 0x7E00}}}),
            (std::vector<uint64_t>{0xBC00, 0x3C00}));
}

TEST(PtxFloat, ComparisonsOfNumbersAreFalseForNaNAndTheOthersTrue) {
  const uint64_t nan = 0x7FC00000, one = 0x3F800000, two = 0x40000000;
  const std::vector<Column> c = {{32, {one, two, one, nan, one, nan}}, {32, {two, one, one, one, nan, nan}}};
  const auto compare = [&](const std::string& word) {
    std::string out;
    for (uint64_t v : evaluate("setp." + word + ".f32 %p1, $a, $b;\nselp.b32 $d, 1, 0, %p1;", 32, c))
      out += v ? '1' : '0';
    return out;
  };
  EXPECT_EQ(compare("eq"), "001000");
  EXPECT_EQ(compare("ne"), "110000");
  EXPECT_EQ(compare("lt"), "100000");
  EXPECT_EQ(compare("ge"), "011000");
  EXPECT_EQ(compare("equ"), "001111");
  EXPECT_EQ(compare("neu"), "110111");
  EXPECT_EQ(compare("ltu"), "100111");
  EXPECT_EQ(compare("geu"), "011111");
  EXPECT_EQ(compare("num"), "111000");
  EXPECT_EQ(compare("nan"), "000111");
  const std::string both =
      "setp.lt.and.f32 %p1|%p2, $a, $b, !%p0;\nselp.b32 %r0, 1, 0, %p1;\nselp.b32 %r1, 2, 0, %p2;\nadd.u32 "
      "$d, %r0, %r1;";
  EXPECT_EQ(evaluate(both, 32, c),
            (std::vector<uint64_t>{1, 2, 2, 2, 2, 2}));  // %p0 is false: no thread has left
}

// Values of a 16-bit format as exact numbers, by its fields.
__float128 value16(uint32_t code, bool bf16) {
  const int mantissa = bf16 ? 7 : 10, bias = bf16 ? 127 : 15;
  const uint32_t exponent = code >> mantissa & ((1u << (15 - mantissa)) - 1),
                 fraction = code & ((1u << mantissa) - 1);
  const long double v = std::ldexp(static_cast<long double>(exponent ? fraction | 1u << mantissa : fraction),
                                   static_cast<int>(exponent ? exponent : 1) - bias - mantissa);
  return code & 0x8000 ? -v : v;
}
// The nearest code, the even one of two: by a search among all codes. Infinity where the next value beyond
// the largest would be as near.
uint32_t nearest16(__float128 v, bool bf16, bool negative_zero) {
  const uint32_t infinity = bf16 ? 0x7F80 : 0x7C00;
  const bool negative = v < 0 || (v == 0 && negative_zero);
  if (v < 0) v = -v;
  uint32_t low = 0, high = infinity;  // the code of infinity, read as a number, is the next power of two
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value16(middle, bf16) <= v ? low : high) = middle;
  }
  const __float128 below = v - value16(low, bf16), above = value16(high, bf16) - v;
  const uint32_t code = above < below || (above == below && low % 2) ? high : low;
  return code | (negative ? 0x8000 : 0);
}

TEST(PtxFloat, FusedHalvesAreRoundedOnce) {
  Draw draw;
  for (bool bf16 : {false, true}) {
    std::vector<Column> c(3, Column{16, {}});
    const uint32_t infinity = bf16 ? 0x7F80 : 0x7C00;
    while (c[0].values.size() < 300000) {
      const uint64_t bits = draw();
      uint32_t v[3] = {static_cast<uint32_t>(bits & 0xFFFF), static_cast<uint32_t>(bits >> 16 & 0xFFFF),
                       static_cast<uint32_t>(bits >> 32 & 0xFFFF)};
      // An addend far below the product, where the sum lies beside a midpoint.
      if (bits >> 62 == 0) v[2] = (v[2] & 0x8003u) | 1;
      // Binary128 holds the sums of bf16 only where their exponents lie within 96 of each other.
      if (bf16)
        for (uint32_t& x : v) x = (x & 0x807Fu) | (96 + (x >> 7 & 63)) << 7;
      if ((v[0] & 0x7FFF) >= infinity || (v[1] & 0x7FFF) >= infinity || (v[2] & 0x7FFF) >= infinity) continue;
      for (int k = 0; k < 3; ++k) c[static_cast<size_t>(k)].values.push_back(v[k]);
    }
    const std::string type = bf16 ? ".bf16" : ".f16";
    const auto fused = evaluate("fma.rn" + type + " $d, $a, $b, $c;", 16, c),
               sums = evaluate("add.rn" + type + " $d, $a, $b;", 16, c),
               products = evaluate("mul.rn" + type + " $d, $a, $b;", 16, c);
    for (size_t n = 0; n < fused.size(); ++n) {
      const auto code = [&](size_t k) { return static_cast<uint32_t>(c[k].values[n]); };
      const __float128 a = value16(code(0), bf16), b = value16(code(1), bf16), d = value16(code(2), bf16);
      // Zero: the sign is that of both addends, else +.
      const bool product_negative = (code(0) ^ code(1)) >> 15;
      const auto say = [&] {
        return ::testing::Message() << type << std::hex << " " << code(0) << " " << code(1) << " " << code(2);
      };
      ASSERT_EQ(fused[n], nearest16(a * b + d, bf16,
                                    a * b == 0 && d == 0 ? product_negative && code(2) >> 15
                                                         : product_negative && a * b + d == 0 && d == 0))
          << say();
      ASSERT_EQ(products[n], nearest16(a * b, bf16, product_negative)) << say();
      ASSERT_EQ(sums[n], nearest16(a + b, bf16, code(0) >> 15 && code(1) >> 15 && a + b == 0 && a == 0))
          << say();
    }
  }
}

TEST(PtxFloat, AtomicSumsOfHalvesAreSumsOfHalves) {
  // The same sums as those of add, of which each lane takes one to a place of its own.
  Draw draw;
  for (const std::string type : {"f16", "bf16", "f16x2", "bf16x2"}) {
    const int bits = type.ends_with("x2") ? 32 : 16;
    const std::string word = bits == 32 ? ".b32" : ".b16";
    std::vector<Column> c(2, Column{bits, {}});
    for (int n = 0; n < 3000; ++n)
      for (Column& column : c) column.values.push_back(draw() & (bits == 32 ? 0xFFFFFFFF : 0xFFFF));
    const auto want = evaluate("add.rn." + type + " $d, $a, $b;", bits, c);
    const std::string
        place =
            "{\n.shared .align 4 .b8 tile[1024];\n.reg .b32 %at;\nmov.u32 %at, tile;\nmad.lo.u32 "
            "%at, %t, 4, %at;\nst.shared" +
            word + " [%at], $a;\n",
        load = "ld.shared" + word + " $d, [%at];\n}";
    EXPECT_EQ(evaluate(place + "red.shared.add.noftz." + type + " [%at], $b;\n" + load, bits, c), want)
        << type;
    EXPECT_EQ(evaluate(place + "atom.shared.add.noftz." + type + " $d, [%at], $b;\n}", bits, c), c[0].values)
        << type;
  }
}

// 9.7.3.1: zeros are normal numbers.
TEST(PtxFloat, PropertiesOfNumbers) {
  const struct {
    uint64_t bits;
    const char* holds;
  } kNumbers[] = {{0, "finite number normal"},          {0x80000000, "finite number normal"},
                  {0x3F800000, "finite number normal"}, {0x80000001, "finite number subnormal"},
                  {0x7F800000, "infinite number"},      {0xFF800000, "infinite number"},
                  {0x7FC00000, "notanumber"},           {0xFF800001, "notanumber"}};
  for (const std::string property : {"finite", "infinite", "number", "notanumber", "normal", "subnormal"})
    for (const auto& n : kNumbers) {
      const bool holds = (" " + std::string(n.holds) + " ").find(" " + property + " ") != std::string::npos;
      EXPECT_EQ(
          evaluate("testp." + property + ".f32 %p1, $a;\nselp.u32 $d, 1, 0, %p1;", 32, {{32, {n.bits}}})[0],
          uint64_t{holds})
          << property << " of " << std::hex << n.bits;
    }
  EXPECT_EQ(
      evaluate("testp.normal.f64 %p1, $a;\nselp.u32 $d, 1, 0, %p1;", 32, {{64, {uint64_t{1} << 63}}})[0], 1u);
}

// 9.7.3.8: beyond 2^126 the quotient is zero, and that of an infinity NaN.
TEST(PtxFloat, ApproximateQuotientsOfLargeDivisors) {
  const auto quotient = [](uint64_t a, uint64_t b) {
    return evaluate("div.approx.f32 $d, $a, $b;", 32, {{32, {a}}, {32, {b}}})[0];
  };
  EXPECT_EQ(quotient(0x3F800000, 0x7E800000), 0x00800000u);  // 1 / 2^126
  EXPECT_EQ(quotient(0x3F800000, 0x7E800001), 0u);
  EXPECT_EQ(quotient(0xBF800000, 0x7F000001), 0x80000000u);
  EXPECT_EQ(quotient(0x7F7FFFFF, 0xFF7FFFFF), 0x80000000u);
  EXPECT_EQ(quotient(0x7F800000, 0x7F000001), 0x7FFFFFFFu);
  EXPECT_EQ(quotient(0x3F800000, 0x7F800000), 0u);
  EXPECT_EQ(quotient(0x7F800000, 0x7E800000), 0x7F800000u);
}

TEST(PtxFloat, ApproximateFunctionsKeepTheirSpecialValuesAndAreCounted) {
  const uint64_t inf = 0x7F800000, ninf = 0xFF800000;
  const auto one = [](const std::string& op, uint64_t v) {
    return evaluate(op + " $d, $a;", 32, {{32, {v}}})[0];
  };
  EXPECT_EQ(one("ex2.approx.f32", ninf), 0u);
  EXPECT_EQ(one("ex2.approx.f32", inf), inf);
  EXPECT_EQ(one("rcp.approx.f32", 0x80000000), ninf);
  EXPECT_EQ(one("rsqrt.approx.f32", 0x80000000), ninf);
  EXPECT_EQ(one("rsqrt.approx.f32", inf), 0u);
  EXPECT_EQ(one("lg2.approx.f32", 0x80000000), ninf);
  EXPECT_EQ(one("lg2.approx.f32", 0xBF800000), 0x7FFFFFFFu);
  EXPECT_EQ(one("sqrt.approx.f32", 0xBF800000), 0x7FFFFFFFu);
  EXPECT_EQ(one("ex2.approx.ftz.f32", 0xC3000001), 0u);  // 2^-128.00002 is subnormal
  Module m(kernel_text("", ".reg .f32 %f;\nmov.f32 %f, 0f3F800000;\nex2.approx.f32 %f, %f;\nret;"));
  Launch launch;
  launch.block = {40, 1, 1};
  const Counters c = run(m, "kernel", launch, Memory{});
  ASSERT_EQ(c.unpinned.size(), 1u);
  EXPECT_EQ(c.unpinned.begin()->first, "PTX line 8: ex2.approx.f32");
  EXPECT_EQ(c.unpinned.begin()->second, 40u);
}

TEST(PtxFloat, ApproximateResultsMoveByOnePlaceWhereTheyAreAsked) {
  const std::string body =
      ".reg .f32 %f;\n.reg .b64 %rd;\n.reg .b32 %r<2>;\nmov.u32 %r0, %tid.x;\ncvt.rn.f32.u32 %f, %r0;\n"
      "sqrt.approx.f32 %f, %f;\nld.param.u64 %rd, [out];\nmad.wide.u32 %rd, %r0, 4, %rd;\nst.global.f32 "
      "[%rd], "
      "%f;\nret;";
  const auto values = [&](uint64_t perturb, uint32_t line, bool check) {
    RunOptions options;
    options.perturb = perturb, options.perturb_line = line, options.check = check;
    return words_of_warp(body, options);
  };
  const auto exact = values(0, 0, false);
  for (const bool check : {false, true}) {
    const auto down = values(1, 0, check), up = values(2, 11, check), other = values(2, 12, check),
               drawn = values(3, 0, check);
    EXPECT_EQ(other, exact);
    size_t moved = 0;
    for (size_t n = 0; n < 32; ++n) {
      EXPECT_EQ(down[n], exact[n] - (n ? 1 : 0));  // zero stays
      EXPECT_EQ(up[n], exact[n] + (n ? 1 : 0));
      EXPECT_LE(drawn[n] - exact[n] + 1, 2u);
      moved += drawn[n] != exact[n];
    }
    EXPECT_GT(moved, 8u);
    EXPECT_LT(moved, 31u);
  }
}

// Whatever register takes the result, and for the line that is asked for alone.
TEST(PtxFloat, ApproximateResultsOfAnH100) {
  const auto body = [](const std::string& instruction) {
    return ".reg .f32 %f, %g;\n.reg .b64 %rd;\n.reg .b32 %r<2>;\nmov.u32 %r0, %tid.x;\ncvt.rn.f32.u32 %f, "
           "%r0;\n"
           "fma.rn.f32 %f, %f, 0fBD800000, 0fBF801234;\n" +
           instruction +
           "\nld.param.u64 %rd, [out];\nmad.wide.u32 %rd, %r0, 4, %rd;\nst.global.f32 [%rd], %f;\nret;";
  };
  const auto values = [&](const std::string& instruction, uint64_t perturb, uint32_t line) {
    RunOptions options;
    options.perturb = perturb, options.perturb_line = line;
    return words_of_warp(body(instruction), options);
  };
  const std::string in_place = "ex2.approx.ftz.f32 %f, %f;",
                    moved = "mov.f32 %g, %f;\nex2.approx.f32 %f, %g;";
  const auto nearest = values(in_place, 0, 0), hopper_s = values(in_place, kAsHopper, 0);
  EXPECT_EQ(values(moved, kAsHopper, 0), hopper_s);
  EXPECT_EQ(values(in_place, kAsHopper, 999), nearest);
  EXPECT_NE(nearest, hopper_s);
  for (size_t n = 0; n < 32; ++n) {
    const float operand = std::fma(static_cast<float>(n), -0.0625f, f32(0xBF801234));
    EXPECT_EQ(hopper_s[n], hopper(HopperFunction::ex2, true, bits32(operand))) << n;
  }
}

}  // namespace
}  // namespace assay::ptx
