// The lines of a hunt: which are drawn, which are kept, and what they have covered.
#include "compare/commands/hunt/lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compare/choices/data.h"
#include "compare/choices/draft.h"
#include "compare/choices/draw.h"
#include "compare/commands/hunt/table.h"
#include "contract/format.h"
#include "contract/line.h"
#include "contract/planes.h"
#include "contract/words.h"
#include "reference/subject.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

using hunting::Fate;
using hunting::Lines;

TEST(HuntLines, HaveTheWordsOfASubject) {
  const Lines lines(1, 4096, "quantize mxfp8");
  const std::vector<Problem> own = lines.with_words("quantize mxfp8 bf16 dir=row scales=gemm");
  ASSERT_EQ(own.size(), 5u);
  bool tall = false;
  for (const Problem& p : own) {
    EXPECT_EQ(p.row->scales, ScaleLayout::gemm);
    tall |= p.x.shape.rows > 128;
  }
  EXPECT_TRUE(tall);
  EXPECT_TRUE(lines.with_words("quantize mxfp9 bf16 dir=row").empty());
  EXPECT_TRUE(lines.with_words("quantize nvfp4 bf16 dir=row").empty()) << "another group than this search's";
  EXPECT_TRUE(lines.with_words("").empty());
}

// A kernel for the rows of one format meets a line of its own before any batch.
TEST(HuntLines, BeginWithPlainRowsOfEveryFormat) {
  for (const FormatInfo& f : kFormats) {
    if (!parse_line(concat({"quantize ", f.name, " 64x64 bf16 dir=row"}))) continue;
    const std::vector<Problem> first = Lines(1, 4096, concat({"quantize ", f.name})).first();
    EXPECT_TRUE(std::any_of(first.begin(), first.end(), [&](const Problem& p) {
      return p.as<Quantize>() && !p.col && p.row->format == f.id && p.x.shape.count() > 0;
    })) << f.name;
  }
}

// A kernel that runs one pair of formats, one layout or one rounding alone meets a line of its own before any
// batch.
TEST(HuntLines, NearThePlainOnesHaveOneChoiceMore) {
  Lines lines(1, 4096, "quantize nvfp4");
  const std::vector<Problem> near = lines.near_plain();
  const auto any = [&](auto runs) { return std::any_of(near.begin(), near.end(), runs); };
  EXPECT_TRUE(
      any([](const Problem& p) { return p.row && p.col && p.col->round == Round::sr && !p.col->rht; }));
  EXPECT_TRUE(any([](const Problem& p) { return !p.row && p.col->scales == ScaleLayout::gemm; }));
  EXPECT_TRUE(any([](const Problem& p) {
    return p.row && p.row->format == FormatId::nvfp4 && p.col && p.col->format == FormatId::mxfp8 &&
           p.col_source == ColSource::row_dequantized;
  }));
  for (const Problem& p : near) EXPECT_LE(p.x.shape.count(), 4096) << to_line(p);
}

// Some lines of every few batches are larger than the limit, and none is larger than 16 times that.
TEST(HuntLines, AFewAreLarger) {
  constexpr int64_t kMost = 4096;
  Lines lines(1, kMost, "quantize mxfp8");
  for (const Problem& p : lines.first()) lines.told(p, Fate::quiet);
  int larger = 0;
  bool long_row = false, tiles_across_and_down = false;
  for (uint64_t n = 0; n < 8; ++n)
    for (const Problem& p : lines.batch(n, 96)) {
      const Shape& s = p.x.shape;
      EXPECT_LE(s.count(), 16 * kMost) << to_line(p);
      larger += s.count() > kMost;
      long_row |= s.cols > 4096;
      tiles_across_and_down |= s.rows > 128 && s.cols > 128;
    }
  EXPECT_GT(larger, 8 * 96 / 48);
  EXPECT_LT(larger, 8 * 96 / 12);
  EXPECT_TRUE(long_row);
  EXPECT_TRUE(tiles_across_and_down);
}

// Where a larger line is long is a choice like others, so that each choice meets long rows, long columns and
// tiles.
TEST(HuntLines, WhereALargerLineIsLongCounts) {
  Lines lines(1, 4096, "quantize mxfp8");
  const auto is_new = [&](const char* text) { return lines.told(fakes::problem(text), Fate::quiet); };
  for (const char* text : {"quantize mxfp8 1x4096 bf16 dir=row", "quantize mxfp8 4096x1 bf16 dir=row",
                           "quantize mxfp8 1x8192 bf16 dir=row", "quantize mxfp8 8192x1 bf16 dir=row"}) {
    EXPECT_TRUE(is_new(text)) << text;
    EXPECT_FALSE(is_new(text)) << text;
  }
  int larger = 0, long_ones = 0;
  for (uint64_t n = 0; n < 16; ++n)
    for (const Problem& p : lines.batch(n, 96))
      if (p.x.shape.count() > 4096) {
        ++larger;
        long_ones += std::max(p.x.shape.rows, p.x.shape.cols) >= 4096;
      }
  EXPECT_GT(3 * long_ones, larger) << "of " << larger;
}

// Elements of the largest plane, without what pads it.
int64_t largest_plane(const Problem& p) {
  int64_t most = 0;
  for (const auto& planes : {input_planes(p), output_planes(p)})
    for (const Plane& plane : planes) {
      int64_t count = plane.members.empty() ? plane.logical.count() : 0;
      for (const Member& m : plane.members) count += m.logical.count();
      most = std::max(most, count);
    }
  return most;
}

// Whatever is drawn keeps to the limit, also what is not x: K and the scores of an attention, B of a gemm.
TEST(HuntLines, NoTensorIsLargerThanTheLimit) {
  for (const auto& [only, most] : {std::pair{"attention", 16}, std::pair{"gemm", 16}, std::pair{"split", 100},
                                   std::pair{"quantize nvfp4", 16}, std::pair{"update", 1}}) {
    Lines lines(1, most, only);
    const std::vector<Problem> first = lines.first();
    EXPECT_FALSE(first.empty()) << only;
    for (const Problem& p : first) {
      EXPECT_LE(largest_plane(p), most) << to_line(p);
      lines.told(p, Fate::quiet);
    }
    size_t larger = 0, drawn = 0;
    for (uint64_t n = 0; n < 2; ++n)
      for (const Problem& p : lines.batch(n, 96)) {
        const int64_t largest = largest_plane(p);
        EXPECT_LE(largest, choices::kLarger * most) << to_line(p);
        larger += largest > most, ++drawn;
        lines.told(p, Fate::quiet);
      }
    EXPECT_GT(drawn, 96u) << only;
    EXPECT_LT(larger, drawn / 12) << only;
  }
  const Lines lines(1, 16, "quantize mxfp8");
  for (const Problem& p : lines.with_words("quantize mxfp8 bf16 dir=row scales=gemm"))
    EXPECT_LE(largest_plane(p), 16) << to_line(p);
  const std::vector<Problem> usual = Lines(1, 4096, "quantize mxfp8").first();
  EXPECT_EQ(usual.front().x.shape, (Shape{64, 64}));
}

// Few lines are empty, since such a line has few pairs that are new, and most have a fill whose values lie at
// borders.
TEST(HuntLines, MostHaveElementsAndAFillOfBorders) {
  Lines lines(1, 4096, "");
  size_t count = 0, empty = 0, named = 0, borders = 0;
  for (uint64_t n = 0; n < 8; ++n)
    for (const Problem& p : lines.batch(n, 96)) {
      const choices::Draft d = choices::draft_of(p);
      ++count;
      empty += std::find(d.sizes.begin(), d.sizes.end(), 0) != d.sizes.end();
      bool names = false, border = false;
      for (const auto& [key, value] : d.keys) {
        if (key != "fill" && !key.ends_with(".fill")) continue;
        names = true;
        for (const char* word :
             {"ties", "edges", "amax_edges", "nonfinite", "denormal", "negative_zeros", "outliers"})
          border |= value == word;
      }
      named += names, borders += border;
      lines.told(p, Fate::quiet);
    }
  EXPECT_GT(count, 700u);
  EXPECT_GT(empty, count / 96);
  EXPECT_LT(empty, count / 8);
  EXPECT_GT(named, count * 3 / 4);
  EXPECT_GT(borders, count / 2);
}

// A line near trouble comes again with a few of its elements changed, and that one with others.
TEST(HuntLines, DataOfALineNearTroubleAreChanged) {
  Lines lines(3, 4096, "quantize mxfp8"), same(3, 4096, "quantize mxfp8");
  const Problem red = fakes::problem("quantize mxfp8 3x17 bf16 dir=row fill=ties seed=9");
  lines.told(red, Fate::near_trouble), same.told(red, Fate::near_trouble);
  size_t literals = 0, again = 0;
  std::set<std::string> payloads;
  for (uint64_t n = 0; n < 6; ++n) {
    const std::vector<Problem> batch = lines.batch(n, 96);
    EXPECT_EQ(batch, same.batch(n, 96));
    for (const Problem& p : batch) {
      const bool literal = p.x.fill.kind == FillKind::literal;
      EXPECT_TRUE(choices::data_fit(p)) << to_line(p);
      literals += literal;
      payloads.insert(p.x.fill.payload);
      // Of those, one is near trouble as well.
      const Fate fate = literal && ++again % 4 == 1 ? Fate::near_trouble : Fate::quiet;
      lines.told(p, fate), same.told(p, fate);
    }
  }
  EXPECT_GT(literals, 6u * 96 / 32);
  EXPECT_GT(payloads.size(), literals / 2);
}

// What an earlier run found is near trouble in this one.
TEST(HuntLines, TroubleIsKnownAfterAResume) {
  Lines lines(1, 4096, "quantize mxfp8"), without(1, 4096, "quantize mxfp8");
  lines.near_trouble(fakes::problem("quantize mxfp8 5x7 f16 dir=col fill=outliers seed=321"));
  const auto near = [](const std::vector<Problem>& batch) {
    return std::count_if(batch.begin(), batch.end(), [](const Problem& p) {
      return p.x.shape == Shape{5, 7} && p.x.fill.seed == 321 && p.x.source == Encoding::f16;
    });
  };
  EXPECT_GT(near(lines.batch(0, 96)), 0);
  EXPECT_EQ(near(without.batch(0, 96)), 0);
}

// A line is kept for the rounding cases that its own data reach, though it has no new pair of choices.
TEST(HuntLines, ANewRoundingCaseKeepsALine) {
  const std::unique_ptr<Subject> reference = make_reference_subject();
  Lines lines(1, 4096, "cast e4m3"), blind(1, 4096, "cast e4m3");
  lines.look_at_values(*reference);
  ASSERT_TRUE(lines.cases());
  EXPECT_GT(lines.cases()->of(), 20u);
  EXPECT_LT(lines.cases()->of(), 100u) << "cases of other units";
  const Problem one = fakes::problem("cast e4m3 1x1 f32 fill=literal:3f800000"),
                tie = fakes::problem("cast e4m3 1x1 f32 fill=literal:3f880000"),
                far = fakes::problem("cast e4m3 1x1 f32 fill=literal:7f7fffff"),
                large = fakes::problem("cast e4m3 1x257 f32 fill=literal:ff800000");
  EXPECT_TRUE(lines.told(one, Fate::quiet));
  const size_t after_one = lines.cases()->reached();
  EXPECT_GT(after_one, 0u);
  EXPECT_TRUE(lines.told(tie, Fate::quiet));
  EXPECT_FALSE(lines.told(tie, Fate::quiet));
  EXPECT_FALSE(lines.told(far, Fate::unsupported)) << "what does not run reaches nothing";
  EXPECT_TRUE(lines.told(far, Fate::quiet));
  EXPECT_GT(lines.cases()->reached(), after_one + 1);
  const size_t before = lines.cases()->reached();
  lines.told(large, Fate::quiet);
  EXPECT_EQ(lines.cases()->reached(), before) << "a large line is not traced";
  EXPECT_TRUE(blind.told(one, Fate::quiet));
  EXPECT_FALSE(blind.told(tie, Fate::quiet));
}

// A line is kept for a code that no line had, an element's, a scale's or one that it reads, though it has no
// new pair of choices.
TEST(HuntLines, ANewCodeKeepsALine) {
  const std::unique_ptr<Subject> reference = make_reference_subject();
  Lines lines(1, 4096, ""), blind(1, 4096, "");
  lines.look_at_values(*reference);
  ASSERT_TRUE(lines.codes());
  const auto told = [](Lines& to, const std::string& line) {
    return to.told(fakes::problem(line), Fate::quiet);
  };
  const std::string cast = "cast e4m3 1x2 f32 fill=literal:";
  EXPECT_TRUE(told(lines, cast + "3f8000003fc00000"));
  EXPECT_EQ(lines.codes()->count("cast e4m3"), 2u) << "1 and 1.5";
  EXPECT_TRUE(told(lines, cast + "3f8000003fa00000")) << "1.25 is new";
  EXPECT_EQ(lines.codes()->count("cast e4m3"), 3u);
  EXPECT_FALSE(told(lines, cast + "3fc000003fa00000"));
  EXPECT_TRUE(told(blind, cast + "3f8000003fc00000"));
  EXPECT_FALSE(told(blind, cast + "3f8000003fa00000"));
  // Both elements have one code, and only the scale's code is new.
  const std::string rows = "quantize mxfp8 1x1 f32 dir=row fill=literal:";
  told(lines, rows + "3f800000");
  const size_t before = lines.codes()->count("quantize mxfp8");
  EXPECT_TRUE(told(lines, rows + "40000000"));
  EXPECT_EQ(lines.codes()->count("quantize mxfp8"), before + 1);
  told(lines, "dequantize mxfp8 1x32 f32 dir=row input=codes seed=1");
  EXPECT_GT(lines.codes()->count("dequantize mxfp8"), 20u) << "codes that are read";
  EXPECT_TRUE(told(lines, "split mxfp8 2x32 bf16 groups=1,1")) << "whose tiled scales are padded to 1,024";
  EXPECT_GT(lines.codes()->count("split mxfp8"), 20u);
  const size_t rows_codes = lines.codes()->count("quantize mxfp8");
  told(lines, "quantize mxfp8 1x4 f32 dir=row noop=1 fill=edges");
  EXPECT_EQ(lines.codes()->count("quantize mxfp8"), rows_codes) << "it writes nothing";
  const std::string large = "cast e4m3 1x257 f32 fill=literal:ff800000";
  told(lines, large);
  EXPECT_EQ(lines.codes()->count("cast e4m3"), 3u) << "a large line is not looked at";
  const std::vector<Lines::Covered> covered = lines.covered();
  ASSERT_EQ(covered.size(), 4u);
  EXPECT_EQ(covered[0].group, "cast e4m3");
  EXPECT_EQ(covered[0].lines, 4u);
  EXPECT_EQ(covered[0].codes, 3u);
  EXPECT_GT(covered[0].pairs, 1u);
}

// A row for each op with a format, with what was found of it.
TEST(HuntTable, HasWhatWasCoveredAndFound) {
  hunting::Finding f;
  f.line = "quantize mxfp8 1x4 bf16 dir=row";
  EXPECT_EQ(hunting::table_of({{"cast e4m3", 12, 345, 67}, {"quantize mxfp8", 1, 2, 3}}, {f, f}),
            "                   lines     pairs   codes  findings\n"
            "cast e4m3             12       345      67         0\n"
            "quantize mxfp8         1         2       3         2\n");
  EXPECT_EQ(hunting::table_of({}, {f}), "");
}

TEST(HuntLines, AreEqualForASeedAndFollowWhatIsCovered) {
  Lines one(7, 512, "quantize mxfp8"), two(7, 512, "quantize mxfp8"), other(8, 512, "quantize mxfp8");
  EXPECT_EQ(one.batch(0, 30), two.batch(0, 30));
  EXPECT_NE(one.batch(0, 30), other.batch(0, 30));
  size_t guided = 0;
  for (const Problem& p : one.batch(1, 60)) one.told(p, Fate::quiet);
  guided = one.pairs();
  EXPECT_GT(guided, 1000u);
  Lines blind(7, 512, "quantize mxfp8");
  for (const Problem& p : blind.batch(1, 60)) blind.told(p, Fate::unsupported);
  EXPECT_EQ(blind.pairs(), 0u) << "a line that did not run covers nothing";
}

}  // namespace
}  // namespace assay
