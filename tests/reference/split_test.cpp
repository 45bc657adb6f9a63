// Grouped tensors (N14): where members stand, worked by hand from TransformerEngine's allocation
// (pytorch/tensor/storage/grouped_tensor_storage.py: make_grouped_tensor, split_into_quantized_tensors), and
// that each is its own line.
#include <bit>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

using U8 = std::vector<uint8_t>;
using U16 = std::vector<uint16_t>;
using U32 = std::vector<uint32_t>;
uint16_t bf16(float v) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
}  // for values that BF16 has
uint32_t f32(float v) { return std::bit_cast<uint32_t>(v); }

Blob noise(size_t bytes, uint32_t state) {
  Blob out(bytes);
  for (std::byte& b : out) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::byte>(state >> 24);
  }
  return out;
}
// Any finite BF16 values in x and ones in what is given.
std::map<std::string, Blob> inputs_of(const std::string& line, uint32_t seed = 1) {
  std::map<std::string, Blob> in;
  for (const Plane& plane : input_planes(problem(line))) {
    in[plane.name] = plane.name == "x" ? noise(plane.bytes(), seed) : blob(U32(plane.bytes() / 4, f32(1)));
    if (plane.name != "x") continue;
    for (size_t i = 1; i < in["x"].size(); i += 2) in["x"][i] &= std::byte{0xBF};  // exponents below 2^0
  }
  return in;
}
Outputs run(const std::string& line, uint32_t seed = 1) { return run_line(line, inputs_of(line, seed)); }

// ---- offsets (N14.3) ----------------------------------------------------------------------------

TEST(Split, OffsetsOfEveryVariant) {  // before member i: i m K; K sum m; M sum k, members by size and not by
                                      // column; sum m k
  EXPECT_EQ(run("split identity 48x5 bf16 vary=none groups=16,16,16").u32("offsets"), (U32{0, 80, 160, 240}));
  EXPECT_EQ(run("split identity 48x5 bf16 groups=1,40,0,7").u32("offsets"), (U32{0, 5, 205, 205, 240}));
  EXPECT_EQ(run("split identity 6x20 bf16 vary=last groups=3,0,17").u32("offsets"), (U32{0, 18, 18, 120}));
  EXPECT_EQ(run("split identity 1x61 bf16 vary=both groups=3x7,0x9,5x8,4x0").u32("offsets"),
            (U32{0, 21, 21, 61, 61}));
}

TEST(Split, OffsetsBeginWithZeroAndEndWithAll) {  // also where members are empty, first and last among them
  for (const std::string groups : {"0,31,33,128", "192", "0,0,192", "192,0,0", "1,190,1"}) {
    const U32 offsets = run("split mxfp8 192x256 bf16 groups=" + groups).u32("offsets");
    EXPECT_EQ(offsets.front(), 0u) << groups;
    EXPECT_EQ(offsets.back(), 192u * 256) << groups;
  }
  EXPECT_EQ(run("split mxfp8 0x64 bf16 groups=0,0").u32("offsets"), (U32{0, 0, 0}));
  EXPECT_EQ(run("split mxfp8 0x64 bf16 groups=0,0").u32("row.scale_offsets"), (U32{0, 0, 0}));
}

TEST(Split, ScaleOffsetsCountThePaddingOfEachMember) {
  // MXFP8, K = 256: up(m, 128) * 8 row scales and up(cdiv(m, 32), 4) * 256 column scales. As many, but [128,
  // 8] against [4, 256].
  const Outputs mx = run("split mxfp8 192x256 bf16 groups=0,31,33,128");
  EXPECT_EQ(mx.u32("offsets"), (U32{0, 0, 7936, 16384, 49152}));
  EXPECT_EQ(mx.u32("row.scale_offsets"), (U32{0, 0, 1024, 2048, 3072}));
  EXPECT_EQ(mx.u32("col.scale_offsets"), (U32{0, 0, 1024, 2048, 3072}));
  EXPECT_EQ(run("split mxfp8 300x40 bf16 groups=129,171").u32("row.scale_offsets"),
            (U32{0, 1024, 2048}));  // 256 x 4 each
  // FP8 blockwise 1x128: cdiv(K, 128) * up(m, 4) row scales, cdiv(m, 128) * up(K, 4) column scales.
  const Outputs lines = run("split fp8_block 658x384 bf16 groups=200,256,202");
  EXPECT_EQ(lines.u32("row.scale_offsets"), (U32{0, 600, 1368, 1980}));  // 3 * 200, 3 * 256, 3 * 204
  EXPECT_EQ(lines.u32("col.scale_offsets"), (U32{0, 768, 1536, 2304}));  // 2 * 384 each
  // 128x128: cdiv(m, 128) * up(cdiv(K, 128), 4), and the same of the transpose.
  const Outputs tiles = run("split fp8_block 656x384 bf16 block=128x128 groups=200,256,200");
  EXPECT_EQ(tiles.u32("row.scale_offsets"), (U32{0, 8, 16, 24}));   // 2 * 4
  EXPECT_EQ(tiles.u32("col.scale_offsets"), (U32{0, 12, 24, 36}));  // 3 * 4
  // In GEMM layout E8M0 scales, four for each block of 128 (N9.6): up(m, 128) * 12 and 384 * up(4 cdiv(m,
  // 128), 4).
  const Outputs gemm = run("split fp8_block 456x384 bf16 scales=gemm groups=200,256");
  EXPECT_EQ(gemm.u32("row.scale_offsets"), (U32{0, 3072, 6144}));
  EXPECT_EQ(gemm.u32("col.scale_offsets"), (U32{0, 3072, 6144}));
}

TEST(Split, ScaleOffsetsOfNvfp4DifferByDirection) {  // 48x80: 128 * 8 row scales, 128 * 4 column scales
  const Outputs out = run("split nvfp4 96x80 bf16 groups=48,48");
  EXPECT_EQ(out.u32("row.scale_offsets"), (U32{0, 1024, 2048}));
  EXPECT_EQ(out.u32("col.scale_offsets"), (U32{0, 512, 1024}));
}

TEST(Split, PerTensorFormatsHaveNoScaleOffsets) {
  for (const std::string format : {"identity", "fp8_delayed", "fp8_current"}) {
    const Outputs out = run("split " + format + " 3x2 bf16 groups=1,2");
    EXPECT_EQ(out.count("row.scale_offsets") + out.count("col.scale_offsets"), 0u) << format;
  }
}

// ---- members (N14.1, N14.2) ---------------------------------------------------------------------

// 1 to 6 in E4M3, and in BF16.
constexpr uint8_t k1 = 0x38, k2 = 0x40, k3 = 0x44, k4 = 0x48, k5 = 0x4A, k6 = 0x4C;
const U16 kOneToSix = {bf16(1), bf16(2), bf16(3), bf16(4), bf16(5), bf16(6)};

TEST(Split, ColumnsAreTransposedWithinTheirMember) {
  const std::map<std::string, Blob> first = {{"x", blob(kOneToSix)},
                                             {"col.given.scale", blob(U32{f32(1), f32(1)})}};
  EXPECT_EQ(run_line("split fp8_delayed 3x2 bf16 dir=col groups=1,2", first).u8("col.data"),
            (U8{k1, k2, k3, k5, k4, k6}));
  // vary=last: members of 2x1 and 2x2 lie one after the other, they are no columns of a 2x3.
  EXPECT_EQ(run_line("split fp8_delayed 2x3 bf16 dir=col vary=last groups=1,2", first).u8("col.data"),
            (U8{k1, k2, k3, k5, k4, k6}));
  EXPECT_EQ(run_line("split fp8_delayed 1x6 bf16 dir=col vary=both groups=2x2,1x2", first).u8("col.data"),
            (U8{k1, k3, k2, k4, k5, k6}));
}

TEST(Split, ColumnsAloneHaveTheOffsetsOfTheirElements) {  // not of a physical shape
  const Outputs out = run("split fp8_current 6x5 bf16 dir=col groups=2,4");
  EXPECT_EQ(out.u32("offsets"), (U32{0, 10, 30}));
  EXPECT_EQ(out.count("row.data"), 0u);
}

TEST(Split, EveryMemberHasItsOwnAmaxAndScale) {  // 448 / 2 and 448 / 448 (N3.3); one scale for both would
                                                 // saturate or lose
  const Outputs out = run_line("split fp8_current 2x2 bf16 groups=1,1",
                               {{"x", blob(U16{bf16(1), bf16(2), bf16(4), bf16(448)})}});
  for (const std::string d : {"row", "col"}) {
    EXPECT_EQ(out.u32(d + ".amax"), (U32{f32(2), f32(448)}));
    EXPECT_EQ(out.u32(d + ".scale"), (U32{f32(224), f32(1)}));
    EXPECT_EQ(out.u32(d + ".scale_inv"), (U32{0x3B924925, f32(1)}));
    EXPECT_EQ(out.u8(d + ".data"), (U8{0x76, 0x7E, k4, 0x7E}));
  }
}

TEST(Split, GivenValuesAreTheMembers) {  // N3.11, N3.1: delayed members share neither scale nor amax slot
  const Outputs out = run_line("split fp8_delayed 3x1 bf16 dir=row groups=1,2",
                               {{"x", blob(U16{bf16(1), bf16(1), bf16(3)})},
                                {"row.given.scale", blob(U32{f32(2), f32(0.5f)})},
                                {"row.prior.amax", blob(U32{f32(9), f32(2)})}});
  EXPECT_EQ(out.u8("row.data"), (U8{k2, 0x30, 0x3C}));  // 2, 0.5, 1.5
  EXPECT_EQ(out.u32("row.amax"), (U32{f32(9), f32(3)}));
  EXPECT_EQ(out.u32("row.scale_inv"), (U32{f32(0.5f), f32(2)}));
}

TEST(Split, GivenValuesOfALine) {  // N14.4: halved with each member, and from the start again with the fifth;
                                   // 2^-126 is not halved
  const std::vector<Problem> members = member_problems(
      problem("split fp8_delayed 6x1 f32 dir=row groups=1,1,1,1,1,1 scale=3 prior_amax=1.17549435e-38"));
  const float scales[] = {3, 1.5f, 0.75f, 0.375f, 3, 1.5f};
  for (size_t m = 0; m < 6; ++m) {
    EXPECT_EQ(members[m].row->scale, f32(scales[m])) << m;
    EXPECT_EQ(members[m].row->prior_amax, 0x00800000u) << m;
  }
}

TEST(
    Split,
    PackedMembersBeginWithAByte) {  // N6.8: rows of 3 codes take 2 bytes, members of 1x3 and 2x3 take 2 and 4
  const U16 x = {bf16(1), bf16(2), bf16(6), bf16(6), bf16(4), bf16(3), bf16(-6), bf16(0), bf16(1)};
  const Outputs out = run_line("split mxfp4 3x3 bf16 dir=row groups=1,2", {{"x", blob(x)}});
  EXPECT_EQ(out.u32("offsets"), (U32{0, 3, 9}));  // elements of x
  EXPECT_EQ(out.u8("row.data"), (U8{0x42, 0x07, 0x67, 0x05, 0x0F, 0x02}));
  ASSERT_EQ(out.u8("row.scale_inv").size(), 2u * 128 * 4);
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x7F);  // 6 / 6
  EXPECT_EQ(out.u8("row.scale_inv")[512], 0x7F);
}

// What a whole tensor's buffer would have, a member has not: its scales are [up(cdiv(m, 32), 4), up(K, 128)]
// of its own.
TEST(Split, ColumnScalesHaveTheShapeOfTheirMember) {  // members of 33x40 and 64x40 in MXFP8
  U16 x(97 * 40, bf16(1));
  x[32 * 40 + 39] = bf16(448);        // last row of member 0: its second block of rows
  x[(33 + 40) * 40 + 7] = bf16(448);  // row 40 of member 1: its second block too
  const Outputs out = run_line("split mxfp8 97x40 bf16 dir=col groups=33,64", {{"x", blob(x)}});
  const U8 scales = out.u8("col.scale_inv");
  ASSERT_EQ(scales.size(), 2u * 4 * 128);
  for (size_t m = 0; m < 2; ++m)
    for (size_t b = 0; b < 4; ++b)
      for (size_t c = 0; c < 128; ++c) {
        const bool large = b == 1 && c == (m == 0 ? 39u : 7u);
        EXPECT_EQ(scales[m * 512 + b * 128 + c], b < 2 && c < 40 ? (large ? 0x7F : 0x77) : 0)
            << m << " " << b << " " << c;
      }
}

// ---- capacity and noop (N14.6, N6.7) ------------------------------------------------------------

TEST(Split, SpareCapacityIsNeitherReadNorWritten) {  // 3 * 40 elements of 200, and 512 scales more
  for (const std::string format : {"identity", "fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "mxfp4"}) {
    const std::string line = "split " + format + " 3x40 bf16 groups=1,2 capacity=200";
    std::map<std::string, Blob> in = inputs_of(line);
    ASSERT_EQ(in["x"].size(), 400u);
    const Outputs out = run_line(line, in);
    for (size_t i = 240; i < 400; ++i) in["x"][i] = std::byte{0x7F};  // NaN from here on
    EXPECT_EQ(run_line(line, in), out) << format;
    const bool blocks = out.count("row.scale_offsets") > 0;
    for (const Plane& plane : output_planes(problem(line))) {
      const Blob& bytes = out.at(plane.name);
      const size_t spare = plane.name.ends_with(".data")                  ? plane.bytes_of(80)
                           : plane.name.ends_with(".scale_inv") && blocks ? plane.bytes_of(512)
                                                                          : 0;
      ASSERT_GE(bytes.size(), spare);
      EXPECT_EQ(Blob(bytes.end() - static_cast<ptrdiff_t>(spare), bytes.end()), Blob(spare, std::byte{0x5A}))
          << format << " " << plane.name;
    }
    // Without the spare capacity the same bytes.
    std::map<std::string, Blob> exact = in;
    exact["x"].resize(240);
    for (const auto& [name, bytes] : run_line("split " + format + " 3x40 bf16 groups=1,2", exact))
      EXPECT_EQ(Blob(out.at(name).begin(), out.at(name).begin() + static_cast<ptrdiff_t>(bytes.size())),
                bytes)
          << format << " " << name;
  }
}

TEST(Split, NoopLeavesOffsetsToo) {
  const std::string line = "split fp8_current 3x40 bf16 groups=1,2 noop=1";
  for (const auto& [name, bytes] : run(line)) EXPECT_EQ(bytes, Blob(bytes.size(), std::byte{0x5A})) << name;
  std::map<std::string, Blob> in = inputs_of(line);
  in["noop"] = blob(U32{f32(2)});
  EXPECT_EQ(run_line(line, in).u32("offsets"), (U32{0, 40, 120}));
}

// ---- every format -------------------------------------------------------------------------------

// N14.2: the bytes of each member are those of its own line, which knows nothing of the others.
TEST(Split, EveryMemberIsItsOwnLine) {
  std::vector<std::string> lines;
  for (const FormatInfo& f : kFormats)
    for (const std::string tail :
         {"70x48 bf16 groups=0,33,37", "66x40 bf16 vary=none groups=33,33 dir=row",
          "33x90 bf16 vary=last groups=50,0,40", "1x1881 bf16 vary=both groups=33x40,17x33 capacity=4000"})
      lines.push_back("split " + std::string(f.name) + " " + tail);
  for (const std::string pair :
       {"mxfp8/mxfp4", "fp8_block/fp8_delayed", "mxfp4/fp8_current", "fp8_delayed/identity"})
    for (const std::string source : {"original", "row_dequantized"})
      lines.push_back("split " + pair + " 70x48 bf16 groups=33,0,37 col_source=" + source);
  for (const std::string& line : lines) {
    const Problem p = problem(line);
    std::map<std::string, Blob> in = inputs_of(line, 7);
    for (auto& [name, bytes] : in)
      if (name.find("scale") != std::string::npos)
        for (size_t m = 0; m < bytes.size() / 4; ++m)
          bytes[4 * m + 2] = static_cast<std::byte>(0x80 + 9 * m);  // no two alike
    const Outputs all = run_line(line, in);
    const std::vector<Problem> members = member_problems(p);
    const auto part = [](const std::vector<Plane>& planes, const std::string& name, const Blob& bytes,
                         size_t m) {
      for (const Plane& plane : planes)
        if (plane.name == name) {
          if (plane.members.empty()) return bytes;
          const size_t at = plane.bytes_of(plane.members[m].offset);
          return Blob(bytes.begin() + static_cast<ptrdiff_t>(at),
                      bytes.begin() + static_cast<ptrdiff_t>(at + member_plane(plane, m).bytes()));
        }
      throw std::runtime_error("no plane " + name);
    };
    for (size_t m = 0; m < members.size(); ++m) {
      std::map<std::string, Blob> own;
      for (const Plane& plane : input_planes(members[m]))
        own[plane.name] = part(input_planes(p), plane.name, in.at(plane.name), m);
      for (const auto& [name, bytes] : run_line(to_line(members[m]), own))
        EXPECT_EQ(part(output_planes(p), name, all.at(name), m), bytes)
            << line << " member " << m << " " << name;
    }
  }
}

}  // namespace
}  // namespace assay
