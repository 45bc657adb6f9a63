// An H100's approximate functions, held to its recordings: the hash of the results of all operands of a
// binade (benchmarks/results/h100.json, `approximate` and `rcp_approx_ftz`).
#include "fast/ptx/hopper_functions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <thread>
#include <vector>

namespace assay::ptx {
namespace {

using F = HopperFunction;

struct Binade {
  F function;
  uint32_t first;  // the pattern of its first operand
  uint64_t fnv1a;  // of the patterns of its 2^23 results
};
constexpr Binade kRecorded[] = {
    {F::ex2, 0xBF800000, 0xbf4f30a37a9d5b98},   {F::ex2, 0xBF000000, 0x86cbd167bc4daa17},
    {F::ex2, 0xBE800000, 0xb04adae940fe7d01},   {F::ex2, 0xC0000000, 0xdaa1ba683a8832e1},
    {F::ex2, 0x3F800000, 0x3f0f3852f2fa7edb},   {F::ex2, 0x3F000000, 0x1938ae1ca053e4e7},
    {F::rcp, 0x00800000, 0x97aeedbb52274964},   {F::rcp, 0x32000000, 0x4a101d9f5b274964},
    {F::rcp, 0x7E000000, 0xf7beecd913274964},   {F::rcp, 0x7E800000, 0xcfbb2df54ea22325},
    {F::ex2, 0x3E000000, 0xe32c3860f7a8385d},   {F::rcp, 0x3F800000, 0xfa72a6c698274964},
    {F::rsqrt, 0x3F800000, 0x0c40b0bdf554807c}, {F::rsqrt, 0x40000000, 0xac1e22b0ce75548b},
    {F::sqrt, 0x3F800000, 0xec162b03dcc39119},  {F::sqrt, 0x40000000, 0x30da7c2ce0196274},
};

uint64_t hash_of(F f, uint32_t first) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint32_t m = 0; m < 1u << 23; ++m) hash = (hash ^ hopper(f, true, first + m)) * 0x100000001b3u;
  return hash;
}

TEST(HopperFunctions, EveryResultOfTheRecordedBinades) {
  std::vector<uint64_t> found(std::size(kRecorded));
  std::vector<std::thread> threads;
  for (size_t part = 0; part < 2; ++part)
    threads.emplace_back([&, part] {
      for (size_t n = part; n < found.size(); n += 2)
        found[n] = hash_of(kRecorded[n].function, kRecorded[n].first);
    });
  for (std::thread& t : threads) t.join();
  for (size_t n = 0; n < found.size(); ++n)
    EXPECT_EQ(found[n], kRecorded[n].fnv1a)
        << static_cast<int>(kRecorded[n].function) << " " << std::hex << kRecorded[n].first;
}

// 9.7.3.13 and the following: the tables of special operands.
TEST(HopperFunctions, SpecialOperands) {
  const uint32_t inf = 0x7F800000, ninf = 0xFF800000, nan = 0x7FC00001, subnormal = 0x00000001,
                 one = 0x3F800000, canonical = 0x7FFFFFFF, minus_zero = 0x80000000, least = 0x00800000;
  EXPECT_EQ(hopper(F::rcp, true, 0), inf);
  EXPECT_EQ(hopper(F::rcp, true, 0x80000001), ninf);
  EXPECT_EQ(hopper(F::rcp, true, ninf), minus_zero);
  EXPECT_EQ(hopper(F::rcp, true, 0x7E800000), least);       // 2^126
  EXPECT_EQ(hopper(F::rcp, true, 0xFE800001), minus_zero);  // its result is subnormal
  EXPECT_EQ(hopper(F::ex2, true, subnormal), one);
  EXPECT_EQ(hopper(F::ex2, true, minus_zero), one);
  EXPECT_EQ(hopper(F::ex2, true, 0xC2FC0000), least);  // -126
  EXPECT_EQ(hopper(F::ex2, true, 0xC2FC0001), 0u);
  EXPECT_EQ(hopper(F::ex2, true, 0x43000000), inf);  // 128
  EXPECT_EQ(hopper(F::ex2, true, 0x7F7FFFFF), inf);
  EXPECT_EQ(hopper(F::ex2, true, 0xFF7FFFFF), 0u);
  EXPECT_EQ(hopper(F::ex2, true, inf), inf);
  EXPECT_EQ(hopper(F::ex2, true, ninf), 0u);
  EXPECT_EQ(hopper(F::ex2, true, 0x33000000), one);  // 2^-25
  EXPECT_EQ(hopper(F::rsqrt, true, 0x80000001), ninf);
  EXPECT_EQ(hopper(F::rsqrt, true, 0xBF800000), canonical);
  EXPECT_EQ(hopper(F::rsqrt, true, inf), 0u);
  EXPECT_EQ(hopper(F::rsqrt, true, 0x40800000), 0x3F000000u);
  EXPECT_EQ(hopper(F::sqrt, true, minus_zero), minus_zero);
  EXPECT_EQ(hopper(F::sqrt, true, subnormal), 0u);
  EXPECT_EQ(hopper(F::sqrt, true, inf), inf);
  EXPECT_EQ(hopper(F::sqrt, true, ninf), canonical);
  for (F f : {F::rcp, F::ex2, F::rsqrt, F::sqrt}) EXPECT_EQ(hopper(f, true, nan), canonical);
}

// ex2 and rsqrt are up to two last places off, the others one.
TEST(HopperFunctions, OtherBinadesAreAsNear) {
  const auto expect = [](F f, uint32_t operand, double exact, int64_t places) {
    const auto nearest = static_cast<int64_t>(std::bit_cast<uint32_t>(static_cast<float>(exact)));
    EXPECT_LE(std::abs(static_cast<int64_t>(hopper(f, true, operand)) - nearest), places)
        << static_cast<int>(f) << " " << std::hex << operand;
  };
  for (uint32_t operand = 0x00800000; operand < 0x7E800000; operand += 77777) {
    const double x = std::bit_cast<float>(operand);
    expect(F::rcp, operand, 1 / x, 1);
    expect(F::rsqrt, operand, 1 / std::sqrt(x), 2);
    expect(F::sqrt, operand, std::sqrt(x), 1);
    if (x >= 126) continue;
    expect(F::ex2, operand, std::exp2(x), 2);
    expect(F::ex2, operand | 0x80000000, std::exp2(-x), 2);
  }
}

// Subnormal operands and results are scaled around the unit.
TEST(HopperFunctions, WithoutFtz) {
  EXPECT_EQ(hopper(F::rcp, false, 0x40000000), 0x3F000000u);
  EXPECT_EQ(hopper(F::rcp, false, 0x00400000), 0x7F000000u);  // of 2^-127
  EXPECT_EQ(hopper(F::rcp, false, 0x00000001), 0x7F800000u);
  EXPECT_EQ(hopper(F::rcp, false, 0x7F000000), 0x00400000u);  // 2^-127
  EXPECT_EQ(hopper(F::rcp, false, 0x80000000), 0xFF800000u);
  EXPECT_EQ(hopper(F::ex2, false, 0xC3000000), 0x00200000u);  // 2^-128
  EXPECT_EQ(hopper(F::ex2, false, 0xC3160000), 0u);           // 2^-150
  EXPECT_EQ(hopper(F::ex2, false, 0x7FC00000), 0x7FFFFFFFu);
  EXPECT_EQ(hopper(F::sqrt, false, 0x00200000), 0x1F800000u);  // of 2^-128
  EXPECT_EQ(hopper(F::rsqrt, false, 0x00200000), 0x5F800000u);
  EXPECT_EQ(hopper(F::rsqrt, false, 0x3F812345), hopper(F::rsqrt, true, 0x3F812345));
}

// The dividend times the reciprocal; div.full scales both where the reciprocal would be a zero.
TEST(HopperFunctions, Quotients) {
  const uint32_t three = 0x40400000, one = 0x3F800000, large = 0x7F400000,
                 subnormal = 0x00400000;  // 1.5 x 2^127, 2^-127
  for (F f : {F::div_approx, F::div_full})
    for (bool ftz : {false, true}) {
      EXPECT_EQ(hopper(f, ftz, one, three), hopper(F::rcp, true, three));
      EXPECT_EQ(hopper(f, ftz, three, 0x40000000), 0x3FC00000u);
      EXPECT_EQ(hopper(f, ftz, 0xC0400000, 0), 0xFF800000u);
      EXPECT_EQ(hopper(f, ftz, 0, 0x80000000), 0x7FFFFFFFu);
      EXPECT_EQ(hopper(f, ftz, large, large), f == F::div_full ? one : 0u);
      EXPECT_EQ(hopper(f, ftz, subnormal, subnormal), ftz ? 0x7FFFFFFFu : one);
    }
  EXPECT_EQ(hopper(F::div_full, true, 0x00800000, 0x40000000), 0u);  // 2^-127
  EXPECT_EQ(hopper(F::div_full, false, 0x00800000, 0x40000000), subnormal);
}

// A quotient is rounded twice, and a power below 2^-126 is squared.
TEST(HopperFunctions, RoundingsAroundTheUnit) {
  const auto value = [](uint32_t pattern) { return std::bit_cast<float>(pattern); };
  const auto pattern = [](float v) { return std::bit_cast<uint32_t>(v); };
  int apart = 0;
  for (int n = 1; n <= 64; ++n) {
    const auto a = static_cast<float>(n);
    const uint32_t found = hopper(F::div_full, false, pattern(a), pattern(49.0f));
    EXPECT_EQ(value(found), value(hopper(F::rcp, true, pattern(49.0f))) * a) << n;
    apart += value(found) != a / 49.0f;
    const float x = -126.0f - a / 32.0f, root = value(hopper(F::ex2, true, pattern(x / 2)));
    EXPECT_EQ(hopper(F::ex2, false, pattern(x)), pattern(root * root)) << n;
  }
  EXPECT_GT(apart, 8);
}

}  // namespace
}  // namespace assay::ptx
