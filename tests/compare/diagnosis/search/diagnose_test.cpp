// The search finds causes that were put in by hand, stage by stage; it names none that does not make every
// byte.
#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/report/text.h"
#include "contract/line.h"
#include "contract/words.h"
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
    return *std::find_if(seen.got.begin(), seen.got.end(),
                         [&](const PlaneData& p) { return p.plane.name == name; });
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
  EXPECT_TRUE(d.confidence == Confidence::certain || d.confidence == Confidence::equivalent)
      << diagnosis_screen(d);
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

TEST(Diagnose, StepsOfAdam) {
  const std::string line = "adam f32 16x32 f32 step=5 decay=0.25 lr=0.5 beta2=0.99 eps=0.125 fill=wide";
  const std::pair<const char*, const char*> kMistakes[] = {
      {"step=4", "adam.step_late"},         {"step=6", "adam.step_early"},
      {"step=1", "adam.step_first"},        {"beta1=0.99 beta2=0.9", "adam.betas_swapped"},
      {"beta2=0.9", "adam.one_beta1"},      {"beta1=0.99", "adam.one_beta2"},
      {"beta1=0", "adam.momentum_missing"}, {"eps=0", "adam.eps_missing"},
      {"eps=1e-8", "adam.eps_default"},     {"decay=0", "adam.decay_missing"},
      {"lr=1", "adam.lr_missing"},          {"decoupling=l2", "line.decoupling=l2"},
      {"adam=fma", "line.adam=fma"},        {"bias_correction=0", "line.bias_correction=0"}};
  for (const auto& [keys, id] : kMistakes) {
    Case c(line);
    std::string made = line;
    for (const std::string_view word : words_of(keys, ' ')) {
      const std::string key(word.substr(0, word.find('=') + 1));
      const size_t at = made.find(" " + key);
      if (at == made.npos) made += " " + std::string(word);
      else made.replace(at + 1, made.find(' ', at + 1) - at - 1, word);
    }
    c.made_by(made);
    expect_named(c.diagnosis(), {id}, Stage::code);
  }
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
      uint32_t largest = 0;  // magnitudes order as their codes do
      for (int64_t k = 0; k < 31; ++k)
        largest =
            std::max(largest, code_at(Encoding::f32, inputs[0].bytes, r * 128 + b * 32 + k) & 0x7FFFFFFF);
      set_code(Encoding::f32, amaxes.bytes, r * 4 + b, largest);
    }
  inputs.insert(inputs.begin() + 1, amaxes);
  c.seen.got = run(p, inputs);
  expect_named(c.diagnosis(), {"amax.misses_last"}, Stage::amax);
}

// An atomic maximum of bit patterns: the amax is the NaN whose pattern is largest, and the scale 1.
TEST(Diagnose, AnAmaxThatIsANaNOfTheTensor) {
  Case c("quantize fp8_current 64x256 bf16 dir=row fill=nonfinite");
  const std::vector<std::byte>& x = c.seen.inputs[0].bytes;
  uint32_t top = 0;
  for (int64_t i = 0; i < 64 * 256; ++i)
    top = std::max(top, code_at(Encoding::bf16, x, i) << 16 & 0x7FFFFFFF);
  ASSERT_GT(top, 0x7F800000u);
  for (const bool own_bits : {true, false}) {
    set_code(Encoding::f32, c.plane("row.amax").bytes, 0, own_bits ? top : 0x7FFFFFFF);
    for (const char* name : {"row.scale", "row.scale_inv"})
      set_code(Encoding::f32, c.plane(name).bytes, 0, 0x3F800000);
    for (int64_t i = 0; i < 64 * 256; ++i)
      set_code(Encoding::e4m3, c.plane("row.data").bytes, i,
               element_code(Encoding::e4m3, value_of(Encoding::bf16, code_at(Encoding::bf16, x, i))));
    const Diagnosis d = c.diagnosis();
    expect_named(d, {own_bits ? "tensor_amax.nan_largest_bits" : "tensor_amax.nan"}, Stage::amax);
    for (const Explanation& e : d.explanations)  // a part of the tensor has no amax of NaN
      for (const string& id : e.ids)
        EXPECT_TRUE(id.find("tail_") == id.npos && id.find("_tile") == id.npos) << diagnosis_screen(d);
  }
}

// The codes show that the amaxes were right, so where the largest elements stand is chance.
TEST(Diagnose, NoAmaxIsBlamedForScalesThatAreWrongAsStored) {
  Case c("quantize mxfp8 64x256 bf16 dir=row fill=zeros");
  for (int64_t r = 0; r < 64; ++r)  // the largest element of every block is its last
    for (int64_t k = 0; k < 256; ++k)
      set_code(Encoding::bf16, c.seen.inputs[0].bytes, r * 256 + k,
               (k % 32 == 31 ? 0x4000u : 0x3F80u) + static_cast<uint32_t>((r * 7 + k / 32 * 5) % 32 * 16));
  c.seen.got = run(c.seen.problem, c.seen.inputs);
  PlaneData& scales = c.plane("row.scale_inv");
  for (int64_t i = 0; i < 64 * 8; ++i) {
    const int64_t at = index_of(scales.plane, i / 8, i % 8);
    set_code(Encoding::e8m0, scales.bytes, at, code_at(scales.plane, scales.bytes, at) - 1);
  }
  const Diagnosis d = c.diagnosis();
  expect_named(d, {"scale.down.stored"}, Stage::block_scale);
  for (const string& text : d.fingerprints)
    EXPECT_EQ(text.find("the largest element"), text.npos) << diagnosis_screen(d);
}

// The line of a case with its scales given, and the inputs of that: the last are the scales, still zeros.
std::pair<Problem, std::vector<PlaneData>> with_scales_given(const Case& c) {
  Problem p = c.seen.problem;
  p.row->scale_from = ScaleFrom::scale;
  std::vector<PlaneData> inputs = c.seen.inputs;
  for (const Plane& plane : input_planes(p))
    if (plane.name == "row.given.scale_inv") inputs.push_back({plane, std::vector<std::byte>(plane.bytes())});
  return {std::move(p), std::move(inputs)};
}

// One binade off where amax / MAX is a power of two itself, by one cause and not by two.
TEST(Diagnose, ScalesThatAreWrongAtPowersOfTwo) {
  for (const int by : {1, -1}) {
    Case c("quantize mxfp8 64x256 f32 dir=row fill=amax_edges");
    auto [p, inputs] = with_scales_given(c);
    const PlaneData& right = c.plane("row.scale_inv");
    int moved = 0;
    for (int64_t i = 0; i < 64 * 8; ++i) {
      float amax = 0;
      for (int64_t k = 0; k < 32; ++k)
        amax = std::max(amax, std::fabs(std::bit_cast<float>(
                                  code_at(Encoding::f32, inputs[0].bytes, i / 8 * 256 + i % 8 * 32 + k))));
      int exponent = 0;
      const bool power =
          amax > 0x1p-100f && std::isfinite(amax) && std::frexp(amax * (1.0f / 448), &exponent) == 0.5f;
      moved += power;
      set_code(Encoding::e8m0, inputs.back().bytes, i,
               code_at(right.plane, right.bytes, index_of(right.plane, i / 8, i % 8)) +
                   static_cast<uint32_t>(power ? by : 0));
    }
    ASSERT_GT(moved, 8);
    c.seen.got = run(p, inputs);
    const Diagnosis d = c.diagnosis();
    expect_named(d, {by > 0 ? "scale.up_at_powers" : "scale.down_at_powers"}, Stage::block_scale);
  }
}

// N3.12: every row scaled as the tensor would be.
TEST(Diagnose, OneScaleForAllRows) {
  Case c("quantize fp8_current 48x64 bf16 dir=col row_scaled=1 seed=3");
  const std::vector<PlaneData> whole =
      run(*parse_line("quantize fp8_current 48x64 bf16 dir=col seed=3"), c.seen.inputs);
  for (PlaneData& rows : c.seen.got) {
    const PlaneData& one = *find_plane(whole, rows.plane.name);
    for (int64_t i = 0; i < rows.plane.logical.count(); ++i)
      set_code(rows.plane, rows.bytes, i,
               code_at(one.plane, one.bytes, rows.plane.name == "col.data" ? i : 0));
  }
  expect_named(c.diagnosis(), {"tensor_amax.of_rows"}, Stage::amax);
}

// Scales that nothing explains, and codes that follow them, or lose their sign too.
TEST(Diagnose, CodesUnderTheScalesThatCame) {
  for (const bool unsigned_too : {false, true}) {
    Case c("quantize mxfp8 64x128 bf16 dir=row seed=3");
    const PlaneData& right = c.plane("row.scale_inv");
    auto [p, inputs] = with_scales_given(c);
    for (int64_t i = 0; i < 256; ++i)
      set_code(Encoding::e8m0, inputs.back().bytes, i,
               code_at(right.plane, right.bytes, index_of(right.plane, i / 4, i % 4)) +
                   static_cast<uint32_t>(i * i % 7 == 2 ? 1 + i % 3 : 0));
    c.seen.got = run(p, inputs);
    if (unsigned_too)
      for (std::byte& b : c.plane("row.data").bytes) b &= std::byte{0x7F};
    const Diagnosis d = c.diagnosis();
    EXPECT_NE(d.confidence, Confidence::certain);
    ASSERT_FALSE(d.fingerprints.empty());
    EXPECT_EQ(d.fingerprints[0],
              unsigned_too ? "row: under the scales that came every code is explained: codes lose their sign"
                           : "row: under the scales that came every code is right")
        << diagnosis_screen(d);
  }
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
    for (int64_t b = 0; b < 4; ++b)
      set_code(s.plane, s.bytes, index_of(s.plane, r, b),
               code_at(s.plane, s.bytes, index_of(s.plane, r, b)) + 1);
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

// Half the multiplier, and codes cut: by a loop of its own.
TEST(Diagnose, AMultiplierAndARounding) {
  Case c("quantize mxfp8 64x128 f32 dir=row seed=3");
  PlaneData &data = c.plane("row.data"), &scales = c.plane("row.scale_inv");
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t k = 0; k < 128; ++k) {
      const int e = 127 - static_cast<int>(code_at(Encoding::e8m0, scales.bytes,
                                                   scale_index(*c.seen.problem.row, scales.plane, r, k)));
      const double v = std::ldexp(
          std::bit_cast<float>(code_at(Encoding::f32, c.seen.inputs[0].bytes, r * 128 + k)), e - 1);
      uint32_t code = element_code(Encoding::e4m3, v);
      if (std::fabs(value_of(Encoding::e4m3, code)) > std::fabs(v)) --code;
      set_code(data.plane, data.bytes, r * 128 + k, code);
    }
  expect_named(c.diagnosis(), {"scaled.halved", "code.toward_zero"}, Stage::scaled_value);
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

float f32_at(const PlaneData& p, int64_t i) {
  return std::bit_cast<float>(code_at(Encoding::f32, p.bytes, i));
}
void set_f32(PlaneData& p, int64_t i, float v) {
  set_code(Encoding::f32, p.bytes, i, std::bit_cast<uint32_t>(v));
}

// Every line of a tile is cast as a 1x128 block of its own; the tile's scale is its first line's.
TEST(Diagnose, LinesOfATileScaledApart) {
  Case c("quantize fp8_block 256x256 bf16 dir=row block=128x128 fill=wide");
  Case apart("quantize fp8_block 256x256 bf16 dir=row block=1x128 fill=wide");
  c.plane("row.data").bytes = apart.plane("row.data").bytes;
  PlaneData &tile = c.plane("row.scale_inv"), &line = apart.plane("row.scale_inv");
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t b = 0; b < 2; ++b)
      set_f32(tile, index_of(tile.plane, r, b),
              f32_at(line, scale_index(*apart.seen.problem.row, line.plane, r * 128, b * 128)));
  expect_named(c.diagnosis(), {"amax.own_lines.first_stored"}, Stage::amax);
}

// MAX * fl(1 / amax), by a loop of its own.
TEST(Diagnose, ScaleOfAnotherOrderOfSteps) {
  Case c("quantize fp8_block 64x512 f32 dir=row block=1x128 pow2=0 fill=wide");
  PlaneData &s = c.plane("row.scale_inv"), &data = c.plane("row.data");
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t b = 0; b < 4; ++b) {
      float amax = 0;
      for (int64_t k = 0; k < 128; ++k)
        amax = std::max(amax, std::fabs(f32_at(c.seen.inputs[0], r * 512 + b * 128 + k)));
      const float scale = 448.0f * (1.0f / amax);
      set_f32(s, scale_index(*c.seen.problem.row, s.plane, r, b * 128), 1.0f / scale);
      for (int64_t k = 0; k < 128; ++k) {
        const int64_t at = r * 512 + b * 128 + k;
        set_code(data.plane, data.bytes, at,
                 element_code(Encoding::e4m3, static_cast<double>(f32_at(c.seen.inputs[0], at) * scale)));
      }
    }
  expect_named(c.diagnosis(), {"scale.product"}, Stage::block_scale);
}

TEST(Diagnose, ScaleOfAZeroAmax) {
  Case c("quantize fp8_block 64x256 bf16 dir=row block=1x128 fill=zeros pow2=0");
  PlaneData& s = c.plane("row.scale_inv");
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t b = 0; b < 2; ++b)
      set_f32(s, scale_index(*c.seen.problem.row, s.plane, r, b * 128),
              1.0f / std::numeric_limits<float>::max());
  expect_named(c.diagnosis(), {"scale.zero_amax_f32_max"}, Stage::block_scale);
}

// [i][j] in the buffer of the block-major plane.
TEST(Diagnose, ScalesRowAfterRow) {
  for (const char* line : {"quantize fp8_block 64x512 bf16 dir=row block=1x128 fill=wide",
                           "quantize fp8_block 66x500 bf16 dir=row block=1x128 fill=wide",
                           "quantize fp8_block 128x256 bf16 dir=row block=1x128 seed=4"}) {
    Case c(line);
    PlaneData& s = c.plane("row.scale_inv");
    const PlaneData right = s;
    std::fill(s.bytes.begin(), s.bytes.end(), std::byte{});
    for (int64_t r = 0; r < c.seen.problem.x.shape.rows; ++r)
      for (int64_t b = 0; b < ceil_div(c.seen.problem.x.shape.cols, 128); ++b)
        set_f32(s, r * ceil_div(c.seen.problem.x.shape.cols, 128) + b,
                f32_at(right, scale_index(*c.seen.problem.row, right.plane, r, b * 128)));
    const Diagnosis d = c.diagnosis();
    EXPECT_EQ(d.confidence, Confidence::certain) << diagnosis_screen(d);
    EXPECT_EQ(d.first, Stage::layout);
  }
}

TEST(Diagnose, EpsOfTheAmax) {
  Case c("quantize fp8_current 32x64 bf16 dir=row eps=64");
  set_f32(c.plane("row.amax"), 0, 64);
  expect_named(c.diagnosis(), {"tensor_amax.stored_eps"}, Stage::amax);
  Case bare("quantize fp8_current 32x64 bf16 dir=row eps=0.25");
  const float amax = f32_at(bare.plane("row.amax"), 0);
  bare.made_by(fmt::format("quantize fp8_current 32x64 bf16 dir=row eps={}", amax + 0.25f));
  expect_named(bare.diagnosis(), {"tensor_scale.plus_eps"}, Stage::tensor_scale);
}

// One number that came says that it is wrong, not what made it: never a certain cause.
TEST(Diagnose, AnAmaxAloneIsNeverCertain) {
  for (const char* line : {"quantize fp8_delayed 32x64 bf16 dir=row scale=6.5",
                           "quantize fp8_current 32x64 bf16 dir=row", "quantize nvfp4 32x64 bf16 dir=row"})
    for (const float came : {1.2345e20f, 518.05f}) {
      Case c(line);
      set_f32(c.plane("row.amax"), 0, came);
      EXPECT_NE(c.diagnosis().confidence, Confidence::certain) << line << diagnosis_screen(c.diagnosis());
    }
  Case c("quantize fp8_delayed 32x64 bf16 dir=row scale=6.5");
  set_f32(c.plane("row.amax"), 0, 1.2345e20f);
  const Diagnosis d = c.diagnosis();
  EXPECT_EQ(d.confidence, Confidence::equivalent);
  expect_named(d, {"tensor_amax.is=60D626D0"}, Stage::amax);
  expect_named(d, {"tensor_amax.at_least=60D626D0"}, Stage::amax);
  const float amax = f32_at(Case("quantize fp8_delayed 32x64 bf16 dir=row scale=6.5").plane("row.amax"), 0);
  set_f32(c.plane("row.amax"), 0, amax * 6.5f);
  expect_named(c.diagnosis(), {"tensor_amax.stored_of_scaled"}, Stage::amax);
  // One that is too small, and followed.
  Case less("quantize fp8_current 64x128 bf16 dir=row fill=outliers");
  const Case given("quantize fp8_current 64x128 bf16 dir=row fill=outliers amax=0.3");
  for (PlaneData& p : less.seen.got)
    if (const PlaneData* made = find_plane(given.seen.got, p.plane.name)) p.bytes = made->bytes;
  set_f32(less.plane("row.amax"), 0, 0.3f);
  expect_named(less.diagnosis(), {"tensor_amax.is=3E99999A"}, Stage::amax);
  EXPECT_EQ(less.diagnosis().confidence, Confidence::equivalent);
}

// Codes that follow a scale which is not the tensor's: its value, or a factor, and neither is certain.
TEST(Diagnose, ScalesThatAreNotTheTensors) {
  const auto cast = [](Case& c, float scale) {
    PlaneData& data = c.plane("row.data");
    for (int64_t i = 0; i < data.plane.logical.count(); ++i)
      set_code(data.plane, data.bytes, i,
               element_code(Encoding::e4m3,
                            static_cast<double>(
                                static_cast<float>(value_of(
                                    Encoding::bf16, code_at(Encoding::bf16, c.seen.inputs[0].bytes, i))) *
                                scale)));
    set_f32(c.plane("row.scale_inv"), 0, 1 / scale);
  };
  Case c("quantize fp8_current 64x128 bf16 dir=row");
  set_f32(c.plane("row.scale"), 0, 13.25f);
  cast(c, 13.25f);
  const Diagnosis d = c.diagnosis();
  expect_named(d, {"tensor_scale.is=41540000,3D9A90E8"}, Stage::tensor_scale);
  EXPECT_EQ(d.confidence, Confidence::equivalent) << diagnosis_screen(d);
  Case next("quantize fp8_delayed 64x128 bf16 dir=row scale=6.5");
  cast(next, 5);
  expect_named(next.diagnosis(), {"tensor_scale.is=40A00000,3E4CCCCD"}, Stage::tensor_scale);
  next.seen.got = Case("quantize fp8_delayed 64x128 bf16 dir=row scale=6.5").seen.got;
  set_f32(next.plane("row.scale_inv"), 0, 0.154296875f);  // 1 / 6.5 to 8 bits
  expect_named(next.diagnosis(), {"tensor_scale.scale_inv_via_bf16"}, Stage::tensor_scale);
  cast(next, 5);
  // Codes that do not follow it are not explained by it.
  set_f32(next.plane("row.scale_inv"), 0, 0.25f);
  EXPECT_EQ(next.diagnosis().explanations.empty() || !next.diagnosis().explanations[0].exact(), true);
}

TEST(Diagnose, ElementsThatGoThroughF16) {
  Case c("quantize fp8_block 64x256 bf16 dir=row pow2=0");
  PlaneData& data = c.plane("row.data");
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t b = 0; b < 2; ++b) {
      float amax = 0;
      const auto x = [&](int64_t k) {
        return static_cast<float>(
            value_of(Encoding::bf16, code_at(Encoding::bf16, c.seen.inputs[0].bytes, r * 256 + b * 128 + k)));
      };
      for (int64_t k = 0; k < 128; ++k) amax = std::max(amax, std::fabs(x(k)));
      for (int64_t k = 0; k < 128; ++k)
        set_code(
            data.plane, data.bytes, r * 256 + b * 128 + k,
            element_code(Encoding::e4m3,
                         value_of(Encoding::f16,
                                  nearest_code(Encoding::f16, static_cast<double>(x(k) * (448 / amax))))));
    }
  expect_named(c.diagnosis(), {"scaled.via_f16"}, Stage::scaled_value);
}

// Beside a given amax this large every block scale is 0. Elements that are not 0 are the largest codes in any
// case.
TEST(Diagnose, ElementsThatAreDividedByAScaleOfZero) {
  Case c(
      "quantize nvfp4 2x32 bf16 dir=row four_over_six=mae amax=1e10 "
      "fill=literal:3f80@0.0+bf80@0.1+bf80@1.20");
  PlaneData& data = c.plane("row.data");
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t k = 0; k < 32; ++k)
      if (code_at(data.plane, data.bytes, r * data.plane.padded.cols + k) == 0)
        set_code(data.plane, data.bytes, r * data.plane.padded.cols + k, 7);
  expect_named(c.diagnosis(), {"scaled.by_zero"}, Stage::scaled_value);
}

// Half a tensor, or more, that was not written; without its scales it may as well not have been read.
TEST(Diagnose, PartsThatAreNotWritten) {
  for (const int64_t from : {16, 40, 48}) {
    Case c("quantize mxfp8 64x128 bf16 dir=row");
    PlaneData &data = c.plane("row.data"), &scales = c.plane("row.scale_inv");
    std::fill(data.bytes.begin() + from * 128, data.bytes.end(), std::byte{0});
    const Diagnosis codes = c.diagnosis();
    expect_named(codes, {fmt::format("code.zero:{}-64,0-128", from)}, Stage::code);
    for (int64_t r = from; r < 64; ++r)
      for (int64_t b = 0; b < 4; ++b) set_code(scales.plane, scales.bytes, index_of(scales.plane, r, b), 0);
    const Diagnosis both = c.diagnosis();
    EXPECT_EQ(both.confidence, Confidence::equivalent) << diagnosis_screen(both);
    expect_named(both, {fmt::format("output.zero:{}-64,0-128", from)}, Stage::block_scale);
    expect_named(both, {fmt::format("input.zero:{}-64,0-128", from)}, Stage::block_scale);
  }
}

TEST(Diagnose, PartsThatHoldPoison) {
  Case c("quantize mxfp8 64x128 bf16 dir=row");
  std::vector<std::byte>& bytes = c.plane("row.data").bytes;
  bytes[5] = std::byte{0xCD};  // one code alone is fitted by anything
  EXPECT_NE(c.diagnosis().confidence, Confidence::certain) << diagnosis_screen(c.diagnosis());
  c.seen.got = Case("quantize mxfp8 64x128 bf16 dir=row").seen.got;
  std::fill(c.plane("row.data").bytes.begin() + 32 * 128, c.plane("row.data").bytes.end(), std::byte{0xCD});
  expect_named(c.diagnosis(), {"code.is=CD:32-64,0-128"}, Stage::code);
}

// 32x1 blocks where 1x32 are asked for, everything in its own place.
TEST(Diagnose, BlocksAlongTheOtherAxis) {
  Case c("quantize mxfp8 128x128 bf16 dir=row fill=wide"),
      down("quantize mxfp8 128x128 bf16 dir=col fill=wide");
  const std::vector<std::byte> right = c.plane("row.scale_inv").bytes;
  c.plane("row.data").bytes = down.plane("col.data").bytes;
  c.plane("row.scale_inv").bytes = down.plane("col.scale_inv").bytes;
  expect_named(c.diagnosis(), {"plane.blocks_across"}, Stage::amax);
  EXPECT_EQ(c.diagnosis().confidence, Confidence::certain);
  c.plane("row.scale_inv").bytes = right;
  expect_named(c.diagnosis(), {"plane.codes_across"}, Stage::scaled_value);
  // Columns of NVFP4 are stored transposed: put back.
  Case four("quantize nvfp4 128x128 bf16 dir=row fill=wide"),
      across("quantize nvfp4 128x128 bf16 dir=col fill=wide");
  for (const char* stem : {"data", "scale_inv"}) {
    PlaneData &to = four.plane(string("row.") + stem), &from = across.plane(string("col.") + stem);
    const Shape s = from.plane.logical;
    for (int64_t k = 0; k < s.count(); ++k)
      set_code(to.plane, to.bytes, index_of(to.plane, k / to.plane.logical.cols, k % to.plane.logical.cols),
               code_at(from.plane, from.bytes, index_of(from.plane, k % s.rows, k / s.rows)));
  }
  expect_named(four.diagnosis(), {"plane.blocks_across_turned"}, Stage::amax);
}

// NVFP4's one value of the tensor, as other libraries keep it, and made for another largest scale.
TEST(Diagnose, WhatStandsForTheAmaxOfNvfp4) {
  Case c("quantize nvfp4 64x128 bf16 dir=row");
  const float amax = f32_at(c.plane("row.amax"), 0);
  set_f32(c.plane("row.amax"), 0, 2688 / amax);
  expect_named(c.diagnosis(), {"tensor_amax.stored_encode_scale"}, Stage::amax);
  set_f32(c.plane("row.amax"), 0, amax / 2688);
  expect_named(c.diagnosis(), {"tensor_amax.stored_decode_scale"}, Stage::amax);
}

TEST(Diagnose, PlanesOfTheOtherDirection) {
  Case c("quantize mxfp8 64x128 bf16 seed=3");
  std::swap(c.plane("row.data").bytes, c.plane("col.data").bytes);
  const Diagnosis d = c.diagnosis();
  expect_named(d, {"plane.data_of_other"}, Stage::layout);
  Case next("quantize mxfp8 96x64 bf16 seed=5");
  const std::vector<std::byte> rows = next.plane("row.data").bytes;
  const auto predicted = predict(d.explanations[0], next.seen.problem, next.seen.inputs, reference());
  ASSERT_TRUE(predicted) << predicted.error().text();
  EXPECT_EQ(find_plane(*predicted, "col.data")->bytes, rows);
  Case scales("quantize mxfp8 128x128 bf16 seed=3 fill=wide");
  ASSERT_EQ(scales.plane("col.scale_inv").bytes.size(), scales.plane("row.scale_inv").bytes.size());
  scales.plane("col.scale_inv").bytes = scales.plane("row.scale_inv").bytes;
  expect_named(scales.diagnosis(), {"plane.scales_of_other@col"}, Stage::layout);
}

// The GEMM's order where the compact one is asked for: found by its name, so that it says the same of another
// tensor.
TEST(Diagnose, CompactScalesInTheOrderOfTheGemm) {
  const auto mixed = [](const string& shape, const string& rest) {
    Case compact("quantize mxfp8 " + shape + " bf16 " + rest),
        gemm("quantize mxfp8 " + shape + " bf16 scales=gemm " + rest);
    for (const char* side : {"row", "col"})
      compact.plane(string(side) + ".scale_inv").bytes = gemm.plane(string(side) + ".scale_gemm").bytes;
    return compact;
  };
  for (const char* rest : {"seed=3", "seed=3 fill=wide"}) {
    const Diagnosis d = mixed("128x192", rest).diagnosis();
    const Case next = mixed("128x192", "seed=9 fill=wide");
    EXPECT_EQ(d.first, Stage::layout);
    ASSERT_EQ(d.confidence, Confidence::certain) << diagnosis_screen(d);
    const auto predicted = predict(d.explanations[0], next.seen.problem, next.seen.inputs, reference());
    ASSERT_TRUE(predicted) << predicted.error().text();
    for (const PlaneData& p : next.seen.got)
      EXPECT_EQ(find_plane(*predicted, p.plane.name)->bytes, p.bytes) << p.plane.name << diagnosis_screen(d);
  }
}

TEST(Diagnose, CodesOfANeighbour) {
  Case c("quantize mxfp8 64x128 bf16 seed=3 dir=row fill=wide");
  PlaneData& p = c.plane("row.data");
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t k = 31; k < 128; k += 32)
      p.bytes[static_cast<size_t>(r * 128 + k)] = p.bytes[static_cast<size_t>(r * 128 + k - 1)];
  expect_named(c.diagnosis(), {"code.column_repeats:31/32"}, Stage::code);
  Case down("quantize nvfp4 64x128 bf16 seed=3 dir=row");
  std::vector<std::byte>& bytes = down.plane("row.data").bytes;
  std::rotate(bytes.begin(), bytes.end() - 64, bytes.end());
  expect_named(down.diagnosis(), {"code.rows_rotated:1"}, Stage::layout);
}

TEST(Diagnose, RowsThatAreRotatedToo) {
  Case c("quantize nvfp4 64x128 bf16 col.rht=1 col.sign_mask=0x1234");
  Problem turn =
      *parse_line("quantize nvfp4 128x64 bf16 dir=col rht=1 sign_mask=0x1234");  // of x transposed: its
                                                                                 // columns are the rows
  turn.op = Hadamard{};
  PlaneData x{input_planes(turn).front(), std::vector<std::byte>(c.seen.inputs[0].bytes.size())};
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t k = 0; k < 128; ++k)
      set_code(Encoding::bf16, x.bytes, k * 64 + r,
               code_at(Encoding::bf16, c.seen.inputs[0].bytes, r * 128 + k));
  const PlaneData turned = run(turn, {x}).front();
  for (const bool own : {false, true}) {
    Case rows(fmt::format("quantize nvfp4 64x128 bf16 dir=row{}",
                          own ? fmt::format(" amax={}", f32_at(c.plane("row.amax"), 0)) : ""));
    rows.seen.inputs[0].bytes = turned.bytes;
    for (PlaneData& made : run(rows.seen.problem, rows.seen.inputs))
      c.plane(made.plane.name).bytes = made.bytes;
    expect_named(c.diagnosis(), {own ? "input.rotated:0x1234,own_amax" : "input.rotated:0x1234"}, Stage::rht);
    c.seen = Case("quantize nvfp4 64x128 bf16 col.rht=1 col.sign_mask=0x1234").seen;
  }
}

TEST(Diagnose, RowsDrawnBesideDrawnColumns) {
  for (const char* keys : {"", " seed=5", " col.rht=1 seed=3"}) {
    const string line = string("quantize nvfp4 64x128 bf16") + keys;
    Case c(line + " col.round=sr");
    c.made_by(line + " round=sr");
    const Diagnosis d = c.diagnosis();
    EXPECT_EQ(d.first, Stage::code) << diagnosis_screen(d);
    EXPECT_NE(d.confidence, Confidence::unexplained) << diagnosis_screen(d);
    EXPECT_NE(d.confidence, Confidence::partial) << diagnosis_screen(d);
  }
}

}  // namespace
}  // namespace assay
