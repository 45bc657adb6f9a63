// The lanes against third-party tables, and against what any correct cast must satisfy.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "fast/formats/fp8_current_scale.h"
#include "fast/lane/convert.cuh"
#include "fast/lane/decode.cuh"
#include "fast/lane/e2m1_bf16.cuh"
#include "fast/lane/fp8_current.cuh"
#include "fast/lane/fp8_delayed.cuh"
#include "fast/lane/mxfp8.cuh"
#include "fast/lane/source.cuh"
#include "fixtures/safetensors.h"
#include "tests/source_path.h"

namespace assay::fast_host {
namespace {

constexpr Encoding kSmall[] = {Encoding::bf16, Encoding::f16,  Encoding::e4m3, Encoding::e5m2,
                               Encoding::e2m3, Encoding::e3m2, Encoding::e2m1};

double value(uint32_t f32_bits) { return static_cast<double>(std::bit_cast<float>(f32_bits)); }

std::vector<uint32_t> elements(const safetensors::Tensor& t) {
  const size_t bytes = static_cast<size_t>(safetensors::bits(t.dtype)) / 8;
  std::vector<uint32_t> out(static_cast<size_t>(t.count()));
  for (size_t i = 0; i < out.size(); ++i) std::memcpy(&out[i], t.bytes.data() + i * bytes, bytes);
  return out;
}
safetensors::File vectors(const std::string& name) {
  auto file = safetensors::read(source_path("fixtures/vectors/") + name + ".safetensors");
  if (!file) throw std::runtime_error(file.error().text());
  return *file;
}

// Every binary32 pattern whose low half is one of a few, and a strided sample of all: 2^16 * 5 + 2^32 / 509.
void for_sampled_f32(const std::function<void(uint32_t)>& f) {
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0xFFFFu}) f(high << 16 | low);
  for (uint64_t u = 0; u < uint64_t{1} << 32; u += 509) f(static_cast<uint32_t>(u));
}

// "e4m3.satfinite", "e2m1.rz", "e8m0.rp.nosat", "bf16.rn", "te_float_to_e8m0"
uint32_t by_table_name(const std::string& name, uint32_t bits) {
  if (name == "te_float_to_e8m0") return encode_e8m0(bits);
  const Encoding to = *encoding_named(name.substr(0, name.find('.')));
  const bool sat = name.find("nosat") == std::string::npos && to != Encoding::bf16 && to != Encoding::f16;
  const Round round = name.find(".rz") != std::string::npos   ? Round::rz
                      : name.find(".rp") != std::string::npos ? Round::rp
                                                              : Round::rne;
  return encode_to(to, bits, round, sat ? Overflow::sat : Overflow::nosat);
}

TEST(Lanes, CastsEqualTheTables) {
  for (const auto& [name, source] : {std::pair{"tab_bf16_all_a", Encoding::bf16},
                                     {"tab_f16_all_a", Encoding::f16},
                                     {"tab_f32_modes", Encoding::f32}}) {
    const safetensors::File file = vectors(name);
    const std::vector<uint32_t> in = elements(*file.find("input"));
    int tables = 0;
    for (const safetensors::Tensor& t : file.tensors()) {
      if (t.name == "input") continue;
      const std::vector<uint32_t> want = elements(t);
      ASSERT_EQ(in.size(), want.size());
      ++tables;
      for (size_t i = 0; i < in.size(); ++i)
        ASSERT_EQ(by_table_name(t.name, decode_from(source, in[i])), want[i])
            << name << ' ' << t.name << " of " << std::hex << in[i];
    }
    EXPECT_GE(tables, 3) << name;
  }
}

TEST(Lanes, DecodingEqualsTheTables) {
  const safetensors::File file = vectors("tab_decode");
  int judged = 0;
  for (const safetensors::Tensor& t : file.tensors()) {
    if (t.name.find("te_dequant_ref_scale") != std::string::npos) continue;  // informs only
    const std::vector<uint32_t> want = elements(t);
    for (uint32_t code = 0; code < want.size(); ++code, ++judged) {
      uint32_t got;
      if (t.name == "e8m0.te_exp2f_rcp.f32") {
        got = mx_multiplier(code);
      } else if (t.name == "e8m0.te_kernel_exp2f.f32") {
        got = mx_scale(code);
      } else {
        const size_t dot = t.name.find('.');
        const uint32_t wide = decode_from(*encoding_named(t.name.substr(0, dot)), code);
        const Encoding out = *encoding_named(t.name.substr(dot + 1));
        got = out == Encoding::f32 ? wide : encode_to(out, wide, Round::rne, Overflow::nosat);
      }
      ASSERT_EQ(got, want[code]) << t.name << " code " << std::hex << code;
    }
  }
  EXPECT_GT(judged, 2000);
}

// Nearest with ties to even, or truncated: compared in binary64 with the two neighbouring codes.
TEST(Lanes, CastsChooseTheRightNeighbour) {
  for (Encoding to : kSmall) {
    const EncodingInfo& e = info(to);
    const uint32_t sign = 1u << (e.bits - 1);
    const double largest = value(decode_from(to, e.max_finite)),
                 last_step = largest - value(decode_from(to, e.max_finite - 1));
    for_sampled_f32([&](uint32_t x) {
      if (is_nan(x) || (x & kAbs) == kInf) return;
      const double a = std::fabs(value(x));
      for (Round round : {Round::rne, Round::rz}) {
        const uint32_t code = encode_to(to, x, round, Overflow::sat), magnitude = code & (sign - 1);
        ASSERT_EQ((code & sign) != 0, (x & kSign) != 0);
        ASSERT_LE(magnitude, e.max_finite);
        const double v = value(decode_from(to, magnitude));
        const double above =
            magnitude == e.max_finite ? largest + last_step : value(decode_from(to, magnitude + 1));
        const double below = magnitude == 0 ? 0 : value(decode_from(to, magnitude - 1));
        if (a >= largest) {
          ASSERT_EQ(magnitude, e.max_finite);
        } else if (round == Round::rz) {
          ASSERT_TRUE(v <= a && a < above) << e.name << ' ' << std::hex << x;
        } else {
          const double d = std::fabs(a - v), to_above = above - a,
                       to_below = magnitude == 0 ? d + 1 : a - below;
          ASSERT_TRUE(d <= to_above && d <= to_below) << e.name << ' ' << std::hex << x;
          ASSERT_TRUE((d != to_above && d != to_below) || magnitude % 2 == 0)
              << e.name << " tie " << std::hex << x;
        }
      }
    });
  }
}

TEST(Lanes, OverflowWithoutSaturation) {
  for (Encoding to : kSmall) {
    const EncodingInfo& e = info(to);
    if (to == Encoding::e2m1 || to == Encoding::e2m3 || to == Encoding::e3m2)
      continue;  // they always saturate
    const uint32_t sign = 1u << (e.bits - 1), beyond = e.infinity == kNoCode ? e.nan : e.infinity;
    const double largest = value(decode_from(to, e.max_finite)),
                 step = largest - value(decode_from(to, e.max_finite - 1));
    const float tie = static_cast<float>(largest + step / 2);
    // An odd largest code rounds its tie away from itself, an even one to itself.
    const bool tie_overflows = e.max_finite % 2 == 1;
    for (uint32_t s : {0u, kSign}) {
      const uint32_t code_sign = s ? sign : 0;
      EXPECT_EQ(encode_to(to, std::bit_cast<uint32_t>(tie) | s, Round::rne, Overflow::nosat),
                (tie_overflows ? beyond : e.max_finite) | code_sign)
          << e.name;
      EXPECT_EQ(encode_to(to, kInf | s, Round::rne, Overflow::nosat), beyond | code_sign) << e.name;
      EXPECT_EQ(encode_to(to, kInf | s, Round::rz, Overflow::nosat), beyond | code_sign) << e.name;
      EXPECT_EQ(encode_to(to, kInf | s, Round::rne, Overflow::sat), e.max_finite | code_sign) << e.name;
      EXPECT_EQ(encode_to(to, kNan | s, Round::rne, Overflow::nosat), e.nan) << e.name;
      EXPECT_EQ(encode_to(to, 0x7F800001u | s, Round::rz, Overflow::sat), e.nan) << e.name;
    }
  }
}

TEST(Lanes, EveryCodeSurvivesDecodingAndEncoding) {
  for (Encoding e : kSmall) {
    const uint32_t count = 1u << info(e).bits;
    for (uint32_t code = 0; code < count; ++code) {
      const uint32_t wide = decode_from(e, code);
      if (is_nan(wide)) ASSERT_EQ(encode_to(e, wide, Round::rne, Overflow::nosat), info(e).nan);
      else ASSERT_EQ(encode_to(e, wide, Round::rne, Overflow::nosat), code) << info(e).name;
    }
  }
  for (uint32_t code = 0; code < 255; ++code) ASSERT_EQ(encode_e8m0(decode<Encoding::e8m0>(code)), code);
}

TEST(Lanes, ConversionPoliciesAgree) {
  auto check = [](uint32_t x) {
    const float v = std::bit_cast<float>(x);
    ASSERT_EQ((Hardware::pair<Encoding::e4m3>(v, -v)), (Bits::pair<Encoding::e4m3>(v, -v))) << std::hex << x;
    ASSERT_EQ((Hardware::pair<Encoding::e5m2>(v, -v)), (Bits::pair<Encoding::e5m2>(v, -v))) << std::hex << x;
    ASSERT_EQ((Hardware::pair<Encoding::e2m1>(v, -v)), (Bits::pair<Encoding::e2m1>(v, -v))) << std::hex << x;
    ASSERT_EQ(Hardware::e8m0(v), Bits::e8m0(v)) << std::hex << x;
  };
  for_sampled_f32(check);
  for (uint32_t h = 0; h < 0x10000; ++h) check(decode<Encoding::f16>(h));
}

// Each of the eight places, among neighbours of other signs and magnitudes; guarded, and where that is
// allowed without the guard.
TEST(Lanes, EightCodesByTheAdderAreThoseOfTheIntegers) {
  const float around[] = {0.25f, -6.0f, 2.5f, -0.0f, 5.0f, -1.75f, 0.75f, 3.5f};
  auto check = [&](uint32_t x) {
    const int place = static_cast<int>(x % 8u);
    float values[8];
    uint32_t want = 0;
    for (int k = 0; k < 8; ++k) {
      values[k] = k == place ? std::bit_cast<float>(x) : around[k];
      want |= Bits::pair<Encoding::e2m1>(values[k], 0.0f) << (4 * k);
    }
    const bool tame = fabsf(values[place]) < 7.0f;
    const uint32_t signs = e2m1_signs(values);
    ASSERT_EQ(Hardware::e2m1_codes(values, 1.0f, signs, false), want) << std::hex << x;
    if (tame) {
      ASSERT_EQ(Hardware::e2m1_codes(values, 1.0f, signs, true), want) << std::hex << x;
    }
  };
  for (uint64_t x = 0; x < uint64_t{1} << 32 && !HasFailure(); x += 40503) check(static_cast<uint32_t>(x));
  for (uint32_t midpoint : {0x3E800000u, 0x3F400000u, 0x3FA00000u, 0x3FE00000u, 0x40200000u, 0x40600000u,
                            0x40A00000u, 0x40C00000u, 0x40E00000u, 0x40000000u, 0x3F800000u, kInf})
    for (uint32_t step = 0; step < 16; ++step)
      for (uint32_t sign : {0u, kSign}) check((midpoint - 8u + step) | sign);
}

// Every BF16 magnitude under every scale code that the lines take, beside one of another code.
TEST(Lanes, TwoCodesByTheLinesOfBf16AreThoseOfTheIntegers) {
  const auto product = [](uint32_t x, uint32_t code) {
    return std::bit_cast<float>(x << 16) * std::bit_cast<float>(mx_multiplier(code));
  };
  int64_t tried = 0;
  for (uint32_t code = 0; code <= kLargestLineCode; ++code) {
    const uint32_t neighbour = (code + 1) % (kLargestLineCode + 1);
    const E2m1Lines by = E2m1Lines::of(code | neighbour << 16);
    for (uint32_t x = 0; x < Layout<Encoding::bf16>::kInfCode; ++x) {
      if (product(x, code) >= 7.0f) break;
      const uint32_t other = product(x ^ 1u, neighbour) < 7.0f ? x ^ 1u : 0u,
                     want = Bits::pair<Encoding::e2m1>(product(x, code), product(other, neighbour));
      const uint32_t sums = e2m1_line_sums(x | other << 16, by) - kLineBase;
      ASSERT_EQ(sums, (want & 0xFu) | want >> 4 << 16) << std::hex << x << " under " << code;
      ++tried;
    }
  }
  EXPECT_GT(tried, 4'000'000);
}
TEST(Lanes, SumsOfLinesArePackedInTheOrderOfElements) {
  uint32_t seed = 3;
  for (int i = 0; i < 20000; ++i) {
    uint32_t sums[8], row = 0, first = 0, second = 0;
    for (int k = 0; k < 8; ++k) {
      seed = seed * 1664525u + 1013904223u;
      const uint32_t low = seed >> 13 & 7u, high = seed >> 21 & 7u;
      sums[k] = kLineBase + (low | high << 16);
      if (k < 4) row |= (low | high << 4) << (8 * k);
      first |= low << (4 * k), second |= high << (4 * k);
    }
    ASSERT_EQ(e2m1_of_row({sums[0], sums[1], sums[2], sums[3]}), row);
    const uint2 columns = e2m1_of_columns(sums);
    ASSERT_EQ(columns.x, first);
    ASSERT_EQ(columns.y, second);
  }
}

TEST(Lanes, PackedWordsAgreeWithSingleElements) {
  auto check = [](auto source) {
    using S = decltype(source);
    uint32_t seed = 1;
    for (int i = 0; i < 200000; ++i) {
      seed = seed * 1664525u + 1013904223u;
      // Every other word draws its halves from NaN, infinity and their neighbours.
      const uint32_t edge = S::kInfCode | S::kInfCode << 16,
                     word = (i % 2 ? seed : edge + (seed & 0x00030003u) - 0x00010001u) & 0x7FFF7FFFu;
      const uint32_t low = word & 0xFFFFu, high = word >> 16, other = (seed >> 3) & 0x7FFF7FFFu;
      EXPECT_EQ(S::max(word, other), std::max(low, other & 0xFFFFu) | std::max(high, other >> 16) << 16);
      EXPECT_EQ(S::any_nan(word), low > S::kInfCode || high > S::kInfCode);
      EXPECT_EQ(S::drop_nan(word), (low > S::kInfCode ? 0 : low) | (high > S::kInfCode ? 0 : high) << 16);
      EXPECT_EQ(S::widen(&word, 0), decode_from(S::kEncoding, low));
      EXPECT_EQ(S::widen(&word, 1), decode_from(S::kEncoding, high));
    }
  };
  check(Source<Encoding::bf16>{});
  check(Source<Encoding::f16>{});
}

TEST(Lanes, PowersOfTwoRoundOnce) {
  uint32_t seed = 7;
  for (int i = 0; i < 400000; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const uint32_t x = i % 3 == 0 ? seed & 0x80FFFFFFu : seed;
    const int n = static_cast<int>(seed >> 7) % 400 - (i % 5 == 0 ? 300 : 60);
    if (is_nan(x)) continue;
    const float want = static_cast<float>(std::ldexp(value(x), n));
    ASSERT_EQ(times_power_of_two(x, n), std::bit_cast<uint32_t>(want))
        << std::hex << x << std::dec << ' ' << n;
  }
  EXPECT_EQ(times_power_of_two(0x43E00000u, 5000), kInf);
  EXPECT_EQ(times_power_of_two(0xC3E00000u, -5000), kSign);
}

// Hand-worked: N3.2 to N3.7.
TEST(Lanes, CurrentScale) {
  CurrentScale e4m3;
  e4m3.largest = kLargest<Encoding::e4m3>;
  EXPECT_EQ(e4m3.largest, 0x43E00000u);              // 448
  EXPECT_EQ(kLargest<Encoding::e5m2>, 0x47600000u);  // 57344
  EXPECT_EQ(e4m3(0x43E00000u).scale, kOne);          // 448 / 448
  EXPECT_EQ(e4m3(0x40400000u).scale, 0x43155555u);   // 448 / 3 = 149.33333
  EXPECT_EQ(e4m3(0).scale, kOne);
  EXPECT_EQ(e4m3(kInf).scale, kOne);
  EXPECT_EQ(e4m3(kNan).scale, kOne);
  EXPECT_EQ(e4m3(1).scale, kMaxFinite);  // overflows
  EXPECT_EQ(reciprocal(kMaxFinite), 0x00200000u);
  EXPECT_EQ(reciprocal(0), kInf);
  EXPECT_EQ(reciprocal(0xFFC00000u), kNan);
  CurrentScale pow2 = e4m3;
  pow2.pow2 = true;
  EXPECT_EQ(pow2(0x40400000u).scale, 0x43000000u);  // 128
  EXPECT_EQ(pow2(1).scale, 0x7F000000u);            // 2^127
  EXPECT_EQ(pow2(0).scale, kOne);
  CurrentScale other = e4m3;
  other.inf_amax = InfAmax::zero;
  other.limit = kLargest<Encoding::bf16>;
  EXPECT_EQ(other(kInf).scale, 0u);
  EXPECT_EQ(other(1).scale, 0x7F7F0000u);
  CurrentScale eps = e4m3;
  eps.eps = 0x3F800000u;
  EXPECT_EQ(eps(0).scale, e4m3.largest);  // 448 / 1
  EXPECT_EQ(eps(kNan).scale, kOne);
}

// Hand-worked: N4.5 to N4.7.
TEST(Lanes, DelayedScale) {
  DelayedScale bulk{kLargest<Encoding::e4m3>, UpdateRule::bulk, 0},
      unfused{kLargest<Encoding::e4m3>, UpdateRule::unfused, 0};
  EXPECT_EQ(bulk(0x40000000u, kOne), 0x43600000u);  // 448 / 2
  EXPECT_EQ(bulk(0, 0x40000000u), 0x40000000u);
  EXPECT_EQ(bulk(kInf, 0x40000000u), 0x40000000u);
  EXPECT_EQ(bulk(kNan, 0x40000000u), 0x40000000u);
  EXPECT_EQ(bulk(0xC0000000u, 0x40000000u), 0x40000000u);  // -2 is not above 0
  EXPECT_EQ(bulk(1, kOne), kMaxFinite);
  EXPECT_EQ(bulk(0, kInf), kMaxFinite);
  EXPECT_EQ(bulk(0, kSign | kInf), kMaxFinite);
  EXPECT_EQ(unfused(0, kSign | kInf), kSign | kInf);
  EXPECT_EQ(bulk(0x40400000u, kOne), 0x43155555u);     // 448 / 3
  EXPECT_EQ(unfused(0x40400000u, kOne), 0x43155556u);  // 448 * fl(1 / 3)
  bulk.margin = unfused.margin = 2;
  EXPECT_EQ(bulk(0x40000000u, kOne), 0x42600000u);  // 448 / 4 / 2
  EXPECT_EQ(unfused(0x40000000u, kOne), 0x42600000u);
  bulk.margin = unfused.margin = 140;  // 448 * 2^-140 is subnormal, and so is the quotient after the division
  EXPECT_EQ(bulk(0x40400000u, kOne),
            std::bit_cast<uint32_t>(static_cast<float>(std::ldexp(448.0, -140) / 3)));
  EXPECT_EQ(unfused(0x00000400u, kOne), kMaxFinite);  // overflows before the margin is applied
  EXPECT_NE(bulk(0x00000400u, kOne), kMaxFinite);
}

}  // namespace
}  // namespace assay::fast_host
