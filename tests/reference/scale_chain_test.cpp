// The scalar chain from amax to scales, with bits worked by hand from the clauses.
#include <ostream>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

struct Row {
  uint32_t amax;
  uint32_t e4m3[2], e4m3_pow2[2], e5m2[2];  // scale, scale_inv
  uint8_t code_e4m3, code_e5m2;             // E8M0
};
const Row kRows[] = {
    {0x00000000,
     {0x3F800000, 0x3F800000},
     {0x3F800000, 0x3F800000},
     {0x3F800000, 0x3F800000},
     0x00,
     0x00},  // N3.4
    {0x3F800000,
     {0x43E00000, 0x3B124925},
     {0x43800000, 0x3B800000},
     {0x47600000, 0x37924925},
     0x77,
     0x70},  // 1
    {0x40400000,
     {0x43155555, 0x3BDB6DB7},
     {0x43000000, 0x3C000000},
     {0x46955555, 0x385B6DB7},
     0x78,
     0x71},  // 3
    {0x3E99999A,
     {0x44BAAAAA, 0x3A2F8AF9},
     {0x44800000, 0x3A800000},
     {0x483AAAAA, 0x36AF8AF9},
     0x75,
     0x6E},  // 0.3
    {0x43E00000,
     {0x3F800000, 0x3F800000},
     {0x3F800000, 0x3F800000},
     {0x43000000, 0x3C000000},
     0x7F,
     0x78},  // 448
    {0x43E08000,
     {0x3F7F6E0A, 0x3F804925},
     {0x3F000000, 0x40000000},
     {0x42FF6E0A, 0x3C004925},
     0x80,
     0x79},  // 449
    {0x47600000,
     {0x3C000000, 0x43000000},
     {0x3C000000, 0x43000000},
     {0x3F800000, 0x3F800000},
     0x86,
     0x7F},  // 57344
    {0x03AA2425,
     {0x7F7FFFFF, 0x00200000},
     {0x7F000000, 0x00400000},
     {0x7F7FFFFF, 0x00200000},
     0x00,
     0x00},  // 1e-36: N3.5
    {0x00000001,
     {0x7F7FFFFF, 0x00200000},
     {0x7F000000, 0x00400000},
     {0x7F7FFFFF, 0x00200000},
     0x00,
     0x00},  // the least subnormal
    // amax * fl(1/448) rounds down to 2^-127 exactly, where the exact quotient lies above it (N5.2)
    {0x04600001, {0x7EFFFFFF, 0x00400000}, {0x7E800000, 0x00800000}, {0x7F7FFFFF, 0x00200000}, 0x00, 0x00},
    {0x7F7FFFFF,
     {0x03E00001, 0x7B124924},
     {0x03800000, 0x7B800000},
     {0x07600001, 0x77924924},
     0xF7,
     0xF0},  // FLT_MAX
    {0x7F800000,
     {0x3F800000, 0x3F800000},
     {0x3F800000, 0x3F800000},
     {0x3F800000, 0x3F800000},
     0xFE,
     0xFE},  // infinity: N3.4, N5.3
    {0x7FC00001,
     {0x3F800000, 0x3F800000},
     {0x3F800000, 0x3F800000},
     {0x3F800000, 0x3F800000},
     0xFF,
     0xFF},  // NaN: N3.4, N5.3
};

Outputs chain(const std::string& line, uint32_t amax) {
  return run_line(line, {{"x", blob<uint32_t>({amax})}});
}

TEST(ScaleChain, PerTensor) {  // N3.3 to N3.7
  for (const Row& row : kRows) {
    SCOPED_TRACE(testing::Message() << std::hex << row.amax);
    for (const std::string format : {"fp8_current", "fp8_block"}) {  // N9.2
      const Outputs plain = chain("scale_chain " + format + " 1x1 f32 element=e4m3 pow2=0", row.amax);
      EXPECT_EQ(plain.u32("scale")[0], row.e4m3[0]);
      EXPECT_EQ(plain.u32("scale_inv")[0], row.e4m3[1]);
      const Outputs pow2 = chain(
          "scale_chain " + format + " 1x1 f32 element=e4m3" + (format == "fp8_current" ? " pow2=1" : ""),
          row.amax);
      EXPECT_EQ(pow2.u32("scale")[0], row.e4m3_pow2[0]);
      EXPECT_EQ(pow2.u32("scale_inv")[0], row.e4m3_pow2[1]);
      const Outputs wide = chain("scale_chain " + format + " 1x1 f32 element=e5m2 pow2=0", row.amax);
      EXPECT_EQ(wide.u32("scale")[0], row.e5m2[0]);
      EXPECT_EQ(wide.u32("scale_inv")[0], row.e5m2[1]);
    }
  }
}

TEST(ScaleChain, LeastAmax) {  // N3.2
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 eps=448", 0x00000000).u32("scale")[0],
            0x3F800000u);  // 0 becomes 448
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 eps=448", 0x3F800000).u32("scale")[0], 0x3F800000u);
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 eps=448", 0x44600000).u32("scale")[0],
            0x3F000000u);  // 896 stays
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 eps=224", 0x7FFFFFFF).u32("scale")[0],
            0x3F800000u);  // NaN is not below 224; N3.4
}

TEST(ScaleChain, InfiniteAmaxAsZeroScale) {  // N3.4, N3.7
  const Outputs out = chain("scale_chain fp8_current 1x1 f32 inf_amax=zero pow2=1", 0x7F800000);
  EXPECT_EQ(out.u32("scale")[0], 0x00000000u);
  EXPECT_EQ(out.u32("scale_inv")[0], 0x7F800000u);
  EXPECT_EQ(chain("scale_chain fp8_current 1x1 f32 inf_amax=zero", 0x7FC00000).u32("scale")[0],
            0x3F800000u);  // NaN is no infinity
}

TEST(ScaleChain, LimitOfTheSource) {  // N3.5: bf16's largest finite value, and its reciprocal 2^-128 * (1 +
                                      // 2^-8 + 2^-16 + ...)
  const std::map<std::string, Blob> x = {{"x", blob<uint16_t>({0x0001})}};
  const Outputs out = run_line("quantize fp8_current 1x1 bf16 dir=row scale_limit=source_max", x);
  EXPECT_EQ(out.u32("row.scale")[0], 0x7F7F0000u);
  EXPECT_EQ(out.u32("row.scale_inv")[0], 0x00202020u);
  EXPECT_EQ(run_line("quantize fp8_current 1x1 bf16 dir=row", x).u32("row.scale")[0], 0x7F7FFFFFu);
}

TEST(ScaleChain, Mxfp8) {  // N5.2 to N5.4, N5.9
  for (const Row& row : kRows) {
    SCOPED_TRACE(testing::Message() << std::hex << row.amax);
    EXPECT_EQ(chain("scale_chain mxfp8 1x1 f32 element=e4m3", row.amax).u8("scale_inv")[0], row.code_e4m3);
    EXPECT_EQ(chain("scale_chain mxfp8 1x1 f32 element=e5m2", row.amax).u8("scale_inv")[0], row.code_e5m2);
  }
  EXPECT_EQ(chain("scale_chain mxfp8 1x1 f32 element=e5m2", 0x07E00001).u8("scale_inv")[0],
            0x00);  // E5M2's own such amax
  EXPECT_EQ(chain("scale_chain mxfp8 1x1 f32", 0x43E00001).u8("scale_inv")[0],
            0x80);  // the first value above 448
}

// The code of a quotient by MAX happens to be the same for every amax, so only the value in between tells
// N5.2's product from it: 3 * fl(1/448) = 3BDB6DB8, 3 / 448 = 3BDB6DB7.
TEST(ScaleChain, Mxfp8ScaledAmaxIsAProduct) {
  LineCase c("scale_chain mxfp8 1x1 f32", {{"x", blob<uint32_t>({0x40400000})}});
  const std::vector<TraceStep> steps = make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 0);
  ASSERT_GT(steps.size(), 1u);
  EXPECT_EQ(steps[1].clause, "N5.2");
  EXPECT_EQ(steps[1].bits, 0x3BDB6DB8u);
}

TEST(ScaleChain, Mxfp4) {  // N15.2, N5.3
  struct Amax {
    uint32_t bits;
    uint8_t code;
  };
  for (const Amax& a :
       {Amax{0x00000000, 0x00}, Amax{0x00000001, 0x00}, Amax{0x3F800000, 0x7D}, Amax{0x40400000, 0x7E},
        Amax{0x40400001, 0x7F},                                                  // 1 / 6, 3 / 6
        Amax{0x40C00000, 0x7F}, Amax{0x40C00001, 0x80}, Amax{0x41400000, 0x80},  // 6, the next, 12
        // 6 * 2^-127; 2^-149 / 3 above 2^-127 rounds down to it, 2^-148 / 3 above it rounds up
        Amax{0x01400000, 0x00}, Amax{0x01400001, 0x00}, Amax{0x01400002, 0x01}, Amax{0x7F7FFFFF, 0xFD},
        Amax{0x7F800000, 0xFE}, Amax{0x7FC00001, 0xFF}})
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

// Of one pair of a tensor's amax and a block's.
struct Nvfp4Chain {
  uint32_t encode_scale, multiplier;
  uint8_t scale;
  bool operator==(const Nvfp4Chain&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Nvfp4Chain& c) {
  return out << std::hex << c.encode_scale << " " << static_cast<int>(c.scale) << " " << c.multiplier;
}
Nvfp4Chain nvfp4(uint32_t amax, uint32_t block_amax, const std::string& keys = "") {
  const Outputs out =
      run_line("scale_chain nvfp4 1x2 f32 " + keys, {{"x", blob<uint32_t>({amax, block_amax})}});
  return {out.u32("encode_scale")[0], out.u32("multiplier")[0], out.u8("scale_inv")[0]};
}

TEST(ScaleChain, Nvfp4EncodeScale) {  // N10.2, N10.5, N10.7
  struct Amax {
    uint32_t amax, encode, decode, multiplier;
  };
  for (const Amax& a : {Amax{0x00000000, 0x3F800000, 0x3F800000, 0x3E2AAAAB},
                        Amax{0x7F800000, 0x3F800000, 0x3F800000, 0x3E2AAAAB},  // 0, infinity
                        Amax{0x00000001, 0x7F7FFFFF, 0x00200000, 0x7E2AAAAA},
                        Amax{0x05280000, 0x7F7FFFFF, 0x00200000, 0x7E2AAAAA},  // overflow
                        Amax{0x7FC00000, 0x7F7FFFFF, 0x00200000, 0x7E2AAAAA},
                        Amax{0xFFC00001, 0x7F7FFFFF, 0x00200000, 0x7E2AAAAA},  // NaN: N10.3
                        Amax{0x05280001, 0x7F7FFFFE, 0x00200000, 0x7E2AAAAA},
                        Amax{0x0DA24260, 0x77048754, 0x07F74093, 0x75B0B470},  // the first without, 1e-30
                        Amax{0x3DCCCCCD, 0x46D20000, 0x381C09C1, 0x458C0000},
                        Amax{0x3F800000, 0x45280000, 0x39C30C31, 0x43E00000},  // 0.1, 1
                        Amax{0x40C00000, 0x43E00000, 0x3B124925, 0x42955556},
                        Amax{0x43E00000, 0x40C00000, 0x3E2AAAAB, 0x3F800000},  // 6, 448
                        Amax{0x45280000, 0x3F800000, 0x3F800000, 0x3E2AAAAB},
                        Amax{0x7149F2CA, 0x1354F71E, 0x6B99DD8E, 0x120DFA14},  // 2688, 1e30
                        Amax{0x7F7FFFFF, 0x05280001, 0x79C30C30, 0x03E00002}}) {
    LineCase c("scale_chain nvfp4 1x2 f32", {{"x", blob<uint32_t>({a.amax, 0x3F800000})}});
    const std::vector<TraceStep> steps = make_reference_subject()->trace(c.p, c.inputs, Direction::row, 0, 0);
    const auto step = [&](const std::string& clause) {
      for (const TraceStep& s : steps)
        if (s.clause == clause) return s.bits;
      return 0xDEADDEADu;
    };
    SCOPED_TRACE(testing::Message() << std::hex << a.amax);
    EXPECT_EQ(nvfp4(a.amax, 0x3F800000).encode_scale, a.encode);
    EXPECT_EQ(step("N10.2"), a.encode);
    EXPECT_EQ(step("N10.7"), a.decode);
    EXPECT_EQ(step("N10.5"), a.multiplier);
  }
  EXPECT_EQ(nvfp4(0x3F800000, 0, "e4m3_max=256").encode_scale, 0x44C00000u);  // 1536
}

TEST(ScaleChain, Nvfp4BlockScale) {  // N10.6, N10.8
  EXPECT_EQ(nvfp4(0x40B00000, 0x3FB30000), (Nvfp4Chain{0x43F45D17, 0x408BA2E8, 0x6E}));
  EXPECT_EQ(nvfp4(0x40B00000, 0x3FB30000, "multiplier=bf16_quotient"),
            (Nvfp4Chain{0x43F45D17, 0x408C0000, 0x6E}));
  EXPECT_EQ(nvfp4(0x3F800000, 0x3F800000).scale, 0x7E);
  EXPECT_EQ(nvfp4(0x3F800000, 0x7F800000).scale, 0x7E);  // infinity is clamped, and saturates
  EXPECT_EQ(nvfp4(0x3F800000, 0x00000000), (Nvfp4Chain{0x45280000, 0x7F7FFFFF, 0x00}));
  EXPECT_EQ(nvfp4(0x3F800000, 0x00000000, "multiplier=bf16_quotient").multiplier, 0x7F7F0000u);
  EXPECT_EQ(nvfp4(0x3F800000, 0x358637BD).scale, 0x00);  // 1e-6: underflows
  // S = FLT_MAX, D = 2^-128: fl(1 / fl(sf D)) overflows below sf = 1.125, and is clamped to FLT_MAX.
  EXPECT_EQ(nvfp4(0x00000001, 0x00BFFFFF), (Nvfp4Chain{0x7F7FFFFF, 0x7F7FFFFF, 0x38}));
  EXPECT_EQ(nvfp4(0x00000001, 0x00D80000), (Nvfp4Chain{0x7F7FFFFF, 0x7F638E39, 0x39}));
  // N10.5: fl(b fl(S C)); both fl(fl(b / 6) S) and fl(fl(b C) S) would round to 64.
  EXPECT_EQ(nvfp4(0x40FC0000, 0x3F610000).scale, 0x65);
  EXPECT_EQ(nvfp4(0x41480000, 0x3F680000).multiplier,
            0x40D70A3Eu);  // N10.8: fl(S / value(sf)) would be 40D70A3D
}

TEST(ScaleChain, Nvfp4SpecialAmax) {  // N10.2, N10.3
  EXPECT_EQ(nvfp4(0x7FC00000, 0x3F800000, "nan_clamp=propagate"), (Nvfp4Chain{0x7FFFFFFF, 0x7FFFFFFF, 0x7F}));
  EXPECT_EQ(nvfp4(0x7FC00000, 0x40C00000, "nan_tensor_amax=unit nan_clamp=propagate"),
            (Nvfp4Chain{0x3F800000, 0x3F800000, 0x38}));
  EXPECT_EQ(nvfp4(0x7FC00000, 0x40C00000, "nan_tensor_amax=unit"),
            (Nvfp4Chain{0x3F800000, 0x3F800000, 0x38}));
  // S = 0, D infinite: 0 D is NaN, which the clamp drops or keeps.
  EXPECT_EQ(nvfp4(0x7F800000, 0x3F800000, "inf_amax=zero"), (Nvfp4Chain{0x00000000, 0x7F7FFFFF, 0x00}));
  EXPECT_EQ(nvfp4(0x7F800000, 0x3F800000, "inf_amax=zero nan_clamp=propagate"),
            (Nvfp4Chain{0x00000000, 0x7FFFFFFF, 0x00}));
  EXPECT_EQ(nvfp4(0x7F800000, 0x7F800000, "inf_amax=zero nan_clamp=propagate"),
            (Nvfp4Chain{0x00000000, 0x7FFFFFFF, 0x7F}));
  EXPECT_EQ(nvfp4(0x45280000, 0x7FC00000),
            (Nvfp4Chain{0x3F800000, 0x3B124925, 0x7E}));  // a NaN block amax is clamped
  EXPECT_EQ(nvfp4(0x45280000, 0x7FC00000, "nan_clamp=propagate"), (Nvfp4Chain{0x3F800000, 0x7FFFFFFF, 0x7F}));
  EXPECT_EQ(nvfp4(0x45280000, 0x7FC00000, "nan_clamp=propagate multiplier=bf16_quotient").multiplier,
            0x7FFFFFFFu);
}

TEST(ScaleChain, CodesOfE8m0) {  // N5.4, N5.9
  for (const std::string format : {"mxfp8", "mxfp4"}) {
    const Outputs out =
        run_line("scale_chain " + format + " 1x6 e8m0", {{"x", blob<uint8_t>({0, 1, 127, 253, 254, 255})}});
    EXPECT_EQ(out.u32("multiplier"), (std::vector<uint32_t>{0x7F000000, 0x7E800000, 0x3F800000, 0x00800000,
                                                            0x00400000, 0x7FFFFFFF}));
    EXPECT_EQ(out.u32("decoded"), (std::vector<uint32_t>{0x00400000, 0x00800000, 0x3F800000, 0x7E800000,
                                                         0x7F000000, 0x7FFFFFFF}));
    EXPECT_EQ(out.count("scale_inv"), 0u);
  }
}

}  // namespace
}  // namespace assay
