// The ground truth of the benchmark of diagnosis: with no switch on, the faulty quantizer is the reference,
// bit for bit; with any one on, something shows it.
#include <gtest/gtest.h>

#include "compare/process/guarded_run.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/self/diagnosis/faulty_quantizer.h"

namespace assay {
namespace {

class Sound : public testing::TestWithParam<const char*> {};

TEST_P(Sound, EqualsTheReferenceBitForBit) {
  const auto reference = make_reference_subject(), sound = make_faulty_quantizer({});
  const auto lines = expand_sweep(std::string(GetParam()) +
                                  " fill={normal,edges,ties,every_code,outliers,wide,zeros,denormal,"
                                  "nonfinite,amax_edges,negative_zeros}");
  ASSERT_TRUE(lines) << lines.error().text();
  for (const std::string& line : *lines) {
    const auto p = parse_line(line);
    ASSERT_TRUE(p) << line << ": " << p.error().text();
    ASSERT_TRUE(sound->supports(*p).yes) << line;
    const auto inputs = make_inputs(*p, *reference);
    ASSERT_TRUE(inputs) << line;
    const Execution want = execute(*reference, *p, *inputs, Environment{}),
                    got = execute(*sound, *p, *inputs, Environment{});
    ASSERT_FALSE(got.error || got.trespass) << line << got.error.value_or("") << got.trespass.value_or("");
    ASSERT_EQ(got.planes.size(), want.planes.size());
    for (size_t i = 0; i < want.planes.size(); ++i)
      EXPECT_TRUE(got.planes[i].bytes == want.planes[i].bytes) << line << ": " << want.planes[i].plane.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Lines, Sound,
    testing::Values(
        "quantize mxfp8 {65x97,1x1,33x48,0x64} {bf16,f16,f32} element={e4m3,e5m2} scales={compact,gemm}",
        "quantize mxfp8 {64x128,65x97} bf16 element={e4m3,e5m2} scales={compact,gemm} block=32x32",
        "quantize mxfp4 {64x128,65x97} {bf16,f32} scales={compact,gemm}",
        "quantize fp8_current 33x65 {bf16,f16,f32} element={e4m3,e5m2} pow2={0,1} eps={0,2}",
        "quantize fp8_current 33x65 bf16 amax={3,1e-40,inf}",
        "quantize fp8_delayed 33x65 {bf16,f16,f32} element={e4m3,e5m2} scale={1,17,0.0625}",
        "quantize fp8_delayed 33x65 bf16 scale=3 prior_amax={0,3,300}",
        "quantize fp8_current {33x65,1x1,0x64,64x0} {bf16,f32} row_scaled=1 element={e4m3,e5m2} pow2={0,1} "
        "eps={0,2}",
        "quantize fp8_block 130x257 {bf16,f32} element={e4m3,e5m2} pow2={0,1} eps={0,0.5} "
        "block={1x128,128x128}",
        "quantize fp8_block {64x128,130x257} bf16 scales=gemm block={1x128,128x128}",
        "quantize nvfp4 {48x80,33x65} {bf16,f32} block={1x16,16x16} scales={compact,gemm}",
        "quantize nvfp4 64x128 bf16 round=sr rng=5000000000,7,3",
        "quantize nvfp4 {64x128,48x80} bf16 col.rht=1 col.round={rne,sr}",
        "quantize nvfp4 64x128 bf16 amax=3 col.rht=1", "quantize nvfp4/mxfp8 64x96 bf16"));

}  // namespace
}  // namespace assay
