#include "compare/diagnosis/search/whole_case.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compare/arithmetic/places.h"
#include "compare/diagnosis/library/group_offsets.h"
#include "compare/diagnosis/library/whole_causes.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/member_scopes.h"
#include "compare/diagnosis/search/predict.h"
#include "compare/process/plain_run.h"
#include "contract/line.h"

namespace assay::cause {

namespace {

// A cause that makes all that came.
Explanation explanation_of(std::string id, std::string title, Stage stage, std::string clause,
                           const JudgedCase& judged_case) {
  Explanation e;
  e.ids = {std::move(id)};
  e.title = std::move(title);
  e.stage = stage;
  e.clause = std::move(clause);
  e.of = judged_case.beside_of, e.differ = judged_case.beside_differ;
  for (const JudgedLane& l : judged_case.lanes)
    for (const JudgedPlane& j : l.judged) e.of += j.of, e.differ += j.differ;
  e.agree = e.of, e.repaired = e.differ;
  return e;
}

// Whether the lane's own planes of what was made hold what came.
bool came(const JudgedLane& lane, const std::vector<PlaneData>& own) {
  return std::ranges::all_of(lane.judged, [&](const JudgedPlane& j) {
    const PlaneData* plane = find_plane(own, j.want.plane.name);
    if (!plane) return false;
    const Codes now(*plane), got(j.got);
    bool same = true;
    for_logical(j.want.plane, [&](int64_t i) { same &= now[i] == got[i]; });
    return same;
  });
}

// Columns that are made of the dequantized rows: a key of the whole line, which no direction has for itself.
void try_columns_of_rows(const JudgedCase& judged_case, Diagnosis& out) {
  const Observation& seen = judged_case.seen;
  if (!seen.problem.as<Quantize>() || !seen.problem.row || !seen.problem.col) return;
  const auto changed = columns_of_rows(seen.problem);
  if (!changed || *changed == seen.problem) return;
  Explanation e = explanation_of(std::string(kColumnsOfRows),
                                 "columns are made of the dequantized rows, not of the tensor", Stage::input,
                                 "N13.1", judged_case);
  e.line = to_line(*changed);
  const auto made = predict(e, seen.problem, seen.inputs, judged_case.reference);
  if (made && std::ranges::all_of(judged_case.lanes, [&](const JudgedLane& l) { return came(l, *made); }))
    out.explanations.insert(out.explanations.begin(), std::move(e)), out.confidence = Confidence::certain;
}

// Whether planes of the whole case, such as offsets, hold what came.
bool beside_came(const JudgedCase& judged_case, const std::vector<PlaneData>& made) {
  return std::ranges::all_of(made, [&](const PlaneData& plane) {
    if (!plane.plane.members.empty()) return true;
    const PlaneData* got = find_plane(judged_case.seen.got, plane.plane.name);
    return !got || got->bytes == plane.bytes;
  });
}

// Whether what came holds the moved scales wherever a member was written, and all else is right, but for the
// offsets that go with them.
bool holds(const JudgedCase& judged_case, const MovedScales& moved) {
  const auto is_moved = [&](const std::string& name) {
    return std::ranges::any_of(moved.written,
                               [&](const auto& w) { return moved.planes[w.first].plane.name == name; });
  };
  for (const JudgedLane& l : judged_case.lanes)
    for (const JudgedPlane& j : l.judged)
      if (j.differ > 0 && !is_moved(j.want.plane.name)) return false;
  for (const auto& [at, written] : moved.written) {
    const PlaneData& made = moved.planes[at];
    const PlaneData* got = find_plane(judged_case.seen.got, made.plane.name);
    if (!got || got->bytes.size() != made.bytes.size()) return false;
    for (size_t i = 0; i < written.size(); ++i)
      if (written[i] && got->bytes[i] != made.bytes[i]) return false;
  }
  return beside_came(judged_case, moved.planes);
}

// Scales of members at wrong offsets.
void try_offsets(const JudgedCase& judged_case, const std::vector<PlaneData>& right,
                 std::vector<Explanation>& found) {
  const Observation& seen = judged_case.seen;
  for (const OffsetCause& cause : offset_causes(seen.problem)) {
    if (!judged_case.in_time()) return;
    const auto moved = moved_scales(cause, seen.problem, right);
    if (moved && holds(judged_case, *moved))
      found.push_back(explanation_of(cause.id, cause.title, Stage::layout, "N14.3", judged_case));
  }
}

// Whether the planes hold what came. A kernel may leave anything beyond the members.
bool all_came(const JudgedCase& judged_case, const std::vector<PlaneData>& made) {
  return beside_came(judged_case, made) && std::ranges::all_of(judged_case.lanes, [&](const JudgedLane& l) {
           return came(l, l.lane().member ? planes_of_member(made, *l.lane().member) : made);
         });
}

// Causes that make all planes of the line.
void try_whole_causes(const JudgedCase& judged_case, const std::vector<PlaneData>& right,
                      std::vector<Explanation>& found) {
  const Observation& seen = judged_case.seen;
  for (const WholeCause& cause : whole_causes(seen.problem)) {
    if (!judged_case.in_time()) return;
    const auto made = cause.made(seen.problem, seen.inputs, right, run_by(judged_case.reference));
    if (made && all_came(judged_case, *made))
      found.push_back(explanation_of(cause.id, cause.title, cause.stage, cause.clause, judged_case));
  }
}

// ---- causes of some members ----

// Explanations of a member on its own that make all of its bytes.
std::vector<Explanation> exact_of_member(const JudgedCase& judged_case, size_t m) {
  const Observation& seen = judged_case.seen;
  const Observation own{member_problems(seen.problem)[m], seen.subject, planes_of_member(seen.inputs, m),
                        planes_of_member(seen.got, m),    false,        seen.ran};
  DiagnoseOptions options = judged_case.options;
  options.on_progress = {}, options.on_difference = {};
  options.budget = (options.budget - judged_case.elapsed()) / 4;
  auto diagnosis = diagnose(own, judged_case.reference, options);
  if (!diagnosis) return {};
  std::erase_if(diagnosis->explanations, [](const Explanation& e) { return !e.exact(); });
  return std::move(diagnosis->explanations);
}

// The same in some members alone.
Explanation within(Explanation e, const MemberScope& scope, const JudgedCase& judged_case) {
  const Explanation whole = explanation_of("", "", e.stage, e.clause, judged_case);
  for (std::string& id : e.ids) id.insert(std::min(id.find('@'), id.size()), "@" + scope.id);
  e.title += ", " + scope.title;
  e.line.clear();
  e.of = whole.of, e.differ = whole.differ, e.agree = whole.agree, e.repaired = whole.repaired;
  return e;
}

// Where some members are right: a cause that makes all bytes of each wrong one, and what the wrong ones have
// in common.
void try_some_members(const JudgedCase& judged_case, std::vector<Explanation>& found) {
  constexpr size_t kMostMembers = 3, kMostCauses = 4;
  const Observation& seen = judged_case.seen;
  std::set<size_t> wrong;
  for (const JudgedLane& l : judged_case.lanes)
    if (l.differs()) wrong.insert(*l.lane().member);
  if (wrong.empty() || judged_case.beside_differ > 0) return;
  std::optional<std::vector<Explanation>> common;
  size_t looked = 0;
  for (const size_t m : wrong) {
    if (looked++ == kMostMembers || !judged_case.in_time()) break;
    const std::vector<Explanation> own = exact_of_member(judged_case, m);
    if (!common) common = own;
    std::erase_if(*common, [&](const Explanation& e) {
      return std::ranges::find(own, e.ids, &Explanation::ids) == own.end();
    });
  }
  if (common->size() > kMostCauses) common->resize(kMostCauses);
  for (const MemberScope& scope : member_scopes(seen.problem)) {
    if (!std::ranges::all_of(wrong, [&](size_t m) { return scope.members[m]; })) continue;
    for (const Explanation& e : *common) {
      if (!judged_case.in_time()) return;
      Explanation part = within(e, scope, judged_case);
      const auto made = predict(part, seen.problem, seen.inputs, judged_case.reference);
      if (made && all_came(judged_case, *made)) found.push_back(std::move(part));
    }
    if (!found.empty()) return;
  }
}

// Whether some member that has elements came as it should be.
bool a_member_is_right(const JudgedCase& judged_case) {
  return std::ranges::any_of(judged_case.lanes, [](const JudgedLane& l) {
    return !l.differs() && l.lane().problem.x.shape.count() > 0;
  });
}

}  // namespace

void try_whole_case(const JudgedCase& judged_case, Diagnosis& out) {
  const bool known = out.confidence == Confidence::certain || out.confidence == Confidence::equivalent;
  if (!known) try_columns_of_rows(judged_case, out);
  const Observation& seen = judged_case.seen;
  const bool split = seen.problem.as<Split>(), single = known && out.explanations.front().ids.size() == 1;
  if (!split && (single || !seen.problem.as<Quantize>())) return;
  const auto right = plain_run(judged_case.reference, seen.problem, seen.inputs);
  if (!right) return;
  std::vector<Explanation> found;
  try_offsets(judged_case, *right, found);
  try_whole_causes(judged_case, *right, found);
  if (split && !known && found.empty() && a_member_is_right(judged_case))
    try_some_members(judged_case, found);
  if (found.empty()) return;
  // What makes the bytes of some members does not say why the others are right, and one cause is likelier
  // than two.
  auto at = out.explanations.begin();
  if (known && at->ids.size() == 1 && !a_member_is_right(judged_case))
    at = std::ranges::find_if_not(out.explanations, &Explanation::exact);
  out.confidence = known || found.size() > 1 ? Confidence::equivalent : Confidence::certain;
  out.explanations.insert(at, std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
}

}  // namespace assay::cause
