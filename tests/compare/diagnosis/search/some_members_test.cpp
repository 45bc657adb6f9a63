// Causes that act in some members of a split alone. What came is made of the reference's bytes, member by
// member, by a list of members that stands with each line.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/member_scopes.h"
#include "compare/diagnosis/search/predict.h"
#include "contract/words.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using std::string;

Diagnosis diagnosed(const planes::Case& c) {
  auto d = diagnose(Observation{c.problem, "test", c.inputs, c.got}, *make_reference_subject(), {});
  EXPECT_TRUE(d);
  return d ? std::move(*d) : Diagnosis{};
}

// Clears the first scale of a member, which is the first four bytes of its plane of F32 scales.
void clear_first_scale(planes::Case& c, const string& name, size_t member) {
  PlaneData& scales = c[name];
  const size_t begin = scales.plane.bytes_of(scales.plane.members[member].offset);
  std::fill_n(scales.bytes.begin() + static_cast<std::ptrdiff_t>(begin), 4, std::byte{0});
}

struct Row {
  const char *scope, *groups;
  std::vector<size_t> members;
};
const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"after_empty", "32,0,16,48", {2}},        {"first", "32,16,48", {0}},
      {"not_first", "32,16,48", {1, 2}},         {"last", "32,16,48", {2}},
      {"not_last", "32,16,48", {0, 1}},          {"odd", "16,16,16,16", {1, 3}},
      {"not_of_16", "8,8,32,24", {0, 1, 3}},     {"not_of_32", "16,16,64,48", {0, 1, 3}},
      {"not_of_128", "64,64,256,96", {0, 1, 3}}, {"above_128", "256,256,96,160", {0, 1, 3}},
      {"member=1", "16,16,16,16", {1}},
  };
  return kRows;
}

string line_of(const Row& row) {
  int64_t lines = 0;
  for (const std::string_view size : words_of(row.groups, ',')) lines += std::stoll(string(size));
  return "split fp8_block " + std::to_string(lines) + "x48 bf16 dir=row groups=" + row.groups;
}

TEST(SomeMembers, AreNamedWithTheirCause) {
  for (const Row& row : rows()) {
    planes::Case c(line_of(row));
    for (const size_t m : row.members) clear_first_scale(c, "row.scale_inv", m);
    const Diagnosis d = diagnosed(c);
    const std::vector ids = {string("scale.corner_zero.stored@") + row.scope};
    const auto named = std::find_if(d.explanations.begin(), d.explanations.end(),
                                    [&](const Explanation& e) { return e.exact() && e.ids == ids; });
    ASSERT_NE(named, d.explanations.end()) << ids[0] << '\n' << diagnosis_screen(d);
    const auto again = predict(*named, c.problem, c.inputs, *make_reference_subject());
    ASSERT_TRUE(again) << ids[0];
    EXPECT_EQ(find_plane(*again, "row.scale_inv")->bytes, c["row.scale_inv"].bytes) << ids[0];
    EXPECT_EQ(find_plane(*again, "row.data")->bytes, c["row.data"].bytes) << ids[0];
  }
}

// One direction of some members.
TEST(SomeMembers, OfOneDirectionAreNamed) {
  planes::Case c("split fp8_block 96x48 bf16 groups=32,0,16,48");
  clear_first_scale(c, "col.scale_inv", 2);
  const Diagnosis d = diagnosed(c);
  ASSERT_FALSE(d.explanations.empty());
  EXPECT_EQ(d.explanations[0].ids, std::vector{string("scale.corner_zero.stored@after_empty@col")})
      << diagnosis_screen(d);
  const auto again = predict(d.explanations[0], c.problem, c.inputs, *make_reference_subject());
  ASSERT_TRUE(again);
  EXPECT_EQ(find_plane(*again, "col.scale_inv")->bytes, c["col.scale_inv"].bytes);
  EXPECT_EQ(find_plane(*again, "row.scale_inv")->bytes, c["row.scale_inv"].bytes);
}

// Two members with a fault each have no cause in common.
TEST(SomeMembers, WithDifferentFaultsAreNotNamed) {
  planes::Case c("split fp8_block 96x48 bf16 dir=row groups=32,16,48");
  clear_first_scale(c, "row.scale_inv", 0);
  PlaneData& data = c["row.data"];
  data.bytes[data.plane.bytes_of(data.plane.members[2].offset)] ^= std::byte{0x80};
  for (const Explanation& e : diagnosed(c).explanations)
    for (const string& id : e.ids) EXPECT_TRUE(!e.exact() || id.find('@') == string::npos) << id;
}

TEST(SomeMembers, EveryScopeIsTried) {
  const auto problem = parse_line(
      "split mxfp8 1792x32 bf16 dir=row groups=8,0,16,256,129"
      ",34,37,34,37,34,37,34,37,34,37,34,37,34,37,34,37,34,37,34,37,34,37"
      ",34,37,34,37,34,37,34,37,34,37,34,37,34,37,34,37,34");
  ASSERT_TRUE(problem) << problem.error().text();
  std::set<string> known, tried;
  for (const MemberScope& scope : member_scopes(*problem))
    if (!scope.id.starts_with("member=")) known.insert(scope.id);
  for (const Row& row : rows()) tried.insert(row.scope);
  tried.erase("member=1");
  tried.insert("after_32");  // its lines are long: below
  EXPECT_EQ(known, tried);
  EXPECT_TRUE(is_in_scope("after_32", *problem, 32));
  EXPECT_FALSE(is_in_scope("after_32", *problem, 31));
  EXPECT_FALSE(is_in_scope("nonsense", *problem, 0));
}

}  // namespace
}  // namespace assay
