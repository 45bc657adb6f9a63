#include "compare/arithmetic/codes.h"

#include <optional>

#include <gtest/gtest.h>

namespace assay {
namespace {

TEST(Codes, AsBitsHexAndValue) {
  EXPECT_EQ(code_bits(Encoding::e4m3, 0x2A), "0.0101.010");
  EXPECT_EQ(code_hex(Encoding::e4m3, 0x2A), "2A");
  EXPECT_EQ(value_text(Encoding::e4m3, 0x2A), "0.3125");
  EXPECT_EQ(value_text(Encoding::e4m3, 0xFE), "-448");
  EXPECT_EQ(value_text(Encoding::e4m3, 0x7F), "nan");
  EXPECT_EQ(value_text(Encoding::e4m3, 0x80), "-0");
  EXPECT_EQ(value_text(Encoding::e5m2, 0x7C), "inf");
  EXPECT_EQ(value_text(Encoding::e5m2, 0x01), "1.5258789e-05");
  EXPECT_EQ(code_bits(Encoding::e8m0, 0x7F), "01111111");
  EXPECT_EQ(value_text(Encoding::e8m0, 0x7C), "2^-3");
  EXPECT_EQ(code_bits(Encoding::e2m1, 0xF), "1.11.1");
  EXPECT_EQ(value_text(Encoding::e2m1, 0xF), "-6");
  EXPECT_EQ(code_bits(Encoding::e2m1, 0x12), "!0.01.0");  // a stray bit beside the code
  EXPECT_EQ(code_hex(Encoding::bf16, 0x3F80), "3F80");
  EXPECT_EQ(value_text(Encoding::f16, 0x7BFF), "65504");
  EXPECT_EQ(f32_hex_text(0x3EA00000), "0x1.4p-2");
}

// OCP-FP8 and OCP-MX tables.
TEST(Codes, ExtremeValues) {
  EXPECT_EQ(value_of(Encoding::e4m3, 0x01), 0x1p-9);
  EXPECT_EQ(value_of(Encoding::e5m2, 0x7B), 57344);
  EXPECT_EQ(value_of(Encoding::e3m2, 0x1F), 28);
  EXPECT_EQ(value_of(Encoding::e2m3, 0x1F), 7.5);
  EXPECT_EQ(value_of(Encoding::e2m1, 0x1), 0.5);
  EXPECT_EQ(value_of(Encoding::f32, 1), 0x1p-149);
  EXPECT_EQ(value_of(Encoding::e8m0, 0), 0x1p-127);
  EXPECT_TRUE(is_nan(Encoding::e8m0, 0xFF));
  EXPECT_FALSE(is_nan(Encoding::e2m1, 0x7));
  EXPECT_FALSE(is_nan(Encoding::e3m2, 0x1F));
  EXPECT_TRUE(is_saturated(Encoding::e4m3, 0xFE));
  EXPECT_TRUE(is_saturated(Encoding::bf16, 0xFF80));
}

TEST(Codes, StepsAndDistances) {
  EXPECT_EQ(step_at(Encoding::e4m3, 448), 32);
  EXPECT_EQ(step_at(Encoding::e4m3, 1e-9), 0x1p-9);
  EXPECT_EQ(codes_apart(Encoding::e4m3, 0x2A, 0x2B), 1);
  EXPECT_EQ(codes_apart(Encoding::e4m3, 0x81, 0x01), 2);
  EXPECT_EQ(codes_apart(Encoding::e4m3, 0x80, 0x00), 0);
  EXPECT_EQ(codes_apart(Encoding::e4m3, 0x7F, 0x00), std::nullopt);
  EXPECT_EQ(codes_apart(Encoding::e8m0, 0x7F, 0x81), 2);
}

}  // namespace
}  // namespace assay
