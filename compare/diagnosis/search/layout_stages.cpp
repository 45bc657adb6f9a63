#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "compare/diagnosis/patterns/layouts.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/parallel.h"
#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

using std::string;

namespace {

// What came, before some of it is put back into its place.
class Kept {
 public:
  explicit Kept(const std::vector<JudgedLane*>& lanes) : lanes_(lanes) {
    for (const JudgedLane* l : lanes)
      for (const JudgedPlane& j : l->judged) bytes_.push_back(j.got.bytes);
  }
  void restore() {
    size_t n = 0;
    for (JudgedLane* l : lanes_)
      for (JudgedPlane& j : l->judged) {
        j.got.bytes = std::move(bytes_[n++]);
        j.count();
      }
  }

 private:
  const std::vector<JudgedLane*>& lanes_;
  std::vector<std::vector<std::byte>> bytes_;
};

// Whether two planes hold the same codes in some order.
bool same_codes(const Plane& plane, std::span<const std::byte> a, std::span<const std::byte> b) {
  const Codes x(plane, a), y(plane, b);
  if (info(plane.encoding).bits <= 16) {
    std::vector<int64_t> more(size_t{1} << 16);
    for_logical(plane, [&](int64_t i) { ++more[x[i]], --more[y[i]]; });
    return std::all_of(more.begin(), more.end(), [](int64_t n) { return n == 0; });
  }
  std::unordered_map<uint32_t, int64_t> more;
  for_logical(plane, [&](int64_t i) { ++more[x[i]], --more[y[i]]; });
  return std::all_of(more.begin(), more.end(), [](const auto& c) { return c.second == 0; });
}

// Layouts that make got of want; where none that is searched for makes every byte, those known by name that
// do: codes may be too few for a search, or a few elements may be all that moved.
std::vector<LayoutFit> layouts_between(const Plane& plane, std::span<const std::byte> got,
                                       std::span<const std::byte> want) {
  std::vector<LayoutFit> fits = fit_layouts(plane, got, want);
  if (std::ranges::any_of(fits, &LayoutFit::exact)) return fits;
  std::vector<LayoutFit> exact = exact_layouts(plane, got, want);
  return exact.empty() ? fits : exact;
}

// Adds the row of a layout of this plane, with what was found for a title.
string add_layout(JudgedLane& lane, const JudgedPlane& j, const LayoutFit& fit) {
  const string id = "layout." + j.stem() + ":" + fit.name;
  lane.row(id, fmt::format("{}: {}", j.stem(), fit.description));
  return id;
}

// Of layouts that fit, the one that is taken: one that has a name says something of other tensors too.
// Nothing where it does not fit clearly better than the plane's own order.
const LayoutFit* best_of(const std::vector<LayoutFit>& fits, const JudgedPlane& j) {
  if (fits.empty()) return nullptr;
  const auto named = std::find_if(fits.begin(), fits.end(), [](const LayoutFit& f) { return f.named; });
  const bool take_named = named != fits.end() && (named->exact || !fits.front().exact);
  const LayoutFit& best = take_named ? *named : fits.front();
  const double own = 1 - static_cast<double>(j.differ) / static_cast<double>(j.of);
  return best.exact || (best.share >= 0.5 && best.share >= own + 0.2) ? &best : nullptr;
}

struct Placed {
  Ids ids;           // the layouts, one for each plane stem
  Ids alternatives;  // to them, exact as well
};

// Finds the layouts of planes that differ, and puts what came back into its place, so that values can be
// judged after it.
Placed put_in_place(const std::vector<JudgedLane*>& lanes) {
  Placed out;
  std::map<string, string> by_stem;
  for (JudgedLane* lane : lanes)
    for (JudgedPlane& j : lane->judged) {
      if (j.differ == 0 || j.of < 8) continue;
      const auto fits = layouts_between(j.want.plane, j.got.bytes, j.want.bytes);
      const LayoutFit* best = best_of(fits, j);
      auto undone = best ? relayout(*best, j.want.plane, j.got.bytes, j.want.bytes) : std::nullopt;
      if (!undone) continue;
      by_stem[j.stem()] = add_layout(*lane, j, *best);
      for (const LayoutFit& f : fits)
        if (f.exact && f.named && f.name != best->name) out.alternatives.push_back(add_layout(*lane, j, f));
      j.got.bytes = std::move(*undone);
      j.count();
    }
  for (const auto& [stem, id] : by_stem) out.ids.push_back(id);
  return out;
}

// Where layouts leave nothing: they are the cause, each alone.
void take_layouts(SearchState& s, const Placed& placed) {
  std::vector<Candidate> layouts = {{placed.ids, {}, {}}};
  if (placed.ids.size() == 1)
    for (const string& id : placed.alternatives) layouts.push_back({{id}, {}, {}});
  s.screening.confirm(layouts);
  std::erase_if(layouts, [](const Candidate& c) { return !c.whole.exact(); });
  s.exact.insert(s.exact.begin(), layouts.begin(), layouts.end());
}

}  // namespace

void try_layouts(SearchState& s) {
  Kept came(s.bad());
  const Placed placed = put_in_place(s.bad());
  if (placed.ids.empty()) return;
  const bool nothing_left =
      std::none_of(s.bad().begin(), s.bad().end(), [](const JudgedLane* l) { return l->differs(); });
  std::vector<Candidate> values;  // of what is left
  if (!nothing_left && s.unexplained()) {
    const auto single = [](const Hypothesis& h) { return !h.named_set && !h.wide; };
    values = s.screening.screen(s.screening.sampled(kSampleElements), s.screening.library(single));
    std::erase_if(values, [](const Candidate& c) { return !c.sample.exact(); });
    if (values.size() > 16) values.resize(16);
    if (values.empty() && s.direction) {
      SearchState inner{s.screening.anew(), s.direction, s.elsewhere};
      try_factors(inner);
      values = std::move(inner.exact);
    }
  }
  came.restore();
  if (nothing_left) return take_layouts(s, placed);
  if (!s.unexplained()) return;
  for (Candidate& c : values) c.ids.insert(c.ids.end(), placed.ids.begin(), placed.ids.end());
  values.push_back({placed.ids, {}, {}});
  s.screening.confirm(values);
  for (const Candidate& c : values)
    if (c.whole.exact()) s.exact.push_back(c);
  const Candidate& alone = values.back();
  if (s.unexplained() && alone.whole.repaired > alone.whole.differ / 2)
    s.singles.insert(s.singles.begin(), alone);
}

namespace {

// The one plane of a lane that holds what a cause makes of it in another order, and that order; nothing where
// another plane differs.
using Displaced = std::optional<std::pair<const JudgedPlane*, LayoutFit>>;
Displaced displaced(const JudgedLane& lane, const std::vector<PlaneData>& planes) {
  const JudgedPlane* one = nullptr;
  for (const JudgedPlane& j : lane.judged) {
    const PlaneData& made = planes[j.index];
    const Codes x(j.got), y(made);
    bool equal = true;
    if (made.bytes != j.got.bytes) for_logical(j.want.plane, [&](int64_t i) { equal &= x[i] == y[i]; });
    if (equal) continue;
    if (one || !same_codes(j.want.plane, j.got.bytes, made.bytes)) return {};
    one = &j;
  }
  if (!one) return {};
  for (LayoutFit& f : layouts_between(one->want.plane, one->got.bytes, planes[one->index].bytes))
    if (f.exact && f.named) return std::pair(one, std::move(f));
  return {};
}

}  // namespace

// A value and a place: what a single cause makes of one plane holds the same codes as what came, in another
// order, and every other plane is right.
void try_displaced(SearchState& s) {
  JudgedLane& lane = *s.bad().front();
  const size_t most = s.screening.whole_is_large() ? 12 : 64;
  std::vector<const Candidate*> few;
  for (const Candidate& c : s.singles) {
    if (c.ids.size() != 1 || few.size() >= most) continue;
    const bool agrees = c.sample.scales_agree || c.sample.data_agrees;
    if (agrees && !lane.by_id.at(c.ids[0])->named_set) few.push_back(&c);
  }
  std::vector<Displaced> moved(few.size());
  parallel(s.screening.of().jobs, few.size(), [&](size_t n) {
    const auto rows = lane.rows(few[n]->ids);
    const auto planes = rows && s.screening.of().in_time() ? lane.replay->run({}, *rows) : std::nullopt;
    if (planes) moved[n] = displaced(lane, *planes);
  });
  std::vector<Candidate> out;
  for (size_t n = 0; n < few.size(); ++n) {
    if (!moved[n]) continue;
    string id;
    for (JudgedLane* l : s.bad()) id = add_layout(*l, *moved[n]->first, moved[n]->second);
    out.push_back({{few[n]->ids[0], id}, {}, {}});
  }
  s.screening.confirm(out);
  std::erase_if(out, [](const Candidate& c) { return !c.whole.exact(); });
  s.exact = std::move(out);
}

}  // namespace assay::cause
