// Diagnoses made by hand, one for each Confidence and two extremes: for the tests of the page and of the
// annotations, and for the pages that tests/browser renders.
#pragma once
#include <limits>
#include <string>

#include "compare/diagnosis/diagnosis.h"

namespace assay::samples {

inline constexpr auto kF32 = Encoding::f32;

// E8M0 scales rounded down, in rows: one explanation is exact.
inline Diagnosis certain() {
  Diagnosis d;
  d.line = "quantize mxfp8 64x256 bf16 dir=both seed=7";
  d.subject = "plugin:mine";
  d.command = "assay explain 'quantize mxfp8 64x256 bf16 dir=both seed=7' --plugin ./libmine.so";
  d.argument = "--plugin ./libmine.so";
  d.confidence = Confidence::certain;
  d.deterministic = true;
  d.first = Stage::block_scale;
  d.direction = Direction::row;
  for (const Direction way : {Direction::row, Direction::col})
    for (const Stage s : kStages) {
      StageVerdict v{s, way, StageOutcome::unseen, 0, 0, ""};
      if (s == Stage::input) v = {s, way, StageOutcome::equal, 0, 16384, ""};
      if (s == Stage::amax) v.note = "no plane shows it";
      if (s == Stage::block_scale)
        v = {s,
             way,
             way == Direction::row ? StageOutcome::differs : StageOutcome::equal,
             way == Direction::row ? 509 : 0,
             512,
             ""};
      if (s == Stage::code)
        v = {s,
             way,
             way == Direction::row ? StageOutcome::follows : StageOutcome::equal,
             0,
             way == Direction::row ? 96 : 16384,
             way == Direction::row ? "in the 3 blocks whose scale agrees" : ""};
      if (s == Stage::packing || s == Stage::layout) v = {s, way, StageOutcome::equal, 0, 16384, ""};
      d.stages.push_back(v);
    }
  d.planes = {
      {"row.scale_inv",
       "e8m0",
       509,
       512,
       {{"-1", 509}},
       {{"2^-9", 12}, {"2^-8", 301}, {"2^-7", 188}, {"2^-6", 8}},
       {}},
      {"row.data",
       "e4m3",
       16248,
       16384,
       {{"1", 18}, {"2..3", 240}, {"4..7", 1704}, {"8", 14250}, {"9..15", 36}},
       {{"0", 12}, {"2^-3 and less", 733}, {"2^-2..2^1", 4411}, {"2^2..2^5", 9003}, {"2^6..2^8", 2089}},
       {{"0", 12, 14}, {"under 1/8", 1930, 1951}, {"1/8..1/4", 4010, 4040}, {"1/4..1/2", 10296, 10379}}},
      {"col.scale_inv", "e8m0", 0, 512, {}, {}, {}},
      {"col.data", "e4m3", 0, 16384, {}, {}, {}}};
  HeatMap h{"row.scale_inv", 8, 32, 8, 8, {}, {}};
  for (int i = 0; i < 64; ++i) {
    h.of.push_back(8);
    h.differ.push_back(i == 12 ? 7 : i == 40 ? 6 : i == 63 ? 4 : i == 50 ? 0 : 8);
  }
  d.heat = h;
  d.fingerprints = {"scale codes differ by exactly -1",
                    "the magnitude of got is below the wanted one, everywhere that they differ"};
  d.explanations = {{{"numerics.mx_scale=floor"},
                     "E8M0 scale from the floored exponent",
                     Stage::block_scale,
                     "quantize mxfp8 64x256 bf16 dir=both seed=7 row.mx_scale=floor",
                     "N17.6",
                     33792,
                     33792,
                     16757,
                     16757},
                    {{"amax.misses_last"},
                     "the amax of a block misses its last element",
                     Stage::amax,
                     "",
                     "N5.1",
                     17230,
                     33792,
                     195,
                     16757},
                    {{"codes.rz"},
                     "codes rounded toward zero",
                     Stage::code,
                     "quantize mxfp8 64x256 bf16 dir=both seed=7 row.round=rz",
                     "N3.2",
                     17104,
                     33792,
                     69,
                     16757}};
  d.invisible = {"input.nan_as_zero",  "codes.nan_for_saturation", "codes.ftz",
                 "plane.tail_dropped", "amax.no_abs_of_nan",       "rht.missing",
                 "rng.offset+4"};
  d.trace.direction = Direction::row;
  d.trace.steps = {
      {"N1.3", "x as binary32", std::pair{kF32, 0x3FA20000u}, std::pair{kF32, 0x3FA20000u}},
      {"N4.1", "amax of the block", std::pair{kF32, 0x40520000u}, std::pair{kF32, 0x40520000u}},
      {"N5.3", "scale, a power of two", std::pair{Encoding::e8m0, 120u}, std::pair{Encoding::e8m0, 119u}},
      {"N5.4", "multiplier", std::pair{kF32, 0x43000000u}, {}},
      {"N7.1", "scaled value", std::pair{kF32, 0x43220000u}, std::pair{kF32, 0x43A20000u}}};
  d.trace.outputs = {
      {"", "row.scale_inv row 0, columns 0..31", std::pair{Encoding::e8m0, 120u},
       std::pair{Encoding::e8m0, 119u}},
      {"", "row.data element (0, 0)", std::pair{Encoding::e4m3, 0x72u}, std::pair{Encoding::e4m3, 0x7Au}}};
  d.reproducer = "quantize mxfp8 1x32 bf16 fill=literal:3fa2";
  d.reproducer_files = {"why/reproducer.safetensors", "why/reproducer.cpp"};
  d.elements = 16384;
  d.hypotheses = 84;
  d.evaluations = 131;
  d.seconds = 0.38;
  return d;
}

// The same bytes, with two rules that this input cannot tell apart.
inline Diagnosis equivalent() {
  Diagnosis d = certain();
  d.confidence = Confidence::equivalent;
  Explanation other = d.explanations[0];
  other.ids = {"numerics.mx_scale=even", "codes.rz"};
  other.title = "E8M0 scale from the exponent rounded to even; codes rounded toward zero";
  d.explanations.insert(d.explanations.begin() + 1, other);
  d.separating = {"quantize mxfp8 64x256 bf16 dir=both fill=amax_edges",
                  "quantize mxfp8 32x64 f32 fill=ties"};
  return d;
}

// From a pack: nothing can be run again, no explanation is exact.
inline Diagnosis partial() {
  Diagnosis d = certain();
  d.subject = "pack dumps/step12.safetensors:decoder.layers.3.fc1.weight";
  d.command = "assay explain dumps/step12.safetensors --case decoder.layers.3.fc1.weight";
  d.argument = "";
  d.deterministic.reset();
  d.confidence = Confidence::partial;
  d.explanations[0].agree = 31000;
  d.explanations[0].repaired = 13965;
  d.where = {{"column % 32 == 31", 498, 509, 16, 512},
             {"the last 128 rows", 300, 509, 128, 512},
             {"lane 7 of 32", 21, 509, 16, 512}};
  d.reproducer.clear();
  d.reproducer_files.clear();
  return d;
}

inline Diagnosis unexplained() {
  Diagnosis d = partial();
  d.confidence = Confidence::unexplained;
  d.explanations.clear();
  return d;
}

inline Diagnosis random() {
  Diagnosis d;
  d.line = certain().line;
  d.subject = "gpu";
  d.command = "assay explain '" + d.line + "' --subject gpu";
  d.confidence = Confidence::random;
  d.deterministic = false;
  d.elements = 16384;
  return d;
}

inline Diagnosis equal() {
  Diagnosis d = certain();
  d.confidence = Confidence::equal;
  d.first.reset();
  d.direction.reset();
  d.heat.reset();
  d.fingerprints.clear();
  d.explanations.clear();
  d.reproducer.clear();
  d.reproducer_files.clear();
  d.trace = {};
  for (StageVerdict& s : d.stages)
    if (s.outcome != StageOutcome::unseen) s = {s.stage, s.direction, StageOutcome::equal, 0, s.of, ""};
  for (PlaneSummary& p : d.planes) p = {p.plane, p.encoding, 0, p.of, {}, {}, {}};
  return d;
}

// 64 x 64 tiles, the most counts that an int64 holds, and words without a place to break.
inline Diagnosis large() {
  Diagnosis d = partial();
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const std::string word(300, 'w');
  d.line = "quantize nvfp4 65536x65536 bf16 fill=literal:" + std::string(512, 'f');
  d.subject = "pack " + word;
  d.planes[0].of = d.planes[0].differ = huge;
  d.planes[0].exponent = {{word, huge}, {"1", 1}};
  d.explanations[0].of = huge;
  d.explanations[0].agree = huge - 1;
  d.explanations[0].ids = {word, word};
  d.where[0].what = word;
  HeatMap h{"row.data", 1024, 1024, 64, 64, {}, {}};
  for (int i = 0; i < 64 * 64; ++i) {
    h.of.push_back(1 << 20);
    const int r = i / 64, c = i % 64;
    h.differ.push_back((r * r + c * c) % 97 < 40 ? 0 : int64_t{1} << ((r + c) % 21));
  }
  d.heat = h;
  d.elements = huge;
  return d;
}

// Every string is an attack on the page.
inline Diagnosis hostile() {
  const std::string bad =
      "</code></title></style><script>alert(1)</script><img src=http://example.invalid/x "
      "onerror=alert(2)>'\"&\x01\xFF\xE2\x80\xAE]]>\n::error::no";
  Diagnosis d = certain();
  for (std::string* s : {&d.line, &d.subject, &d.command, &d.argument, &d.reproducer}) *s = bad;
  for (StageVerdict& s : d.stages) s.note = bad;
  for (PlaneSummary& p : d.planes) {
    p.plane = p.encoding = bad;
    for (auto* buckets : {&p.code_distance, &p.exponent})
      for (auto& [name, count] : *buckets) name = bad;
    for (auto& b : p.tie_distance) b.name = bad;
  }
  d.heat->plane = bad;
  d.where = {{bad, 1, 2, 3, 4}};
  d.fingerprints = {bad};
  for (Explanation& e : d.explanations) {
    e.ids = {bad, bad};
    e.title = e.line = e.clause = bad;
  }
  d.separating = {bad};
  d.invisible = {bad};
  for (auto* rows : {&d.trace.steps, &d.trace.outputs})
    for (TraceRow& r : *rows) r.what = r.clause = bad;
  d.reproducer_files = {bad};
  return d;
}

}  // namespace assay::samples
