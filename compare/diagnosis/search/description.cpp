#include "compare/diagnosis/search/description.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/coordinates.h"
#include "compare/diagnosis/patterns/fingerprints.h"
#include "compare/diagnosis/patterns/summaries.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/parallel.h"
#include "compare/diagnosis/search/stage_verdicts.h"

namespace assay::cause {

namespace {

using std::string;

// The plane that is shown: the first that differs, and rather one of many elements, as a tensor's one value
// lies nowhere.
struct Shown {
  const JudgedLane* lane = nullptr;
  const JudgedPlane* plane = nullptr;
  const std::vector<PlaneData>* got_all = nullptr;  // of the lane
};

// A plane of no lane, such as the offsets of a split.
PlaneSummary summary_beside(const PlaneData& got, const PlaneData& want) {
  PlaneSummary s;
  s.plane = want.plane.name;
  s.encoding = info(want.plane.encoding).name;
  s.of = want.plane.logical.count();
  const Codes came(want.plane, got.bytes), right(want);
  for (int64_t i = 0; i < s.of; ++i) s.differ += came[i] != right[i];
  return s;
}

// Whether scales are wrong only as they are stored: then the codes show that every amax was right, and where
// the largest elements of those blocks stand is chance.
bool stored_alone(const Diagnosis& d) {
  return !d.explanations.empty() && d.explanations.front().exact() &&
         std::ranges::any_of(d.explanations.front().ids,
                             [](const string& id) { return id.find(".stored") != string::npos; });
}

}  // namespace

void describe(JudgedCase& judged_case, Diagnosis& out) {
  const bool right_amaxes = stored_alone(out);
  // Each of these looks at whole planes, and none at another.
  std::vector<std::function<void()>> looks;
  std::deque<std::vector<PlaneData>> got;  // of each lane
  std::deque<PlaneSummary> summaries;
  const bool many = judged_case.lanes.size() > 8;
  Shown shown;
  for (const JudgedLane& l : judged_case.lanes) {
    std::vector<PlaneData>& all = got.emplace_back();
    for (const JudgedPlane& j : l.judged) all.push_back(j.got);
    for (const JudgedPlane& j : l.judged) {
      if (many && j.differ == 0) continue;
      if (j.differ > 0 && !shown.lane) shown = {&l, &j, &all};
      else if (j.differ > 0 && shown.lane == &l && shown.plane->of == 1 && j.of > 1) shown.plane = &j;
      PlaneSummary& s = summaries.emplace_back();
      looks.push_back([&] {
        if (j.differ > 0) s = summarize(l.lane().problem, j.got, j.want, l.lane().inputs, all);
        s.plane = name_in_case(l.lane(), j.want.plane.name);
        s.encoding = info(j.want.plane.encoding).name;
        s.differ = j.differ;
        s.of = j.of;
      });
    }
  }
  if (shown.plane) {
    const Lane& lane = shown.lane->lane();
    const PlaneData &came = shown.plane->got, &right = shown.plane->want;
    looks.push_back([&] { out.heat = heat_map(lane.problem, came, right); });
    looks.push_back([&] { out.where = coordinates(lane.problem, came, right); });
    looks.push_back([&] {
      for (const Fingerprint& f : fingerprints(lane.problem, came, right, lane.inputs, *shown.got_all))
        if (!right_amaxes || !f.id.starts_with("amax_")) out.fingerprints.push_back(f.text);
    });
  }
  parallel(judged_case.jobs, looks.size(), [&](size_t n) { looks[n](); });
  for (const auto& [came, want] : judged_case.beside) out.planes.push_back(summary_beside(came, want));
  out.planes.insert(out.planes.end(), std::make_move_iterator(summaries.begin()),
                    std::make_move_iterator(summaries.end()));
}

// ---- padding ----------------------------------------------------------------------------------------------

void judge_padding(JudgedCase& judged_case, Diagnosis& out) {
  int64_t padding = 0;
  std::set<uint32_t> codes;
  Encoding encoding = Encoding::e8m0;
  for (const JudgedLane& l : judged_case.lanes)
    for (const JudgedPlane& j : l.judged) {
      const Plane& plane = j.want.plane;
      if (plane.padding != Padding::zero) continue;
      if (plane.layout == ScaleLayout::compact && !judged_case.seen.ran) continue;
      PlaneSummary s;
      s.plane = name_in_case(l.lane(), plane.name) + " padding";
      s.encoding = info(plane.encoding).name;
      const Codes got(j.got);
      for (int64_t i = 0; i < plane.padded.count(); ++i) {
        if (!place_of(plane, i).padding) continue;
        ++s.of;
        if (got[i] == 0) continue;
        if (!padding && !s.differ) out.direction = l.lane().direction, encoding = plane.encoding;
        ++s.differ;
        codes.insert(got[i]);
      }
      padding += s.differ;
      if (s.differ) out.planes.push_back(std::move(s));
    }
  if (!padding) return;
  Explanation e;
  e.ids = {string(kUnclearedPadding)};
  e.title = "padding was never cleared";
  if (codes.size() == 1)
    e.title += fmt::format(": its bytes that are not 0 are {}", code_hex(encoding, *codes.begin()));
  e.stage = Stage::layout;
  e.clause = "N6.4";
  e.agree = e.of = out.elements;
  e.repaired = e.differ = padding;
  out.explanations = {std::move(e)};
  out.confidence = Confidence::certain;
  out.first = Stage::layout;
  judge_stages(judged_case, out);
}

}  // namespace assay::cause
