// The rounding cases: the table, and of each family of predicates a line that reaches a case and one that
// does not.
#include "compare/rounding/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "compare/rounding/reached.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/source_path.h"

namespace assay::rounding {
namespace {

using std::string;

// Whether the line reaches a case of this clause and predicate, under these keys of the row, in some unit.
bool reaches(const string& line, std::string_view clause, std::string_view name, std::string_view keys) {
  const Result<Problem> p = parse_line(line);
  EXPECT_TRUE(p) << line;
  const auto reference = make_reference_subject();
  Walk walk(*reference);
  EXPECT_FALSE(walk.add(0, *p)) << line;
  bool known = false, any = false;
  for (size_t i = 0; i < cases().size(); ++i) {
    const Case& c = cases()[i];
    if (c.clause != clause || c.name != name || (!keys.empty() && c.keys != keys)) continue;
    known = true;
    for (const auto& [unit, first] : walk.reached()) any = any || first[i] == 0;
  }
  EXPECT_TRUE(known) << clause << " " << name << ": no such case";
  return any;
}

struct Pair {
  const char *clause, *name, *keys, *reaches, *misses;
};
// Literals are codes of the source: 3f800000 and 3f80 are 1.
// clang-format off
const Pair kPairs[] = {
    // ties and their neighbours: E4M3 from F32, 1.0625 is halfway between 1 (even) and 1.125
    {"N2.1", "tie_above_even", "", "cast e4m3 1x1 f32 fill=literal:3f880000", "cast e4m3 1x1 f32 fill=literal:3f980000"},
    {"N2.1", "tie_above_odd", "", "cast e4m3 1x1 f32 fill=literal:3f980000", "cast e4m3 1x1 f32 fill=literal:3f880000"},
    {"N2.1", "below_tie_above_even", "", "cast e4m3 1x1 f32 fill=literal:3f87ffff", "cast e4m3 1x1 f32 fill=literal:3f880000"},
    {"N2.1", "over_tie_above_even", "", "cast e4m3 1x1 f32 fill=literal:3f880001", "cast e4m3 1x1 f32 fill=literal:3f87ffff"},
    {"N2.1", "below_tie_above_odd", "", "cast e4m3 1x1 f32 fill=literal:3f97ffff", "cast e4m3 1x1 f32 fill=literal:3f980001"},
    {"N2.1", "over_tie_above_odd", "", "cast e4m3 1x1 f32 fill=literal:3f980001", "cast e4m3 1x1 f32 fill=literal:3f97ffff"},
    {"N2.1", "rounds_up", "", "cast e4m3 1x1 f32 fill=literal:3f880001", "cast e4m3 1x1 f32 fill=literal:3f880000"},
    {"N2.1", "rounds_down", "", "cast e4m3 1x1 f32 fill=literal:3f87ffff", "cast e4m3 1x1 f32 fill=literal:3f880001"},
    {"N2.1", "exact", "", "cast e4m3 1x1 f32 fill=literal:3f800000", "cast e4m3 1x1 f32 fill=literal:3f800001"},
    // the small end: the least E4M3 value is 2^-9, the least normal one 2^-6
    {"N2.1", "subnormal_code", "", "cast e4m3 1x1 f32 fill=literal:3b000000", "cast e4m3 1x1 f32 fill=literal:3c800000"},
    {"N2.1", "tie_at_least", "", "cast e4m3 1x1 f32 fill=literal:3a800000", "cast e4m3 1x1 f32 fill=literal:3a800001"},
    {"N2.1", "over_tie_at_least", "", "cast e4m3 1x1 f32 fill=literal:3a800001", "cast e4m3 1x1 f32 fill=literal:3a800000"},
    {"N2.1", "underflows", "", "cast e4m3 1x1 f32 fill=literal:3a800000", "cast e4m3 1x1 f32 fill=literal:ba800000"},
    {"N2.5", "negative_underflows", "", "cast e4m3 1x1 f32 fill=literal:ba800000", "cast e4m3 1x1 f32 fill=literal:3a800000"},
    {"N2.1", "becomes_normal", "", "cast e4m3 1x1 f32 fill=literal:3c7fffff", "cast e4m3 1x1 f32 fill=literal:3c800000"},
    // the large end: 448, and 464 halfway beyond it
    {"N2.1", "carries", "", "cast e4m3 1x1 f32 fill=literal:3fffffff", "cast e4m3 1x1 f32 fill=literal:40000000"},
    {"N2.1", "rounds_to_largest", "", "cast e4m3 1x1 f32 fill=literal:43e00001", "cast e4m3 1x1 f32 fill=literal:43e00000"},
    {"N2.2", "tie_beyond_largest", "", "cast e4m3 1x1 f32 fill=literal:43e80000", "cast e4m3 1x1 f32 fill=literal:43e80001"},
    {"N2.2", "saturates", "", "cast e4m3 1x1 f32 fill=literal:43e80001", "cast e4m3 1x1 f32 fill=literal:43e80000"},
    {"N2.3", "overflows_to_nan", "", "cast e4m3 1x1 f32 overflow=nosat fill=literal:43e80001", "cast e4m3 1x1 f32 overflow=nosat fill=literal:43e80000"},
    {"N2.3", "infinity_stays", "overflow=nosat round=rne", "cast e5m2 1x1 f32 overflow=nosat fill=literal:7f800000", "cast e5m2 1x1 f32 overflow=nosat fill=literal:7f7fffff"},
    {"N2.4", "nan_to_nan", "", "cast e4m3 1x1 f32 fill=literal:ffc00000", "cast e4m3 1x1 f32 fill=literal:7f800000"},
    {"N2.4", "nan_to_number", "", "cast e2m1 1x1 f32 fill=literal:ffc00000", "cast e2m1 1x1 f32 fill=literal:7f800000"},
    {"N2.6", "rounds_down", "", "cast e4m3 1x1 f32 round=rz fill=literal:3f8fffff", "cast e4m3 1x1 f32 fill=literal:3f87ffff"},
    // other rules for ties are not N2.1
    {"N2.1", "tie_above_odd", "", "quantize mxfp8 1x2 bf16 dir=row fill=literal:3f983f80", "quantize mxfp8 1x2 bf16 dir=row element_ties=away fill=literal:3f983f80"},
    {"N17.1", "tie_above_odd", "element_ties=away", "quantize mxfp8 1x2 bf16 dir=row element_ties=away fill=literal:3f983f80", "quantize mxfp8 1x2 bf16 dir=row fill=literal:3f983f80"},
    // E8M0
    {"N2.7", "scale_exact", "round=rp", "cast e8m0 1x1 f32 round=rp fill=literal:40000000", "cast e8m0 1x1 f32 round=rp fill=literal:40000001"},
    {"N2.7", "scale_up", "", "cast e8m0 1x1 f32 round=rp fill=literal:40000001", "cast e8m0 1x1 f32 round=rp fill=literal:40000000"},
    {"N2.7", "scale_over_power", "", "cast e8m0 1x1 f32 round=rp fill=literal:40000001", "cast e8m0 1x1 f32 round=rp fill=literal:40000002"},
    {"N2.7", "scale_under_power", "round=rp", "cast e8m0 1x1 f32 round=rp fill=literal:3fffffff", "cast e8m0 1x1 f32 round=rp fill=literal:3ffffffe"},
    {"N2.7", "scale_least", "round=rp", "cast e8m0 1x1 f32 round=rp fill=literal:00400000", "cast e8m0 1x1 f32 round=rp fill=literal:00400001"},
    {"N2.7", "scale_down", "", "cast e8m0 1x1 f32 round=rz fill=literal:40000001", "cast e8m0 1x1 f32 round=rp fill=literal:40000001"},
    // values of steps, under keys
    {"N3.4", "zero", "zero_amax=guarded", "quantize fp8_current 1x4 bf16 dir=row fill=zeros", "quantize fp8_current 1x4 bf16 dir=row"},
    {"N3.4", "infinite", "inf_amax=zero", "quantize fp8_current 1x1 bf16 dir=row inf_amax=zero fill=literal:7f80", "quantize fp8_current 1x1 bf16 dir=row fill=literal:7f80"},
    {"N3.5", "largest", "", "quantize fp8_current 1x1 f32 dir=row fill=literal:00000001", "quantize fp8_current 1x1 f32 dir=row fill=literal:3f800000"},
    {"N3.1", "nan_ignored_in_tensor", "", "quantize fp8_current 1x2 bf16 dir=row fill=literal:7fc03f80", "quantize fp8_current 1x2 bf16 dir=row fill=literal:3f803f80"},
    {"N3.2", "differs_from_before", "", "quantize fp8_current 1x4 bf16 dir=row eps=1000", "quantize fp8_current 1x4 bf16 dir=row eps=1e-30"},
    // several steps of one element
    {"N5.1", "nan_ignored", "", "quantize mxfp8 1x2 bf16 dir=row fill=literal:7fc03f80", "quantize mxfp8 1x2 bf16 dir=row nan_amax=propagate fill=literal:7fc03f80"},
    {"N5.7", "nan", "", "quantize mxfp8 1x2 bf16 dir=row nan_amax=propagate fill=literal:7fc03f80", "quantize mxfp8 1x2 bf16 dir=row fill=literal:7fc03f80"},
    {"N5.5", "is_amax", "", "quantize mxfp8 1x1 bf16 dir=row fill=literal:3f80", "quantize mxfp8 1x1 bf16 dir=row fill=zeros"},
    {"N5.6", "plus_zero_of_negative", "", "quantize mxfp8 1x1 bf16 dir=row neg_zero=plus fill=literal:8000", "quantize mxfp8 1x1 bf16 dir=row neg_zero=plus fill=literal:0000"},
    {"N17.3", "twice_rounded_differs", "pre_round=bf16", "quantize nvfp4 64x64 f32 dir=row pre_round=bf16 fill=ties", "quantize nvfp4 16x16 bf16 dir=row pre_round=bf16 fill=zeros"},
    {"N10.11", "picks_four", "four_over_six=mae four_over_six_error=exact", "quantize nvfp4 64x64 bf16 dir=row four_over_six=mae", "quantize nvfp4 16x16 bf16 dir=row four_over_six=mae fill=zeros"},
    {"N17.6", "fills_binade_of_amax", "mx_scale=even", "quantize mxfp8 1x1 bf16 dir=row mx_scale=even fill=literal:3fff", "quantize mxfp8 1x1 bf16 dir=row mx_scale=even fill=literal:3f80"},
    {"N17.6", "stays_in_binade_of_amax", "mx_scale=even", "quantize mxfp8 1x1 bf16 dir=row mx_scale=even fill=literal:3f80", "quantize mxfp8 1x1 bf16 dir=row mx_scale=even fill=literal:3fff"},
    // rotations and draws
    {"N11.3", "sum_cancels", "", "hadamard nvfp4 16x1 bf16 fill=literal:3f803f8000000000000000000000000000000000000000000000000000000000", "hadamard nvfp4 16x1 bf16 fill=literal:3f80000000000000000000000000000000000000000000000000000000000000"},
    {"N11.3", "leaf_infinite", "", "hadamard nvfp4 16x1 bf16 fill=literal:7f803f8000000000000000000000000000000000000000000000000000000000", "hadamard nvfp4 16x1 bf16 fill=literal:7f807f8000000000000000000000000000000000000000000000000000000000 sign_mask=0x0001"},
    {"N11.3", "leaf_nan", "", "hadamard nvfp4 16x16 bf16 fill=nonfinite", "hadamard nvfp4 16x16 bf16"},
    {"N11.3", "leaves_infinite", "", "hadamard nvfp4 16x1 bf16 fill=literal:7f807f8000000000000000000000000000000000000000000000000000000000", "hadamard nvfp4 16x1 bf16 fill=literal:7f803f8000000000000000000000000000000000000000000000000000000000"},
    {"N12.3", "drawn_up", "round=sr sr_rule=integer", "cast e2m1 64x64 f32 round=sr", "cast e2m1 4x4 f32 round=sr fill=zeros"},
    {"N12.3", "drawn_first_up", "", "cast e2m1 256x64 f32 round=sr", "cast e2m1 64x64 f32 round=sr sr_rule=fma"},
    {"N12.3", "byte_full", "", "cast e2m1 64x64 f32 round=sr", "cast e2m1 1x1 f32 round=sr fill=zeros"},
    // the update
    {"N4.3", "zero", "rule=bulk algo=max", "update fp8_delayed 4x16 f32 fill=zeros", "update fp8_delayed 4x16 f32 rule=api fill=zeros"},
    {"N4.2", "moved_from_history", "", "update fp8_delayed 16x64 f32", "update fp8_delayed 1x64 f32"},
    {"N4.6", "scale_stays", "", "update fp8_delayed 1x1 f32 rule=api fill=zeros", "update fp8_delayed 4x16 f32 rule=api fill=normal"},
    {"N4.1", "reduced_other", "", "update fp8_delayed 4x64 f32 reduction=1", "update fp8_delayed 4x64 f32"},
    // lanes
    {"N5.1", "tail_block", "op=quantize dir=row", "quantize mxfp8 1x33 bf16 dir=row", "quantize mxfp8 1x32 bf16 dir=row"},
    {"N5.1", "one_element_block", "", "quantize mxfp8 1x33 bf16 dir=row", "quantize mxfp8 1x34 bf16 dir=row"},
    {"N5.8", "tail_tile", "", "quantize mxfp8 33x32 bf16 dir=row block=32x32", "quantize mxfp8 32x33 bf16 dir=row block=32x32"},
    {"N6.3", "several_scale_tiles", "scales=gemm dir=row op=quantize", "quantize mxfp8 129x256 bf16 dir=row scales=gemm", "quantize mxfp8 128x256 bf16 dir=row scales=gemm"},
    {"N6.1", "any_lane", "dir=row op=quantize", "quantize mxfp8 1x32 bf16 dir=row", "quantize mxfp8 1x32 bf16 dir=row noop=1"},
    {"N6.1", "any_lane", "dir=row op=quantize", "quantize mxfp8 1x1 bf16 dir=row", "quantize mxfp8 0x32 bf16 dir=row"},
    {"N6.7", "flag_of_one", "", "quantize mxfp8 1x32 bf16 dir=row noop=1", "quantize mxfp8 1x32 bf16 dir=row noop=2"},
    {"N6.8", "data_padded", "", "quantize nvfp4 1x3 bf16 dir=row", "quantize nvfp4 1x4 bf16 dir=row"},
    {"N12.2", "offset_beyond_word", "", "quantize nvfp4 1x16 bf16 dir=row round=sr rng=1,4294967296,0", "quantize nvfp4 1x16 bf16 dir=row round=sr rng=1,4294967295,0"},
    {"N13.2", "two_formats", "dir=row col_source=original", "quantize mxfp8/nvfp4 16x32 bf16", "quantize mxfp8 16x32 bf16"},
    {"N14.2", "empty_member", "", "split mxfp8 64x32 bf16 groups=0,64", "split mxfp8 64x32 bf16 groups=32,32"},
    {"N14.6", "spare_capacity", "", "split mxfp8 64x32 bf16 groups=32,32 capacity=4096", "split mxfp8 64x32 bf16 groups=32,32"},
    {"N16.4", "k_short_step", "", "gemm a=identity b=identity 4x4x24 bf16 sum=hopper_f16", "gemm a=identity b=identity 4x4x24 f32 sum=hopper_tf32"},
    {"N16.2", "k_zero", "", "gemm a=mxfp8 b=mxfp8 4x4x0", "gemm a=mxfp8 b=mxfp8 4x4x32"},
    {"N19.6", "state_of_zeros", "", "scale_state f16 1x4 f32 fill=zeros", "scale_state f16 1x4 f32"},
    {"N20.16", "repeated_heads", "", "attention identity 8x32 bf16 heads=2 kv_heads=1 backward=1", "attention identity 8x32 bf16 heads=2 backward=1"},
};
// clang-format on

class RoundingCase : public testing::TestWithParam<Pair> {};

TEST_P(RoundingCase, IsReachedByOneLineAndNotByTheOther) {
  const Pair& p = GetParam();
  EXPECT_TRUE(reaches(p.reaches, p.clause, p.name, p.keys)) << p.clause << " " << p.name << ": " << p.reaches;
  EXPECT_FALSE(reaches(p.misses, p.clause, p.name, p.keys)) << p.clause << " " << p.name << ": " << p.misses;
}
INSTANTIATE_TEST_SUITE_P(All, RoundingCase, testing::ValuesIn(kPairs));

TEST(RoundingCases, EveryClauseHasOneOrAReason) {
  std::set<string> known;
  for (const Case& c : cases()) known.emplace(c.clause);
  for (const WithoutCase& w : clauses_without_case()) {
    EXPECT_TRUE(known.emplace(w.clause).second) << w.clause << " has a case, or two reasons";
    EXPECT_FALSE(w.why.empty());
  }
  std::ifstream numerics(source_path("docs/numerics.md"));
  size_t clauses = 0;
  for (string line; std::getline(numerics, line);) {
    if (!line.starts_with("### N")) continue;
    const string clause = line.substr(4, line.find(' ', 4) - 4);
    EXPECT_EQ(known.erase(clause), 1u) << clause << " has no case, and no reason";
    ++clauses;
  }
  EXPECT_GT(clauses, 120u);
  EXPECT_TRUE(known.empty()) << *known.begin() << " is no clause";
}

std::vector<string> split_at(std::string_view text, char separator) {
  std::vector<string> out;
  std::istringstream in{string(text)};
  for (string part; std::getline(in, part, separator);) out.push_back(part);
  return out;
}

// A key or word that is misspelt behind `!=` would hold of every line.
TEST(RoundingCases, KeysOfRowsAreKeysOfLines) {
  const std::set<string> others = {"op", "source", "dir"};  // what Keys adds
  for (const Case& c : cases())
    for (const string& one : split_at(c.keys, ' ')) {
      const size_t equals = one.find('=');
      ASSERT_NE(equals, string::npos) << id(c);
      string key = one.substr(0, equals - (one[equals - 1] == '!' ? 1 : 0));
      if (key.starts_with("a.") || key.starts_with("b.")) key = key.substr(2);
      if (others.count(key)) continue;
      std::set<string> known;  // words, of all keys of this name
      bool exists = false, words = true;
      for (const KeyInfo& k : line_keys()) {
        if (k.name != key) continue;
        exists = true;
        words = words && k.values.find('|') != string::npos;
        for (const string& word : split_at(k.values, '|')) known.insert(word);
      }
      EXPECT_TRUE(exists) << id(c) << ": no key " << key;
      if (!words) continue;  // numbers, lists
      for (const string& word : split_at(one.substr(equals + 1), '|'))
        EXPECT_TRUE(known.count(word)) << id(c) << ": no word " << word;
    }
}

TEST(RoundingCases, EveryRowIsOneAndAppliesToSomeUnit) {
  std::set<string> ids;
  for (const Case& c : cases()) {
    EXPECT_TRUE(ids.insert(id(c) + string(c.units)).second) << id(c) << " stands twice";
    EXPECT_TRUE(
        std::any_of(all_units().begin(), all_units().end(), [&](const Unit& u) { return applies(c, u); }))
        << id(c) << " applies to nothing: " << c.units;
    EXPECT_NE(c.of_lane == nullptr, c.step.empty()) << id(c);
    EXPECT_FALSE(c.words.empty()) << id(c);
  }
  for (const Unreachable& u : unreachable())
    EXPECT_TRUE(std::any_of(cases().begin(), cases().end(),
                            [&](const Case& c) {
                              return std::any_of(all_units().begin(), all_units().end(),
                                                 [&](const Unit& unit) {
                                                   return applies(c, unit) && why_unreachable(c, unit) == &u;
                                                 });
                            }))
        << u.clause << " " << u.name << " of " << u.units << " excuses no case";
}

// Lines of one text are traced once; so whatever decides a step is in it.
TEST(RoundingCases, LinesOfOtherStepsHaveAnotherText) {
  const auto text = [](const char* line, Direction d = Direction::row) {
    const Problem p = *parse_line(line);
    const std::vector<PlaneData> none;
    const Lane lane{p, none, d, p.row || p.col};
    return Keys(lane).of_steps(lane);
  };
  for (const auto& [one, other] :
       {std::pair{"gemm a=identity b=identity 4x4x8", "gemm a=identity b=identity 4x4x16"},
        {"gemm a=mxfp8 b=mxfp8 4x4x32", "gemm a=mxfp8 b=mxfp4 4x4x32"},
        {"attention identity 8x32 bf16", "attention mxfp8 128x32 bf16"},
        {"adam f32 4x4 bf16", "adam bf16 4x4 bf16"},
        {"quantize mxfp8 4x64 bf16 dir=row", "quantize mxfp8 8x32 bf16 dir=row"},
        {"quantize mxfp8 4x64 bf16 dir=row", "quantize mxfp8 4x64 bf16 dir=row seed=2"},
        {"quantize nvfp4 16x64 bf16 dir=row round=sr",
         "quantize nvfp4 16x64 bf16 dir=row round=sr rng=1,2,3"},
        {"quantize nvfp4 32x64 bf16 dir=row round=sr draw=te_t1d",
         "quantize nvfp4 32x64 bf16 round=sr draw=te_t1d"},
        {"quantize mxfp8 4x64 bf16 dir=row", "dequantize mxfp8 4x64 bf16 dir=row"}})
    EXPECT_NE(text(one), text(other)) << one << "\n" << other;
  for (const auto& [one, other] : {std::pair{"quantize mxfp8 4x64 bf16", "quantize mxfp8/nvfp4 4x64 bf16"},
                                   {"quantize mxfp8 4x64 bf16", "quantize mxfp8 4x64 bf16 scales=gemm"}})
    EXPECT_EQ(text(one), text(other)) << one << "\n" << other;
  EXPECT_NE(text("quantize mxfp8 4x64 bf16"), text("quantize mxfp8 4x64 bf16", Direction::col));
}

// What an earlier line had is not traced again, and must not be lost by it.
TEST(RoundingCases, AreTheSameWithAnyNumberOfWorkers) {
  const Problem gemm_scales = *parse_line("quantize fp8_block 128x128 f32 dir=row fill=denormal scales=gemm");
  std::vector<Problem> lines;
  for (int i = 0; i < 20; ++i) {
    for (const char* text :
         {"quantize mxfp8 33x64 bf16 fill=ties", "quantize mxfp8 33x64 bf16 fill=ties scales=gemm",
          "quantize fp8_block 128x128 f32 dir=row fill=denormal scales=compact",
          "cast e4m3 16x16 f32 fill=ties"})
      lines.push_back(*parse_line(text));
    lines.push_back(gemm_scales);
  }
  const auto reference = make_reference_subject();
  const ReachedByLines one = reach(lines, *reference, {.jobs = 1, .only = "", .on_progress = {}}),
                       two = reach(lines, *reference, {.jobs = 2, .only = "", .on_progress = {}});
  EXPECT_EQ(one.looked_at, lines.size());
  EXPECT_EQ(one.reached, two.reached);
  EXPECT_TRUE(one.errors.empty());
  Walk alone(*reference);
  ASSERT_FALSE(alone.add(0, gemm_scales));
  const auto& whole = one.reached.at("fp8_block e4m3");
  for (size_t i = 0; i < cases().size(); ++i)
    EXPECT_TRUE(whole[i] >= 0 || alone.reached().at("fp8_block e4m3")[i] < 0) << id(cases()[i]);
}

// N6.7: a flag of 1 leaves the outputs alone, so such a line has no steps, and a line that differs by it
// alone does.
TEST(RoundingCases, AreLookedForBehindALineThatWritesNothing) {
  const auto reference = make_reference_subject();
  const auto count = [&](std::initializer_list<const char*> lines) {
    Walk walk(*reference);
    int64_t index = 0;
    for (const char* line : lines) EXPECT_FALSE(walk.add(index++, *parse_line(line)));
    const auto& first = walk.reached().at("mxfp8 e4m3");
    return std::count_if(first.begin(), first.end(), [](int64_t line) { return line >= 0; });
  };
  const auto idle = count({"quantize mxfp8 1x32 bf16 dir=row noop=1"});
  EXPECT_GT(count({"quantize mxfp8 1x32 bf16 dir=row noop=1", "quantize mxfp8 1x32 bf16 dir=row"}), idle + 5);
}

}  // namespace
}  // namespace assay::rounding
