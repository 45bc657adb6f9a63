// Conversions to 16 bits with .sat and .ftz, and roundings of 16 bits to integers: every code. The roundings
// themselves are held to MPFR (mpfr_test.cpp).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr uint64_t kNanOf16 = 0x7FFF;

// The value of a code of 16 bits with so many bits of fraction, by its definition.
double value_of_code(uint64_t code, int fraction) {
  const int bias = fraction == 10 ? 15 : 127, fields = 15 - fraction;
  const auto exponent = static_cast<int>(code >> fraction & ((1u << fields) - 1));
  const auto rest = static_cast<double>(code & ((1u << fraction) - 1));
  const double sign = code >> 15 ? -1 : 1, one = std::ldexp(1.0, fraction);
  if (exponent == (1 << fields) - 1) return rest != 0 ? std::nan("") : sign * HUGE_VAL;
  return sign * std::ldexp(exponent ? one + rest : rest, (exponent ? exponent : 1) - bias - fraction);
}

double rounded_half(const std::string& how, double v) {
  if (how == "rmi") return std::floor(v);
  if (how == "rpi") return std::ceil(v);
  if (how == "rzi") return std::trunc(v);
  const double down = std::floor(v), rest = v - down;
  const bool odd = std::fmod(down, 2) != 0;
  return std::copysign(rest > 0.5 || (rest == 0.5 && odd) ? down + 1 : down, v);
}

TEST(PtxDirected, EveryHalfIsRoundedToAnInteger) {
  Column all{16, {}};
  for (uint64_t n = 0; n < 0x10000; ++n) all.values.push_back(n);
  for (const auto& [type, fraction] : {std::pair{"f16", 10}, std::pair{"bf16", 7}})
    for (const std::string how : {"rni", "rzi", "rmi", "rpi"}) {
      const auto got = evaluate("cvt." + how + "." + type + "." + type + " $d, $a;", 16, {all});
      for (uint64_t n = 0; n < 0x10000; ++n) {
        const double v = value_of_code(n, fraction);
        if (v != v) {
          ASSERT_EQ(got[n], kNanOf16) << type << how << n;
          continue;
        }
        const double want = std::isinf(v) ? v : rounded_half(how, v);
        ASSERT_EQ(value_of_code(got[n], fraction), want) << type << how << n;
        ASSERT_EQ(got[n] >> 15, std::signbit(v)) << type << how << n;
      }
    }
}

std::vector<uint64_t> of_floats(const std::string& text, const std::vector<float>& values) {
  Column c{32, {}};
  for (const float v : values) c.values.push_back(std::bit_cast<uint32_t>(v));
  return evaluate(text, 16, {c});
}
std::vector<uint64_t> of_doubles(const std::string& text, const std::vector<double>& values) {
  Column c{64, {}};
  for (const double v : values) c.values.push_back(std::bit_cast<uint64_t>(v));
  return evaluate(text, 16, {c});
}
using Codes = std::vector<uint64_t>;

TEST(PtxDirected, SaturationIsToTheUnitInterval) {
  const float inf = HUGE_VALF, nan = std::nanf("");
  EXPECT_EQ(of_floats("cvt.rn.sat.f16.f32 $d, $a;", {-1, -0.0f, 0.5f, 1, 2, inf, -inf, nan, 0x1p-24f}),
            (Codes{0, 0, 0x3800, 0x3C00, 0x3C00, 0x3C00, 0, 0, 1}));
  // 1 - 2^-12 lies halfway between 1 - 2^-11 and 1.
  EXPECT_EQ(of_floats("cvt.rz.sat.f16.f32 $d, $a;", {1 - 0x1p-12f, 3}), (Codes{0x3BFF, 0x3C00}));
  EXPECT_EQ(of_floats("cvt.rp.sat.f16.f32 $d, $a;", {1 - 0x1p-12f, -0x1p-40f}), (Codes{0x3C00, 0}));
  EXPECT_EQ(of_doubles("cvt.rm.sat.f16.f64 $d, $a;", {1 - 0x1p-40, 7, -3, std::nan("")}),
            (Codes{0x3BFF, 0x3C00, 0, 0}));
  Column c{16, {0x3800, 0xBC00, 0x4200, 0x3BFF, 0x7E00}};  // 0.5, -1, 3, below 1, NaN
  EXPECT_EQ(evaluate("cvt.rpi.sat.f16.f16 $d, $a;", 16, {c}), (Codes{0x3C00, 0, 0x3C00, 0x3C00, 0}));
}

TEST(PtxDirected, FtzIsOfBinary32Alone) {
  const float tiny = 0x1p-140f;
  EXPECT_EQ(of_floats("cvt.rp.f16.f32 $d, $a;", {tiny, -tiny}), (Codes{1, 0x8000}));
  EXPECT_EQ(of_floats("cvt.rp.ftz.f16.f32 $d, $a;", {tiny, -tiny, 0x1p-24f}), (Codes{0, 0x8000, 1}));
  EXPECT_EQ(of_floats("cvt.rm.bf16.f32 $d, $a;", {tiny, -tiny}), (Codes{0, 0x8001}));
  EXPECT_EQ(of_floats("cvt.rm.ftz.bf16.f32 $d, $a;", {-tiny, -0x1p-126f}), (Codes{0x8000, 0x8080}));
}

// What __nv_cvt_float_to_e8m0 does where there is no instruction of its own: bits of the bf16 above.
TEST(PtxDirected, TheBf16AboveAndBelow) {
  EXPECT_EQ(of_floats("cvt.rp.bf16.f32 $d, $a;", {1, 0x1.000002p0f, -0x1.000002p0f, 0x1.fffffep127f}),
            (Codes{0x3F80, 0x3F81, 0xBF80, 0x7F80}));
  EXPECT_EQ(of_floats("cvt.rm.bf16.f32 $d, $a;", {1, 0x1.000002p0f, -0x1.000002p0f, 0x1.fffffep127f}),
            (Codes{0x3F80, 0x3F80, 0xBF81, 0x7F7F}));
  EXPECT_EQ(of_floats("cvt.rp.bf16.f32 $d, $a;", {-0x1.fffffep127f, std::nanf(""), HUGE_VALF}),
            (Codes{0xFF7F, kNanOf16, 0x7F80}));
}

// One rounding: by way of binary32 the first would become the even neighbour.
TEST(PtxDirected, Binary64IsRoundedOnce) {
  EXPECT_EQ(of_doubles("cvt.rn.f16.f64 $d, $a;", {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11, 65520, 65519.999}),
            (Codes{0x3C01, 0x3C00, 0x7C00, 0x7BFF}));
  EXPECT_EQ(of_doubles("cvt.rn.bf16.f64 $d, $a;", {1 + 0x1p-8 + 0x1p-50, 1 + 0x1p-8, 1e300, 0x1p-134}),
            (Codes{0x3F81, 0x3F80, 0x7F80, 0}));
  EXPECT_EQ(of_doubles("cvt.rz.bf16.f64 $d, $a;", {1e300, -1e300, 1e-300}), (Codes{0x7F7F, 0xFF7F, 0}));
}

}  // namespace
}  // namespace assay::ptx
