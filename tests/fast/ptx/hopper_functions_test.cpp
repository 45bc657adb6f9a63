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
    {F::ex2, 0x3E000000, 0xe32c3860f7a8385d},   {F::rcp, 0x3F800000, 0xfa72a6c698274964},
    {F::rsqrt, 0x3F800000, 0x0c40b0bdf554807c}, {F::rsqrt, 0x40000000, 0xac1e22b0ce75548b},
    {F::sqrt, 0x3F800000, 0xec162b03dcc39119},  {F::sqrt, 0x40000000, 0x30da7c2ce0196274},
};

uint64_t hash_of(F f, uint32_t first) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (uint32_t m = 0; m < 1u << 23; ++m) hash = (hash ^ hopper(f, first + m)) * 0x100000001b3u;
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
  EXPECT_EQ(hopper(F::rcp, 0), inf);
  EXPECT_EQ(hopper(F::rcp, 0x80000001), ninf);
  EXPECT_EQ(hopper(F::rcp, ninf), minus_zero);
  EXPECT_EQ(hopper(F::rcp, 0x7E800000), least);       // 2^126
  EXPECT_EQ(hopper(F::rcp, 0xFE800001), minus_zero);  // its result is subnormal
  EXPECT_EQ(hopper(F::ex2, subnormal), one);
  EXPECT_EQ(hopper(F::ex2, minus_zero), one);
  EXPECT_EQ(hopper(F::ex2, 0xC2FC0000), least);  // -126
  EXPECT_EQ(hopper(F::ex2, 0xC2FC0001), 0u);
  EXPECT_EQ(hopper(F::ex2, 0x43000000), inf);  // 128
  EXPECT_EQ(hopper(F::ex2, 0x7F7FFFFF), inf);
  EXPECT_EQ(hopper(F::ex2, 0xFF7FFFFF), 0u);
  EXPECT_EQ(hopper(F::ex2, inf), inf);
  EXPECT_EQ(hopper(F::ex2, ninf), 0u);
  EXPECT_EQ(hopper(F::ex2, 0x33000000), one);  // 2^-25
  EXPECT_EQ(hopper(F::rsqrt, 0x80000001), ninf);
  EXPECT_EQ(hopper(F::rsqrt, 0xBF800000), canonical);
  EXPECT_EQ(hopper(F::rsqrt, inf), 0u);
  EXPECT_EQ(hopper(F::rsqrt, 0x40800000), 0x3F000000u);
  EXPECT_EQ(hopper(F::sqrt, minus_zero), minus_zero);
  EXPECT_EQ(hopper(F::sqrt, subnormal), 0u);
  EXPECT_EQ(hopper(F::sqrt, inf), inf);
  EXPECT_EQ(hopper(F::sqrt, ninf), canonical);
  for (F f : {F::rcp, F::ex2, F::rsqrt, F::sqrt}) EXPECT_EQ(hopper(f, nan), canonical);
}

// Two last places is what the ISA allows ex2; the others are within one of the nearest number.
TEST(HopperFunctions, OtherBinadesAreAsNear) {
  const auto expect = [](F f, uint32_t operand, double exact, int64_t places) {
    const auto nearest = static_cast<int64_t>(std::bit_cast<uint32_t>(static_cast<float>(exact)));
    EXPECT_LE(std::abs(static_cast<int64_t>(hopper(f, operand)) - nearest), places)
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

TEST(HopperFunctions, WithoutFtzNormalNumbersAlone) {
  EXPECT_EQ(hopper_without_ftz(F::rcp, 0x40000000), 0x3F000000u);
  EXPECT_FALSE(hopper_without_ftz(F::rcp, 0x00000001));
  EXPECT_FALSE(hopper_without_ftz(F::rcp, 0x7F000000));  // 2^-127
  EXPECT_FALSE(hopper_without_ftz(F::ex2, 0xC3000000));  // 2^-128
  EXPECT_FALSE(hopper_without_ftz(F::sqrt, 0));
}

}  // namespace
}  // namespace assay::ptx
