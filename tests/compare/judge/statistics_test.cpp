#include "compare/judge/statistics.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/compare/fakes.h"

namespace assay {
namespace {

std::vector<PlaneData> outputs_of(const Problem& p) {
  auto reference = make_reference_subject();
  return execute(*reference, p, *make_inputs(p, *reference), {}).planes;
}

TEST(Statistics, DistrustsWhatCouldHardlyFail) {
  auto why = [](const char* line) {
    const Problem p = fakes::problem(line);
    return mistrust(p, witness(outputs_of(p)));
  };
  EXPECT_EQ(why("quantize mxfp8 64x96 bf16 dir=both"), "");
  EXPECT_EQ(why("quantize mxfp8 64x96 bf16 fill=exact_sums"), "");
  EXPECT_EQ(why("cast e4m3 1x1 bf16 fill=zeros"), "");  // one element is all there is
  EXPECT_EQ(why("cast e4m3 0x5 bf16"), "");
  EXPECT_NE(why("cast e4m3 8x32 bf16 fill=zeros").find("all 256 elements are zero"), std::string::npos);
  EXPECT_NE(why("quantize fp8_delayed 64x64 bf16 scale=1e30").find("saturated"), std::string::npos);
  EXPECT_NE(why("quantize fp8_delayed 64x64 bf16 scale=1e-30").find("zero"), std::string::npos);
  EXPECT_EQ(why("update fp8_delayed 1x16 f32"), "");  // a history of one row is zero, the scales are not
  EXPECT_EQ(why("swizzle mxfp8 128x256 e8m0"), "");
}

TEST(Statistics, CountsCodes) {
  const Problem p = fakes::problem("cast e4m3 1x65536 bf16 fill=every_code");
  const auto seen = witness(outputs_of(p));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].elements, 65536);
  EXPECT_EQ(seen[0].distinct, 255);  // FF is no result of a saturating cast (N2.4)
}

TEST(Statistics, AsText) {
  EXPECT_EQ(to_text(std::vector<PlaneWitness>{}), "no planes");
  const PlaneWitness scales{"row.scale_inv", Encoding::e8m0, 32, 3, 0, 0, 0};
  EXPECT_EQ(to_text({scales, {"row.data", Encoding::e4m3, 0, 0, 0, 0, 0}}), "an empty tensor");
  EXPECT_EQ(to_text({{"y", Encoding::e4m3, 1, 1, 0, 1, 0}}),
            "y: 1 distinct codes in 1 elements, 0.0 % zero, 100.0 % saturated, 0.0 % NaN");
  EXPECT_EQ(to_text({scales, {"row.data", Encoding::e4m3, 1000, 99, 500, 20, 4}}),
            "row.data: 99 distinct codes in 1000 elements, 50.0 % zero, 2.0 % saturated, 0.4 % NaN; "
            "row.scale_inv: 3 distinct scales");
}

}  // namespace
}  // namespace assay
