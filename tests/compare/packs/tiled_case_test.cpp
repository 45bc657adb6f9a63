// A case judged in tiles gives the judgement that it has as a whole: for every format, with wrong scales,
// wrong codes, wrong amaxes and wrong padding.
#include "compare/packs/tiled_case.h"

#include <gtest/gtest.h>

#include "compare/arithmetic/codes.h"
#include "compare/packs/dump.h"
#include "compare/process/guarded_run.h"
#include "compare/process/pool.h"
#include "fast/subject_simd.h"
#include "tests/compare/faulty_subject.h"

namespace assay {
namespace {

constexpr int64_t kSmallTile = kTileUnit * kTileUnit;

// A case as a pack holds it, in memory.
struct Recorded {
  Problem problem;
  std::vector<PlaneData> inputs, outputs;
  std::vector<PlaneData> want;

  explicit Recorded(const std::string& text) : problem(line(text)) {
    auto reference = make_reference_subject();
    inputs = *make_inputs(problem, *reference);
    want = execute(*reference, problem, inputs, Environment{}).planes;
    outputs = want;
  }
  PlaneData& output(const std::string& name) {
    for (PlaneData& p : outputs)
      if (p.plane.name == name) return p;
    throw std::runtime_error(name);
  }
  PackCase recorded() const {
    PackCase c;
    c.id = "a";
    for (const auto* list : {&inputs, &outputs})
      for (const PlaneData& p : *list) {
        const int64_t cols = p.plane.packed ? p.plane.padded.cols / 2 : p.plane.padded.cols;
        c.planes.push_back({p.plane.name,
                            safetensors::Tensor{"a/" + p.plane.name,
                                                safetensors::dtype_of(p.plane.encoding),
                                                {p.plane.padded.rows, cols},
                                                p.bytes},
                            ""});
      }
    return c;
  }
};

void flip(PlaneData& p, int64_t row, int64_t col) {
  const int64_t i = index_of(p.plane, row, col);
  set_code(p.plane, p.bytes, i, code_at(p.plane, p.bytes, i) ^ 1);
}

void expect_equal(const PlaneDifference& a, const PlaneDifference& b, const std::string& what) {
  EXPECT_EQ(a.plane.name, b.plane.name) << what;
  EXPECT_EQ(a.differ, b.differ) << what;
  EXPECT_EQ(a.of, b.of) << what;
  EXPECT_EQ(a.place, b.place) << what;
  EXPECT_EQ(a.index, b.index) << what;
  EXPECT_EQ(a.got, b.got) << what;
  EXPECT_EQ(a.want, b.want) << what;
  EXPECT_EQ(a.apart, b.apart) << what;
  EXPECT_EQ(a.explained, b.explained) << what;
}

void expect_equal(const std::vector<PlaneDifference>& a, const std::vector<PlaneDifference>& b,
                  const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) expect_equal(a[i], b[i], what + " " + a[i].plane.name);
}

// In worker processes or, with `here`, on threads of this one.
Result<TiledJudgement> judged(const PackCase& c, Tiling& tiling, Subject& reference,
                              const TiledOptions& options, bool here) {
  std::optional<InThisProcess> no_forks;
  if (here) no_forks.emplace();
  return judge_in_tiles(c, tiling, reference, options);
}

// The judgement in tiles is the judgement of the whole.
void expect_judged(const Recorded& r, const std::string& what, Acceptor* acceptor, bool here) {
  const PackCase c = r.recorded();
  auto tiling = tiling_of_case(c, r.problem, kSmallTile);
  ASSERT_TRUE(tiling) << what << ": " << tiling.error().text();
  ASSERT_GT(tiling->tiles.size(), 2u) << what;
  auto reference = make_reference_subject();
  const auto tiled = judged(c, *tiling, *reference, {2, 60, {}, {}, acceptor}, here);
  ASSERT_TRUE(tiled) << what << ": " << tiled.error().text();
  EXPECT_EQ(tiled->tiles, tiling->tiles.size());
  const Judgement whole = judge(&r.problem, r.outputs, r.want), &j = tiled->judgement;
  ASSERT_EQ(j.cause.has_value(), whole.cause.has_value()) << what << ": "
                                                          << (j.cause       ? j.cause->plane.name
                                                              : whole.cause ? whole.cause->plane.name
                                                                            : "");
  EXPECT_EQ(j.compared, whole.compared) << what;
  if (j.cause) expect_equal(*j.cause, *whole.cause, what);
  expect_equal(j.after, whole.after, what);
  expect_equal(j.beside, whole.beside, what);
  std::vector<PlaneDifference> gemm = whole.padding;  // compact padding is not judged
  std::erase_if(gemm, [](const PlaneDifference& d) { return d.plane.layout == ScaleLayout::compact; });
  ASSERT_EQ(j.padding.size(), gemm.size()) << what;
  for (size_t i = 0; i < gemm.size(); ++i) EXPECT_EQ(j.padding[i].differ, gemm[i].differ) << what;
}

// ... whether the reference judges alone or an acceptor is asked, in workers and in this process.
void expect_as_whole(const Recorded& r, const std::string& what) {
  expect_judged(r, what, nullptr, false);
  expect_judged(r, what + " (in this process)", nullptr, true);
  const auto simd = make_simd_subject();
  auto* const acceptor = dynamic_cast<Acceptor*>(simd.get());
  Problem tile = r.problem;  // as its tiles are: with the tensor's amax
  for (const Direction d : kDirections)
    if (std::optional<Quantizer>& q = tile.quantizer(d);
        q && !q->amax && (q->format == FormatId::fp8_current || q->format == FormatId::nvfp4))
      q->amax = 0x3F800000;
  if (acceptor && acceptor->accepts(tile).yes) {
    expect_judged(r, what + " (simd)", acceptor, false);
    expect_judged(r, what + " (simd, in this process)", acceptor, true);
  }
}

const char* const kLines[] = {
    "quantize mxfp8 300x700 bf16 dir=both",
    "quantize mxfp8 300x700 bf16 dir=both scales=gemm fill=nonfinite",
    "quantize mxfp8 300x700 f16 dir=both element=e5m2 fill=wide",
    "quantize mxfp4 300x700 bf16 dir=both",
    "quantize nvfp4 300x700 bf16 dir=both",
    "quantize nvfp4 301x703 bf16 dir=both",
    "quantize nvfp4 304x700 bf16 dir=col rht=1 fill=outliers",
    "quantize nvfp4 304x700 bf16 dir=both rht=1 flavour=te",
    "quantize nvfp4 300x700 bf16 dir=row fill=nonfinite",
    "quantize nvfp4 300x700 bf16 dir=row scales=gemm",
    "quantize nvfp4 300x700 bf16 dir=row amax=0x41800000",
    "quantize nvfp4 300x400 bf16 dir=row row_scaled=1",
    "quantize fp8_current 300x700 f32 dir=both",
    "quantize fp8_current 300x700 bf16 dir=both fill=nonfinite",
    "quantize fp8_current 300x400 bf16 dir=row row_scaled=1",
    "quantize fp8_current 300x400 bf16 dir=col row_scaled=1",
    "quantize fp8_delayed 300x700 bf16 dir=both",
    "quantize fp8_current 300x700 f16 dir=both amax=2.5",
    "quantize fp8_delayed 300x700 f32 dir=both scale=-3 prior_amax=0x40a00000 element=e5m2",
    "quantize fp8_block 300x700 bf16 dir=both",
    "quantize fp8_block 300x700 bf16 dir=both block=128x128",
    "quantize fp8_block 300x700 bf16 dir=both pow2=1 scales=gemm",
    "quantize identity 300x700 bf16 dir=both",
    "quantize mxfp8/nvfp4 300x700 bf16",
    "quantize nvfp4/mxfp8 304x704 bf16 col_source=row_dequantized",
    "quantize mxfp8 300x700 bf16 dir=row scale_from=amax",
    "cast e4m3 300x700 bf16 fill=every_code",
    "dequantize mxfp8 300x700 bf16 dir=col",
    "dequantize nvfp4 300x700 bf16 dir=row",
    "quantize mxfp8 1x100000 bf16 dir=row",
    "quantize mxfp8 100000x1 bf16 dir=col",
};

TEST(TiledCase, RightBytesAreRightInTiles) {
  for (const char* text : kLines) expect_as_whole(Recorded(text), text);
}

// One element of each plane, in turn: in the first, the last and a middle tile.
TEST(TiledCase, OneWrongElementIsFoundWhereItStands) {
  for (const char* text : kLines) {
    const Recorded right(text);
    for (size_t n = 0; n < right.outputs.size(); ++n) {
      const Shape s = right.outputs[n].plane.logical;
      for (const auto& [row, col] :
           {std::pair<int64_t, int64_t>{0, 0}, {s.rows / 2, s.cols / 2}, {s.rows - 1, s.cols - 1}}) {
        Recorded wrong = right;
        flip(wrong.outputs[n], row, col);
        expect_as_whole(wrong, std::string(text) + " " + wrong.outputs[n].plane.name);
      }
    }
  }
}

// Every plane wrong in every seventh element: what follows from the first plane is counted as it is in a
// whole.
TEST(TiledCase, WhatFollowsIsCountedAlike) {
  for (const char* text : kLines) {
    Recorded wrong(text);
    for (PlaneData& p : wrong.outputs)
      for (int64_t r = 0; r < p.plane.logical.rows; ++r)
        for (int64_t c = (r * 3) % 7; c < p.plane.logical.cols; c += 7) flip(p, r, c);
    expect_as_whole(wrong, text);
  }
}

// A recorded scale or amax is what the case was made with, whatever the key says.
TEST(TiledCase, WhatIsRecordedStandsInThePlaceOfItsKey) {
  const std::pair<const char*, const char*> lines[] = {
      {"quantize fp8_current 300x700 bf16 dir=both amax=2.5",
       "quantize fp8_current 300x700 bf16 dir=both amax=7"},
      {"quantize fp8_delayed 300x700 bf16 dir=both scale=3",
       "quantize fp8_delayed 300x700 bf16 dir=both scale=5"},
      {"quantize fp8_delayed 300x700 bf16 dir=both",
       "quantize fp8_delayed 300x700 bf16 dir=both prior_amax=64"},
  };
  for (const auto& [text, recorded] : lines) {
    Recorded r(text), other(recorded);
    r.inputs = other.inputs;
    r.outputs = other.outputs;
    r.want = other.want;
    expect_as_whole(r, text);
  }
}

TEST(TiledCase, PaddingOfTheGemmLayoutIsJudged) {
  for (const char* text :
       {"quantize mxfp8 300x700 bf16 dir=row scales=gemm", "quantize mxfp8 300x700 bf16 dir=col scales=gemm",
        "quantize nvfp4 300x700 bf16 dir=row scales=gemm"}) {
    Recorded wrong(text);
    for (PlaneData& p : wrong.outputs)
      if (p.plane.layout == ScaleLayout::gemm) flip(p, p.plane.padded.rows - 1, p.plane.padded.cols - 1);
    expect_as_whole(wrong, text);
  }
}

TEST(TiledCase, AStopEndsItAsCtrlCDoes) {
  const Recorded r("quantize fp8_current 300x700 bf16");
  const PackCase c = r.recorded();
  auto tiling = tiling_of_case(c, r.problem, kSmallTile);
  const auto reference = make_reference_subject();
  std::atomic<bool> stop = false;
  TiledOptions options{1, 60, [&](size_t done, size_t) { stop = done == tiling->tiles.size() + 3; }};
  options.stop = &stop;
  const auto found = judged(c, *tiling, *reference, options, true);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tiles, 3u);  // of the second pass: the first finds the amax
  EXPECT_EQ(found->of, tiling->tiles.size());
}

// A tile of whole columns has as many elements as it may have, also where a column is one element.
TEST(TiledCase, WholeColumnsFillATile) {
  for (const char* shape : {"1x512", "2x256"}) {
    const auto tiling =
        tiling_of(line("quantize fp8_current " + std::string(shape) + " bf16 dir=col row_scaled=1"), 256);
    ASSERT_TRUE(tiling);
    ASSERT_EQ(tiling->tiles.size(), 2u) << shape;
    for (const Tile& tile : tiling->tiles) EXPECT_EQ(tile.shape.count(), 256) << shape;
  }
}

TEST(TiledCase, WhatCannotBeCutSaysWhy) {
  const std::pair<const char*, const char*> lines[] = {
      {"quantize nvfp4 300x700 bf16 dir=row round=sr", "round=sr counts its draws"},
      {"cast e2m1 300x700 f32 round=sr", "round=sr counts its draws"},
      {"quantize mxfp8/nvfp4 304x704 bf16 col_source=row_dequantized", "dequantized rows"},
      {"quantize fp8_current 300x700 bf16 dir=both row_scaled=1", "has its own scale"},
      {"split mxfp8 192x256 bf16 groups=0,31,33,128", "a split is judged as a whole"},
  };
  for (const auto& [text, why] : lines) {
    const auto tiling = tiling_of(line(text), kSmallTile);
    ASSERT_FALSE(tiling) << text;
    EXPECT_NE(tiling.error().text().find(why), std::string::npos) << tiling.error().text();
  }
}

// ---- acceptors ------------------------------------------------------------------------------------

// Knows every block, whatever it holds, or no block at all, without a reason or with one that is not true.
class Gullible final : public Acceptor {
 public:
  explicit Gullible(bool knows, int differ = 0) : knows_(knows), differ_(differ) {}
  std::string_view target() const override { return "none"; }
  std::string_view sources() const override { return "none"; }
  std::vector<std::string_view> uncertified() const override { return {}; }
  void use_certified(const std::set<std::string, std::less<>>&) override {}
  Support accepts(const Problem& p) const override { return {p.row && p.row->format == FormatId::mxfp8, ""}; }
  std::vector<DoubtfulBlock> unknown(const Problem& p, Direction, StridedBytes, StridedBytes,
                                     StridedBytes) override {
    std::vector<DoubtfulBlock> all;
    for (uint32_t r = 0; !knows_ && r < p.x.shape.rows; ++r)
      for (uint32_t c = 0; c < ceil_div(p.x.shape.cols, 32); ++c)
        all.push_back({{r, c}, false, false, differ_, 0});
    return all;
  }

 private:
  bool knows_;
  int differ_;
};

TiledJudgement judged_by(const Recorded& r, Acceptor& acceptor) {
  const PackCase c = r.recorded();
  auto tiling = tiling_of_case(c, r.problem, kSmallTile);
  auto reference = make_reference_subject();
  return *judge_in_tiles(c, *tiling, *reference, {1, 60, {}, {}, &acceptor});
}

constexpr const char* kAccepted = "quantize mxfp8 256x1024 bf16 dir=row";
constexpr int64_t kAcceptedBlocks = 256 * 1024 / 32;

// An acceptor that lies is caught by the sample, wherever a tile is wrong in more than a few blocks: and then
// the counts are those of the reference.
TEST(TiledCase, TheSampleCatchesAnAcceptorThatKnowsEverything) {
  Gullible acceptor(true);
  Recorded r(kAccepted);
  const TiledJudgement right = judged_by(r, acceptor);
  EXPECT_TRUE(right.judgement.equal());
  EXPECT_EQ(right.blocks.accepted + right.blocks.referred, kAcceptedBlocks);
  EXPECT_GE(right.blocks.referred, kAcceptedBlocks / kSampledBlocks);
  EXPECT_LE(right.blocks.referred, kAcceptedBlocks / kSampledBlocks + 16);
  for (const char* plane : {"row.data", "row.scale_inv"}) {
    Recorded spoilt = r;
    for (std::byte& code : spoilt.output(plane).bytes) code ^= std::byte{1};
    const TiledJudgement wrong = judged_by(spoilt, acceptor);
    ASSERT_TRUE(wrong.judgement.cause) << plane;
    EXPECT_EQ(wrong.judgement.cause->differ, spoilt.output(plane).plane.logical.count()) << plane;
    EXPECT_EQ(wrong.blocks.accepted, 0) << plane;
    EXPECT_EQ(wrong.blocks.referred, kAcceptedBlocks) << plane;
  }
}

// An acceptor that knows nothing changes nothing.
TEST(TiledCase, WhatNoBlockIsKnownOfTheReferenceJudges) {
  Gullible acceptor(false);
  Recorded r(kAccepted);
  const TiledJudgement right = judged_by(r, acceptor);
  EXPECT_TRUE(right.judgement.equal());
  EXPECT_EQ(right.blocks.accepted, 0);
  EXPECT_EQ(right.blocks.referred, kAcceptedBlocks);
}

// What an acceptor says of wrong blocks is believed only where the reference says the same of those that it
// judges: of a right case nothing is told, and of a wrong one what the reference counts.
TEST(TiledCase, AnAcceptorThatCountsWronglyIsNotBelieved) {
  Gullible acceptor(false, 5);
  Recorded r(kAccepted);
  const TiledJudgement right = judged_by(r, acceptor);
  EXPECT_TRUE(right.judgement.equal());
  EXPECT_EQ(right.blocks.counted, 0);
  EXPECT_EQ(right.blocks.referred, kAcceptedBlocks);
  for (std::byte& code : r.output("row.data").bytes) code ^= std::byte{1};
  const TiledJudgement wrong = judged_by(r, acceptor);
  ASSERT_TRUE(wrong.judgement.cause);
  EXPECT_EQ(wrong.judgement.cause->differ, 256 * 1024);
  EXPECT_EQ(wrong.blocks.counted, 0);
  EXPECT_EQ(wrong.blocks.referred, kAcceptedBlocks);
}

// Wrong in every block, in codes or in scales: the reference judges few of them, the acceptor counts the
// others, and the judgement is that of the whole.
TEST(TiledCase, WhatDiffersEverywhereIsCountedByTheAcceptor) {
  const auto simd = make_simd_subject();
  auto* const acceptor = dynamic_cast<Acceptor*>(simd.get());
  if (!acceptor) GTEST_SKIP() << simd->present().why;
  for (const char* text : {"quantize mxfp8 300x700 bf16 dir=both", "quantize fp8_block 300x700 bf16 dir=both",
                           "quantize fp8_current 300x700 f32 dir=both amax=2.5",
                           "quantize fp8_delayed 300x700 f16 dir=both scale=30"}) {
    const Recorded right(text);
    for (const char* stem : {"data", "scale_inv"}) {
      Recorded wrong = right;
      bool any = false;
      for (const char* side : {"row.", "col."}) {
        PlaneData& plane = wrong.output(std::string(side) + stem);
        if (is_scalar(plane.plane)) continue;
        any = true;
        for (int64_t r = 0; r < plane.plane.logical.rows; ++r)
          for (int64_t c = 0; c < plane.plane.logical.cols; ++c) flip(plane, r, c);
        if (*side == 'r') {  // some codes beside the scales, within blocks of wrong scales and elsewhere
          PlaneData& data = wrong.output("col.data");
          for (int64_t r = 3; r < data.plane.logical.rows; r += 5)
            flip(data, r, (r * 7) % data.plane.logical.cols);
        }
      }
      if (!any) continue;
      const std::string what = std::string(text) + " " + stem;
      expect_as_whole(wrong, what);
      const TiledJudgement j = judged_by(wrong, *acceptor);
      EXPECT_GT(j.blocks.counted, 4 * j.blocks.referred) << what;
    }
  }
}

// The hint then says of what it speaks.
TEST(TiledCase, TheHintSaysWhichBlocksItIsAbout) {
  const auto simd = make_simd_subject();
  auto* const acceptor = dynamic_cast<Acceptor*>(simd.get());
  if (!acceptor) GTEST_SKIP() << simd->present().why;
  Recorded r(kAccepted);
  for (std::byte& scale : r.output("row.scale_inv").bytes)
    scale = static_cast<std::byte>(std::to_integer<int>(scale) - 1);
  const std::string hint = judged_by(r, *acceptor).judgement.hint;
  EXPECT_TRUE(hint.starts_with("in the blocks that the reference judged: one binade too small")) << hint;
  Gullible nothing(true);
  EXPECT_TRUE(judged_by(r, nothing).judgement.hint.starts_with("one binade too small"));
}

// One wrong code is one more block for the reference.
TEST(TiledCase, OnlyTheWrongBlockIsJudgedAgain) {
  const auto simd = make_simd_subject();
  auto* const acceptor = dynamic_cast<Acceptor*>(simd.get());
  if (!acceptor) GTEST_SKIP() << simd->present().why;
  Recorded r(kAccepted);
  const int64_t before = judged_by(r, *acceptor).blocks.referred;
  flip(r.output("row.data"), 200, 900);
  const TiledJudgement wrong = judged_by(r, *acceptor);
  ASSERT_TRUE(wrong.judgement.cause);
  EXPECT_EQ(wrong.judgement.cause->differ, 1);
  EXPECT_EQ(wrong.judgement.cause->place.row, 200);
  EXPECT_EQ(wrong.judgement.cause->place.col, 900);
  EXPECT_EQ(wrong.blocks.counted, 0);
  EXPECT_GE(wrong.blocks.referred, before);
  EXPECT_LE(wrong.blocks.referred, before + 1);
}

// The reference looks at few blocks of a right case, whatever the format and the direction are, and
// whatever scale was recorded in the place of the line's. An acceptor that is asked about other bytes would
// leave all of them to the reference.
TEST(TiledCase, OfRightBlocksFewGoToTheReference) {
  const auto simd = make_simd_subject();
  auto* const acceptor = dynamic_cast<Acceptor*>(simd.get());
  if (!acceptor) GTEST_SKIP() << simd->present().why;
  const std::pair<const char*, const char*> lines[] = {
      {"mxfp8 300x700 bf16 dir=both", ""},
      {"mxfp8 300x700 f16 dir=both element=e5m2", ""},
      {"fp8_block 300x700 bf16 dir=both", ""},
      {"fp8_block 300x700 f32 dir=both pow2=1", ""},
      {"nvfp4 300x700 bf16 dir=both", ""},
      {"nvfp4 301x703 f32 dir=both", ""},
      {"nvfp4 300x700 f16 dir=both amax=2.5", "nvfp4 300x700 f16 dir=both amax=7"},
      {"fp8_current 300x700 bf16 dir=both", ""},
      {"fp8_current 300x700 bf16 dir=both amax=2.5", "fp8_current 300x700 bf16 dir=both amax=7"},
      {"fp8_delayed 300x700 bf16 dir=both scale=3", "fp8_delayed 300x700 bf16 dir=both scale=50"},
      {"fp8_delayed 300x700 bf16 dir=both scale=50",
       "fp8_delayed 300x700 bf16 dir=both scale=50 prior_amax=64"},
  };
  for (const auto& [said, recorded] : lines) {
    Recorded r(std::string("quantize ") + (*recorded ? recorded : said));
    r.problem = line(std::string("quantize ") + said);
    const TiledJudgement right = judged_by(r, *acceptor);
    EXPECT_TRUE(right.judgement.equal()) << said << " recorded: " << recorded;
    EXPECT_GT(right.blocks.accepted, 4 * right.blocks.referred) << said << " recorded: " << recorded;
  }
}

// A part of the case is a case: the search for a cause sees the same planes.
TEST(TiledCase, AWindowHasTheTensorsAmax) {
  const Recorded r("quantize nvfp4 300x700 bf16 dir=both fill=outliers");
  const PackCase c = r.recorded();
  auto tiling = tiling_of_case(c, r.problem, kSmallTile);
  ASSERT_TRUE(tiling);
  auto reference = make_reference_subject();
  ASSERT_TRUE(judge_in_tiles(c, *tiling, *reference, {1, 60, {}}));
  const Tile window = window_around(*tiling, {130, 131, 140, 141});
  EXPECT_EQ(window.row, 128);
  EXPECT_EQ(window.shape, (Shape{172, 572}));
  const auto part = planes_of_tile(c, *tiling, window, *reference);
  ASSERT_TRUE(part) << part.error().text();
  const Execution run = execute(*reference, part->problem, part->inputs, Environment{});
  for (const PlaneData& got : part->got)
    EXPECT_EQ(got.bytes, find_plane(run.planes, got.plane.name)->bytes) << got.plane.name;
  EXPECT_EQ(part->got.size(), 4u);  // the amaxes are given
}

// "columns 512..1535, the part that was searched": in a tensor that is larger than a window.
TEST(TiledCase, AWindowEndsBeforeALargeTensor) {
  const auto tiling = tiling_of(line("quantize mxfp8 2048x2048 bf16"), kSmallTile);
  ASSERT_TRUE(tiling);
  const Tile window = window_around(*tiling, {1000, 1001, 600, 601});
  EXPECT_EQ(window.row, 896);
  EXPECT_EQ(window.col, 512);
  EXPECT_EQ(window.shape, (Shape{256, 1024}));
}

}  // namespace
}  // namespace assay
