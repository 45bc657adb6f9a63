// Stories (scenarios, cells of the parity matrix), the matrix they print, and the comparison of witness records.
#include <set>

#include <gtest/gtest.h>

#include "compare/matrix.h"
#include "compare/stories.h"
#include "compare/witness.h"
#include "fixtures/json.h"
#include "reference/subject.h"
#include "training/parity.h"

namespace assay {
namespace {

json::Value parsed(const char* text) { return *json::parse(text); }

TEST(Witness, EqualRecordsHaveNoDifferenceInAnyOrderOfMembers) {
  EXPECT_EQ(first_difference(parsed(R"({"a": 1, "b": [true, null]})"), parsed(R"({"b": [true, null], "a": 1.0})")), "");
}

TEST(Witness, ADifferenceIsNamedByItsPlace) {
  EXPECT_EQ(first_difference(parsed(R"({"a": [1, {"b": "row"}]})"), parsed(R"({"a": [1, {"b": "col"}]})")), R"(then.a[1].b: expected "row", found "col")");
  EXPECT_EQ(first_difference(parsed(R"({"a": 1})"), parsed(R"({})")), "then.a: expected 1, found nothing");
  EXPECT_EQ(first_difference(parsed(R"({})"), parsed(R"({"a": 1})")), "then.a: expected nothing, found 1");
  EXPECT_EQ(first_difference(parsed("[1, 2]"), parsed("[1]")), "then: expected 2 elements, found 1");
  EXPECT_EQ(first_difference(parsed("null"), parsed("false")), "then: expected null, found false");
}

Verdict passed(std::string excluded = "") {
  Verdict v;
  v.excluded = excluded;
  if (!excluded.empty()) v.reason = "excluded by " + excluded;
  return v;
}
Verdict failed(std::string message) {
  Verdict v;
  v.outcome = Outcome::failed;
  Breach b;
  b.message = std::move(message);
  v.breaches.push_back(b);
  return v;
}

TEST(MatrixText, CountsEachOutcomeAndBreaksWideTables) {
  Matrix m;
  m.add("linear", "mxfp8", "parity linear mxfp8", passed());
  m.add("linear", "mxfp8", "parity linear mxfp8 phase=cached", passed());
  m.add("linear", "mxfp8", "parity linear mxfp8 flavour=te", passed("E12"));
  m.add("linear", "nvfp4", "parity linear nvfp4", failed("dgrad: b.data"));
  const std::string wide = m.text(150), narrow = m.text(25);
  EXPECT_NE(wide.find("linear  2 + 1 E12  1 FAILED"), std::string::npos) << wide;
  EXPECT_NE(narrow.find("linear  2 + 1 E12\n"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("linear  1 FAILED\n"), std::string::npos) << narrow;
}

TEST(MatrixHtml, SaysWhatIsExcludedAndWhatFailedAndEscapes) {
  Matrix m;
  m.add("linear <a>", "mxfp8", "parity linear mxfp8 flavour=te", passed("E12"));
  m.add("linear <a>", "nvfp4", "parity linear nvfp4", failed("dgrad: b.data"));
  const std::string page = m.html();
  EXPECT_NE(page.find("linear &lt;a&gt;"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"exc\">1 E12</td>"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"bad\">1 FAILED</td>"), std::string::npos);
  EXPECT_NE(page.find("dgrad: b.data"), std::string::npos);
  for (const char* address : {"http:", "https:"}) EXPECT_EQ(page.find(address), std::string::npos) << "one file, no network";
}

TEST(TakeStories, TakesItsWordsAndLeavesLines) {
  std::vector<std::string> what = {"smoke", "S-01", "parity linear mxfp8"};
  const auto stories = take_stories(what, "");
  ASSERT_TRUE(stories);
  ASSERT_EQ(stories->size(), 2u);
  EXPECT_EQ((*stories)[0].entry.text, "S-01");
  EXPECT_EQ((*stories)[1].row, "linear input,weight");
  EXPECT_EQ(what, std::vector<std::string>{"smoke"});
}

TEST(TakeStories, AnUnknownOneIsAnError) {
  std::vector<std::string> scenario = {"S-00"}, cell = {"parity linear mxfp9"};
  EXPECT_FALSE(take_stories(scenario, ""));
  EXPECT_FALSE(take_stories(cell, ""));
}

TEST(TakeStories, EveryCellHasANameOfItsOwn) {
  std::set<std::string> names;
  for (const training::Cell& c : training::parity_cells()) EXPECT_TRUE(names.insert(training::to_text(c)).second) << training::to_text(c);
  EXPECT_GT(names.size(), 800u);
}

// The reference, but columns that are quantized alone have one wrong byte: what a hybrid's own launch would do.
class WrongAlone final : public Subject {
 public:
  std::string_view name() const override { return "wrong alone"; }
  Support supports(const Problem& p) const override { return reference_->supports(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, const Environment& environment) override {
    const Served served = reference_->run(p, inputs, outputs, environment);
    if (p.as<Quantize>() && !p.row && p.col)
      for (const Buffer& b : outputs)
        if (b.plane->name == "col.data" && b.bytes.size() > 77) b.bytes[77] ^= std::byte{1};
    return served;
  }

 private:
  std::unique_ptr<Subject> reference_ = make_reference_subject();
};

training::CellResult judged(std::string_view text, Subject& subject) {
  for (const training::Cell& c : training::parity_cells())
    if (training::to_text(c) == text) return training::judge_cell(c, subject, {});
  ADD_FAILURE() << "no cell " << text;
  return {};
}

TEST(Parity, AWrongByteIsExcusedByNoCause) {
  WrongAlone subject;
  for (const char* text : {"parity linear mxfp8", "parity linear mxfp8 flavour=te", "parity layernorm_mlp fp8_block", "parity linear nvfp4 roles=input,weight,grad_output", "parity linear mxfp8|nvfp4"}) {
    const training::CellResult r = judged(text, subject);
    EXPECT_EQ(r.outcome, training::CellResult::Outcome::failed) << text << ": " << r.exclusions;
    EXPECT_NE(r.first.find("data"), std::string::npos) << text << ": " << r.first;
  }
}

TEST(Parity, ExclusionsAreTheCausesThatTheyName) {
  const std::unique_ptr<Subject> reference = make_reference_subject();
  const std::pair<const char*, const char*> kCells[] = {{"parity linear mxfp8", ""},
                                                        {"parity linear mxfp8 flavour=te", "E12"},
                                                        {"parity linear nvfp4 roles=input,weight,grad_output", "E2"},
                                                        {"parity linear mxfp8 roles=input,weight,grad_output tokens=160", "E13"},
                                                        {"parity layernorm_mlp fp8_current", "E1"},
                                                        {"parity linear fp8_current arch=sm90", "E8"},
                                                        {"parity grouped_linear mxfp8 phase=quantized_init packed=1", "E10"}};
  for (const auto& [text, codes] : kCells) EXPECT_EQ(judged(text, *reference).exclusions, codes) << text;
}

}  // namespace
}  // namespace assay
