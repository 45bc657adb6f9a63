#include "compare/commands/coherence.h"
#include "compare/diagnosis/identify/coherence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "fixtures/suite.h"
#include "tests/compare/diagnosis/planes.h"
#include "tests/source_path.h"

namespace assay {
namespace {

using planes::Case;
using std::string;

Coherence judged(const Case& c) { return coherence(c.problem, c.got); }

// Columns of another tensor, of another seed, where `stale(row, column of the tensor)`; data and scales, and
// the amaxes are left alone.
void go_stale(Case& c, const Case& old, auto stale) {
  for (PlaneData& p : c.got) {
    const PlaneData& from = old.wanted(p.plane.name);
    if (p.plane.direction != Direction::col || p.plane.name.ends_with("amax") || p.plane.members.size())
      continue;
    for (int64_t r = 0; r < p.plane.logical.rows; ++r)
      for (int64_t k = 0; k < p.plane.logical.cols; ++k) {
        const Region g = region_of(&c.problem, p.plane, {false, r, k});
        if (stale(g.row0, g.col0))
          set_code(p.plane, p.bytes, index_of(p.plane, r, k),
                   code_at(from.plane, from.bytes, index_of(from.plane, r, k)));
      }
  }
}

const char* const kLines[] = {
    "quantize mxfp8 64x128 bf16 dir=both",
    "quantize mxfp8 64x128 bf16 dir=both element=e5m2",
    "quantize mxfp8 96x160 f32 dir=both block=32x32",
    "quantize mxfp8 64x128 bf16 dir=both scales=gemm",
    "quantize mxfp4 64x128 bf16 dir=both",
    "quantize nvfp4 64x128 bf16 dir=both",
    "quantize nvfp4 64x128 bf16 dir=both block=16x16",
    "quantize nvfp4 64x128 bf16 dir=both row_scaled=1",
    "quantize nvfp4 64x128 bf16 dir=both four_over_six=mse",
    "quantize nvfp4 64x128 bf16 dir=both col.rht=1",
    "quantize nvfp4 64x128 bf16 dir=both col.rht=1 round=sr",
    "quantize nvfp4 64x128 bf16 dir=both round=sr",
    "quantize nvfp4 64x128 bf16 dir=both amax=8",
    "quantize nvfp4 64x128 bf16 dir=both multiplier=bf16_quotient",
    "quantize fp8_block 256x256 bf16 dir=both",
    "quantize fp8_block 256x256 bf16 dir=both block=128x128",
    "quantize fp8_block 256x256 bf16 dir=both scales=gemm pow2=1",
    "quantize fp8_current 64x128 bf16 dir=both",
    "quantize fp8_delayed 64x128 bf16 dir=both scale=16",
    "quantize identity 64x128 bf16 dir=both",
    "quantize mxfp8/nvfp4 64x128 bf16",
    "quantize mxfp8/identity 64x128 bf16",
    "quantize identity/nvfp4 64x128 f32",
    "quantize identity/nvfp4 64x128 bf16 col.multiplier=bf16_quotient",
    "quantize identity/nvfp4 64x128 f32 col.four_over_six=mse col.e4m3_max=256",
    "quantize identity/fp8_block 64x128 f32",
    "quantize identity/mxfp8 64x128 f32 col.pre_round=bf16",
    "quantize identity/mxfp4 64x128 f32 col.pre_round=f16_rz",
    "quantize identity/mxfp4 64x128 f32 col.neg_zero=drop",
    "quantize identity/mxfp8 64x128 f32 col.element_overflow=nan col.mx_scale=floor",
    "quantize identity/nvfp4 64x128 f32 col.nvfp4_scale=unit",
    "quantize fp8_current/mxfp8 64x128 f32",
    "quantize mxfp8/nvfp4 64x128 bf16 col_source=row_dequantized",
    "quantize nvfp4/mxfp8 64x128 bf16 col_source=row_dequantized",
    "quantize fp8_block/mxfp4 64x128 f16 col_source=row_dequantized",
};

TEST(Coherence, OneTensorIsCoherent) {
  for (const string line : kLines)
    for (const char* fill :
         {"normal", "ties", "wide", "edges", "nonfinite", "amax_edges", "outliers", "negative_zeros"}) {
      const Case c(line + " fill=" + fill);
      const Coherence j = judged(c);
      EXPECT_EQ(j.verdict, "") << line << " fill=" << fill << " " << j.first_text << " at "
                               << (j.first ? j.first->row : -1) << "," << (j.first ? j.first->col : -1);
      EXPECT_TRUE(j.notes.empty()) << line << " fill=" << fill << " " << j.notes.front();
      if (string(fill) == "normal") {
        EXPECT_EQ(j.undecidable, "") << line;
        EXPECT_GT(j.of, c.problem.x.shape.count() * 9 / 10) << line;
      }
    }
}

TEST(Coherence, NoFalseAlarmInTheSmokeSuite) {
  const auto suite = load_suite(source_path("fixtures/suites/smoke.cases"));
  ASSERT_TRUE(suite) << suite.error().text();
  int judged_lines = 0;
  for (const SuiteEntry& e : suite->entries) {
    const Problem& p = e.problem;
    if (!(p.as<Quantize>() || p.as<Split>()) || !p.row || !p.col || noop_of(p)) continue;
    const Coherence j = judged(Case(e.text));
    if (!j.undecidable.empty()) continue;
    ++judged_lines;
    EXPECT_TRUE(j.coherent()) << e.text << ": " << j.verdict << " " << j.first_text;
  }
  EXPECT_GT(judged_lines, 100);
}

TEST(Coherence, StaleColumnsAreFound) {
  for (const string line : kLines) {
    Case c(line + " seed=1");
    const Case old(line + " seed=2");
    go_stale(c, old, [](int64_t, int64_t) { return true; });
    const Coherence j = judged(c);
    EXPECT_TRUE(j.verdict.starts_with("columns stale: "))
        << line << ": " << j.verdict << " " << j.undecidable;
    EXPECT_GT(j.apart * (line.find("rht") == string::npos ? 2 : 6), j.of)
        << line;  // sums of 16 intervals leave much
    ASSERT_TRUE(j.first) << line;
    EXPECT_FALSE(j.first_text.empty());
  }
}

TEST(Coherence, StaleBandsAreNamed) {
  Case c("quantize mxfp8 256x256 bf16 dir=both seed=1");
  const Case old("quantize mxfp8 256x256 bf16 dir=both seed=2");
  go_stale(c, old, [](int64_t r, int64_t) { return r >= 128; });
  const Coherence j = judged(c);
  EXPECT_NE(j.verdict.find("columns stale in rows 128..255 of the tensor: 9"), string::npos) << j.verdict;
  EXPECT_NE(j.verdict.find("fresh are rows 0..127"), string::npos) << j.verdict;
  ASSERT_FALSE(j.where.empty());
  EXPECT_EQ(j.where[0].what, "row >= 128");
  EXPECT_EQ(j.first->row, 128);
  // A tile.
  Case t("quantize nvfp4 256x256 bf16 dir=both seed=1");
  go_stale(t, Case("quantize nvfp4 256x256 bf16 dir=both seed=2"),
           [](int64_t r, int64_t k) { return r >= 128 && k < 128; });
  const Coherence tile = judged(t);
  ASSERT_FALSE(tile.where.empty());
  EXPECT_EQ(tile.where[0].what, "row >= 128 and column < 128");
}

TEST(Coherence, AScaleIsToldFromAnotherTensor) {
  Case c("quantize mxfp8 128x256 bf16 dir=both");
  c.spoil("col.scale_inv", [](int64_t, int64_t, uint32_t w) { return w + 1; });
  EXPECT_TRUE(judged(c).verdict.starts_with("scale: columns are 2^1 times the rows")) << judged(c).verdict;
  Case t("quantize mxfp8 64x96 bf16 dir=both block=32x32");  // the same codes under another scale
  t.spoil("col.scale_inv", [](int64_t, int64_t k, uint32_t w) { return k < 32 ? w + 1 : w; });
  EXPECT_EQ(judged(t).apart, 64 * 32);
  EXPECT_EQ(judged(t).first_text, "rows and columns have different scales there, but should share one");
  Case n("quantize nvfp4 128x256 bf16 dir=both");
  n.spoil("row.data", [](int64_t, int64_t, uint32_t w) { return (w & 7) == 7 ? w - 1 : w; });
  EXPECT_TRUE(judged(n).verdict.find("cannot come from one tensor") != string::npos) << judged(n).verdict;
}

TEST(Coherence, OneWrongElementIsEnough) {
  for (const string line :
       {"quantize mxfp8 128x256 bf16 dir=both", "quantize fp8_current 128x256 bf16 dir=both",
        "quantize identity 64x64 f32 dir=both", "quantize nvfp4 128x256 bf16 dir=both block=16x16"}) {
    Case c(line);
    c.spoil("col.data", [](int64_t r, int64_t k, uint32_t w) { return r == 33 && k == 40 ? w ^ 4 : w; });
    const Coherence j = judged(c);
    EXPECT_EQ(j.apart, 1) << line;
    const bool transposed = c["col.data"].plane.transposed;
    EXPECT_EQ(*j.first, (Place{false, transposed ? 40 : 33, transposed ? 33 : 40})) << line;
  }
}

// Rows that keep the values leave the columns one code each, or under a stochastic rounding two.
TEST(Coherence, IntervalsAreAsNarrowAsTheRounding) {
  for (const string line : {"quantize identity/mxfp8 128x256 f32", "quantize identity/nvfp4 128x256 f32",
                            "quantize identity/nvfp4 128x256 f32 col.round=sr"}) {
    Case c(line);
    const uint32_t magnitude = (1u << (info(c["col.data"].plane.encoding).bits - 1)) - 1;
    for (const int step : {1, -1, 2, -2}) {
      int64_t moved = 0;
      c.spoil("col.data", [&](int64_t r, int64_t k, uint32_t w) {
        const int64_t m = static_cast<int64_t>(w & magnitude) + step;
        if ((r + k) % 7 || m < 0 || m >= (magnitude == 7 ? 7 : 0x7E)) return w;
        ++moved;
        return (w & ~magnitude) | static_cast<uint32_t>(m);
      });
      const Coherence j = judged(c);
      const bool drawn = line.find("sr") != string::npos &&
                         (step == 1 || step == -1);  // half of these are the other neighbour
      EXPECT_GT(j.apart, drawn ? moved / 4 : moved * 99 / 100) << line << " " << step;
      EXPECT_LE(j.apart, drawn ? moved * 3 / 4 : moved) << line << " " << step;
    }
  }
}

TEST(Coherence, AmaxesAndMissingPlanes) {
  Case c("quantize nvfp4 128x256 bf16 dir=both");
  set_code(Encoding::f32, c["col.amax"].bytes, 0, 0x40C00000);
  Coherence j = judged(c);
  EXPECT_FALSE(j.coherent());
  ASSERT_EQ(j.notes.size(), 1u);
  EXPECT_NE(j.notes[0].find("col.amax 6"), string::npos) << j.notes[0];
  // A library that keeps no amax: both directions have the same, whatever it is.
  Case bare("quantize nvfp4 128x256 bf16 dir=both seed=1");
  auto drop = [](Case& k, const char* ending) {
    std::erase_if(k.got, [&](const PlaneData& p) { return p.plane.name.ends_with(ending); });
  };
  drop(bare, ".amax");
  EXPECT_TRUE(judged(bare).coherent()) << judged(bare).verdict << judged(bare).undecidable;
  go_stale(bare, Case("quantize nvfp4 128x256 bf16 dir=both seed=2"), [](int64_t, int64_t) { return true; });
  EXPECT_TRUE(judged(bare).verdict.starts_with("columns stale"));
  drop(bare, "col.scale_inv");
  EXPECT_EQ(judged(bare).undecidable, "the pack holds no col.scale_inv");
  Case rht("quantize nvfp4 128x256 bf16 dir=both col.rht=1");
  drop(rht, "col.amax");
  EXPECT_NE(judged(rht).undecidable.find("no col.amax"), string::npos);
  EXPECT_EQ(judged(Case("quantize mxfp8 32x32 bf16 dir=row")).undecidable, "the line has one direction");
  EXPECT_EQ(judged(Case("cast e4m3 1x32 bf16")).undecidable, "cast has no rows and columns");
  EXPECT_EQ(judged(Case("quantize mxfp8 0x32 bf16 dir=both")).undecidable, "the tensor has no elements");
}

TEST(Coherence, MembersOfASplit) {
  Case c("split mxfp8 192x256 bf16 groups=64,0,128 dir=both");
  EXPECT_TRUE(judged(c).coherent()) << judged(c).verdict << judged(c).undecidable;
  EXPECT_EQ(judged(c).of, 192 * 256);
  const int64_t offset = c["col.data"].plane.members[2].offset;
  c.spoil("col.data", [&](int64_t, int64_t k, uint32_t w) { return k >= offset ? w ^ 0x80 : w; });
  const Coherence j = judged(c);
  EXPECT_EQ(j.member, 2u);
  EXPECT_TRUE(j.verdict.starts_with("member 2: columns stale")) << j.verdict;
}

// A dump of two cases, the second with stale columns, as the program reads and reports it.
TEST(Coherence, OfADump) {
  const string path = testing::TempDir() + "coherence.safetensors";
  PackWriter writer(path, "test", {}, "", "");
  auto add = [&](const Case& c, const std::vector<PlaneData>& planes) {
    std::vector<RecordedPlane> recorded;
    for (const PlaneData& p : planes) recorded.push_back({p.plane, digest(p.bytes), p.bytes});
    ASSERT_FALSE(writer.add(c.problem, recorded));
  };
  Case c("quantize mxfp8 64x96 bf16 dir=both seed=1");
  add(c, c.got);
  go_stale(c, Case("quantize mxfp8 64x96 bf16 dir=both seed=2"), [](int64_t r, int64_t) { return r >= 32; });
  add(c, c.got);
  add(Case("quantize mxfp8 64x96 bf16 dir=row"), Case("quantize mxfp8 64x96 bf16 dir=row").got);
  ASSERT_FALSE(writer.finish());
  const auto dump = read_dump({path});
  ASSERT_TRUE(dump) << dump.error().text();
  std::ostringstream out;
  EXPECT_EQ(run_coherence(*dump, out), 1);
  for (const char* text : {"passed   ", "6144 of 6144 elements can come from one tensor", "FAILED  ",
                           "cause    columns stale in rows 32..63 of the tensor: 9",
                           "first    row 32, column 0: rows hold ", "skipped  ", "the line has one direction",
                           "first incoherence: ", ":000001\n1 passed, 1 failed, 1 skipped\n"})
    EXPECT_NE(out.str().find(text), string::npos) << text << " in\n" << out.str();
  std::remove(path.c_str());
}

}  // namespace
}  // namespace assay
