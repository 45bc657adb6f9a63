// The scalar chain from amax to scales, with bits worked by hand from the clauses.
#include "tests/reference/run_line.h"

namespace assay {
namespace {

struct Row {
  uint32_t amax;
  uint32_t e4m3[2], e4m3_pow2[2], e5m2[2];   // scale, scale_inv
  uint8_t code_e4m3, code_e5m2;              // E8M0
};
const Row kRows[] = {
    {0x00000000, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, 0x00, 0x00},   // N3.4
    {0x3F800000, {0x43E00000, 0x3B124925}, {0x43800000, 0x3B800000}, {0x47600000, 0x37924925}, 0x77, 0x70},   // 1
    {0x40400000, {0x43155555, 0x3BDB6DB7}, {0x43000000, 0x3C000000}, {0x46955555, 0x385B6DB7}, 0x78, 0x71},   // 3
    {0x3E99999A, {0x44BAAAAA, 0x3A2F8AF9}, {0x44800000, 0x3A800000}, {0x483AAAAA, 0x36AF8AF9}, 0x75, 0x6E},   // 0.3
    {0x43E00000, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, {0x43000000, 0x3C000000}, 0x7F, 0x78},   // 448
    {0x43E08000, {0x3F7F6E0A, 0x3F804925}, {0x3F000000, 0x40000000}, {0x42FF6E0A, 0x3C004925}, 0x80, 0x79},   // 449
    {0x47600000, {0x3C000000, 0x43000000}, {0x3C000000, 0x43000000}, {0x3F800000, 0x3F800000}, 0x86, 0x7F},   // 57344
    {0x03AA2425, {0x7F7FFFFF, 0x00200000}, {0x7F000000, 0x00400000}, {0x7F7FFFFF, 0x00200000}, 0x00, 0x00},   // 1e-36: N3.5
    {0x00000001, {0x7F7FFFFF, 0x00200000}, {0x7F000000, 0x00400000}, {0x7F7FFFFF, 0x00200000}, 0x00, 0x00},   // the least subnormal
    // amax * fl(1/448) rounds down to 2^-127 exactly, where the exact quotient lies above it (N5.2)
    {0x04600001, {0x7EFFFFFF, 0x00400000}, {0x7E800000, 0x00800000}, {0x7F7FFFFF, 0x00200000}, 0x00, 0x00},
    {0x7F7FFFFF, {0x03E00001, 0x7B124924}, {0x03800000, 0x7B800000}, {0x07600001, 0x77924924}, 0xF7, 0xF0},   // FLT_MAX
    {0x7F800000, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, 0xFE, 0xFE},   // infinity: N3.4, N5.3
    {0x7FC00001, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, {0x3F800000, 0x3F800000}, 0xFF, 0xFF},   // NaN: N3.4, N5.3
};

Outputs chain(const std::string& line, uint32_t amax) { return run_line(line, {{"x", blob<uint32_t>({amax})}}); }

TEST(ScaleChain, PerTensor) {   // N3.3 to N3.7
  for (const Row& row : kRows) {
    SCOPED_TRACE(testing::Message() << std::hex << row.amax);
    for (const std::string format : {"fp8_current", "fp8_block"}) {   // N9.2
      const Outputs plain = chain("scale_chain " + format + " 1x1 f32 element=e4m3 pow2=0", row.amax);
      EXPECT_EQ(plain.u32("scale")[0], row.e4m3[0]);
      EXPECT_EQ(plain.u32("scale_inv")[0], row.e4m3[1]);
      const Outputs pow2 = chain("scale_chain " + format + " 1x1 f32 element=e4m3" + (format == "fp8_current" ? " pow2=1" : ""), row.amax);
      EXPECT_EQ(pow2.u32("scale")[0], row.e4m3_pow2[0]);
      EXPECT_EQ(pow2.u32("scale_inv")[0], row.e4m3_pow2[1]);
      const Outputs wide = chain("scale_chain " + format + " 1x1 f32 element=e5m2 pow2=0", row.amax);
      EXPECT_EQ(wide.u32("scale")[0], row.e5m2[0]);
      EXPECT_EQ(wide.u32("scale_inv")[0], row.e5m2[1]);
    }
  }
}

TEST(ScaleChain, LeastAmax) {   // N3.2
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 eps=448", 0x00000000).u32("scale")[0], 0x3F800000u);   // 0 becomes 448
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 eps=448", 0x3F800000).u32("scale")[0], 0x3F800000u);
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 eps=448", 0x44600000).u32("scale")[0], 0x3F000000u);   // 896 stays
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 eps=224", 0x7FFFFFFF).u32("scale")[0], 0x3F800000u);   // NaN is not below 224; N3.4
}

TEST(ScaleChain, InfiniteAmaxAsZeroScale) {   // N3.4, N3.7
  const Outputs out = chain("scale_chain fp8_current 1x1 f32 inf_amax=zero pow2=1", 0x7F800000);
  EXPECT_EQ(out.u32("scale")[0], 0x00000000u);
  EXPECT_EQ(out.u32("scale_inv")[0], 0x7F800000u);
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 inf_amax=zero", 0x7FC00000).u32("scale")[0], 0x3F800000u);   // NaN is no infinity
}

TEST(ScaleChain, LimitOfTheSource) {   // N3.5: bf16's largest finite value, and its reciprocal 2^-128 * (1 + 2^-8 + 2^-16 + ...)
  const std::map<std::string, Blob> x = {{"x", blob<uint16_t>({0x0001})}};
  const Outputs out = run_line("quantize fp8_current 1x1 bf16 dir=row scale_limit=source_max", x);
  EXPECT_EQ(out.u32("row.scale")[0], 0x7F7F0000u);
  EXPECT_EQ(out.u32("row.scale_inv")[0], 0x00202020u);
  EXPECT_EQ(run_line("quantize fp8_current 1x1 bf16 dir=row", x).u32("row.scale")[0], 0x7F7FFFFFu);
}

TEST(ScaleChain, Mxfp8) {   // N5.2 to N5.4, N5.9
  for (const Row& row : kRows) {
    SCOPED_TRACE(testing::Message() << std::hex << row.amax);
    EXPECT_EQ(chain("scale_chain mxfp8 1x1 f32 element=e4m3", row.amax).u8("scale_inv")[0], row.code_e4m3);
    EXPECT_EQ(chain("scale_chain mxfp8 1x1 f32 element=e5m2", row.amax).u8("scale_inv")[0], row.code_e5m2);
  }
  EXPECT_EQ(chain("scale_chain mxfp8 1x1 f32 element=e5m2", 0x07E00001).u8("scale_inv")[0], 0x00);   // E5M2's own such amax
  EXPECT_EQ(chain("scale_chain mxfp8 1x1 f32", 0x43E00001).u8("scale_inv")[0], 0x80);                // the first value above 448
}

// The code of a quotient by MAX happens to be the same for every amax, so only the value in between tells N5.2's product from it:
// 3 * fl(1/448) = 3BDB6DB8, 3 / 448 = 3BDB6DB7.
TEST(ScaleChain, Mxfp8ScaledAmaxIsAProduct) {
  LineCase c("scale_chain mxfp8 1x1 f32", {{"x", blob<uint32_t>({0x40400000})}});
  const std::vector<TraceStep> steps = make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 0);
  ASSERT_GT(steps.size(), 1u);
  EXPECT_EQ(steps[1].clause, "N5.2");
  EXPECT_EQ(steps[1].bits, 0x3BDB6DB8u);
}

TEST(ScaleChain, Mxfp4) {   // N15.2, N5.3
  struct Amax {
    uint32_t bits;
    uint8_t code;
  };
  for (const Amax& a : {Amax{0x00000000, 0x00}, Amax{0x00000001, 0x00}, Amax{0x3F800000, 0x7D}, Amax{0x40400000, 0x7E}, Amax{0x40400001, 0x7F},   // 1 / 6, 3 / 6
                        Amax{0x40C00000, 0x7F}, Amax{0x40C00001, 0x80}, Amax{0x41400000, 0x80},                                                 // 6, the next, 12
                        // 6 * 2^-127; 2^-149 / 3 above 2^-127 rounds down to it, 2^-148 / 3 above it rounds up
                        Amax{0x01400000, 0x00}, Amax{0x01400001, 0x00}, Amax{0x01400002, 0x01},
                        Amax{0x7F7FFFFF, 0xFD}, Amax{0x7F800000, 0xFE}, Amax{0x7FC00001, 0xFF}})
    EXPECT_EQ(chain("scale_chain mxfp4 1x1 f32", a.bits).u8("scale_inv")[0], a.code) << std::hex << a.bits;
}

// Here too the code tells no product from a quotient: 5 / 6 = 3F555555, 5 * fl(1/6) = 3F555556.
TEST(ScaleChain, Mxfp4ScaledAmaxIsAQuotient) {
  LineCase c("scale_chain mxfp4 1x1 f32", {{"x", blob<uint32_t>({0x40A00000})}});
  const std::vector<TraceStep> steps = make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 0);
  ASSERT_GT(steps.size(), 1u);
  EXPECT_EQ(steps[1].clause, "N15.2");
  EXPECT_EQ(steps[1].bits, 0x3F555555u);
}

TEST(ScaleChain, CodesOfE8m0) {   // N5.4, N5.9
  for (const std::string format : {"mxfp8", "mxfp4"}) {
    const Outputs out = run_line("scale_chain " + format + " 1x6 e8m0", {{"x", blob<uint8_t>({0, 1, 127, 253, 254, 255})}});
    EXPECT_EQ(out.u32("multiplier"), (std::vector<uint32_t>{0x7F000000, 0x7E800000, 0x3F800000, 0x00800000, 0x00400000, 0x7FFFFFFF}));
    EXPECT_EQ(out.u32("decoded"), (std::vector<uint32_t>{0x00400000, 0x00800000, 0x3F800000, 0x7E800000, 0x7F000000, 0x7FFFFFFF}));
    EXPECT_EQ(out.count("scale_inv"), 0u);
  }
}

}  // namespace
}  // namespace assay
