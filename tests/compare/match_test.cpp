// The matchers: right bytes pass, and wrong ones are told with plane, place, codes and hint; what cannot be
// compared never passes.
#include "tests/assay_gtest.h"

#include <gmock/gmock.h>

#include "compare/process/guarded_run.h"
#include "contract/line.h"

namespace assay {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kLine = "quantize mxfp8 33x70 bf16 dir=row fill=ties seed=4";

std::vector<PlaneData> outputs(const std::string& line) {
  const auto problem = parse_line(line);
  const auto reference = make_reference_subject();
  return execute(*reference, *problem, *make_inputs(*problem, *reference), Environment{}).planes;
}

template <class T, class M> std::string said(const T& got, const M& matcher) {
  std::ostringstream out;
  EXPECT_FALSE(matcher.MatchAndExplain(got, &out));
  return out.str();
}

TEST(Match, RightBytesPass) {
  const auto planes = outputs(kLine);
  EXPECT_THAT((Planes{{"row.data", planes[1].bytes}, {"row.scale_inv", planes[0].bytes}}),
              MatchesReference(kLine));
  EXPECT_THAT(planes[1].bytes, MatchesReference(kLine, "row.data"));
  EXPECT_TRUE(matches(planes[0].bytes, MatchesReference(kLine, "row.scale_inv")));
  EXPECT_THAT(planes[1].bytes,
              Not(MatchesReference("quantize mxfp8 33x70 bf16 dir=row fill=ties seed=5", "row.data")));
}

TEST(Match, InputsOfOnesOwnReplaceTheFill) {
  auto inputs = drawn("quantize mxfp8 33x70 bf16 dir=row fill=wide seed=9");
  ASSERT_EQ(inputs.at("x").size(), 2u * 33 * 70);
  const auto planes = outputs("quantize mxfp8 33x70 bf16 dir=row fill=wide seed=9");
  EXPECT_THAT(
      planes[1].bytes,
      MatchesReference("quantize mxfp8 33x70 bf16 dir=row", "row.data").from({{"x", inputs.at("x")}}));
  EXPECT_THAT(planes[1].bytes, Not(MatchesReference("quantize mxfp8 33x70 bf16 dir=row", "row.data")));
}

TEST(Match, ScalesWithoutTheirPadding) {
  const auto planes = outputs(kLine);
  std::vector<uint8_t> bare;
  for (int64_t r = 0; r < 33; ++r)
    for (int64_t c = 0; c < 3; ++c)
      bare.push_back(
          static_cast<uint8_t>(planes[0].bytes[static_cast<size_t>(r * planes[0].plane.padded.cols + c)]));
  EXPECT_THAT(bare, MatchesReference(kLine, "row.scale_inv"));
  bare[7] ^= 1;
  EXPECT_THAT(said(bare, MatchesReference(kLine, "row.scale_inv")),
              HasSubstr("1 of 99 differ     first at row 2, columns 32..63"));
}

// 6 codes of 6 bits in a row that is padded to 8 take 6 bytes, as many as there are codes: they are packed
// all the same.
TEST(Match, PackedRowsOfAsManyBytesAsCodes) {
  for (int cols : {3, 6, 9}) {
    const auto line =
        "quantize mxfp6 5x" + std::to_string(cols) + " bf16 dir=row packing=packed fill=ties seed=4";
    const auto planes = outputs(line);
    ASSERT_EQ(planes[1].bytes.size(), 5u * static_cast<size_t>(cols));
    EXPECT_THAT(planes[1].bytes, MatchesReference(line, "row.data")) << line;
  }
}

TEST(Match, WrongBytesAreToldLikeAFailure) {
  auto planes = outputs(kLine);
  for (std::byte& b : planes[0].bytes) b = static_cast<std::byte>(static_cast<int>(b) - (b != std::byte{0}));
  for (std::byte& b : planes[1].bytes) b ^= std::byte{8};
  const std::string screen = said(Planes{{"row.data", planes[1].bytes}, {"row.scale_inv", planes[0].bytes}},
                                  MatchesReference(kLine));
  for (const char* part :
       {"claim    bytes == reference", "cause    row.scale_inv (e8m0)   ", "after    row.data (e4m3)",
        "hint     one binade too small", "assay trace 'quantize mxfp8 33x70"})
    EXPECT_THAT(screen, HasSubstr(part));
}

TEST(Match, PaddingOfTileOrderIsJudged) {
  const std::string line = std::string(kLine) + " scales=gemm";
  auto planes = outputs(line);
  EXPECT_THAT(planes[0].bytes, MatchesReference(line, "row.scale_gemm"));
  planes[0].bytes.back() = std::byte{1};
  EXPECT_THAT(said(planes[0].bytes, MatchesReference(line, "row.scale_gemm")),
              HasSubstr("row.scale_gemm: 1 of"));
}

TEST(Match, WhatCannotBeComparedFails) {
  const auto planes = outputs(kLine);
  EXPECT_THAT(said(planes[1].bytes, MatchesReference("quantize mxfp9 33x70 bf16", "row.data")),
              HasSubstr("did you mean 'mxfp8'"));
  EXPECT_THAT(said(planes[1].bytes, MatchesReference(kLine, "row.codes")),
              HasSubstr("'row.codes' is no output plane of this line (they are row.scale_inv, row.data)"));
  EXPECT_THAT(said(Planes{}, MatchesReference(kLine)), HasSubstr("no output plane was given"));
  EXPECT_THAT(
      said(std::vector<uint8_t>(5), MatchesReference(kLine, "row.scale_inv")),
      HasSubstr(
          "expected 512 bytes, 128 x 4 elements of e8m0, found 5 bytes (or 99 without padding, 33 x 3)"));
  EXPECT_THAT(said(planes[1].bytes, MatchesReference(kLine, "row.data").from({{"x", planes[1].bytes}})),
              HasSubstr("x: expected 4620 bytes"));
  EXPECT_THAT(said(planes[1].bytes, MatchesReference(kLine, "row.data").from({{"y", planes[1].bytes}})),
              HasSubstr("'y' is no input plane"));
  EXPECT_THAT(said(planes[1].bytes, MatchesReference(std::string(kLine) + " noop=1.0", "row.data")),
              HasSubstr("nothing is written"));
  EXPECT_THROW(drawn("quantize mxfp9 1x1 bf16"), std::invalid_argument);
}

TEST(Match, TwoBuffers) {
  const std::vector<float> a = {1.0f, -0.0f, 3.5f, 4.0f};
  std::vector<float> b = a;
  EXPECT_THAT(a, SameBits("f32", 2, 2, b));
  b[1] = 0.0f;
  const std::string screen = said(a, SameBits("f32", 2, 2, b));
  EXPECT_THAT(screen, HasSubstr("1 of 4 differ     first at row 0, column 1"));
  EXPECT_THAT(screen, HasSubstr("80000000   -0"));
  EXPECT_THAT(said(a, SameBits("f32", 3, 2, b)), HasSubstr("got, buffer: expected 24 bytes"));
  EXPECT_THAT(said(a, SameBits("f33", 2, 2, b)), HasSubstr("no encoding 'f33'"));
}

}  // namespace
}  // namespace assay
