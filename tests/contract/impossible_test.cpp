// The rules of contract/line/validate.cpp: each is broken by a line, or by a Problem that no line can say.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>

#include "contract/line.h"
#include "tests/source_path.h"

namespace assay {
namespace {

TEST(Impossible, LinesAreErrorsThatSayWhy) {
  std::ifstream file(source_path("tests/contract/impossible.txt"));
  int lines = 0;
  for (std::string line, why; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    ASSERT_TRUE(std::getline(file, why) && why.starts_with("  ")) << "no words of an error below: " << line;
    const auto p = parse_line(line);
    ++lines;
    ASSERT_FALSE(p) << line;
    EXPECT_NE(p.error().text().find(why.substr(2)), std::string::npos) << line << "\n" << p.error().text();
  }
  EXPECT_GT(lines, 200);
}

// The last values before an error.
TEST(Impossible, WhatIsJustPossible) {
  for (const char* line :
       {"quantize mxfp8 1x2147483648 bf16", "quantize mxfp8 2147483648x1 bf16",
        "quantize mxfp8 2147483648x0 bf16", "quantize nvfp4 16x16 bf16 round=sr rng=1,2,131071",
        "update fp8_delayed 1x4 f32 margin=126", "quantize nvfp4 16x1 bf16 col.rht=1",
        "quantize nvfp4 32x32 bf16 round=sr draw=te_t1d", "quantize nvfp4 64x128 bf16 round=sr draw=te_rhtrc",
        "split mxfp8 64x64 bf16 groups=32,32 capacity=4096",
        "split mxfp8 64x64 bf16 groups=32,32 capacity=2147483648", "gemm a=mxfp8 b=mxfp8 1x1x2147483648",
        "adam f32 4x4 f32 beta1=0.99999994 beta2=0", "attention fp8_current 64x32 bf16 window=-1,-1",
        "attention fp8_current 64x32 bf16 dropout=0.99999994", "attention mxfp8 128x32 bf16",
        "attention fp8_current 64x32 bf16 batch=2 lengths=32,32 kv_lengths=32,32",
        "attention fp8_current 32768x32 bf16 kv=65536", "attention fp8_current 0x32 bf16"}) {
    const auto p = parse_line(line);
    EXPECT_TRUE(p) << line << ": " << p.error().text();
  }
  // A slot that the attention does not have casts nothing, whatever its numbers.
  Problem forward = *parse_line("attention fp8_current 64x32 bf16");
  forward.as<Attention>()->slot(AttentionSlot::dp).numerics.nan_code = NanCode::minus_zero;
  EXPECT_FALSE(validate(forward));
}

// The keys of a line keep these from being said; what builds Problems itself can.
TEST(Impossible, ProblemsThatNoLineSays) {
  struct Row {
    const char* line;
    std::function<void(Problem&)> change;
    const char* why;
  };
  const auto of = [](const char* line) { return *parse_line(line)->row; };
  for (const Row& r : {
           Row{"quantize mxfp8 4x4 bf16",
               [](Problem& p) {
                 p.x.shape = {-1, 4};
               },
               "sizes of 0 and up"},
           {"quantize mxfp8 4x4 bf16",
            [](Problem& p) {
              p.x.shape = {4, -1};
            },
            "sizes of 0 and up"},
           {"quantize mxfp8 4x4 bf16",
            [](Problem& p) {
              p.x.shape = {int64_t{1} << 20, 2049};
            },
            "at most 2^31 elements"},
           {"quantize mxfp8 4x4 bf16", [](Problem& p) { p.row.reset(), p.col.reset(); },
            "needs a quantizer in at least one direction"},
           {"quantize mxfp8 4x4 bf16", [](Problem& p) { p.row->element = Encoding::f16; },
            "mxfp8 data cannot be f16"},
           {"quantize mxfp8 4x4 bf16", [](Problem& p) { p.row->block = Block::b128x128; },
            "block does not fit mxfp8"},
           {"quantize mxfp8 4x4 bf16", [](Problem& p) { p.row->packing = Packing::packed; },
            "packing is of formats that leave a choice"},
           {"quantize fp8_current 4x4 bf16", [](Problem& p) { p.row->scale_from = ScaleFrom::amax; },
            "scale_from is for quantizes of formats with blocks"},
           {"dequantize mxfp8 4x4 bf16 dir=row", [](Problem& p) { p.row->scale_from = ScaleFrom::scale; },
            "scale_from is for quantizes of formats with blocks"},
           {"quantize mxfp8 4x4 bf16", [](Problem& p) { p.row->round = Round::sr; }, "are for nvfp4"},
           {"quantize mxfp6 4x4 bf16", [](Problem& p) { p.row->round = Round::sr; }, "are for nvfp4"},
           {"quantize mxfp8 4x4 bf16", [](Problem& p) { p.row->rht = true; }, "are for nvfp4"},
           {"quantize mxfp8 4x4 bf16", [](Problem& p) { p.row->four_over_six = FourOverSix::mae; },
            "are for nvfp4"},
           {"quantize mxfp8 4x4 bf16", [](Problem& p) { p.row->row_scaled = true; },
            "row_scaled is for fp8_current, fp8_delayed and nvfp4"},
           {"quantize fp8_current 4x4 bf16 row_scaled=1", [](Problem& p) { p.row->amax = 0x3F800000; },
            "no amax may be given"},
           {"quantize nvfp4 16x16 bf16", [](Problem& p) { p.row->rht = true; }, "for columns only"},
           {"quantize nvfp4 16x16 bf16 row_scaled=1", [](Problem& p) { p.row->amax = 0x3F800000; },
            "row_scaled=1 needs computed amaxes"},
           {"quantize nvfp4 16x16 bf16", [](Problem& p) { p.row->e4m3_max = E4m3Max::m256; },
            "e4m3_max=256 is for four_over_six only"},
           {"quantize nvfp4 16x16 bf16 four_over_six=mae",
            [](Problem& p) { p.row->numerics.multiplier = Multiplier::quotient; },
            "four_over_six takes round=rne"},
           {"split mxfp8 64x64 bf16 groups=32,32", [](Problem& p) { p.as<Split>()->members.clear(); },
            "at least one member"},
           {"split mxfp8 64x64 bf16 groups=32,32",
            [](Problem& p) {
              p.as<Split>()->members[0] = {-32, 64};
            },
            "sizes are out of range"},
           {"split mxfp8 64x64 bf16 groups=32,32",
            [](Problem& p) { p.as<Split>()->capacity = (int64_t{1} << 31) + 1; }, "at most 2^31"},
           {"cast e4m3 4x4 f32", [&](Problem& p) { p.row = of("quantize mxfp8 4x4 bf16"); },
            "cast has no quantizer"},
           {"cast e4m3 4x4 f32", [&](Problem& p) { p.col = of("quantize mxfp8 4x4 bf16"); },
            "cast has no quantizer"},
           {"adam f32 4x4 f32", [&](Problem& p) { p.row = of("quantize mxfp8 4x4 bf16"); },
            "adam has no quantizer"},
           {"scale_state f16 4x4 f32", [&](Problem& p) { p.col = of("quantize mxfp8 4x4 bf16"); },
            "scale_state has no quantizer"},
           {"gemm a=mxfp8 b=mxfp8 4x4x4", [&](Problem& p) { p.col = of("quantize mxfp8 4x4 bf16"); },
            "in its operands only"},
           {"gemm a=mxfp8 b=mxfp8 4x4x4", [](Problem& p) { p.as<Gemm>()->k = -1; }, "out of range"},
           {"gemm a=mxfp8 b=mxfp8 4x4x4", [](Problem& p) { p.as<Gemm>()->k = (int64_t{1} << 31) + 1; },
            "out of range"},
           {"gemm a=mxfp8 b=mxfp8 4x4x4",
            [](Problem& p) { p.as<Gemm>()->a.quantizer.scales = ScaleLayout::gemm; }, "reads compact scales"},
           {"attention fp8_current 64x32 bf16", [&](Problem& p) { p.row = of("quantize mxfp8 4x4 bf16"); },
            "in its slots only"},
           {"attention fp8_current 64x32 bf16", [](Problem& p) { p.as<Attention>()->batch = 0; },
            "are at least 1"},
           {"attention fp8_current 64x32 bf16", [](Problem& p) { p.as<Attention>()->heads = 0; },
            "are at least 1"},
           {"attention fp8_current 64x32 bf16", [](Problem& p) { p.as<Attention>()->kv_heads = 0; },
            "are at least 1"},
           {"attention fp8_current 64x32 bf16", [](Problem& p) { p.as<Attention>()->window_left = -2; },
            "integers of -1 and up"},
           {"attention fp8_current 64x32 bf16", [](Problem& p) { p.as<Attention>()->window_right = -2; },
            "integers of -1 and up"},
           {"hadamard nvfp4 16x16 bf16", [](Problem& p) { p.col->rht = false; },
            "hadamard is the rotation of nvfp4 columns"},
           {"hadamard nvfp4 16x16 bf16", [](Problem& p) { p.row = std::nullopt, p.col->rht = false; },
            "hadamard is the rotation"},
           {"update fp8_delayed 4x4 f32", [](Problem& p) { p.col = p.row; }, "update has no directions"},
           {"scale_chain mxfp8 4x4 f32", [](Problem& p) { p.col = p.row, p.row.reset(); },
            "scale_chain has no directions"},
           {"scale_chain mxfp8 4x4 f32", [](Problem& p) { p.flavour = Flavour::te; },
            "flavour=te is for quantize, split and swizzle"},
       }) {
    Problem p = *parse_line(r.line);
    r.change(p);
    const auto error = validate(p);
    ASSERT_TRUE(error) << r.line << ": " << r.why;
    EXPECT_NE(error->text().find(r.why), std::string::npos) << r.line << "\n" << error->text();
  }
}

}  // namespace
}  // namespace assay
