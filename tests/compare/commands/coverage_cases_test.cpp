// assay coverage --cases as a command: its exit status, its document, and what it says of lines that it
// cannot look at.
#include "compare/commands/coverage_cases.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "contract/tracer.h"
#include "fixtures/json.h"
#include "reference/subject.h"
#include "tests/compare/ended.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// 1.0625 lies halfway above the even code of 1.
CoverageOptions casts() {
  CoverageOptions o;
  o.list = 100;
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

TEST(CoverageCases, NamesALineThatReachesACase) {
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

TEST(CoverageCases, NamesTheSmallestLine) {
  CoverageOptions o = casts();
  o.lines.insert(o.lines.begin(), fakes::problem("cast e4m3 16x16 f32 fill=ties"));
  o.lines.push_back(fakes::problem("cast e4m3 1x2 f32 fill=literal:3f8800003f880000"));
  o.json = testing::TempDir() + "assay_rounding_smallest.json";
  ASSERT_EQ(run(o).status, 0);
  const auto document = json::read(o.json);
  ASSERT_TRUE(document);
  const json::Value& unit = document->find("units")->array()->front();
  EXPECT_EQ(line_of(unit, "reached", "tie_above_even"), "cast e4m3 1x1 f32 fill=literal:3f880000");
  EXPECT_EQ(line_of(unit, "reached", "tie_above_odd"), "cast e4m3 16x16 f32 fill=ties");
  std::remove(o.json.c_str());
}

TEST(CoverageCases, ShowsAsManyCasesAsIsAskedFor) {
  CoverageOptions o = casts();
  o.list = 2;
  const std::string out = run(o).out;
  size_t shown = 0;
  for (size_t at = 0; (at = out.find("not reached", at)) != std::string::npos; ++at) ++shown;
  EXPECT_EQ(shown, 2u) << out;
  EXPECT_NE(out.find(" more\n"), std::string::npos) << out;
  o.list = 0;
  EXPECT_EQ(run(o).out.find("not reached"), std::string::npos);
}

TEST(CoverageCases, LooksOnlyAtUnitsThatAreAskedFor) {
  CoverageOptions o = casts();
  o.space.only = "cast e5m2";
  EXPECT_TRUE(run(o).says("0 of ")) << run(o).out;
  o.space.only = "cast e9";
  EXPECT_EQ(run(o).status, 2);
  EXPECT_NE(run(o).err.find("no unit contains 'cast e9'"), std::string::npos) << run(o).err;
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
  EXPECT_TRUE(r.says("not looked at: 'cast e4m3 1x1 f32 fill=literal:3f800000': blind does not report"))
      << r.out;
}

// Reports a sum of -0, which N16.2 cannot give.
class MinusZeroSums final : public ForwardingSubject, public Tracing {
 public:
  MinusZeroSums() : ForwardingSubject(make_reference_subject(), "reference") {}
  Tracer tracer(const Problem&, std::span<const ConstBuffer>, Direction) override {
    return [](int64_t, int64_t) {
      return std::vector<TraceStep>{{"N16.2", "sum, scaled", Encoding::f32, 0x80000000}};
    };
  }
};

TEST(CoverageCases, FailsWhereALineReachesWhatIsCalledUnreachable) {
  CoverageOptions o = casts();
  o.space.only = "gemm";
  o.lines = {fakes::problem("gemm a=identity b=identity 1x1x1 bf16")};
  MinusZeroSums reference;
  const Ended r =
      of_streams([&](auto& out, auto& err) { return run_coverage_cases(o, reference, out, err); });
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(r.says("reached, but unreachable.def says that no line can: N16.2 sum, scaled: minus_zero"))
      << r.out;
}

TEST(CoverageCases, SaysHowFarAnInterruptLetItCome) {
  CoverageOptions o = casts();
  o.json = testing::TempDir() + "assay_rounding_cases_cut.json";
  while (o.lines.size() < 200) o.lines.push_back(o.lines.front());
  bool sent = false;  // a second interrupt would end the process
  o.space.on_progress = [&](size_t, size_t) {
    if (!std::exchange(sent, true)) ::kill(::getpid(), SIGINT);
  };
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
