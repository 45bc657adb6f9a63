// assay coverage as a command: which pairs a suite has, and what it leaves out.
#include "compare/commands/coverage.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "fixtures/json.h"
#include "fixtures/suite.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

TEST(Coverage, OfAnAbsentSubjectIsItsReason) {
  Subjects subjects = fakes::with("fake", nullptr);
  auto& fake = static_cast<fakes::Spoiled&>(*subjects.owned.back());
  CoverageOptions o;
  o.space.jobs = 1;
  o.lines = {fakes::problem("philox u32 8x4 u32")};
  std::ostringstream err;
  EXPECT_EQ(ask_subject(o, fake, err), std::nullopt) << err.str();
  EXPECT_EQ(o.lines.size(), 1u);
  fake.present_ = {false, "it is away"};
  EXPECT_EQ(ask_subject(o, fake, err), 3);
  EXPECT_EQ(err.str(), "assay: subject fake is absent: it is away\n");
}

// A pair that the search misses counts for every suite, and not only for one that has it.
TEST(Coverage, CountsWhatItsEvidenceShows) {
  const auto valid = [](const std::string& evidence) {
    CoverageOptions o;
    o.space.only = "philox";
    o.space.jobs = 1;
    o.space.random_lines = 1, o.space.tries = 0;
    if (!evidence.empty()) o.evidence = {fakes::problem(evidence)};
    o.json = testing::TempDir() + "assay_coverage_evidence.json";
    std::ostringstream out, err;
    EXPECT_EQ(run_coverage(o, out, err), 0) << err.str();
    const auto json = json::read(o.json);
    std::remove(o.json.c_str());
    const json::Value& group = json->find("groups")->array()->front();
    EXPECT_EQ(group.find("exercised")->to_int(), 0) << "evidence is no line of the suite";
    return *group.find("valid")->to_int();
  };
  const int64_t searched = valid("");
  EXPECT_GT(valid("philox u32 1x4 u32 rounds=1 fill=ties"), searched);
  EXPECT_GT(valid("philox u32 33x4 u32 rounds=7 fill=edges"), searched);
}

TEST(Coverage, SaysWhatASuiteLeavesOut) {
  CoverageOptions o;
  o.space.only = "philox";
  o.space.jobs = 1;
  o.suites = {"mine"};
  o.lines = {fakes::problem("philox u32 8x4 u32"), fakes::problem("philox u32 1x4 u32 rounds=1 fill=ties")};
  o.json = testing::TempDir() + "assay_coverage.json";
  o.complete = testing::TempDir() + "assay_coverage.cases";
  o.whole = true;
  std::ostringstream out, err;
  EXPECT_EQ(run_coverage(o, out, err), 1) << err.str();
  const auto json = json::read(o.json);
  ASSERT_TRUE(json);
  const json::Value& group = json->find("groups")->array()->front();
  const int64_t valid = *group.find("valid")->to_int(), done = *group.find("exercised")->to_int();
  EXPECT_EQ(static_cast<size_t>(valid - done), group.find("left_out")->array()->size());
  EXPECT_GT(done, 10);
  const Result<Suite> rest = load_suite(o.complete);
  ASSERT_TRUE(rest) << rest.error().text();
  for (const SuiteEntry& e : rest->entries) o.lines.push_back(e.problem);
  EXPECT_EQ(run_coverage(o, out, err), 0) << out.str();
  EXPECT_NE(out.str().find("100 %"), std::string::npos);
  std::remove(o.json.c_str());
  std::remove(o.complete.c_str());
}

}  // namespace
}  // namespace assay
