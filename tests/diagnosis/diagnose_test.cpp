// The search finds causes that were put in by hand, stage by stage; it names none that does not make every byte.
#include "compare/diagnosis/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compare/describe.h"
#include "compare/diagnosis/hypotheses.h"
#include "compare/diagnosis/report_text.h"
#include "contract/line.h"
#include "reference/subject.h"

namespace assay {
namespace {

using std::string;

Subject& reference() {
  static const std::unique_ptr<Subject> subject = make_reference_subject();
  return *subject;
}

std::vector<PlaneData> run(const Problem& p, const std::vector<PlaneData>& inputs) {
  std::vector<PlaneData> out;
  std::vector<Buffer> buffers;
  for (const Plane& plane : output_planes(p)) out.push_back({plane, std::vector<std::byte>(plane.bytes())});
  for (PlaneData& data : out) buffers.push_back({&data.plane, data.bytes});
  reference().run(p, views(inputs), buffers, {});
  return out;
}

struct Case {
  explicit Case(const string& line) {
    const auto p = parse_line(line);
    EXPECT_TRUE(p) << (p ? "" : p.error().text());
    seen.problem = *p;
    seen.subject = "test";
    seen.inputs = *make_inputs(*p, reference());
    seen.got = run(*p, seen.inputs);
  }
  // The bytes of another line, under this one's planes.
  void made_by(const string& line) {
    const std::vector<Plane> planes = output_planes(seen.problem);
    seen.got = run(*parse_line(line), seen.inputs);
    for (size_t i = 0; i < planes.size(); ++i) seen.got[i].plane = planes[i];
  }
  PlaneData& plane(const string& name) {
    return *std::find_if(seen.got.begin(), seen.got.end(), [&](const PlaneData& p) { return p.plane.name == name; });
  }
  Diagnosis diagnosis(int jobs = 1) const {
    DiagnoseOptions options;
    options.jobs = jobs;
    auto d = diagnose(seen, reference(), options);
    EXPECT_TRUE(d) << (d ? "" : d.error().text());
    return d ? std::move(*d) : Diagnosis{};
  }
  Observation seen;
};

// Exact, this cause among those that are, and nothing longer than it.
void expect_named(const Diagnosis& d, std::vector<string> ids, Stage stage) {
  EXPECT_TRUE(d.confidence == Confidence::certain || d.confidence == Confidence::equivalent) << diagnosis_screen(d);
  std::sort(ids.begin(), ids.end());
  bool named = false;
  for (const Explanation& e : d.explanations) {
    std::vector<string> have = e.ids;
    std::sort(have.begin(), have.end());
    named |= e.exact() && have == ids;
  }
  EXPECT_TRUE(named) << diagnosis_screen(d);
  EXPECT_EQ(d.first, stage) << diagnosis_screen(d);
}

TEST(Diagnose, EqualBytesAreEqual) {
  const Diagnosis d = Case("quantize mxfp8 64x96 bf16").diagnosis();
  EXPECT_EQ(d.confidence, Confidence::equal);
  EXPECT_TRUE(d.explanations.empty());
}

TEST(Diagnose, ChangedLines) {
  Case mx("quantize mxfp8 64x128 bf16 seed=3");
  mx.made_by("quantize mxfp8 64x128 bf16 seed=3 mx_scale=floor");
  const Diagnosis d = mx.diagnosis();
  expect_named(d, {"line.mx_scale=floor"}, Stage::block_scale);
  EXPECT_EQ(d.explanations[0].line, to_line(*parse_line("quantize mxfp8 64x128 bf16 seed=3 mx_scale=floor")));
  Case ties("quantize nvfp4 64x128 bf16 fill=ties");
  ties.made_by("quantize nvfp4 64x128 bf16 fill=ties element_ties=away");
  expect_named(ties.diagnosis(), {"line.element_ties=away"}, Stage::code);
  Case drawn("quantize nvfp4 64x128 bf16 round=sr rng=7,3,0 col.rht=1");
  drawn.made_by("quantize nvfp4 64x128 bf16 round=sr rng=7,5,0 col.rht=1");
  expect_named(drawn.diagnosis(), {"draw.offset=+2"}, Stage::code);
}

TEST(Diagnose, OtherOps) {
  Case cast("cast e4m3 16x256 bf16 seed=3");
  cast.made_by("cast e4m3 16x256 bf16 seed=3 round=rz");
  expect_named(cast.diagnosis(), {"line.round=rz"}, Stage::code);
  Case product("gemm a=identity b=identity 48x64x96 fill=wide");
  product.made_by("gemm a=identity b=identity 48x64x96 fill=wide sum=exact");
  expect_named(product.diagnosis(), {"line.sum=exact"}, Stage::code);
}

// By a loop of its own, not the library's.
TEST(Diagnose, AmaxThatMissesAnElement) {
  Case c("quantize mxfp8 64x128 f32 dir=row seed=3 fill=wide");
  std::vector<PlaneData> inputs = c.seen.inputs;
  Problem p = c.seen.problem;
  p.row->scale_from = ScaleFrom::amax;
  PlaneData amaxes;
  for (const Plane& plane : input_planes(p))
    if (plane.name == "row.given.block_amax") amaxes = {plane, std::vector<std::byte>(plane.bytes())};
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t b = 0; b < 4; ++b) {
      uint32_t largest = 0;                                                  // magnitudes order as their codes do
      for (int64_t k = 0; k < 31; ++k) largest = std::max(largest, code_at(Encoding::f32, inputs[0].bytes, r * 128 + b * 32 + k) & 0x7FFFFFFF);
      set_code(Encoding::f32, amaxes.bytes, r * 4 + b, largest);
    }
  inputs.insert(inputs.begin() + 1, amaxes);
  c.seen.got = run(p, inputs);
  expect_named(c.diagnosis(), {"amax.misses_last"}, Stage::amax);
}

TEST(Diagnose, CodesThatLoseTheirSign) {
  Case c("quantize fp8_current 64x128 bf16 dir=col seed=3");
  for (std::byte& b : c.plane("col.data").bytes) b &= std::byte{0x7F};
  expect_named(c.diagnosis(), {"code.sign_lost"}, Stage::code);
}

TEST(Diagnose, StoredScales) {
  Case c("quantize mxfp8 64x128 bf16 dir=row seed=3");
  PlaneData& s = c.plane("row.scale_inv");
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t b = 0; b < 4; ++b) set_code(s.plane, s.bytes, index_of(s.plane, r, b), code_at(s.plane, s.bytes, index_of(s.plane, r, b)) + 1);
  expect_named(c.diagnosis(), {"scale.up.stored"}, Stage::block_scale);
}

TEST(Diagnose, Layouts) {
  Case c("quantize nvfp4 64x128 bf16 dir=row seed=3");
  for (std::byte& b : c.plane("row.data").bytes) b = b << 4 | b >> 4;
  const Diagnosis d = c.diagnosis();
  expect_named(d, {"layout.data:nibbles_swapped"}, Stage::packing);
  // What was found holds for another tensor too.
  Case other("quantize nvfp4 32x96 bf16 dir=row seed=8");
  for (std::byte& b : other.plane("row.data").bytes) b = b << 4 | b >> 4;
  ASSERT_EQ(d.explanations[0].ids, std::vector<string>{"layout.data:nibbles_swapped"});
  const auto predicted = predict(d.explanations[0], other.seen.problem, other.seen.inputs, reference());
  ASSERT_TRUE(predicted) << predicted.error().text();
  EXPECT_EQ((*predicted)[2].bytes, other.plane("row.data").bytes);
}

TEST(Diagnose, OneDirectionAlone) {
  Case c("quantize mxfp8 64x128 bf16 seed=3");
  c.made_by("quantize mxfp8 64x128 bf16 seed=3 col.mx_scale=floor");
  const Diagnosis d = c.diagnosis();
  EXPECT_EQ(d.confidence, Confidence::certain);
  expect_named(d, {"line.mx_scale=floor@col"}, Stage::block_scale);
  EXPECT_EQ(d.direction, Direction::col);
}

TEST(Diagnose, Pairs) {
  Case c("quantize mxfp8 128x256 bf16 dir=row seed=3 fill=wide");
  c.made_by("quantize mxfp8 128x256 bf16 dir=row seed=3 fill=wide mx_scale=even element_ties=zero");
  expect_named(c.diagnosis(), {"line.mx_scale=even", "line.element_ties=zero"}, Stage::block_scale);
}

TEST(Diagnose, NoiseIsUnexplained) {
  Case c("quantize mxfp8 64x128 bf16 dir=row seed=3");
  uint32_t state = 1;
  for (std::byte& b : c.plane("row.data").bytes) {
    state = state * 1664525 + 1013904223;
    if (state >> 29 == 0) b ^= static_cast<std::byte>(1 << (state >> 20 & 7));
  }
  const Diagnosis d = c.diagnosis();
  EXPECT_EQ(d.confidence, Confidence::unexplained) << diagnosis_screen(d);
  EXPECT_EQ(d.first, Stage::code);
  EXPECT_TRUE(cause_line(d).empty());
}

TEST(Diagnose, MembersOfASplit) {
  Case c("split mxfp8 160x64 bf16 groups=32,0,96,32 dir=row seed=3");
  c.made_by("split mxfp8 160x64 bf16 groups=32,0,96,32 dir=row seed=3 mx_scale=floor");
  expect_named(c.diagnosis(), {"line.mx_scale=floor"}, Stage::block_scale);
}

TEST(Diagnose, ColumnsOfDequantizedRowsFollowTheRows) {
  const string line = "quantize mxfp8/mxfp8 64x128 bf16 col_source=row_dequantized seed=3";
  Case c(line);
  c.made_by(line + " row.element_ties=away fill=ties");
  c.seen = Case(line + " fill=ties").seen;
  c.made_by(line + " fill=ties row.element_ties=away");
  const Diagnosis d = c.diagnosis();
  expect_named(d, {"line.element_ties=away@row"}, Stage::code);
  for (const StageVerdict& s : d.stages)
    EXPECT_TRUE(s.direction == Direction::row || s.outcome != StageOutcome::differs);
}

TEST(Diagnose, SameForAnyNumberOfThreads) {
  Case c("quantize nvfp4 64x128 bf16 seed=3");
  c.made_by("quantize nvfp4 64x128 bf16 seed=3 multiplier=quotient nvfp4_scale=decode");
  Diagnosis one = c.diagnosis(1), two = c.diagnosis(2);
  one.seconds = two.seconds = 0;
  EXPECT_EQ(json::dump(to_json(one)), json::dump(to_json(two)));
}

TEST(Diagnose, PlanesThatDoNotFitAreErrors) {
  Case c("quantize mxfp8 64x128 bf16 dir=row");
  c.plane("row.data").bytes.pop_back();
  EXPECT_FALSE(diagnose(c.seen, reference(), {}));
  c.seen.got.clear();
  EXPECT_FALSE(diagnose(c.seen, reference(), {}));
}

// Ids name rows for good: each is there once, and is found again by its name.
TEST(Hypotheses, IdsAreUnique) {
  for (const char* line : {"quantize mxfp8 96x160 bf16 dir=row", "quantize nvfp4 96x160 bf16 dir=col rht=1 round=sr", "quantize fp8_block 160x200 f32 dir=col", "quantize fp8_current 96x160 f16 dir=row"}) {
    const Problem p = *parse_line(line);
    const Direction d = p.row ? Direction::row : Direction::col;
    std::vector<string> ids;
    for (const Hypothesis& h : hypotheses(p, d)) {
      ids.push_back(h.id);
      EXPECT_FALSE(h.title.empty());
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end()) << line << " " << *std::adjacent_find(ids.begin(), ids.end());
    EXPECT_TRUE(hypothesis_named("input.ftz", p, d));
    EXPECT_FALSE(hypothesis_named("input.nothing", p, d));
  }
}

}  // namespace
}  // namespace assay
