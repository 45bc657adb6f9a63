#include "training/formats/matmul.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/training/formats/quantizer_kit.h"
#include "training/base/f32.h"

namespace assay::training {
namespace {

ArrayPtr product(Session& session, const Tensorlike& a, const Tensorlike& b) {
  GemmOptions options;
  options.out_dtype = DType::float32;
  return std::get<ArrayPtr>(general_gemm(session, a, b, GemmOp::TN, options));
}

// Scales under four over six end at 448 or at 256, and the amax of an operand counts in units of that end:
// with the other one the product would be 1.75 times as large, or its square.
TEST(Matmul, AnOperandOfFourOverSixKnowsWhereItsScalesEnd) {
  for (const int most : {448, 256}) {
    Setting t;
    auto q = make<NVFP4Quantizer>();
    q->set_4over6(true, "MAE", most);
    const StoragePtr a = q->quantize(t.session, random_bf16({16, 32}, 1)),
                     b = q->quantize(t.session, random_bf16({16, 32}, 2));
    const std::vector<float> got = floats(t.session, product(t.session, a, b)),
                             want = floats(t.session, product(t.session, a->dequantize(t.session),
                                                              b->dequantize(t.session)));
    ASSERT_EQ(got.size(), 256u);
    float largest = 0;
    for (const float v : want) largest = std::max(largest, std::abs(v));
    // What is dequantized was rounded to bfloat16.
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], largest / 64) << most << " at " << i;
  }
}

}  // namespace
}  // namespace assay::training
