// Casts: bytes worked by hand, and every value that matters against a search that knows nothing but the list
// of representable values: the nearest, the even code where two are equally near.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

// ---- hand-worked --------------------------------------------------------------------------------

uint8_t cast8(const std::string& to, uint32_t f32, const std::string& keys = "") {
  return run_line("cast " + to + " 1x1 f32 " + keys, {{"x", blob<uint32_t>({f32})}}).u8("y")[0];
}
uint32_t bits(float v) { return std::bit_cast<uint32_t>(v); }

TEST(Cast, HandWorkedFp8) {
  struct Row {
    uint32_t x;
    uint8_t e4m3, e5m2;
  };
  const Row rows[] = {
      {0x80000000, 0x80, 0x80},  // N2.5
      {0x3A800000, 0x00, 0x14},  // 2^-10: a tie between 0 and E4M3's least subnormal; the even code is 0
                                 // (N2.1)
      {0x3A800001, 0x01, 0x14},  // one ulp above
      {0x3B400000, 0x02, 0x1A},  // 1.5 * 2^-9: a tie between codes 1 and 2
      {0x3C700000, 0x08, 0x24},  // a tie between the largest subnormal and the least normal value
      {bits(17), 0x58, 0x4C},    // 17 ties in E4M3 (16, 18) and is nearest to 16 in E5M2
      {bits(19), 0x5A, 0x4D},    // 19 ties in E4M3 (18, 20): 20 is even
      {bits(21), 0x5A, 0x4D},    // 21 ties in E4M3 (20, 22): 20 is even
      {bits(448), 0x7E, 0x5F},
      {bits(464), 0x7E, 0x5F},    // rounds to 448: no overflow (N2.2)
      {bits(57344), 0x7E, 0x7B},  // saturates E4M3
      {bits(61440), 0x7E, 0x7B},  // would round to 65536: saturates E5M2
      {bits(1e30f), 0x7E, 0x7B},
      {0xFF800000, 0xFE, 0xFB},  // -infinity saturates with its sign
      {0x7FC00000, 0x7F, 0x7F},  // N2.4
      {0xFFC12345, 0x7F, 0x7F},  // N2.4: neither sign nor payload
      {bits(0.1f), 0x1D, 0x2E},
      {bits(-0.3f), 0xAA, 0xB5},
      {0x37000000, 0x00, 0x00},  // 2^-17: half of E5M2's least subnormal
      {0x37000001, 0x00, 0x01},
      {0xB7000000, 0x80, 0x80},  // N2.5: a negative value that rounds to zero
  };
  for (const Row& row : rows) {
    EXPECT_EQ(cast8("e4m3", row.x), row.e4m3) << std::hex << row.x;
    EXPECT_EQ(cast8("e5m2", row.x), row.e5m2) << std::hex << row.x;
  }
}

TEST(Cast, OverflowWithoutSaturation) {  // N2.3
  EXPECT_EQ(cast8("e4m3", bits(464), "overflow=nosat"), 0x7E);
  EXPECT_EQ(cast8("e4m3", bits(464) + 1, "overflow=nosat"), 0x7F);
  EXPECT_EQ(cast8("e4m3", bits(-1e9f), "overflow=nosat"), 0xFF);
  EXPECT_EQ(cast8("e5m2", bits(61440) - 1, "overflow=nosat"), 0x7B);
  EXPECT_EQ(cast8("e5m2", bits(61440), "overflow=nosat"), 0x7C);
  EXPECT_EQ(cast8("e5m2", 0xFF800000, "overflow=nosat"), 0xFC);
  EXPECT_EQ(cast8("e2m1", bits(-1e9f)), 0xF);
  EXPECT_EQ(cast8("e2m3", 0x7F800000), 0x1F);
  EXPECT_EQ(cast8("e3m2", 0xFF800000), 0x3F);
  // BF16 and F16 have no saturation: FLT_MAX rounds to infinity, and so does 65520, halfway past the largest
  // F16.
  EXPECT_EQ(run_line("cast bf16 1x2 f32", {{"x", blob<uint32_t>({0x7F7FFFFF, 0x7F7F7FFF})}}).u16("y"),
            (std::vector<uint16_t>{0x7F80, 0x7F7F}));
  EXPECT_EQ(run_line("cast f16 1x2 f32", {{"x", blob<uint32_t>({bits(65520), bits(-65519)})}}).u16("y"),
            (std::vector<uint16_t>{0x7C00, 0xFBFF}));
}

TEST(Cast, TowardZero) {  // N2.6
  EXPECT_EQ(cast8("e2m1", bits(5.99f), "round=rz"), 0x6);
  EXPECT_EQ(cast8("e2m1", bits(-0.49f), "round=rz"), 0x8);
  EXPECT_EQ(cast8("e4m3", bits(447.9f), "round=rz"), 0x7D);
  EXPECT_EQ(cast8("e4m3", bits(1e9f), "round=rz overflow=nosat"), 0x7E);
  EXPECT_EQ(cast8("e4m3", 0x7F800000, "round=rz overflow=nosat"), 0x7F);
  EXPECT_EQ(cast8("e4m3", 0x7F800000, "round=rz"), 0x7E);
  EXPECT_EQ(
      run_line("cast f16 1x3 f32 round=rz", {{"x", blob<uint32_t>({bits(1e30f), 0x7F800000, 0xFF800000})}})
          .u16("y"),
      (std::vector<uint16_t>{0x7BFF, 0x7C00, 0xFC00}));
}

TEST(Cast, NanOfEveryTarget) {  // N2.4, N1.3
  for (const uint32_t nan : {0x7F800001u, 0xFFFFFFFFu, 0xFFC00000u}) {
    for (const char* to : {"e4m3", "e5m2"}) EXPECT_EQ(cast8(to, nan, "overflow=nosat"), 0x7F) << to;
    EXPECT_EQ(cast8("e2m1", nan), 0x7);
    EXPECT_EQ(cast8("e2m3", nan), 0x1F);
    EXPECT_EQ(cast8("e3m2", nan), 0x1F);
    EXPECT_EQ(cast8("e8m0", nan, "round=rp"), 0xFF);
    EXPECT_EQ(run_line("cast bf16 1x1 f32", {{"x", blob<uint32_t>({nan})}}).u16("y")[0], 0x7FFF);
    EXPECT_EQ(run_line("cast f16 1x1 f32", {{"x", blob<uint32_t>({nan})}}).u16("y")[0], 0x7FFF);
  }
}

TEST(Cast, ToE8m0) {  // N2.7
  struct Row {
    uint32_t x;
    uint8_t rp, rz;
  };
  const Row rows[] = {
      {0x00000000, 0x00, 0x00}, {0x80000000, 0x00, 0x00}, {0x00000001, 0x00, 0x00},
      {0x00400000, 0x00, 0x00},                                                      // 2^-127
      {0x00400001, 0x01, 0x00}, {0x007FFFFF, 0x01, 0x00}, {0x00800000, 0x01, 0x01},  // 2^-126
      {0x3F800000, 0x7F, 0x7F}, {0x3F800001, 0x80, 0x7F}, {0xBF800001, 0x80, 0x7F},
      {0x3F7FFFFF, 0x7F, 0x7E}, {0x7F000000, 0xFE, 0xFE},  // 2^127
      {0x7F000001, 0xFE, 0xFE}, {0x7F7FFFFF, 0xFE, 0xFE}, {0x7F800000, 0xFE, 0xFE},
      {0xFF800000, 0xFE, 0xFE},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(cast8("e8m0", row.x, "round=rp"), row.rp) << std::hex << row.x;
    EXPECT_EQ(cast8("e8m0", row.x, "round=rz"), row.rz) << std::hex << row.x;
  }
  EXPECT_EQ(cast8("e8m0", 0x7F000000, "round=rp overflow=nosat"), 0xFE);
  EXPECT_EQ(cast8("e8m0", 0x7F000001, "round=rp overflow=nosat"), 0xFF);
  EXPECT_EQ(cast8("e8m0", 0x7F7FFFFF, "round=rz overflow=nosat"), 0xFE);
  EXPECT_EQ(cast8("e8m0", 0x7F800000, "round=rz overflow=nosat"), 0xFF);
}

TEST(Cast, Decoding) {  // N2.8
  EXPECT_EQ(
      run_line("cast f32 1x6 e4m3", {{"x", blob<uint8_t>({0x01, 0x08, 0x7E, 0x80, 0x7F, 0xFF})}}).u32("y"),
      (std::vector<uint32_t>{0x3B000000, 0x3C800000, 0x43E00000, 0x80000000, 0x7FFFFFFF, 0x7FFFFFFF}));
  EXPECT_EQ(run_line("cast f16 1x5 e5m2", {{"x", blob<uint8_t>({0x01, 0x7B, 0x7C, 0xFC, 0xFD})}}).u16("y"),
            (std::vector<uint16_t>{0x0100, 0x7B00, 0x7C00, 0xFC00, 0x7FFF}));
  EXPECT_EQ(run_line("cast bf16 1x4 e8m0", {{"x", blob<uint8_t>({0x00, 0x01, 0xFE, 0xFF})}}).u16("y"),
            (std::vector<uint16_t>{0x0040, 0x0080, 0x7F00, 0x7FFF}));
  EXPECT_EQ(run_line("cast f32 1x4 e8m0", {{"x", blob<uint8_t>({0x00, 0x01, 0xFE, 0xFF})}}).u32("y"),
            (std::vector<uint32_t>{0x00400000, 0x00800000, 0x7F000000, 0x7FFF0000}));
  EXPECT_EQ(run_line("cast f32 1x3 bf16", {{"x", blob<uint16_t>({0x7F81, 0xFFC3, 0x8001})}}).u32("y"),
            (std::vector<uint32_t>{0x7F810000, 0xFFC30000, 0x80010000}));
  EXPECT_EQ(run_line("cast f32 1x4 f16", {{"x", blob<uint16_t>({0x7C01, 0xFE00, 0xFC00, 0x0001})}}).u32("y"),
            (std::vector<uint32_t>{0x7FFFFFFF, 0x7FFFFFFF, 0xFF800000, 0x33800000}));
  EXPECT_EQ(run_line("cast f32 1x8 e2m1", {{"x", blob<uint8_t>({0, 1, 2, 3, 4, 5, 6, 15})}}).u32("y"),
            (std::vector<uint32_t>{0, bits(.5f), bits(1), bits(1.5f), bits(2), bits(3), bits(4), bits(-6)}));
}

// ---- by search ----------------------------------------------------------------------------------

// The value of a positive finite code, by its definition.
double value(const EncodingInfo& f, uint32_t code) {
  const int exponent = static_cast<int>(code >> f.mantissa_bits);
  const double fraction =
      std::ldexp(static_cast<double>(code & ((1u << f.mantissa_bits) - 1)), -f.mantissa_bits);
  if (!f.has_sign()) return std::ldexp(1.0, exponent - f.bias);
  return exponent == 0 ? std::ldexp(fraction, 1 - f.bias) : std::ldexp(1 + fraction, exponent - f.bias);
}

struct Target {
  Encoding encoding;
  std::vector<double>
      grid;  // values of the codes 0, 1, ... max_finite, and of the code after it, were it finite
  explicit Target(Encoding e) : encoding(e) {
    for (uint32_t code = 0; code <= info(e).max_finite + 1; ++code) grid.push_back(value(info(e), code));
  }

  uint32_t expected(double x, Round round, Overflow overflow) const {
    const EncodingInfo& f = info(encoding);
    if (std::isnan(x)) return f.nan;
    const uint32_t sign = f.has_sign() && std::signbit(x) ? 1u << (f.bits - 1) : 0;
    const bool saturates = f.bits < 8 || (f.bits == 8 && overflow == Overflow::sat);
    const uint32_t beyond = saturates ? f.max_finite : f.infinity != kNoCode ? f.infinity : f.nan;
    const double a = std::abs(x);
    if (std::isinf(a)) return sign + beyond;
    if (a > grid.back()) return sign + (round == Round::rz ? f.max_finite : beyond);
    const auto it = std::lower_bound(grid.begin(), grid.end(), a);  // first not below
    const uint32_t above = static_cast<uint32_t>(it - grid.begin());
    uint32_t code = above;
    if (*it != a) {
      const uint32_t below = above == 0 ? 0 : above - 1;
      if (round == Round::rz) code = below;
      else if (round == Round::rne && above != 0) {
        const double up = grid[above] - a, down = a - grid[below];  // exact: a and the grid are short
        code = down < up ? below : up < down ? above : (below % 2 == 0 ? below : above);
      }
    }
    if (code > f.max_finite) return sign + (round == Round::rz ? f.max_finite : beyond);
    return sign + code;
  }
};

// Every cast of `x` whose line exists, against the search.
template <class Code>
void search(Encoding source, const std::vector<Code>& x, const std::vector<double>& x_values) {
  for (Encoding to : {Encoding::bf16, Encoding::f16, Encoding::e4m3, Encoding::e5m2, Encoding::e2m3,
                      Encoding::e3m2, Encoding::e2m1, Encoding::e8m0}) {
    if (to == source) continue;
    const Target target(to);
    for (Round round : {Round::rne, Round::rz, Round::rp})
      for (Overflow overflow : {Overflow::sat, Overflow::nosat}) {
        const bool nosat = overflow == Overflow::nosat;
        const std::string line = "cast " + std::string(info(to).name) + " 1x" + std::to_string(x.size()) +
                                 " " + std::string(info(source).name) + " round=" +
                                 (round == Round::rne  ? "rne"
                                  : round == Round::rz ? "rz"
                                                       : "rp") +
                                 " overflow=" + (nosat ? "nosat" : "sat");
        if (!parse_line(line)) continue;
        const Blob y = run_line(line, {{"x", blob(x)}}).at("y");
        size_t wrong = 0;
        const std::vector<uint8_t> y8 = info(to).bytes() == 1 ? codes<uint8_t>(y) : std::vector<uint8_t>{};
        const std::vector<uint16_t> y16 =
            info(to).bytes() == 2 ? codes<uint16_t>(y) : std::vector<uint16_t>{};
        for (size_t i = 0; i < x.size() && wrong < 5; ++i) {
          const uint32_t got = y8.empty() ? y16[i] : y8[i],
                         want = target.expected(x_values[i], round, overflow);
          if (got != want) {
            ADD_FAILURE() << line << std::hex << ": " << static_cast<uint32_t>(x[i]) << " gives " << got
                          << ", expected " << want;
            ++wrong;
          }
        }
      }
  }
}

TEST(Cast, EveryBf16AgainstASearch) {
  std::vector<uint16_t> x;
  std::vector<double> values;
  for (uint32_t code = 0; code < 65536; ++code) {
    x.push_back(static_cast<uint16_t>(code));
    values.push_back(std::bit_cast<float>(code << 16));
  }
  search(Encoding::bf16, x, values);
}

TEST(Cast, EveryF16AgainstASearch) {
  std::vector<uint16_t> x;
  std::vector<double> values;
  for (uint32_t code = 0; code < 65536; ++code) {
    const uint32_t magnitude = code & 0x7FFF;
    const double v = magnitude > 0x7C00    ? std::nan("")
                     : magnitude == 0x7C00 ? INFINITY
                                           : value(info(Encoding::f16), magnitude);
    x.push_back(static_cast<uint16_t>(code));
    values.push_back(code & 0x8000 ? -v : v);
  }
  search(Encoding::f16, x, values);
  const std::vector<uint32_t> widened = run_line("cast f32 1x65536 f16", {{"x", blob(x)}}).u32("y");
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(widened[i], std::isnan(values[i]) ? 0x7FFFFFFF : bits(static_cast<float>(values[i]))) << i;
}

// Every value of every target, every midpoint between neighbours, and the binary32 values next to each.
TEST(Cast, EveryMidpointInF32AgainstASearch) {
  for (Encoding to : {Encoding::bf16, Encoding::f16, Encoding::e4m3, Encoding::e5m2, Encoding::e2m3,
                      Encoding::e3m2, Encoding::e2m1, Encoding::e8m0}) {
    const Target target(to);
    std::vector<uint32_t> x;
    std::vector<double> values;
    const auto add = [&](float v) {
      x.push_back(bits(v));
      values.push_back(v);
    };
    for (size_t code = 0; code + 1 < target.grid.size(); ++code)
      for (const double point : {target.grid[code], (target.grid[code] + target.grid[code + 1]) / 2})
        for (const float sign : {1.0f, -1.0f}) {
          const float v = static_cast<float>(point);
          if (static_cast<double>(v) != point) continue;  // a midpoint below binary32's last place
          for (const float near : {std::nextafter(v, 0.0f), v, std::nextafter(v, INFINITY)}) add(sign * near);
        }
    search(Encoding::f32, x, values);
  }
}

}  // namespace
}  // namespace assay
