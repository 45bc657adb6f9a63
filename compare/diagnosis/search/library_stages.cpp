#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

using std::string;

namespace {

constexpr int64_t kPairElements = 512;
constexpr size_t kMostExact = 32;
constexpr size_t kMostPairs = 96;                 // that are tried on a whole sample
constexpr size_t kPairWork = size_t{1} << 24;     // elements that pairs are replayed on before that
constexpr size_t kPairSamples = size_t{1} << 22;  // ... and on whole samples, where these are long

}  // namespace

namespace {

// Whether the amax of the tensor came as NaN and should be a number: no part of the tensor has such an amax,
// though the scale of 1 beside it may be that of an empty part.
bool came_as_nan(const JudgedLane& lane) {
  const JudgedPlane* amax = lane.find(".amax");
  return amax && amax->is_scalar() && is_nan(amax->want.plane.encoding, Codes(amax->got)[0]) &&
         !is_nan(amax->want.plane.encoding, Codes(amax->want)[0]);
}

}  // namespace

void try_singles(SearchState& s) {
  const bool parts = !came_as_nan(*s.bad().front());
  s.singles = s.screening.screen(s.screening.library(
      [&](const Hypothesis& h) { return !h.named_set && !h.wide && (parts || !h.tensor_part); }));
  s.exact = s.screening.exact_of(s.singles, kMostExact);
  for (const Candidate& c : s.singles)
    if (c.sample.changed == 0) s.unseen.push_back(c.ids.front());
  std::erase_if(s.singles, [](const Candidate& c) { return c.sample.changed == 0; });
  sort_by_loss(s.singles);
}

// Those that look at other blocks, where the planes that differ are those that they touch.
void try_wide(SearchState& s) {
  bool data = false, scales = false, many = false;
  for (const JudgedLane* l : s.bad())
    for (const JudgedPlane& j : l->judged) {
      (j.is_data() ? data : scales) |= j.differ > 0;
      many |= !j.is_scalar() && j.differ * 4 > j.of;
    }
  const auto touches = [&](const Hypothesis& h) {
    if (!h.wide) return false;
    if (!h.keys.empty() || h.packed) return data && !scales;
    if (h.of_other.starts_with("blocks:"))
      return many && (h.of_other == "blocks:codes") != scales;  // other blocks leave few codes as they are
    if (!h.of_other.empty()) return (h.of_other == "data") == data && (h.of_other == "data") != scales;
    return h.use == Hypothesis::Use::codes    ? data && !scales
           : h.use == Hypothesis::Use::stored ? scales && !data
                                              : scales;
  };
  std::vector<Candidate> seen =
      s.screening.screen(s.screening.library([&](const Hypothesis& h) { return touches(h) && h.scale; }));
  s.exact = s.screening.exact_of(seen, kMostExact);
  std::vector<Candidate> others;
  for (const Ids& ids : s.screening.library([&](const Hypothesis& h) { return touches(h) && !h.scale; }))
    others.push_back({ids, {}, {}});
  s.screening.confirm(others);
  for (Candidate& c : others) {
    if (!c.whole.applies) continue;
    if (c.whole.exact()) s.exact.push_back(c);
    c.sample = c.whole;
    seen.push_back(std::move(c));
  }
  for (Candidate& c : seen)
    if (c.sample.repaired > 0 &&
        std::none_of(s.exact.begin(), s.exact.end(), [&](const Candidate& e) { return e.ids == c.ids; }))
      s.singles.push_back(std::move(c));
  sort_by_loss(s.singles);
}

// Sets of choices that have a name.
void try_named_sets(SearchState& s) {
  std::vector<Candidate> sets =
      s.screening.screen(s.screening.library([](const Hypothesis& h) { return h.named_set; }));
  s.exact = s.screening.exact_of(sets, 8);
  s.singles.insert(s.singles.end(), sets.begin(), sets.end());
  sort_by_loss(s.singles);
}

// ---- two causes -------------------------------------------------------------------------------------------

namespace {

// Single causes one of which explains much, or leaves the scales right.
std::vector<Candidate> promising(const SearchState& s) {
  std::vector<Candidate> out;
  const auto keep = [&](const Candidate& c) {
    const auto same = [&](const Candidate& b) { return b.ids == c.ids; };
    if (s.screening.known(c) && std::none_of(out.begin(), out.end(), same)) out.push_back(c);
  };
  for (size_t n = 0; n < std::min<size_t>(s.singles.size(), 8); ++n) keep(s.singles[n]);
  size_t scales = 0;
  for (const Candidate& c : s.singles)
    if (c.sample.scales_agree && scales++ < 6) keep(c);
  return out;
}

// Each of them with every other cause, in the order in which the two act; the most promising first where not
// all of them can be tried on samples of `elements`.
std::vector<Ids> pairs_of(const SearchState& s, size_t elements) {
  struct Pair {
    Ids ids;
    size_t rank;
  };
  const JudgedLane& first = *s.bad().front();
  const std::vector<Candidate> beam = promising(s);
  std::vector<string> visible;
  for (const Candidate& c : s.singles)
    if (s.screening.known(c)) visible.push_back(c.ids[0]);
  std::vector<Pair> pairs;
  std::set<std::pair<string, string>> tried;
  for (size_t b = 0; b < beam.size(); ++b)
    for (size_t v = 0; v < visible.size(); ++v) {
      const string &one = beam[b].ids[0], &other = visible[v];
      if (one == other || !tried.insert({std::min(one, other), std::max(one, other)}).second) continue;
      const Hypothesis &x = *first.by_id.at(one), &y = *first.by_id.at(other);
      if (x.named_set || y.named_set) continue;
      pairs.push_back({first.in_order(x, y), (b + 1) * (v + 1)});
    }
  if (const size_t most = std::max<size_t>(kPairWork / elements, 4 * kMostPairs); most < pairs.size()) {
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const Pair& a, const Pair& b) { return a.rank < b.rank; });
    pairs.resize(most);
  }
  std::vector<Ids> out;
  for (Pair& p : pairs) out.push_back(std::move(p.ids));
  return out;
}

}  // namespace

void try_pairs(SearchState& s) {
  // The hopeless ones fall on fewer elements; where blocks are so large that these are many, not all are
  // tried.
  const std::vector<Sample> small = s.screening.sampled(kPairElements, s.screening.is_long());
  const size_t long_ones = kPairSamples / (elements_of(s.screening.samples()) + 1);
  std::vector<Candidate> few = s.screening.screen(small, pairs_of(s, elements_of(small) + 1));
  sort_by_loss(few);
  if (const size_t most = std::clamp<size_t>(long_ones, 8, kMostPairs); few.size() > most) few.resize(most);
  std::vector<Ids> list;
  for (const Candidate& c : few) list.push_back(c.ids);
  std::vector<Candidate> seen = s.screening.screen(list);
  s.exact = s.screening.exact_of(seen, 24);
  if (!s.unexplained()) return;
  sort_by_loss(seen);
  if (seen.size() > 2) seen.resize(2);
  if (!seen.empty() && !s.singles.empty() && seen[0].sample.loss < 0.7 * s.singles[0].sample.loss)
    s.singles.insert(s.singles.begin(), seen.begin(), seen.end());
}

}  // namespace assay::cause
