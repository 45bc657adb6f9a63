#include "compare/diagnosis/search/whole_case.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compare/arithmetic/places.h"
#include "compare/diagnosis/library/group_offsets.h"
#include "compare/diagnosis/library/group_reads.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/predict.h"
#include "compare/process/plain_run.h"
#include "contract/line.h"

namespace assay::cause {

namespace {

void take(Explanation e, Diagnosis& out) {
  out.explanations.insert(out.explanations.begin(), std::move(e));
  out.confidence = Confidence::certain;
}

// Columns that are made of the dequantized rows: a key of the whole line, which no direction has for itself.
void try_columns_of_rows(const JudgedCase& judged_case, Diagnosis& out) {
  const Observation& seen = judged_case.seen;
  if (!seen.problem.as<Quantize>() || !seen.problem.row || !seen.problem.col) return;
  const auto changed = columns_of_rows(seen.problem);
  if (!changed || *changed == seen.problem) return;
  Explanation e;
  e.ids = {std::string(kColumnsOfRows)};
  e.title = "columns are made of the dequantized rows, not of the tensor";
  e.stage = Stage::input;
  e.clause = "N13.1";
  e.line = to_line(*changed);
  const auto made = predict(e, seen.problem, seen.inputs, judged_case.reference);
  if (!made) return;
  for (const JudgedLane& l : judged_case.lanes)
    for (const JudgedPlane& j : l.judged) {
      const PlaneData* plane = find_plane(*made, j.want.plane.name);
      if (!plane) return;
      const Codes now(*plane), got(j.got);
      bool same = true;
      for_logical(j.want.plane, [&](int64_t i) { same &= now[i] == got[i]; });
      if (!same) return;
      e.of += j.of, e.differ += j.differ;
    }
  e.agree = e.of, e.repaired = e.differ;
  take(std::move(e), out);
}

bool is_scale_plane(const std::string& name) {
  return name.ends_with(".scale_inv") || name.ends_with(".scale_gemm");
}

// Whether what came holds the moved scales wherever a member was written, and the offsets that go with them.
bool holds(const std::vector<PlaneData>& got, const MovedScales& moved) {
  for (const auto& [at, written] : moved.written) {
    const PlaneData& made = moved.planes[at];
    const PlaneData* came = find_plane(got, made.plane.name);
    if (!came || came->bytes.size() != made.bytes.size()) return false;
    for (size_t i = 0; i < written.size(); ++i)
      if (written[i] && came->bytes[i] != made.bytes[i]) return false;
  }
  return std::ranges::all_of(moved.planes, [&](const PlaneData& made) {
    if (!made.plane.name.ends_with("scale_offsets")) return true;
    const PlaneData* came = find_plane(got, made.plane.name);
    return !came || came->bytes == made.bytes;
  });
}

// Scales of members at wrong offsets. Whatever else a member has must be right.
void try_offsets(const JudgedCase& judged_case, Diagnosis& out) {
  const Observation& seen = judged_case.seen;
  Explanation e;
  for (const JudgedLane& l : judged_case.lanes)
    for (const JudgedPlane& j : l.judged) {
      if (j.differ > 0 && !is_scale_plane(j.want.plane.name)) return;
      e.of += j.of, e.differ += j.differ;
    }
  const auto right = plain_run(judged_case.reference, seen.problem, seen.inputs);
  if (!right) return;
  for (const OffsetCause& cause : offset_causes(seen.problem)) {
    const auto moved = moved_scales(cause, seen.problem, *right);
    if (!moved || !holds(seen.got, *moved)) continue;
    e.ids = {cause.id};
    e.title = cause.title;
    e.stage = Stage::layout;
    e.clause = "N14.3";
    e.of += judged_case.beside_of, e.differ += judged_case.beside_differ;
    e.agree = e.of, e.repaired = e.differ;
    return take(std::move(e), out);
  }
}

// Whether the planes hold what came: members alone, since what lies beyond them is nobody's.
bool all_came(const JudgedCase& judged_case, const std::vector<PlaneData>& made, Explanation& e) {
  for (const JudgedLane& l : judged_case.lanes) {
    const std::vector<PlaneData> own = planes_of_member(made, *l.lane().member);
    for (const JudgedPlane& j : l.judged) {
      const PlaneData* plane = find_plane(own, j.want.plane.name);
      if (!plane) return false;
      const Codes now(plane->plane, plane->bytes), got(j.got);
      bool same = true;
      for_logical(j.want.plane, [&](int64_t i) { same &= now[i] == got[i]; });
      if (!same) return false;
      e.of += j.of, e.differ += j.differ;
    }
  }
  return judged_case.beside_differ == 0;
}

// Members that read something else than their own.
void try_reads(const JudgedCase& judged_case, Diagnosis& out) {
  const Observation& seen = judged_case.seen;
  for (const ReadCause& cause : read_causes(seen.problem)) {
    const auto made = cause.made(seen.problem, seen.inputs, run_by(judged_case.reference));
    Explanation e;
    if (!made || !all_came(judged_case, *made, e)) continue;
    e.ids = {cause.id};
    e.title = cause.title;
    e.stage = Stage::input;
    e.clause = cause.clause;
    e.agree = e.of, e.repaired = e.differ;
    return take(std::move(e), out);
  }
}

}  // namespace

void try_whole_case(const JudgedCase& judged_case, Diagnosis& out) {
  if (out.confidence == Confidence::certain || out.confidence == Confidence::equivalent) return;
  try_columns_of_rows(judged_case, out);
  if (!judged_case.seen.problem.as<Split>()) return;
  try_offsets(judged_case, out);
  if (out.confidence != Confidence::certain) try_reads(judged_case, out);
}

}  // namespace assay::cause
