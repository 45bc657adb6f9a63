// The exact factors of NVFP4 lie within the slack that laws allow.
#include "compare/arithmetic/factors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace assay {
namespace {

TEST(Factors, ExactOnesLieWithinTheirSlack) {
  Plane scales;
  scales.encoding = Encoding::e4m3;
  int judged = 0, infinite = 0;
  const auto compare = [&](const Quantizer& q, float amax, uint32_t code) {
    const auto within = factor_within(q, Encoding::bf16, scales, code, static_cast<double>(amax));
    if (!within || std::isnan(within->value)) return;
    const Factor exact = Factors(q, Encoding::bf16).of(code, Encoding::e4m3, 0, static_cast<double>(amax), 1);
    EXPECT_EQ(exact.divides, within->divides);
    EXPECT_EQ(exact.before, 1.0);
    ++judged;
    if (std::isinf(exact.value) || std::isinf(within->value)) {
      EXPECT_EQ(exact.value, within->value) << "amax " << amax << " code " << code;
      ++infinite;
      return;
    }
    const double slack = within->divides ? within->slack * std::fabs(within->value) : within->slack;
    EXPECT_LE(std::fabs(exact.value - within->value), slack) << "amax " << amax << " code " << code;
  };
  for (const Nvfp4Scale scale : {Nvfp4Scale{}, Nvfp4Scale::given_product})
    for (const Multiplier rule :
         {Multiplier::reciprocal, Multiplier::quotient, Multiplier::decode_reciprocal,
          Multiplier::bf16_quotient, Multiplier::divide_product, Multiplier::divide_quotient})
      for (const float amax : {1e-38f, 1e-30f, 0.001f, 1.0f, 6.0f, 448.0f, 2688.0f, 1e10f, 1e30f, 3e38f})
        for (uint32_t code = 0; code < 0x7F; ++code) {
          Quantizer q;
          q.format = FormatId::nvfp4;
          q.element = Encoding::e2m1;
          q.numerics.nvfp4_scale = scale;
          q.numerics.multiplier = rule;
          compare(q, amax, code);
        }
  EXPECT_GT(judged, 8000);
  EXPECT_GT(infinite, 50);
}

}  // namespace
}  // namespace assay
