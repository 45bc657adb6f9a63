// assay coverage --cases as a command: its exit status, its document, and what it says of lines that it
// cannot look at.
#include "compare/commands/coverage_cases.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "fixtures/json.h"
#include "reference/subject.h"
#include "tests/compare/ended.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// 1.0625 lies halfway above the even code of 1.
CoverageOptions casts() {
  CoverageOptions o;
  o.space.only = "cast e4m3";
  o.space.jobs = 1;
  o.suites = {"mine"};
  o.lines = {fakes::problem("cast e4m3 1x1 f32 fill=literal:3f800000"),
             fakes::problem("cast e4m3 1x1 f32 fill=literal:3f880000")};
  return o;
}

Ended run(const CoverageOptions& o) {
  const auto reference = make_reference_subject();
  return of_streams([&](auto& out, auto& err) { return run_coverage_cases(o, *reference, out, err); });
}

// The line of a case of N2.1 in one of the document's lists; empty where the list does not have it.
std::string line_of(const json::Value& unit, const char* list, const std::string& name) {
  for (const json::Value& c : *unit.find(list)->array())
    if (c.text("clause") == "N2.1" && c.text("case") == name)
      return c.find("line") ? std::string(c.text("line")) : "none";
  return "";
}

TEST(CoverageCases, NamesTheFirstLineThatReachesACase) {
  CoverageOptions o = casts();
  o.json = testing::TempDir() + "assay_rounding_cases.json";
  const Ended r = run(o);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(r.says("not reached   N2.1 code: tie_above_odd")) << r.out;
  EXPECT_FALSE(r.says("not reached   N2.1 code: tie_above_even")) << r.out;
  const auto document = json::read(o.json);
  ASSERT_TRUE(document);
  EXPECT_EQ(document->find("lines")->to_int(), 2);
  EXPECT_FALSE(document->find("cut_short"));
  ASSERT_EQ(document->find("units")->array()->size(), 1u);
  const json::Value& unit = document->find("units")->array()->front();
  EXPECT_EQ(line_of(unit, "reached", "exact"), "cast e4m3 1x1 f32 fill=literal:3f800000");
  EXPECT_EQ(line_of(unit, "reached", "tie_above_even"), "cast e4m3 1x1 f32 fill=literal:3f880000");
  EXPECT_EQ(line_of(unit, "reached", "tie_above_odd"), "");
  EXPECT_EQ(line_of(unit, "not_reached", "tie_above_odd"), "none");
  std::remove(o.json.c_str());
  o.json = testing::TempDir() + "no such folder/cases.json";
  EXPECT_EQ(run(o).status, 2);
}

TEST(CoverageCases, FailsWhereACaseIsLeftOutOfAWholeOne) {
  CoverageOptions o = casts();
  o.whole = true;
  EXPECT_EQ(run(o).status, 1);
}

TEST(CoverageCases, FailsWhereALineCannotBeLookedAt) {
  const CoverageOptions o = casts();
  ForwardingSubject blind(make_reference_subject(), "blind");  // not a Tracing
  const Ended r = of_streams([&](auto& out, auto& err) { return run_coverage_cases(o, blind, out, err); });
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(r.says("not looked at: 'cast e4m3 1x1 f32 fill=literal:3f800000'")) << r.out;
}

TEST(CoverageCases, SaysHowFarAnInterruptLetItCome) {
  CoverageOptions o = casts();
  o.json = testing::TempDir() + "assay_rounding_cases_cut.json";
  while (o.lines.size() < 200) o.lines.push_back(o.lines.front());
  o.space.on_progress = [](size_t, size_t) { ::kill(::getpid(), SIGINT); };
  const Ended r = run(o);
  EXPECT_EQ(r.status, 130) << r.out << r.err;
  EXPECT_TRUE(r.says("of 200 lines were looked at")) << r.out;
  const auto document = json::read(o.json);
  ASSERT_TRUE(document);
  EXPECT_TRUE(document->find("cut_short"));
  EXPECT_LT(*document->find("lines")->to_int(), 200);
  std::remove(o.json.c_str());
}

}  // namespace
}  // namespace assay
