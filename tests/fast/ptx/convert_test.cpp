// Conversions over all 2^16 patterns, and over binary32 at every exponent (headers_test.cpp: every pattern),
// against a search in the table of a format's values. The formats come from contract/encoding.h; nothing of
// the interpreter computes what is expected.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <map>

#include "contract/encoding.h"
#include "tests/fast/ptx/harness.h"
#include "tests/fast/ptx/samples.h"

namespace assay::ptx {
namespace {

float f32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint64_t bits32(float v) { return std::bit_cast<uint32_t>(v); }

// All finite values of an encoding, by rising code without a sign.
struct Values {
  explicit Values(Encoding e) : of(assay::info(e)) {
    for (uint32_t code = 0; code <= of.max_finite; ++code) {
      const uint32_t exponent = code >> of.mantissa_bits, fraction = code & ((1u << of.mantissa_bits) - 1);
      const bool normal = exponent > 0 || !of.has_sign();  // E8M0 has no subnormal numbers
      values.push_back(std::ldexp(static_cast<double>(normal ? fraction | 1u << of.mantissa_bits : fraction),
                                  static_cast<int>(normal && of.has_sign() ? exponent
                                                   : of.has_sign()         ? 1
                                                                           : exponent) -
                                      of.bias - of.mantissa_bits));
    }
  }
  // The code of the nearest value, the even one of two, saturated; with the sign.
  uint32_t nearest(float v) const {
    if (v != v) return of.nan;
    const double size = std::fabs(static_cast<double>(v));
    size_t low = 0, high = values.size();
    while (high - low > 1) {
      const size_t middle = (low + high) / 2;
      (values[middle] <= size ? low : high) = middle;
    }
    size_t code = low;
    if (high < values.size()) {
      const double below = size - values[low], above = values[high] - size;
      if (above < below || (above == below && low % 2)) code = high;
    }
    return static_cast<uint32_t>(code) | (std::signbit(v) ? 1u << (of.bits - 1) : 0);
  }
  double value(uint32_t code) const {
    return (code >> (of.bits - 1) & 1 && of.has_sign() ? -1 : 1) *
           values[code & ((of.has_sign() ? 1u << (of.bits - 1) : 256u) - 1)];
  }
  const EncodingInfo& of;
  std::vector<double> values;
};

struct Small {
  const char* type;
  Encoding encoding;
  int bits;
};
const Small kSmall[] = {{"e4m3x2", Encoding::e4m3, 8},
                        {"e5m2x2", Encoding::e5m2, 8},
                        {"e2m3x2", Encoding::e2m3, 8},
                        {"e3m2x2", Encoding::e3m2, 8},
                        {"e2m1x2", Encoding::e2m1, 4}};

// cvt to the small format of two values, a above b; four-bit pairs come in a .b8.
std::vector<uint64_t> pairs_of(const Small& f, const std::vector<uint64_t>& a, const std::vector<uint64_t>& b,
                               const std::string& mode) {
  const std::string op = "cvt.rn.satfinite" + mode + "." + f.type + ".f32 ";
  return f.bits == 4 ? evaluate("{\n.reg .b8 %both;\n" + op + "%both, $a, $b;\nmov.b16 $d, {%both, 0};\n}",
                                16, {{32, a}, {32, b}})
                     : evaluate(op + "$d, $a, $b;", 16, {{32, a}, {32, b}});
}

void check_narrow(const std::vector<uint64_t>& a, const std::string& mode) {
  std::vector<uint64_t> b(a.rbegin(), a.rend());
  for (const Small& f : kSmall) {
    const Values values(f.encoding);
    const auto got = pairs_of(f, a, b, mode);
    const auto want = [&](uint64_t v) {
      return mode.empty()                  ? values.nearest(f32(v))
             : v >> 31 && f32(v) == f32(v) ? 0u  // .relu keeps a NaN: seen on an H100
                                           : values.nearest(f32(v));
    };
    for (size_t n = 0; n < a.size(); ++n)
      ASSERT_EQ(got[n], want(a[n]) << f.bits | want(b[n]))
          << f.type << mode << std::hex << " of " << a[n] << " and " << b[n];
  }
}
TEST(PtxConvert, ToSmallFormatsIsNearestEvenInTheTableOfTheirValues) { check_narrow(samples(), ""); }
TEST(PtxConvert, ReluMakesNegativeValuesZero) { check_narrow(samples(), ".relu"); }

// .relu changes numbers: a NaN stays a NaN, whatever its sign. An H100 showed that for FP8; the ISA says it
// of the 16-bit formats.
TEST(PtxConvert, ReluKeepsANaN) {
  const std::vector<Column> c = {{32, {0x7FC00000, 0xFFC00000, 0xBF800000, 0x7F800001}},
                                 {32, {0xBF800000, 0x3F800000, 0xFF800001, 0x80000000}}};
  EXPECT_EQ(evaluate("cvt.rn.satfinite.relu.e4m3x2.f32 $d, $a, $b;", 16, c),
            (std::vector<uint64_t>{0x7F00, 0x7F38, 0x007F, 0x7F00}));
  EXPECT_EQ(evaluate("cvt.rn.relu.bf16x2.f32 $d, $a, $b;", 32, c),
            (std::vector<uint64_t>{0x7FFF0000, 0x7FFF3F80, 0x00007FFF, 0x7FFF0000}));
  EXPECT_EQ(evaluate("cvt.rn.relu.f16x2.f32 $d, $a, $b;", 32, c),
            (std::vector<uint64_t>{0x7FFF0000, 0x7FFF3C00, 0x00007FFF, 0x7FFF0000}));
  EXPECT_EQ(evaluate("{\n.reg .b16 %h;\ncvt.rn.relu.bf16.f32 %h, $a;\nmov.b32 $d, {%h, %h};\n}", 32, c),
            (std::vector<uint64_t>{0x7FFF7FFF, 0x7FFF7FFF, 0, 0x7FFF7FFF}));
  const std::vector<Column> halves = {{32, {0x7FC07FC0, 0xBF80FFC0, 0x3F80BF80}},
                                      {32, {0x3F803F80, 0x3F803F80, 0x3F803F80}}};
  EXPECT_EQ(evaluate("fma.rn.relu.bf16x2 $d, $a, $b, $b;", 32, halves),
            (std::vector<uint64_t>{0x7FFF7FFF, 0x00007FFF, 0x40000000}));
}

TEST(PtxConvert, HalvesToSmallFormatsAreRoundedOnce) {
  std::vector<uint64_t> all(65536);
  for (size_t n = 0; n < all.size(); ++n) all[n] = n << 16 | (65535 - n);
  const Values halves(Encoding::f16);
  const auto wide = [&](uint64_t code) {
    if ((code & 0x7FFF) > 0x7C00) return NAN;
    const float v = (code & 0x7FFF) == 0x7C00 ? INFINITY : static_cast<float>(halves.values[code & 0x7FFF]);
    return code & 0x8000 ? -v : v;
  };
  for (const Small& f : {kSmall[0], kSmall[1]}) {
    const Values values(f.encoding);
    const auto got = evaluate(std::string("cvt.rn.satfinite.") + f.type + ".f16x2 $d, $a;", 16, {{32, all}});
    for (size_t n = 0; n < all.size(); ++n)
      ASSERT_EQ(got[n], values.nearest(wide(all[n] >> 16)) << 8 | values.nearest(wide(all[n] & 0xFFFF)))
          << f.type << std::hex << " of " << all[n];
  }
}

TEST(PtxConvert, EveryCodeOfSmallFormatsToF16) {
  const Values halves(Encoding::f16);
  for (const Small& f : kSmall) {
    const Values values(f.encoding);
    const int step = f.bits;
    std::vector<uint64_t> codes;
    for (uint64_t n = 0; n < (1ull << assay::info(f.encoding).bits); ++n) codes.push_back(n);
    const std::string op = std::string("cvt.rn.f16x2.") + f.type + " $d, ";
    const auto got =
        step == 4 ? evaluate("{\n.reg .b8 %low, %high;\nmov.b16 {%low, %high}, $a;\n" + op + "%low;\n}", 32,
                             {{16, codes}})
                  : evaluate(op + "$a;", 32, {{16, codes}});
    for (size_t n = 0; n < codes.size(); ++n) {
      const uint32_t body = static_cast<uint32_t>(codes[n]) & ((1u << (values.of.bits - 1)) - 1),
                     sign = codes[n] >> (values.of.bits - 1) & 1 ? 0x8000u : 0;
      uint32_t want = 0;
      if (body <= values.of.max_finite)
        want = halves.nearest(static_cast<float>(values.value(static_cast<uint32_t>(codes[n]))));
      else want = body == values.of.infinity ? 0x7C00u | sign : 0x7FFFu;
      if (body == 0) want = sign;
      ASSERT_EQ(got[n] & 0xFFFF, want) << f.type << " code " << std::hex << codes[n];
      ASSERT_EQ(got[n] >> 16, 0u);
    }
  }
}

// Between powers of two: the greatest not above, or the least not below. The codes' values come from the
// table.
TEST(PtxConvert, ToE8m0IsAPowerOfTwoBelowOrAbove) {
  const Values values(Encoding::e8m0);
  const auto a = samples();
  for (const char* mode : {"rz", "rp"}) {
    const auto got =
        evaluate(std::string("cvt.") + mode + ".satfinite.ue8m0x2.f32 $d, $a, 0f3F800000;", 16, {{32, a}});
    for (size_t n = 0; n < a.size(); ++n) {
      const double size = std::fabs(static_cast<double>(f32(a[n])));
      uint32_t want = 0;
      if (size != size) want = 255;
      else if (mode[1] == 'z')
        while (want < 254 && values.values[want + 1] <= size) ++want;
      else
        while (want < 254 && values.values[want] < size) ++want;
      ASSERT_EQ(got[n], want << 8 | 127) << mode << std::hex << " of " << a[n];
    }
  }
  std::vector<uint64_t> codes;
  for (uint64_t n = 0; n < 65536; ++n) codes.push_back(n);
  const auto wide = evaluate("cvt.rn.bf16x2.ue8m0x2 $d, $a;", 32, {{16, codes}});
  const auto bf16 = [&](uint64_t code) {
    return code == 255 ? 0x7FFFull : bits32(static_cast<float>(values.values[code])) >> 16;
  };
  for (uint64_t n = 0; n < 65536; ++n) ASSERT_EQ(wide[n], bf16(n >> 8) << 16 | bf16(n & 255)) << n;
}

TEST(PtxConvert, ToSixteenBitsIsNearestEvenOrTowardZero) {
  const auto a = samples();
  for (bool bf16 : {false, true}) {
    const Values values(bf16 ? Encoding::bf16 : Encoding::f16);
    const std::string type = bf16 ? "bf16" : "f16";
    const auto nearest = evaluate("cvt.rn." + type + ".f32 $d, $a;", 16, {{32, a}}),
               cut = evaluate("cvt.rz." + type + ".f32 $d, $a;", 16, {{32, a}});
    const auto pair = evaluate("cvt.rn." + type + "x2.f32 $d, $a, $b;", 32,
                               {{32, a}, {32, std::vector<uint64_t>(a.rbegin(), a.rend())}});
    for (size_t n = 0; n < a.size(); ++n) {
      const float v = f32(a[n]);
      const double largest = values.values.back(), size = std::fabs(static_cast<double>(v)),
                   unit = largest - values.values[values.values.size() - 2];
      const uint32_t sign = a[n] >> 31 ? 0x8000u : 0;
      uint32_t want = values.nearest(v), down = want;
      if (size >= largest + unit / 2)
        want = values.of.infinity | sign;  // a tie goes to the even code, which is infinity's
      if (v == v && values.values[down & 0x7FFF] > size) --down;
      if (std::isinf(v)) down = values.of.infinity | sign;
      ASSERT_EQ(nearest[n], want) << type << std::hex << " of " << a[n];
      ASSERT_EQ(cut[n], v != v ? values.of.nan : down) << type << std::hex << " of " << a[n];
      ASSERT_EQ(pair[n], nearest[n] << 16 | nearest[a.size() - 1 - n]) << type;
    }
    std::vector<uint64_t> codes;
    for (uint64_t n = 0; n < 65536; ++n) codes.push_back(n);
    const auto back = evaluate("cvt.f32." + type + " $d, $a;", 32, {{16, codes}});
    for (uint64_t n = 0; n < 65536; ++n) {
      const uint64_t body = n & 0x7FFF, sign = n >> 15 << 31;
      const uint64_t want =
          body > values.of.infinity
              ? (bf16 ? n << 16 : 0x7FFFFFFF)  // the payload of a bf16 stays: seen on an H100
              : (body == values.of.infinity ? 0x7F800000 : bits32(static_cast<float>(values.values[body]))) |
                    sign;
      ASSERT_EQ(back[n], want) << type << std::hex << n;
    }
  }
}

TEST(PtxConvert, FloatToIntegerRoundsAndClamps) {
  const auto a = samples();
  for (const auto& [name, function] : std::map<std::string, double (*)(double)>{
           {"rni", std::nearbyint}, {"rzi", std::trunc}, {"rmi", std::floor}, {"rpi", std::ceil}}) {
    // A lambda of C++20 may name bindings; clang 14 does not know that.
    const std::string& mode = name;
    double (*const round)(double) = function;
    const auto check = [&](const std::string& type, int bits, double low, double high, uint64_t of_nan) {
      const auto got = evaluate("cvt." + mode + "." + type + ".f32 $d, $a;", bits, {{32, a}});
      for (size_t n = 0; n < a.size(); ++n) {
        const double v = round(static_cast<double>(f32(a[n])));
        const __int128 whole = v != v      ? 0
                               : v < low   ? static_cast<__int128>(low)
                               : v >= high ? static_cast<__int128>(high) - 1
                                           : static_cast<__int128>(v);
        const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
        ASSERT_EQ(got[n], v != v ? of_nan : static_cast<uint64_t>(whole) & mask)
            << mode << " " << type << std::hex << " of " << a[n];
      }
    };
    check("s32", 32, -0x1p31, 0x1p31, 0);
    check("u32", 32, 0, 0x1p32, 0);
    check("u16", 16, 0, 0x1p16, 0);
    check("s64", 64, -0x1p63, 0x1p63, 0x8000000000000000ull);
    check("u64", 64, 0, 0x1p64, 0x8000000000000000ull);
    const auto whole = evaluate("cvt." + mode + ".f32.f32 $d, $a;", 32, {{32, a}});
    for (size_t n = 0; n < a.size(); ++n)
      ASSERT_EQ(whole[n], f32(a[n]) != f32(a[n])
                              ? 0x7FFFFFFF
                              : bits32(static_cast<float>(round(static_cast<double>(f32(a[n]))))))
          << mode << std::hex << " of " << a[n];
  }
}

TEST(PtxConvert, IntegerToFloatIsRoundedOnce) {
  std::vector<uint64_t> a;
  Draw draw;
  for (int bits = 1; bits <= 64; ++bits)
    for (int n = 0; n < 2000; ++n) a.push_back(draw() >> (64 - bits));
  const auto u = evaluate("cvt.rn.f32.u64 $d, $a;", 32, {{64, a}}),
             s = evaluate("cvt.rn.f32.s64 $d, $a;", 32, {{64, a}}),
             d = evaluate("cvt.rn.f64.u64 $d, $a;", 64, {{64, a}});
  const auto down = evaluate("cvt.rz.f32.s64 $d, $a;", 32, {{64, a}});
  for (size_t n = 0; n < a.size(); ++n) {
    ASSERT_EQ(u[n], bits32(static_cast<float>(a[n])));
    ASSERT_EQ(s[n], bits32(static_cast<float>(static_cast<int64_t>(a[n]))));
    ASSERT_EQ(d[n], std::bit_cast<uint64_t>(static_cast<double>(a[n])));
    float cut = static_cast<float>(static_cast<int64_t>(a[n]));
    if (std::fabs(static_cast<long double>(cut)) >
        std::fabs(static_cast<long double>(static_cast<int64_t>(a[n]))))
      cut = std::nextafter(cut, 0.0f);
    ASSERT_EQ(down[n], bits32(cut));
  }
}

TEST(PtxConvert, IntegersTruncateExtendAndSaturate) {
  std::vector<uint64_t> a;
  for (uint64_t n = 0; n < 65536; ++n) a.push_back(n << 8 | n >> 8);
  const auto s = evaluate("cvt.s32.s8 $d, $a;", 32, {{32, a}}),
             u = evaluate("cvt.u32.u8 $d, $a;", 32, {{32, a}}),
             sat = evaluate("cvt.sat.s8.s32 $d, $a;", 32, {{32, a}}),
             wide = evaluate("cvt.s64.s32 $d, $a;", 64, {{32, a}});
  for (size_t n = 0; n < a.size(); ++n) {
    ASSERT_EQ(s[n], static_cast<uint32_t>(static_cast<int8_t>(a[n])));
    ASSERT_EQ(u[n], a[n] & 0xFF);
    ASSERT_EQ(sat[n], static_cast<uint32_t>(std::min<int64_t>(static_cast<int64_t>(a[n]), 127)));
    ASSERT_EQ(wide[n], a[n]);
  }
}

// cvt.rs: of all 256 random bytes, as many round up as the dropped part has 256ths.
TEST(PtxConvert, RandomBitsRoundUpAsOftenAsTheFractionSays) {
  for (uint32_t eighths : {0u, 1u, 64u, 128u, 200u, 255u}) {
    std::vector<uint64_t> bits;
    for (uint64_t n = 0; n < 256; ++n) bits.push_back(n * 0x01010101);
    // Between 1.0 (code 2) and 1.5 (code 3).
    const uint64_t v = bits32(1.0f + 0.5f * static_cast<float>(eighths) / 256.0f);
    const auto got = evaluate("cvt.rs.satfinite.e2m1x4.f32 $d, {$a, $a, $a, $a}, $b;", 16,
                              {{32, std::vector<uint64_t>(256, v)}, {32, bits}});
    size_t up = 0;
    for (uint64_t d : got) {
      ASSERT_TRUE(d == 0x2222 || d == 0x3333) << std::hex << d;
      up += d == 0x3333;
    }
    EXPECT_EQ(up, eighths);
  }
}

}  // namespace
}  // namespace assay::ptx
