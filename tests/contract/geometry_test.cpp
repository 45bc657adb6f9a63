// hand:geometry. Plane names, shapes and padded sizes against shapes worked by hand (N6.1, N6.2) and the
// shapes that TransformerEngine's own tests assert for its storages.
#include <gtest/gtest.h>

#include <algorithm>

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
            "row.scale_inv e8m0 96x5/128x8, row.data e4m3 96x160, col.scale_inv e8m0 3x160/4x256, col.data "
            "e4m3 96x160");
  EXPECT_EQ(
      outputs("quantize mxfp8 256x384 bf16 block=32x32 col.element=e5m2"),
      "row.scale_inv e8m0 256x12, row.data e4m3 256x384, col.scale_inv e8m0 8x384, col.data e5m2 256x384");
  EXPECT_EQ(outputs("quantize fp8_delayed 256x384 bf16"),
            "row.amax f32 1x1, row.scale_inv f32 1x1, row.data e4m3 256x384, col.amax f32 1x1, col.scale_inv "
            "f32 1x1, col.data e4m3 384x256");
  EXPECT_EQ(outputs("quantize identity 3x5 f16"), "row.data f16 3x5, col.data f16 3x5");
}

TEST(Geometry, PartialBlocksRoundUpAndEmptyTensorsAreEmpty) {
  EXPECT_EQ(
      outputs("quantize mxfp8 1x1 bf16"),
      "row.scale_inv e8m0 1x1/128x4, row.data e4m3 1x1, col.scale_inv e8m0 1x1/4x128, col.data e4m3 1x1");
  EXPECT_EQ(outputs("quantize mxfp8 129x257 bf16 dir=row scales=gemm"),
            "row.scale_gemm e8m0 129x9/256x12, row.data e4m3 129x257");
  EXPECT_EQ(
      outputs("quantize mxfp8 0x64 bf16"),
      "row.scale_inv e8m0 0x2/0x4, row.data e4m3 0x64, col.scale_inv e8m0 0x64/0x128, col.data e4m3 0x64");
}

TEST(Geometry,
     ShapesOfBlockFormats) {  // the table that TransformerEngine's storages are tested with, and tails
  EXPECT_EQ(outputs("quantize fp8_block 256x384 bf16"),
            "row.scale_inv f32 3x256, row.data e4m3 256x384, col.scale_inv f32 2x384, col.data e4m3 384x256");
  EXPECT_EQ(
      outputs("quantize fp8_block 256x384 bf16 block=128x128"),
      "row.scale_inv f32 2x3/2x4, row.data e4m3 256x384, col.scale_inv f32 3x2/3x4, col.data e4m3 384x256");
  EXPECT_EQ(outputs("quantize fp8_block 129x130 bf16 dir=row"),
            "row.scale_inv f32 2x129/2x132, row.data e4m3 129x130");
  EXPECT_EQ(outputs("quantize fp8_block 129x130 bf16 scales=gemm"),
            "row.scale_gemm e8m0 129x8/256x8, row.data e4m3 129x130, col.scale_gemm e8m0 130x8/256x8, "
            "col.data e4m3 130x129");
  EXPECT_EQ(outputs("quantize nvfp4 48x80 bf16"),
            "row.amax f32 1x1, row.scale_inv e4m3 48x5/128x8, row.data e2m1 48x80, col.amax f32 1x1, "
            "col.scale_inv e4m3 80x3/128x4, col.data e2m1 80x48");
  EXPECT_EQ(
      outputs("quantize nvfp4 256x384 bf16 amax=1 block=16x16"),
      "row.scale_inv e4m3 256x24, row.data e2m1 256x384, col.scale_inv e4m3 384x16, col.data e2m1 384x256");
  EXPECT_EQ(outputs("quantize nvfp4 5x7 bf16 row_scaled=1"),
            "row.amax f32 5x1, row.scale_inv e4m3 5x1/128x4, row.data e2m1 5x7/5x8, col.amax f32 7x1, "
            "col.scale_inv e4m3 7x1/128x4, col.data e2m1 7x5/7x6");
  EXPECT_EQ(outputs("quantize fp8_current 5x7 bf16 row_scaled=1"),  // N3.12
            "row.amax f32 5x1, row.scale f32 5x1, row.scale_inv f32 5x1, row.data e4m3 5x7, col.amax f32 "
            "7x1, col.scale f32 7x1, col.scale_inv f32 7x1, col.data e4m3 7x5");
  EXPECT_EQ(outputs("quantize mxfp4 48x80 bf16"),
            "row.scale_inv e8m0 48x3/128x4, row.data e2m1 48x80, col.scale_inv e8m0 80x2/128x4, col.data "
            "e2m1 80x48");
  EXPECT_EQ(outputs("quantize mxfp6 5x7 bf16 packing=packed"),  // N18.4: stored rows of whole groups of four
            "row.scale_inv e8m0 5x1/128x4, row.data e2m3 5x7/5x8, col.scale_inv e8m0 7x1/128x4, col.data "
            "e2m3 7x5/7x8");
  EXPECT_EQ(outputs("quantize mxfp6 5x7 bf16 element=e3m2 dir=col"),
            "col.scale_inv e8m0 7x1/128x4, col.data e3m2 7x5");
  const auto sixes = output_planes(*parse_line("quantize mxfp6 5x7 bf16 dir=row packing=packed"));
  EXPECT_EQ(sixes[1].bytes(), 5u * 6u);
  EXPECT_EQ(sixes[1].stored(), (Shape{5, 6}));
  const auto packed = output_planes(*parse_line("quantize nvfp4 5x7 bf16 dir=row"));
  EXPECT_EQ(packed[2].bytes(), 5u * 4u);
  EXPECT_EQ(outputs("hadamard nvfp4 64x256 bf16"), "y bf16 256x64, amax f32 1x1");
  EXPECT_EQ(inputs("philox u32 8x4 u32"), "x u32 8x4, key u32 8x2");
  EXPECT_EQ(inputs("cast e2m1 3x5 f32 round=sr"), "x f32 3x5, bits u8 3x5");
  EXPECT_EQ(outputs("scale_chain nvfp4 9x2 f32"),
            "encode_scale f32 9x1, scale_inv e4m3 9x1, multiplier f32 9x1");
  EXPECT_EQ(inputs("dequantize nvfp4 32x64 bf16 dir=col row_scaled=1"),
            "col.amax f32 64x1, col.scale_inv e4m3 64x2/128x4, col.data e2m1 64x32");
}

// "offset:logical/padded ..." of a grouped plane's members.
std::string members(const Plane& p) {
  std::string out;
  for (const Member& m : p.members)
    out += (out.empty() ? "" : " ") + std::to_string(m.offset) + ":" + shape_text(m.logical) +
           (m.logical == m.padded ? "" : "/" + shape_text(m.padded));
  return out;
}

TEST(Geometry, ABiasHasARowForEachQueryOfEachHead) {  // N20.5
  const auto p =
      parse_line("attention fp8_current 24x32 bf16 batch=2 heads=4 kv_heads=2 kv=9 bias=post_scale");
  ASSERT_TRUE(p) << p.error().text();
  const auto in = input_planes(*p);
  const auto bias =
      std::find_if(in.begin(), in.end(), [](const Plane& plane) { return plane.name == "bias"; });
  ASSERT_NE(bias, in.end());
  EXPECT_EQ(shape_text(bias->logical), "48x9");
}

TEST(Geometry, InputsOfALineWithLengths) {
  const auto p = parse_line("attention identity 8x8 bf16 batch=2 layout=thd lengths=5,3 kv_lengths=9,2");
  ASSERT_TRUE(p) << p.error().text();
  EXPECT_EQ(described(input_planes(*p)),
            "q bf16 8x8, k bf16 11x8, v bf16 11x8, cu_seqlens_q u32 1x3, cu_seqlens_kv u32 1x3");
  EXPECT_EQ(described(input_planes(*parse_line("quantize identity 8x8 bf16"))), "x bf16 8x8");
}

TEST(Geometry, AHalvedValueIsNoSubnormalNumber) {  // N14.4
  for (const auto& [value, place, half] : {std::tuple{0x3F800000u, 1, 0x3F000000u},
                                           {0x3F800000u, 7, 0x3E000000u},
                                           {0x02000000u, 3, 0x00800000u},
                                           {0x01800000u, 3, 0x01800000u},
                                           {0x01000000u, 2, 0x01000000u},
                                           {0x01000000u, 1, 0x00800000u},
                                           {0x7F800000u, 1, 0x7F800000u}})
    EXPECT_EQ(halved(value, static_cast<size_t>(place)), half) << std::hex << value << " at " << place;
}

TEST(Geometry, MembersOfASplit) {  // N14.2, worked by hand
  const auto p = parse_line("split nvfp4 208x80 bf16 groups=0,16,32,160 capacity=20000");
  ASSERT_TRUE(p) << p.error().text();
  const auto in = input_planes(*p), out = output_planes(*p);
  EXPECT_EQ(described(in), "x bf16 1x16640/1x20000, first_dims u32 1x4");
  EXPECT_EQ(described(out),
            "offsets u32 1x5, row.scale_offsets u32 1x5, col.scale_offsets u32 1x5, row.amax f32 1x4, "
            "row.scale_inv e4m3 1x4096/1x4608, row.data e2m1 1x16640/1x20000, "
            "col.amax f32 1x4, col.scale_inv e4m3 1x2560/1x3072, col.data e2m1 1x16640/1x20000");
  EXPECT_EQ(members(out[4]), "0:0x5/0x8 0:16x5/128x8 1024:32x5/128x8 2048:160x5/256x8");
  EXPECT_EQ(members(out[7]), "0:80x0/128x0 0:80x1/128x4 512:80x2/128x4 1024:80x10/128x12");
  EXPECT_EQ(members(out[8]), "0:80x0 0:80x16 1280:80x32 3840:80x160");
  EXPECT_EQ(out[8].padding, Padding::untouched);
  EXPECT_EQ(member_plane(out[7], 1).padding, Padding::zero);

  // The columnwise scale buffer has the shape of columns, which is not that of rows (96x160: 128x8 and
  // 4x256).
  const auto mx = output_planes(*parse_line("split mxfp8 192x160 bf16 groups=96,96 vary=none"));
  EXPECT_EQ(members(mx[3]), "0:96x5/128x8 1024:96x5/128x8");
  EXPECT_EQ(members(mx[5]), "0:3x160/4x256 1024:3x160/4x256");

  const auto both =
      parse_line("split fp8_delayed 1x161 bf16 vary=both groups=7x9,14x7 scale=8 prior_amax=0.5");
  ASSERT_TRUE(both) << both.error().text();
  EXPECT_EQ(described(input_planes(*both)),
            "x bf16 1x161, first_dims u32 1x2, last_dims u32 1x2, row.given.scale f32 1x2, row.prior.amax "
            "f32 1x2, col.given.scale f32 1x2, col.prior.amax f32 1x2");
  const auto lines = member_problems(*both);
  EXPECT_EQ(to_line(lines[0]), "quantize fp8_delayed 7x9 bf16 scale=8 prior_amax=0.5");
  EXPECT_EQ(to_line(lines[1]), "quantize fp8_delayed 14x7 bf16 scale=4 prior_amax=0.25 at=7,0");
  EXPECT_EQ(
      to_line(member_problems(*parse_line("split nvfp4 32x64 bf16 groups=16,16 round=sr rng=5,2,0"))[1]),
      "quantize nvfp4 16x64 bf16 round=sr at=16,0 rng=5,2,1");
}

// Every field of a member's plane, the members of a packed one and those in GEMM layout included.
TEST(Geometry, AMemberHasThePlanesOfItsOwnLine) {  // N14.2
  for (const char* line :
       {"split nvfp4 208x80 bf16 groups=0,16,32,160 scales=gemm", "split mxfp8 192x160 bf16 groups=96,96",
        "split mxfp6 32x64 bf16 groups=16,16 packing=packed dir=row",
        "split fp8_delayed 1x161 f32 vary=both groups=7x9,14x7"}) {
    const auto p = parse_line(line);
    ASSERT_TRUE(p) << p.error().text();
    const std::vector<Plane> grouped = output_planes(*p);
    const std::vector<Problem> own = member_problems(*p);
    for (size_t m = 0; m < own.size(); ++m)
      for (const Plane& want : output_planes(own[m])) {
        const auto whole =
            std::find_if(grouped.begin(), grouped.end(), [&](const Plane& g) { return g.name == want.name; });
        ASSERT_NE(whole, grouped.end()) << line << " " << want.name;
        const Plane got = member_plane(*whole, m);
        const auto fields = [](const Plane& x) {
          return std::tuple(x.name, x.part, x.encoding, x.logical, x.padded, x.layout, x.padding, x.direction,
                            x.transposed, x.packed, x.members);
        };
        EXPECT_EQ(fields(got), fields(want)) << line << " " << want.name << " of member " << m;
      }
  }
}

TEST(Geometry, OperandsOfAGemm) {  // N16.1, worked by hand: M 96, N 40, K 160
  EXPECT_EQ(inputs("gemm a=mxfp8 b=nvfp4 96x40x160"),
            "a.scale_inv e8m0 96x5/128x8, a.data e4m3 96x160, b.amax f32 1x1, b.scale_inv e4m3 40x10/128x12, "
            "b.data e2m1 40x160");
  EXPECT_EQ(inputs("gemm a=mxfp8 b=nvfp4 96x40x160 op=NN"),
            "a.scale_inv e8m0 5x96/8x128, a.data e4m3 160x96, b.amax f32 1x1, b.scale_inv e4m3 40x10/128x12, "
            "b.data e2m1 40x160");
  EXPECT_EQ(inputs("gemm a=nvfp4 b=nvfp4 96x40x160 op=NN a.row_scaled=1").substr(0, 15), "a.amax f32 96x1");
  EXPECT_EQ(inputs("gemm a=fp8_current b=fp8_current 96x40x160 op=NN row_scaled=1"),
            "a.scale_inv f32 96x1, a.data e4m3 96x160, b.scale_inv f32 40x1, b.data e4m3 40x160");
  EXPECT_EQ(inputs("gemm a=nvfp4 b=fp8_block 96x40x160 op=NT amax=2 beta=-1 out=f16 bias=bf16"),
            "a.amax f32 1x1, a.scale_inv e4m3 96x10/128x12, a.data e2m1 96x160, b.scale_inv f32 2x40, b.data "
            "e4m3 40x160, c f16 40x96, bias bf16 1x96");
  // Any beta but a zero reads c (N16.8).
  for (const char* beta : {"1", "-1", "2", "0.25", "1e-45", "inf", "nan", "1.5"})
    EXPECT_TRUE(
        inputs(std::string("gemm a=identity b=identity 4x4x4 beta=") + beta).ends_with(", c bf16 4x4"))
        << beta;
  for (const char* beta : {"0", "-0"})
    EXPECT_FALSE(
        inputs(std::string("gemm a=identity b=identity 4x4x4 beta=") + beta).ends_with(", c bf16 4x4"))
        << beta;
  EXPECT_EQ(outputs("gemm a=nvfp4 b=fp8_block 96x40x160 op=NT out=e5m2"), "d e5m2 40x96");
  const Problem p =
      *parse_line("gemm a=nvfp4 b=mxfp8 96x40x160 op=NN a.rht=1 b.fill=wide seed=5 b.source=f32");
  EXPECT_EQ(to_line(operand_problem(p, Side::a)), "quantize nvfp4 160x96 bf16 dir=col rht=1 seed=5");
  EXPECT_EQ(to_line(operand_problem(p, Side::b)), "quantize mxfp8 40x160 f32 dir=row fill=wide seed=6");
  EXPECT_EQ(to_line(operand_dequantize(p, Side::a)), "dequantize nvfp4 160x96 bf16 dir=col out=f32 seed=5");
}

TEST(Geometry, InputsFollowTheKeys) {
  EXPECT_EQ(inputs("quantize fp8_current 2x3 bf16"), "x bf16 2x3");
  EXPECT_EQ(inputs("quantize fp8_current 2x3 bf16 amax=3 noop=0"),
            "x bf16 2x3, row.given.amax f32 1x1, col.given.amax f32 1x1, noop f32 1x1");
  EXPECT_EQ(outputs("quantize fp8_current 2x3 bf16 amax=3 dir=row"),
            "row.scale f32 1x1, row.scale_inv f32 1x1, row.data e4m3 2x3");
  EXPECT_EQ(inputs("quantize fp8_delayed 2x3 bf16 dir=row"),
            "x bf16 2x3, row.given.scale f32 1x1, row.prior.amax f32 1x1");
  EXPECT_EQ(inputs("dequantize fp8_current 2x3 bf16 dir=col"), "col.scale_inv f32 1x1, col.data e4m3 3x2");
  EXPECT_EQ(outputs("dequantize fp8_current 2x3 bf16 dir=col out=f32"), "y f32 2x3");
  EXPECT_EQ(inputs("update fp8_delayed 16x6 f32 reduction=1"),
            "history f32 16x6, scale f32 1x6, reduced f32 1x6");
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
