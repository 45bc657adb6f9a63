// Codes from values: the inverse of value_of, by what the words mean.
#include "compare/arithmetic/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/rotation.h"

namespace assay {
namespace {

// By what nearest means, ties to even, over every exponent.
TEST(Encode, NearestBf16) {
  const auto of = [](uint32_t code) { return value_of(Encoding::bf16, code); };
  uint64_t state = 1;
  for (int n = 0; n < 400000; ++n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t below = static_cast<uint32_t>(state >> 33) % 0x7F7F;  // a magnitude, and the next
    const double low = of(below), high = of(below + 1);
    const double part[] = {0, 0x1p-40, 0.25, 0.5 - 0x1p-40, 0.5, 0.5 + 0x1p-40, 0.75, 1 - 0x1p-40};
    const int p = static_cast<int>(state >> 20 & 7);
    const double v = low + (high - low) * part[p];
    const uint32_t want = below + (p > 4 || (p == 4 && (below & 1) != 0));
    ASSERT_EQ(nearest_code(Encoding::bf16, v), want) << v;
    if (v != 0) {
      ASSERT_EQ(nearest_code(Encoding::bf16, -v), 0x8000 | want) << v;
    }
  }
}

TEST(Encode, EveryElementCodeIsItsOwn) {
  for (const Encoding e : {Encoding::e4m3, Encoding::e5m2, Encoding::e2m1})
    for (uint32_t code = 0; code <= info(e).max_finite; ++code) {
      EXPECT_EQ(element_code(e, value_of(e, code)), code);
      EXPECT_EQ(element_code(e, -value_of(e, code)), sign_bit(e) | code);
    }
}

TEST(Encode, ElementsSaturate) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Encoding e : {Encoding::e4m3, Encoding::e5m2, Encoding::e2m1}) {
    EXPECT_EQ(element_code(e, infinity), info(e).max_finite);
    EXPECT_EQ(element_code(e, -1e30), sign_bit(e) | info(e).max_finite);
    EXPECT_EQ(element_code(e, std::nan("")), info(e).nan);
  }
}

TEST(Encode, TruncatedNeverGrows) {
  EXPECT_EQ(truncated_code(Encoding::f16, 65535), 0x7BFFu);
  EXPECT_EQ(truncated_code(Encoding::f16, 1e9), 0x7BFFu);
  EXPECT_EQ(truncated_code(Encoding::f16, -std::numeric_limits<double>::infinity()), 0xFC00u);
  EXPECT_EQ(truncated_code(Encoding::bf16, 1.999), 0x3FFFu);
}

// On small integers no sum of the butterflies is rounded, so that both forms of the rotation agree.
TEST(Rotation, ButterfliesSumWhatTheMatrixSays) {
  PlaneData x;
  x.plane.encoding = Encoding::f32;
  x.plane.logical = x.plane.padded = {16, 1};
  x.bytes.resize(64);
  float v[16];
  for (int i = 0; i < 16; ++i) {
    v[i] = static_cast<float>(i * i % 7 - 3);
    set_code(Encoding::f32, x.bytes, i, nearest_code(Encoding::f32, static_cast<double>(v[i])));
  }
  for (int64_t k = 0; k < 16; ++k) {
    const auto exact = rotated(x, 0xD7E8, k, 0);
    ASSERT_TRUE(exact);
    EXPECT_EQ(rotated16(v, 0xD7E8, k) * 4, *exact);
  }
}

}  // namespace
}  // namespace assay
