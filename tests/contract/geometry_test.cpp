// hand:geometry. Plane names, shapes and padded sizes against shapes worked by hand (N6.1, N6.2) and the shapes that
// TransformerEngine's own tests assert for its storages.
#include <gtest/gtest.h>

#include "contract/line.h"
#include "contract/planes.h"

namespace assay {
namespace {

std::string shape_text(Shape s) { return std::to_string(s.rows) + "x" + std::to_string(s.cols); }

// "name encoding logical/padded ..." of every plane of one part.
std::string described(const std::vector<Plane>& planes) {
  std::string out;
  for (const Plane& p : planes) {
    if (!out.empty()) out += ", ";
    out += p.name + " " + std::string(info(p.encoding).name) + " " + shape_text(p.logical);
    if (!(p.logical == p.padded)) out += "/" + shape_text(p.padded);
  }
  return out;
}
std::string outputs(std::string_view line) { return described(output_planes(*parse_line(line))); }
std::string inputs(std::string_view line) { return described(input_planes(*parse_line(line))); }

TEST(Geometry, GoldenShapes) {
  EXPECT_EQ(outputs("quantize mxfp8 96x160 bf16"),
            "row.scale_inv e8m0 96x5/128x8, row.data e4m3 96x160, col.scale_inv e8m0 3x160/4x256, col.data e4m3 96x160");
  EXPECT_EQ(outputs("quantize mxfp8 256x384 bf16 block=32x32 col.element=e5m2"),
            "row.scale_inv e8m0 256x12, row.data e4m3 256x384, col.scale_inv e8m0 8x384, col.data e5m2 256x384");
  EXPECT_EQ(outputs("quantize fp8_delayed 256x384 bf16"),
            "row.amax f32 1x1, row.scale_inv f32 1x1, row.data e4m3 256x384, col.amax f32 1x1, col.scale_inv f32 1x1, col.data e4m3 384x256");
  EXPECT_EQ(outputs("quantize identity 3x5 f16"), "row.data f16 3x5, col.data f16 3x5");
}

TEST(Geometry, PartialBlocksRoundUpAndEmptyTensorsAreEmpty) {
  EXPECT_EQ(outputs("quantize mxfp8 1x1 bf16"), "row.scale_inv e8m0 1x1/128x4, row.data e4m3 1x1, col.scale_inv e8m0 1x1/4x128, col.data e4m3 1x1");
  EXPECT_EQ(outputs("quantize mxfp8 129x257 bf16 dir=row scales=gemm"), "row.scale_gemm e8m0 129x9/256x12, row.data e4m3 129x257");
  EXPECT_EQ(outputs("quantize mxfp8 0x64 bf16"), "row.scale_inv e8m0 0x2/0x4, row.data e4m3 0x64, col.scale_inv e8m0 0x64/0x128, col.data e4m3 0x64");
}

TEST(Geometry, InputsFollowTheKeys) {
  EXPECT_EQ(inputs("quantize fp8_current 2x3 bf16"), "x bf16 2x3");
  EXPECT_EQ(inputs("quantize fp8_current 2x3 bf16 amax=3 noop=0"), "x bf16 2x3, row.given.amax f32 1x1, col.given.amax f32 1x1, noop f32 1x1");
  EXPECT_EQ(outputs("quantize fp8_current 2x3 bf16 amax=3 dir=row"), "row.scale f32 1x1, row.scale_inv f32 1x1, row.data e4m3 2x3");
  EXPECT_EQ(inputs("quantize fp8_delayed 2x3 bf16 dir=row"), "x bf16 2x3, row.given.scale f32 1x1, row.prior.amax f32 1x1");
  EXPECT_EQ(inputs("dequantize fp8_current 2x3 bf16 dir=col"), "col.scale_inv f32 1x1, col.data e4m3 3x2");
  EXPECT_EQ(outputs("dequantize fp8_current 2x3 bf16 dir=col out=f32"), "y f32 2x3");
  EXPECT_EQ(inputs("update fp8_delayed 16x6 f32 reduction=1"), "history f32 16x6, scale f32 1x6, reduced f32 1x6");
  EXPECT_EQ(outputs("update fp8_delayed 16x6 f32"), "next.history f32 16x6, next.scale f32 1x6");
  EXPECT_EQ(inputs("swizzle mxfp8 200x160 e8m0"), "row.scale_inv e8m0 200x5/256x8");
  EXPECT_EQ(outputs("swizzle mxfp8 200x160 e8m0"), "row.scale_gemm e8m0 200x5/256x8");
  EXPECT_EQ(outputs("swizzle mxfp8 96x130 e8m0 dir=col inverse=1"), "col.scale_inv e8m0 4x256");
  EXPECT_EQ(outputs("scale_chain mxfp8 1x4 f32"), "scale_inv e8m0 1x4, multiplier f32 1x4, decoded f32 1x4");
  EXPECT_EQ(outputs("scale_chain mxfp8 1x4 e8m0"), "multiplier f32 1x4, decoded f32 1x4");
  EXPECT_EQ(outputs("scale_chain fp8_current 1x4 f32"), "scale f32 1x4, scale_inv f32 1x4");
}

}  // namespace
}  // namespace assay
