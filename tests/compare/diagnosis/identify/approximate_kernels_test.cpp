// N17.13: bytes that some answer of an approximate reciprocal gives are consistent, others are not. Worked by
// hand: with a tensor amax of 2688 S is 1, and a block of amax 6 has v = 1.
#include "compare/diagnosis/identify/approximate_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "compare/arithmetic/codes.h"
#include "contract/line.h"

namespace assay {
namespace {

struct Case {
  Problem problem;
  std::vector<PlaneData> inputs, got;
};

Case case_of(std::string_view line) {
  auto p = parse_line(line);
  EXPECT_TRUE(p) << p.error().text();
  Case c{*p, {}, {}};
  for (Plane& plane : input_planes(*p)) c.inputs.push_back({plane, std::vector<std::byte>(plane.bytes())});
  for (Plane& plane : output_planes(*p)) c.got.push_back({plane, std::vector<std::byte>(plane.bytes())});
  return c;
}

PlaneData& plane(std::vector<PlaneData>& planes, std::string_view name) {
  for (PlaneData& p : planes)
    if (p.plane.name == name) return p;
  ADD_FAILURE() << name;
  return planes.front();
}

void set_x(Case& c, int64_t col, float v) {
  PlaneData& x = plane(c.inputs, "x");
  set_code(x.plane, x.bytes, index_of(x.plane, 0, col), std::bit_cast<uint32_t>(v) >> 16);
  if (!find_plane(c.got, "row.amax")) return;
  PlaneData& amax = plane(c.got, "row.amax");  // codes of amaxes order as they do
  set_code(amax.plane, amax.bytes, 0,
           std::max(code_at(amax.plane, amax.bytes, 0), std::bit_cast<uint32_t>(v < 0 ? -v : v)));
}
void set_scale(Case& c, int64_t block, uint32_t code) {
  PlaneData& s = plane(c.got, "row.scale_inv");
  set_code(s.plane, s.bytes, index_of(s.plane, 0, block), code);
}
void set_data(Case& c, int64_t col, uint32_t code) {
  PlaneData& d = plane(c.got, "row.data");
  set_code(d.plane, d.bytes, index_of(d.plane, 0, col), code);
}

const Approximate& kernel(std::string_view name, FormatId format = FormatId::nvfp4) {
  for (const Approximate& a : approximates())
    if (a.name == name && a.format == format) return a;
  ADD_FAILURE() << name;
  return approximates().front();
}

Consistency judge(const Case& c, std::string_view name) {
  return consistent(kernel(name, c.problem.row->format), c.problem, c.inputs, c.got);
}

// Block 0 holds the tensor's amax, blocks 1 and 2 an amax of 6 and a 2.5, halfway between 2 (code 4) and 3
// (code 5), and the rest zeros.
Case halfway() {
  Case c = case_of("quantize nvfp4 1x48 bf16 dir=row");
  set_x(c, 0, 2688), set_scale(c, 0, 0x7E), set_data(c, 0, 7);
  for (int64_t block : {1, 2}) {
    set_x(c, 16 * block, -6), set_scale(c, block, 0x38), set_data(c, 16 * block, 0xF);
    set_x(c, 16 * block + 1, 2.5f), set_data(c, 16 * block + 1, 4);
  }
  return c;
}

TEST(Consistent, AnExactAnswerIsAllowed) {
  const Consistency found = judge(halfway(), "vllm.kernel");
  EXPECT_TRUE(found.consistent());
  EXPECT_EQ(found.scales_of, 3);
  EXPECT_EQ(found.codes_of, 48);
}

TEST(Consistent, ATieMayGoUpWhereTheReciprocalIsOneUnitLarge) {
  Case c = halfway();
  set_data(c, 17, 5), set_data(c, 33, 5);
  EXPECT_TRUE(judge(c, "vllm.kernel").consistent());
  EXPECT_TRUE(judge(c, "torchao.cutedsl").consistent());
}

TEST(Consistent, EqualScalesHaveOneMultiplier) {
  Case c = halfway();
  set_data(c, 17, 5);  // block 1 says up, block 2 says not
  const Consistency found = judge(c, "vllm.kernel");
  EXPECT_FALSE(found.consistent());
  EXPECT_EQ(found.codes_outside, 1);
  EXPECT_EQ(found.scales_outside, 0);
}

TEST(Consistent, WhatNoReciprocalGivesIsOutside) {
  for (const auto& [col, code] :
       {std::pair<int64_t, uint32_t>{17, 3}, {17, 6}, {17, 0xC}, {16, 7}, {18, 1}}) {
    Case c = halfway();
    set_data(c, col, code);
    EXPECT_EQ(judge(c, "vllm.kernel").codes_outside, 1) << col << " " << code;
  }
  Case c = halfway();
  set_scale(c, 1, 0x39);
  EXPECT_EQ(judge(c, "vllm.kernel").scales_outside, 1);
}

TEST(Consistent, AnAmaxHasOneAnswer) {
  Case c = halfway();
  PlaneData& amax = plane(c.got, "row.amax");
  set_code(amax.plane, amax.bytes, 0, std::bit_cast<uint32_t>(2687.0f));
  EXPECT_FALSE(judge(c, "vllm.kernel").consistent());
  EXPECT_EQ(judge(c, "vllm.kernel").amaxes_outside, 1);
  std::erase_if(c.got, [](const PlaneData& p) { return p.plane.name == "row.amax"; });
  EXPECT_TRUE(judge(c, "vllm.kernel").consistent());  // it did not come
}

TEST(Consistent, OneReciprocalOfSixForAllBlocks) {
  // 1/6 lies between two floats. With the upper v = 7.125 / 6 is 1.1875, halfway between 39 and 3A, which is
  // even; with the lower it is below, for every block alike.
  Case c = halfway();
  for (int64_t block : {1, 2}) set_x(c, 16 * block, -7.125f), set_scale(c, block, 0x3A);
  EXPECT_TRUE(judge(c, "vllm.kernel").consistent());
  set_scale(c, 1, 0x39), set_scale(c, 2, 0x39);
  EXPECT_TRUE(judge(c, "vllm.kernel").consistent());
  set_scale(c, 1, 0x3A);
  EXPECT_EQ(judge(c, "vllm.kernel").scales_outside, 1);
  EXPECT_EQ(judge(c, "torchao.cutedsl").scales_outside, 1);  // its 1/6 is the nearest float: 3A
}

TEST(Consistent, AVanishedScaleTellsTheKernelsApart) {
  // v = 2^-12 / 6 rounds to 0. vLLM multiplies by 0, FlashInfer by an infinity, which makes 7 of the zeros
  // beside it as well, TransformerEngine's rule by FLT_MAX.
  Case zero = case_of("quantize nvfp4 1x32 bf16 dir=row");
  set_x(zero, 0, 2688), set_scale(zero, 0, 0x7E), set_data(zero, 0, 7);
  set_x(zero, 16, 0x1p-12f);
  EXPECT_TRUE(judge(zero, "vllm.kernel").consistent());
  EXPECT_EQ(judge(zero, "flashinfer.fast").codes_outside, 16);
  EXPECT_EQ(judge(zero, "torchao.cutedsl").codes_outside, 1);
  Case infinite = zero;
  for (int64_t c = 16; c < 32; ++c) set_data(infinite, c, 7);
  EXPECT_TRUE(judge(infinite, "flashinfer.fast").consistent());
  EXPECT_EQ(judge(infinite, "vllm.kernel").codes_outside, 16);
}

TEST(Consistent,
     AGivenDecodeScaleIsInverted) {  // P = 0.5: a block of amax 3 has v = 2 * (3 / 6) = 1 and m = 2
  Case c = case_of("quantize nvfp4 1x48 bf16 dir=row flavour=flashinfer.kv_cache amax=0.5");
  set_x(c, 0, -3), set_scale(c, 0, 0x38), set_data(c, 0, 0xF);
  set_x(c, 1, 1.25f), set_data(c, 1, 5);  // 2.5: either
  set_x(c, 2, 1), set_data(c, 2, 4);
  set_x(c, 32, 0x1p-20f);  // its scale vanishes, and 1 / 0 is infinite: 0 * inf is NaN
  for (int64_t i = 32; i < 48; ++i) set_data(c, i, 7);
  EXPECT_TRUE(judge(c, "flashinfer.kv_cache").consistent());
  EXPECT_FALSE(judge(c, "vllm.kernel").decided) << "it makes the tensor's scale of an amax";
  set_data(c, 2, 5);
  EXPECT_EQ(judge(c, "flashinfer.kv_cache").codes_outside, 1);
  set_data(c, 2, 4), set_scale(c, 0, 0x39);
  EXPECT_EQ(judge(c, "flashinfer.kv_cache").scales_outside, 1);
  EXPECT_FALSE(judge(halfway(), "flashinfer.kv_cache").decided);
}

TEST(Consistent, ScalesOfMxAreTheExactOnesAndTiesMayFall) {
  // 448 * R(448) is 1 or just below it, so the scale is 2^0. 17 lies halfway between 16 (58) and 18 (59).
  Case c = case_of("quantize mxfp8 1x32 bf16 dir=row");
  set_x(c, 3, 448), set_scale(c, 0, 0x7F), set_data(c, 3, 0x7E);
  set_x(c, 4, 17), set_data(c, 4, 0x58);
  EXPECT_TRUE(judge(c, "flashinfer.mx").consistent());
  set_data(c, 4, 0x59);
  EXPECT_TRUE(judge(c, "flashinfer.mx").consistent());
  set_data(c, 4, 0x5A);
  EXPECT_EQ(judge(c, "flashinfer.mx").codes_outside, 1);
  set_scale(c, 0, 0x80);
  EXPECT_EQ(judge(c, "flashinfer.mx").scales_outside, 1);
}

TEST(Consistent, WhatCannotBeDecidedIsSaid) {
  Case c = halfway();
  c.inputs.clear();
  EXPECT_FALSE(judge(c, "vllm.kernel").decided);
  EXPECT_FALSE(judge(case_of("quantize nvfp4 16x16 bf16 dir=row block=16x16"), "vllm.kernel").decided);
  EXPECT_FALSE(judge(case_of("quantize nvfp4 1x16 bf16 dir=row round=sr"), "vllm.kernel").decided);
  EXPECT_FALSE(
      consistent(kernel("vllm.kernel"), case_of("quantize mxfp8 1x32 bf16 dir=row").problem, c.inputs, {})
          .decided);
}

}  // namespace
}  // namespace assay
