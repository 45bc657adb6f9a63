// Assay in somebody's own test program: a matcher for bytes, and the judge itself.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay_gtest.h"
#include "compare/runner.h"
#include "contract/line.h"
#include "fast/subject_host.h"
#include "fixtures/suite.h"

namespace {

// The kernel under test: binary32 to bf16, nearest, ties to even.
std::vector<uint16_t> to_bf16(const std::vector<std::byte>& x, bool ties_to_even) {
  std::vector<uint16_t> out(x.size() / 4);
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &x[4 * i], 4);
    const uint32_t half = ties_to_even ? 0x7FFF + (bits >> 16 & 1) : 0x8000;
    out[i] = static_cast<uint16_t>((bits + half) >> 16);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) out[i] = 0x7FFF;  // there is one NaN
  }
  return out;
}

TEST(Kernel, MatchesTheReference) {
  for (const std::string fill : {"normal", "ties", "edges", "nonfinite", "denormal"}) {
    const std::string line = "cast bf16 64x256 f32 fill=" + fill;
    EXPECT_THAT(to_bf16(assay::drawn(line).at("x"), true), assay::MatchesReference(line, "y"));
  }
}

// What a wrong kernel is told.
TEST(Kernel, AWrongOneIsExplained) {
  const std::string line = "cast bf16 64x256 f32 fill=ties";
  testing::StringMatchResultListener said;
  EXPECT_FALSE(testing::ExplainMatchResult(assay::MatchesReference(line, "y"),
                                           to_bf16(assay::drawn(line).at("x"), false), &said));
  EXPECT_THAT(said.str(), testing::HasSubstr("cause    y (bf16)   "));
  EXPECT_THAT(said.str(), testing::HasSubstr("1 code apart"));
}

TEST(Kernel, TwoBuffers) {
  const auto x = assay::drawn("cast bf16 64x256 f32 fill=ties").at("x");
  EXPECT_THAT(to_bf16(x, true), assay::SameBits("bf16", 64, 256, to_bf16(x, true)));
  EXPECT_THAT(to_bf16(x, true), testing::Not(assay::SameBits("bf16", 64, 256, to_bf16(x, false))));
}

// The judge itself: Assay's kernels on the host executor, claims and laws, one line in a worker process.
TEST(Library, JudgesALine) {
  assay::Subjects subjects;
  subjects.owned.push_back(assay::make_reference_subject());
  subjects.owned.push_back(assay::make_host_subject());
  const auto problem =
      assay::parse_line("quantize mxfp8/nvfp4 64x256 bf16 col_source=row_dequantized round=sr");
  ASSERT_TRUE(problem) << problem.error().text();
  const auto verdicts = assay::run_one(*problem, subjects, {});
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].outcome, assay::Outcome::passed) << verdicts[0].reason;
  EXPECT_GT(verdicts[0].claims.size(), 3u);
}

TEST(Library, ReadsTheInstalledSuites) {
  const auto suite = assay::load_suite(SUITES "/smoke.cases");
  ASSERT_TRUE(suite) << suite.error().text();
  EXPECT_GT(suite->entries.size(), 100u);
}

}  // namespace
