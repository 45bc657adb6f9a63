// A sum that loses nothing, rounded once: cancellation over more bits than a double has, ties, and what lies
// just beside them.
#include "compare/arithmetic/expansion.h"

#include <cmath>
#include <initializer_list>

#include <gtest/gtest.h>

namespace assay {
namespace {

double sum_of(std::initializer_list<double> values) {
  Expansion sum;
  for (double v : values) sum.add(v);
  return sum.to_binary32();
}

TEST(Expansion, KeepsWhatADoubleLoses) {
  EXPECT_EQ(sum_of({0x1p60, 1, -0x1p60}), 1);
  EXPECT_EQ(sum_of({0x1p256, 0x1p-298, -0x1p256, 0x1p-140}), 0x1p-140);
  EXPECT_EQ(sum_of({3, -3}), 0);
  EXPECT_FALSE(std::signbit(sum_of({3, -3})));
  EXPECT_EQ(sum_of({}), 0);
}

TEST(Expansion, RoundsOnce) {
  const double half = 0x1p-24;  // half a unit of the last place of 1
  EXPECT_EQ(sum_of({1, half}), 1);
  EXPECT_EQ(sum_of({1, half, 0x1p-200}), 1 + 2 * half);
  EXPECT_EQ(sum_of({1, half, -0x1p-200}), 1);
  EXPECT_EQ(sum_of({1 + 2 * half, half}), 1 + 4 * half);
  EXPECT_EQ(sum_of({1 + 2 * half, half, -0x1p-200}), 1 + 2 * half);
  EXPECT_EQ(sum_of({-1, -half, -0x1p-200}), -(1 + 2 * half));
  EXPECT_EQ(sum_of({0x1p128, -0x1p100}), HUGE_VAL);
  EXPECT_EQ(sum_of({0x1.fffffep127, 0x1p102}), 0x1.fffffep127);
}

}  // namespace
}  // namespace assay
