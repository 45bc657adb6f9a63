// Pairs of which one shows only under the other: what a single cause leaves unexplained is where the second
// one is looked for, among all rows, also those that change nothing of the right bytes.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

namespace {

using std::string;

constexpr size_t kMostFirst = 8;
constexpr int64_t kResidualElements = 1024;

bool is_layout(const JudgedLane& lane, const Ids& ids) {
  return std::any_of(ids.begin(), ids.end(), [&](const string& id) {
    const auto found = lane.by_id.find(id);
    return found == lane.by_id.end() || !found->second->layout.empty();
  });
}

// Single causes that explain much: of what differs at all, or of every plane but the data.
std::vector<Candidate> firsts(const SearchState& s) {
  const JudgedLane& lane = *s.bad().front();
  std::vector<Candidate> out;
  const auto keep = [&](const Candidate& c) {
    const auto same = [&](const Candidate& o) { return o.ids == c.ids; };
    if (c.ids.size() == 1 && !is_layout(lane, c.ids) && std::none_of(out.begin(), out.end(), same))
      out.push_back(c);
  };
  for (size_t n = 0; n < std::min<size_t>(s.singles.size(), kMostFirst / 2); ++n) keep(s.singles[n]);
  for (const Candidate& c : s.singles)
    if (c.sample.scales_agree && c.sample.repaired > 0 && out.size() < kMostFirst) keep(c);
  return out;
}

// The first cause with each of the others, in the order in which they act. A number that was fitted explains
// whatever is left, so it is no second cause.
std::vector<Ids> with_others(const SearchState& s, const Candidate& first) {
  const JudgedLane& lane = *s.bad().front();
  const Hypothesis& one = *lane.by_id.at(first.ids[0]);
  std::vector<Ids> out;
  for (const Hypothesis& h : lane.library) {
    if (h.wide || h.named_set || h.id == one.id || holds_number(h.id) ||
        (one.code_place && h.stage < Stage::scaled_value))
      continue;
    out.push_back(lane.in_order(one, h));
  }
  return out;
}

}  // namespace

void try_residuals(SearchState& s) {
  JudgedLane& lane = *s.bad().front();
  if (s.bad().size() != 1 || lane.quantizer().round == Round::sr) return;
  for (const Candidate& first : firsts(s)) {
    const auto rows = lane.rows(first.ids);
    const auto made = rows && s.screening.of().in_time() ? lane.replay->run({}, *rows) : std::nullopt;
    if (!made) continue;
    std::vector<Ids> pairs = with_others(s, first);
    std::vector<Candidate> seen;
    if ((*rows)[0]->code_place) {  // no sample shows what is moved over the whole tensor
      if (s.screening.whole_is_large()) continue;
      for (Ids& ids : pairs) seen.push_back({std::move(ids), {}, {}});
      s.screening.confirm(seen);
      std::erase_if(seen, [](const Candidate& c) { return !c.whole.exact(); });
      s.exact.insert(s.exact.end(), seen.begin(), seen.end());
    } else {
      const auto sample = sample_of_rest(lane, *made, kResidualElements);
      if (!sample) continue;
      seen = s.screening.exact_of(s.screening.screen({*sample}, pairs), 24);
      s.exact.insert(s.exact.end(), seen.begin(), seen.end());
    }
  }
}

}  // namespace assay::cause
