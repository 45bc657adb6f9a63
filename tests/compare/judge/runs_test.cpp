#include "compare/judge/runs.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/compare/fakes.h"

namespace assay {
namespace {

// A race shows itself under some order, an unwritten byte under some poison: a suite must meet many of them.
TEST(Runs, TheOtherEnvironmentsOfASuiteAreMany) {
  const Environment base;
  std::set<uint64_t> orders;
  std::set<int> poisons, alignments;
  for (int seed = 0; seed < 200; ++seed) {
    const Problem p = fakes::problem("quantize mxfp8 8x64 bf16 seed=" + std::to_string(seed));
    const Environment other = other_environment(p, base);
    EXPECT_EQ(other, other_environment(p, base)) << seed;
    EXPECT_NE(other.order, base.order) << seed;
    EXPECT_NE(other.threads, base.threads) << seed;
    EXPECT_NE(other.poison, base.poison) << seed;
    EXPECT_NE(other.alignment, base.alignment) << seed;
    orders.insert(other.order);
    poisons.insert(other.poison);
    alignments.insert(other.alignment);
  }
  EXPECT_TRUE(orders.contains(Environment::kReverse));
  EXPECT_GT(orders.size(), 100u);
  EXPECT_EQ(poisons, (std::set<int>{0x00, 0x3C, 0xA5, 0xFF}));
  EXPECT_EQ(alignments, (std::set<int>{1, 4, 16, 64}));
}

// A failure prints the environment that repeats it, so a line must always get the same one.
TEST(Runs, TheOtherEnvironmentOfALineIsOneForGood) {
  EXPECT_EQ(to_text(other_environment(fakes::problem("quantize mxfp8 8x64 bf16 seed=3"), {})),
            "threads=2,order=reverse,poison=3c,alignment=64");
  EXPECT_EQ(to_text(other_environment(fakes::problem("quantize mxfp8 8x64 bf16 seed=4"), {})),
            "threads=2,order=707,poison=3c,alignment=1");
}

TEST(Runs, TheOtherEnvironmentDiffersFromAnyOne) {
  for (const Environment& base :
       {Environment{.threads = 2}, Environment{.order = Environment::kReverse}, Environment{.order = 17},
        Environment{.poison = 0xA5}, Environment{.poison = 0xFF}, Environment{.alignment = 16}})
    for (int seed = 0; seed < 50; ++seed) {
      const Problem p = fakes::problem("quantize mxfp8 8x64 bf16 seed=" + std::to_string(seed));
      const Environment other = other_environment(p, base);
      EXPECT_NE(other.order, base.order) << seed;
      EXPECT_NE(other.threads, base.threads) << seed;
      EXPECT_NE(other.poison, base.poison) << seed;
      EXPECT_NE(other.alignment, base.alignment) << seed;
    }
}

}  // namespace
}  // namespace assay
