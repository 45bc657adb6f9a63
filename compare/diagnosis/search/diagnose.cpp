#include "compare/diagnosis/search/diagnose.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/replay/lanes.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/description.h"
#include "compare/diagnosis/search/explanations.h"
#include "compare/diagnosis/search/foreign.h"
#include "compare/diagnosis/search/judged_case.h"
#include "compare/diagnosis/search/search.h"
#include "compare/diagnosis/search/separating.h"
#include "compare/diagnosis/search/stage_verdicts.h"
#include "compare/diagnosis/search/whole_case.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;
using namespace cause;

CausesByDirection search(JudgedCase& judged_case) {
  CausesByDirection out;
  for (const std::optional<Direction> d :
       {std::optional<Direction>{}, std::optional(Direction::row), std::optional(Direction::col)}) {
    if (judged_case.lanes_of(d, true).empty()) continue;
    static const std::vector<Candidate> kNone;
    const auto rows = out.find(Direction::row);
    out[d] = find_causes(judged_case, d, rows == out.end() ? kNone : rows->second.candidates);
  }
  return out;
}

// Where the differences begin: the stage and its direction.
void find_first(JudgedCase& judged_case, Diagnosis& out) {
  const auto bad = std::find_if(judged_case.lanes.begin(), judged_case.lanes.end(),
                                [](const JudgedLane& l) { return l.differs(); });
  const bool any = bad != judged_case.lanes.end();
  if (any) out.direction = bad->lane().direction;
  if (out.confidence == Confidence::certain || out.confidence == Confidence::equivalent)
    out.first = out.explanations.front().stage;
  else out.first = any ? stage_of_unexplained(*bad) : Stage::layout;
  // N11.2: what differs of rows has a cause of its own.
  if (out.first == Stage::rht && !judged_case.lanes_of(Direction::col, true).empty())
    out.direction = Direction::col;
}

// Hypotheses that change nothing in any direction that differs, in the library's order.
void find_invisible(const JudgedCase& judged_case, const CausesByDirection& causes, Diagnosis& out) {
  std::optional<std::set<string>> common;
  for (const auto& [d, found] : causes) {
    const std::set<string> here(found.unseen.begin(), found.unseen.end());
    if (!common) common = here;
    else std::erase_if(*common, [&](const string& id) { return !here.contains(id); });
  }
  if (!common) return;
  for (const JudgedLane& l : judged_case.lanes) {
    for (const Hypothesis& h : l.library)
      if (common->contains(h.id)) out.invisible.push_back(h.id);
    if (!out.invisible.empty()) return;
  }
}

// A case that differs.
void find_cause(JudgedCase& judged_case, Diagnosis& out) {
  CausesByDirection causes = search(judged_case);
  explain(judged_case, causes, out);
  try_whole_case(judged_case, out);
  find_first(judged_case, out);
  judged_case.progress("describing");
  describe(judged_case, out);
  if (out.confidence == Confidence::unexplained || out.confidence == Confidence::partial)
    for (const auto& [d, found] : causes)
      for (const string& text : found.under_scales)
        out.fingerprints.insert(out.fingerprints.begin(), fmt::format("{}: {}", d ? name_of(*d) : "", text));
  if (out.confidence == Confidence::unexplained || out.confidence == Confidence::partial) {
    std::vector<string> foreign = foreign_data(judged_case);
    out.fingerprints.insert(out.fingerprints.begin(), foreign.begin(), foreign.end());
  }
  judge_stages(judged_case, out);
  find_separating_lines(judged_case, out);
  find_invisible(judged_case, causes, out);
}

// The first plane that differs: those of no lane, then lane by lane.
PlaneDifference first_difference(const JudgedCase& judged_case) {
  const auto first_of = [](const PlaneData& got, const PlaneData& want, const string& name, int64_t differ,
                           int64_t of) {
    PlaneDifference out;
    out.plane = want.plane;
    out.plane.name = name;
    out.differ = differ;
    out.of = of;
    const Codes g(got), w(want);
    bool found = false;
    for_places(want.plane, [&](int64_t r, int64_t c, int64_t at) {
      if (found || g[at] == w[at]) return;
      found = true;
      out.index = at;
      out.place = {false, r, c};
      out.got = g[at];
      out.want = w[at];
    });
    out.apart = codes_apart(want.plane.encoding, out.got, out.want);
    return out;
  };
  if (!judged_case.beside.empty()) {
    const auto& [got, want] = judged_case.beside.front();
    return first_of(got, want, want.plane.name, judged_case.beside_differ, judged_case.beside_of);
  }
  for (const JudgedLane& l : judged_case.lanes)
    for (const JudgedPlane& j : l.judged)
      if (j.differ > 0)
        return first_of(j.got, j.want, name_in_case(l.lane(), j.want.plane.name), j.differ, j.of);
  return {};
}

void count_work(const JudgedCase& judged_case, Diagnosis& out) {
  std::set<string> tried;
  for (const JudgedLane& l : judged_case.lanes) {
    out.evaluations += l.replay->runs();
    for (const Hypothesis& h : l.library) tried.insert(h.id);
  }
  out.hypotheses = static_cast<int>(tried.size());
  out.seconds = judged_case.elapsed();
}

}  // namespace

Result<Diagnosis> diagnose(const Observation& seen, Subject& reference, const DiagnoseOptions& options) {
  JudgedCase judged_case(seen, reference, options);
  Diagnosis out;
  out.line = to_line(seen.problem);
  out.subject = seen.subject;
  if (const auto error = judged_case.gather()) return *error;
  out.elements = judged_case.beside_of;
  bool differs = judged_case.beside_differ > 0;
  for (const JudgedLane& l : judged_case.lanes) {
    differs |= l.differs();
    for (const JudgedPlane& j : l.judged) out.elements += j.of;
  }
  if (out.elements == 0 && seen.problem.x.shape.count() > 0)
    return Error{"nothing was compared: no plane holds an element", 0, ""};
  if (differs && options.on_difference) options.on_difference(first_difference(judged_case));
  if (differs) find_cause(judged_case, out);
  else judge_padding(judged_case, out);
  out.cut_short = differs && !judged_case.in_time();
  count_work(judged_case, out);
  return out;
}

}  // namespace assay
