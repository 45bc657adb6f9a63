// MXFP6 with bytes worked by hand (N18). E2M3 counts 0, 1/8 .. 7/8, 1 .. 15/8, 2 .. 15/4, 4 .. 15/2; E3M2
// counts 0, 1/16, 1/8, 3/16, then four values in each binade from 1/4 to 28.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/reference/run_line.h"

namespace assay {
namespace {

using Codes = std::vector<uint8_t>;

Blob bf16(const std::vector<uint16_t>& x) { return blob(x); }

TEST(Mxfp6, ElementsOfE2M3) {  // N18.1 to N18.3: 7.5 / 7.5 has the scale 1
  // 7.5, -1, 1/8, 1/16 (halfway, to 0), 3/16 (halfway, to 2/8), -7.25 (halfway between 7 and 7.5, to 7).
  const Outputs out = run_line("quantize mxfp6 1x6 bf16 dir=row",
                               {{"x", bf16({0x40F0, 0xBF80, 0x3E00, 0x3D80, 0x3E40, 0xC0E8})}});
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x7F);
  EXPECT_EQ(out.u8("row.data"), (Codes{0x1F, 0x28, 0x01, 0x00, 0x02, 0x3E}));
}

TEST(Mxfp6, ElementsOfE3M2) {  // 28 / 28 has the scale 1
  // 28, -0.25, 1/16, 1/32 (halfway, to 0), 26 (halfway between 24 and 28, to 24), 18 (halfway, to 16).
  const Outputs out = run_line("quantize mxfp6 1x6 bf16 dir=row element=e3m2",
                               {{"x", bf16({0x41E0, 0xBE80, 0x3D80, 0x3D00, 0x41D0, 0x4190})}});
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x7F);
  EXPECT_EQ(out.u8("row.data"), (Codes{0x1F, 0x24, 0x01, 0x00, 0x1E, 0x1C}));
}

TEST(Mxfp6, ScaleIsRaisedWhereMaxIsExceeded) {  // N18.2: 8 / 7.5 and 32 / 28 are above 1, their scale is 2
  EXPECT_EQ(run_line("quantize mxfp6 1x2 bf16 dir=row", {{"x", bf16({0x4100, 0x40F0})}}).u8("row.data"),
            (Codes{0x18, 0x17}));  // 8 / 2 = 4, 7.5 / 2 = 3.75
  const Outputs out =
      run_line("quantize mxfp6 1x2 bf16 dir=row element=e3m2", {{"x", bf16({0x4200, 0x4190})}});
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x80);
  EXPECT_EQ(out.u8("row.data"),
            (Codes{0x1C, 0x18}));  // 32 / 2 = 16; 18 / 2 = 9, halfway between 8 and 10, to 8
  // The chain alone: the amaxes 7.5, the next binary32 value, 3.75, 0, infinity.
  const auto chain = run_line("scale_chain mxfp6 1x5 f32",
                              {{"x", blob<uint32_t>({0x40F00000, 0x40F00001, 0x40700000, 0, 0x7F800000})}});
  EXPECT_EQ(chain.u8("scale_inv"), (Codes{0x7F, 0x80, 0x7E, 0x00, 0xFE}));
}

TEST(Mxfp6, SpecialValues) {  // N18.3, N2.4: NaN is the largest value, without a sign; infinity keeps it
  const Outputs out =
      run_line("quantize mxfp6 1x4 bf16 dir=row", {{"x", bf16({0x7FC0, 0xFFC0, 0x40F0, 0x8000})}});
  EXPECT_EQ(out.u8("row.scale_inv")[0], 0x7F);
  EXPECT_EQ(out.u8("row.data"), (Codes{0x1F, 0x1F, 0x1F, 0x20}));
  const Outputs infinite =
      run_line("quantize mxfp6 1x3 bf16 dir=row element=e3m2", {{"x", bf16({0x7F80, 0xFF80, 0x3F80})}});
  EXPECT_EQ(infinite.u8("row.scale_inv")[0], 0xFE);
  EXPECT_EQ(infinite.u8("row.data"), (Codes{0x1F, 0x3F, 0x00}));
}

TEST(Mxfp6, FourCodesInThreeBytes) {  // N6.8, N18.4: a row of 6 ends in two padding codes of 0
  const Outputs out = run_line("quantize mxfp6 1x6 bf16 dir=row packing=packed",
                               {{"x", bf16({0x40F0, 0xBF80, 0x3E00, 0x3D80, 0x3E40, 0xC0E8})}});
  // 1F + 28 * 64 + 01 * 4096 = 001A1F; 02 + 3E * 64 = 000F82.
  EXPECT_EQ(out.u8("row.data"), (Codes{0x1F, 0x1A, 0x00, 0x82, 0x0F, 0x00}));
  const Outputs back =
      run_line("dequantize mxfp6 1x6 bf16 dir=row packing=packed",
               {{"row.data", out.at("row.data")}, {"row.scale_inv", out.at("row.scale_inv")}});
  EXPECT_EQ(back.u16("y"), (std::vector<uint16_t>{0x40F0, 0xBF80, 0x3E00, 0x0000, 0x3E80, 0xC0E0}));
}

TEST(Mxfp6, ColumnsAreStoredTransposed) {  // N18.4: of 3x2, two stored rows of three and a padding code each
  const std::vector<uint16_t> x = {0x3F80, 0xC000, 0x4040, 0x4080, 0x40F0, 0xBF00};  // 1 -2 / 3 4 / 7.5 -0.5
  const Outputs out = run_line("quantize mxfp6 3x2 bf16 dir=col packing=packed", {{"x", bf16(x)}});
  // Column 0 is 1 3 7.5 under 1: codes 08 14 1F; column 1 is -2 4 -0.5 under 1 (4 / 7.5 is above 1/2): 30
  // 18 24.
  EXPECT_EQ(out.u8("col.data"), (Codes{0x08, 0xF5, 0x01, 0x30, 0x46, 0x02}));
  const Outputs plain = run_line("quantize mxfp6 3x2 bf16 dir=col", {{"x", bf16(x)}});
  EXPECT_EQ(plain.u8("col.data"), (Codes{0x08, 0x14, 0x1F, 0x30, 0x18, 0x24}));
  const Codes scales = out.u8("col.scale_inv");  // [2, 1] in [128, 4]
  ASSERT_EQ(scales.size(), 512u);
  EXPECT_EQ(scales[0], 0x7F);
  EXPECT_EQ(scales[4], 0x7F);
}

TEST(Mxfp6, PackedCodesAreTheCodes) {  // what is packed is what stands in bytes, in both directions
  std::vector<uint16_t> x;
  for (uint32_t i = 0; i < 37 * 45; ++i)
    x.push_back(static_cast<uint16_t>((i * 40503u >> 2 & 0x8FFF) | 0x3C00));
  for (const std::string element : {"e2m3", "e3m2"})
    for (const auto& [dir, rows, cols] : {std::tuple{"row", 37, 45}, {"col", 45, 37}}) {
      const std::string line = "quantize mxfp6 37x45 bf16 element=" + element + " dir=" + dir;
      const std::string plane = std::string(dir) + ".data";
      const Codes plain = run_line(line, {{"x", bf16(x)}}).u8(plane),
                  packed = run_line(line + " packing=packed", {{"x", bf16(x)}}).u8(plane);
      const int pitch = (cols + 3) / 4 * 3;
      ASSERT_EQ(packed.size(), static_cast<size_t>(rows * pitch));
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c) {
          int code = 0;
          for (int bit = 0; bit < 6; ++bit) {
            const int at = 6 * c + bit;
            code += (packed[static_cast<size_t>(r * pitch + at / 8)] >> at % 8 & 1) << bit;
          }
          ASSERT_EQ(code, plain[static_cast<size_t>(r * cols + c)]) << line << " at " << r << ", " << c;
        }
    }
}

}  // namespace
}  // namespace assay
