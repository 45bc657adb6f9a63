#include "compare/diagnosis/search/search.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "compare/arithmetic/expected_values.h"

namespace assay::cause {

using std::string;

namespace {

constexpr int64_t kSampleElements = 4096, kPairElements = 512;
constexpr int64_t kLargeElements = int64_t{1} << 18;   // of tensors from here on, what a sample leaves is held to a larger sample before everything
constexpr size_t kMostExact = 32;
constexpr size_t kMostPairs = 96;                       // that are tried on a whole sample
constexpr size_t kPairWork = size_t{1} << 24;           // elements that pairs are replayed on before that
constexpr size_t kPairSamples = size_t{1} << 22;        // ... and on whole samples, where these are long

size_t elements_of(const std::vector<Sample>& samples) {
  size_t n = 0;
  for (const Sample& s : samples) n += s.elements();
  return n;
}

bool by_loss(const Candidate& a, const Candidate& b) { return a.sample.loss < b.sample.loss; }

}  // namespace

Search::Search(Evidence& evidence, std::optional<Direction> d, const std::vector<Candidate>& elsewhere) : evidence_(evidence), d_(d), elsewhere_(elsewhere), bad_(evidence.lanes_of(d, true)) {}

Found Search::run() {
  samples_ = sampled(kSampleElements);
  if (samples_.empty()) return {};
  if (elements_of(samples_) > 16 * kSampleElements) prefix_ = sampled(kSampleElements, true);
  if (elements_of(prefix_) * 4 > elements_of(samples_)) prefix_.clear();
  try_singles();
  if (d_ && unexplained()) try_wide();
  if (d_) try_layouts();                                                    // before values: what is left after them is judged again
  if (d_ && unexplained()) try_map();
  if (d_ && unexplained()) try_places();
  if (d_ && unexplained()) try_regions();
  if (unexplained()) try_named_sets();
  if (d_ && unexplained() && evidence_.options.pairs) try_displaced();
  if (d_ && unexplained() && evidence_.options.pairs) try_pairs();
  if (d_ && unexplained()) try_tensor_values();
  if (d_ && unexplained()) judge_codes_under_scales();
  add_runners_up();
  found_.candidates = std::move(exact_);
  return std::move(found_);
}

bool Search::whole_is_large() const { return bad_.front()->lane().problem.x.shape.count() > kLargeElements; }

// ---- screening and confirming ----------------------------------------------------------------------------------------------

// Of up to three lanes: the first, the last, one between.
std::vector<Sample> Search::sampled(int64_t elements, bool leading) const {
  const size_t most = std::min<size_t>(bad_.size(), 3);
  std::vector<const LaneState*> of;
  for (size_t n = 0; n < most; ++n) of.push_back(bad_[n * (bad_.size() - 1) / std::max<size_t>(most - 1, 1)]);
  of.erase(std::unique(of.begin(), of.end()), of.end());
  std::vector<Sample> out;
  for (const LaneState* lane : of)
    if (auto sample = sample_of(*lane, elements / static_cast<int64_t>(of.size()), leading)) out.push_back(std::move(*sample));
  return out;
}

// How these fit the samples; those that do not apply are left out.
std::vector<Candidate> Search::screen(const std::vector<Sample>& samples, const std::vector<Ids>& list) const {
  std::vector<Candidate> out(list.size());
  std::atomic<size_t> done = 0;
  parallel(evidence_.jobs, list.size(), [&](size_t n) {
    out[n].ids = list[n];
    if (evidence_.in_time())
      for (const Sample& s : samples) {
        const Fit one = fit_sample(s, list[n]);
        if (!one.applies) {
          out[n].sample = {};
          break;
        }
        out[n].sample += one;
      }
    if (const size_t now = ++done; now % 16 == 0) evidence_.progress(fmt::format("{} {} of {} hypotheses", d_ ? name_of(*d_) : "", now, list.size()));
  });
  std::erase_if(out, [](const Candidate& c) { return !c.sample.applies; });
  return out;
}

// Where samples have to be long, what already fails on a short one is not held to them.
std::vector<Candidate> Search::screen(const std::vector<Ids>& list) const {
  if (prefix_.empty()) return screen(samples_, list);
  std::vector<Candidate> out = screen(prefix_, list);
  std::vector<Ids> left;
  for (const Candidate& c : out)
    if (c.sample.exact()) left.push_back(c.ids);
  std::erase_if(out, [](const Candidate& c) { return c.sample.exact(); });
  std::vector<Candidate> longer = screen(samples_, left);
  longer.insert(longer.end(), std::make_move_iterator(out.begin()), std::make_move_iterator(out.end()));
  return longer;
}

// How these fit everything in the lanes that differ.
void Search::confirm(std::vector<Candidate>& candidates) const {
  std::vector<Fit> fits(candidates.size() * bad_.size());
  parallel(evidence_.jobs, fits.size(), [&](size_t n) { fits[n] = fit_whole(*bad_[n % bad_.size()], candidates[n / bad_.size()].ids); });
  for (size_t c = 0; c < candidates.size(); ++c) {
    Fit whole;
    bool applies = true;
    for (size_t l = 0; l < bad_.size(); ++l) {
      applies &= fits[c * bad_.size() + l].applies;
      whole += fits[c * bad_.size() + l];
    }
    whole.applies = applies;
    candidates[c].whole = whole;
  }
}

// Of those that the samples leave, the ones that make every byte.
std::vector<Candidate> Search::exact_of(std::vector<Candidate> list, size_t most) const {
  std::erase_if(list, [](const Candidate& c) { return !c.sample.exact(); });
  if (list.size() > 1 && whole_is_large()) {
    std::vector<Ids> ids;
    for (const Candidate& c : list) ids.push_back(c.ids);
    list = screen(sampled(16 * kSampleElements), ids);
    std::erase_if(list, [](const Candidate& c) { return !c.sample.exact(); });
  }
  if (list.size() > most) list.resize(most);
  confirm(list);
  std::erase_if(list, [](const Candidate& c) { return !c.whole.exact(); });
  return list;
}

// Of rows that are known by name alone.
std::vector<Candidate> Search::exact_of_ids(const std::vector<string>& ids, size_t most) {
  std::vector<Ids> list;
  for (const string& id : ids) {
    bool everywhere = true;
    for (LaneState* l : bad_) everywhere &= l->row(id) != nullptr;
    if (everywhere) list.push_back({id});
  }
  return exact_of(screen(list), most);
}

std::vector<Ids> Search::library(const std::function<bool(const Hypothesis&)>& wanted) const {
  std::vector<Ids> out;
  for (const Hypothesis& h : bad_.front()->library)
    if (wanted(h)) out.push_back({h.id});
  return out;
}

// A single cause that samples can show.
const Hypothesis* Search::known(const Candidate& c) const {
  const auto found = c.ids.size() == 1 ? bad_.front()->by_id.find(c.ids[0]) : bad_.front()->by_id.end();
  return found == bad_.front()->by_id.end() || found->second->wide ? nullptr : found->second;
}

void Search::rank(std::vector<Candidate>& list) const { std::stable_sort(list.begin(), list.end(), by_loss); }

// ---- rows of the library ---------------------------------------------------------------------------------------------------

void Search::try_singles() {
  singles_ = screen(library([](const Hypothesis& h) { return !h.named_set && !h.wide; }));
  exact_ = exact_of(singles_, kMostExact);
  for (const Candidate& c : singles_)
    if (c.sample.changed == 0) found_.unseen.push_back(c.ids.front());
  std::erase_if(singles_, [](const Candidate& c) { return c.sample.changed == 0; });
  rank(singles_);
}

// Those that look at other blocks, where the planes that differ are those that they touch.
void Search::try_wide() {
  bool data = false, scales = false, many = false;
  for (const LaneState* l : bad_)
    for (const Judged& j : l->judged) {
      (j.is_data() ? data : scales) |= j.differ > 0;
      many |= !j.is_scalar() && j.differ * 4 > j.of;
    }
  const auto touches = [&](const Hypothesis& h) {
    if (!h.wide) return false;
    if (!h.keys.empty()) return data && !scales;
    if (h.of_other.starts_with("blocks:")) return many && (h.of_other == "blocks:codes") != scales;   // other blocks leave few codes as they are
    if (!h.of_other.empty()) return (h.of_other == "data") == data && (h.of_other == "data") != scales;
    return h.use == Hypothesis::Use::codes ? data && !scales : h.use == Hypothesis::Use::stored ? scales && !data : scales;
  };
  std::vector<Candidate> seen = screen(library([&](const Hypothesis& h) { return touches(h) && h.scale; }));
  exact_ = exact_of(seen, kMostExact);
  std::vector<Candidate> others;
  for (const Ids& ids : library([&](const Hypothesis& h) { return touches(h) && !h.scale; })) others.push_back({ids, {}, {}});
  confirm(others);
  for (Candidate& c : others) {
    if (!c.whole.applies) continue;
    if (c.whole.exact()) exact_.push_back(c);
    c.sample = c.whole;
    seen.push_back(std::move(c));
  }
  for (Candidate& c : seen)
    if (c.sample.repaired > 0 && std::none_of(exact_.begin(), exact_.end(), [&](const Candidate& e) { return e.ids == c.ids; })) singles_.push_back(std::move(c));
  rank(singles_);
}

// Sets of choices that have a name.
void Search::try_named_sets() {
  std::vector<Candidate> sets = screen(library([](const Hypothesis& h) { return h.named_set; }));
  exact_ = exact_of(sets, 8);
  singles_.insert(singles_.end(), sets.begin(), sets.end());
  rank(singles_);
}

// ---- two causes ------------------------------------------------------------------------------------------------------------

void Search::try_pairs() {
  const LaneState& first = *bad_.front();
  // One of the two explains much, or leaves the scales right.
  std::vector<Candidate> beam;
  const auto keep = [&](const Candidate& c) {
    if (known(c) && std::none_of(beam.begin(), beam.end(), [&](const Candidate& b) { return b.ids == c.ids; })) beam.push_back(c);
  };
  for (size_t n = 0; n < std::min<size_t>(singles_.size(), 8); ++n) keep(singles_[n]);
  size_t scales = 0;
  for (const Candidate& c : singles_)
    if (c.sample.scales_agree && scales++ < 6) keep(c);
  std::vector<string> visible;
  for (const Candidate& c : singles_)
    if (known(c)) visible.push_back(c.ids[0]);
  struct Pair {
    Ids ids;
    size_t rank;
  };
  std::vector<Pair> pairs;
  std::set<std::pair<string, string>> tried;
  for (size_t b = 0; b < beam.size(); ++b)
    for (size_t v = 0; v < visible.size(); ++v) {
      const string &one = beam[b].ids[0], &other = visible[v];
      if (one == other || !tried.insert({std::min(one, other), std::max(one, other)}).second) continue;
      const Hypothesis &x = *first.by_id.at(one), &y = *first.by_id.at(other);
      if (x.named_set || y.named_set) continue;
      pairs.push_back({x.stage <= y.stage ? Ids{one, other} : Ids{other, one}, (b + 1) * (v + 1)});
    }

  // The hopeless ones fall on fewer elements; where blocks are so large that these are many, not all are tried.
  const std::vector<Sample> small = sampled(kPairElements, !prefix_.empty());
  const size_t elements = elements_of(small) + 1, whole = std::clamp<size_t>(kPairSamples / (elements_of(samples_) + 1), 8, kMostPairs);
  if (const size_t most = std::max<size_t>(kPairWork / elements, 4 * kMostPairs); most < pairs.size()) {
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.rank < b.rank; });
    pairs.resize(most);
  }
  std::vector<Ids> list;
  for (Pair& p : pairs) list.push_back(std::move(p.ids));
  std::vector<Candidate> few = screen(small, list);
  rank(few);
  if (few.size() > whole) few.resize(whole);
  list.clear();
  for (const Candidate& c : few) list.push_back(c.ids);
  std::vector<Candidate> seen = screen(list);
  exact_ = exact_of(seen, 24);
  if (!unexplained()) return;
  rank(seen);
  if (seen.size() > 2) seen.resize(2);
  if (!seen.empty() && !singles_.empty() && seen[0].sample.loss < 0.7 * singles_[0].sample.loss) singles_.insert(singles_.begin(), seen.begin(), seen.end());
}

// ---- the rest --------------------------------------------------------------------------------------------------------------

// N17.12: where nothing explains the scales, what made the codes may still be told, from the scales that came.
void Search::judge_codes_under_scales() {
  constexpr const char* kCame = "scale.as_it_came";
  bool scales = false, data = false;
  for (LaneState* l : bad_) {
    const Direction d = *d_;
    const Quantizer& q = *l->lane().problem.quantizer(d);
    const Judged* j = l->find(scale_stem(q.scales));
    if (!j || !l->find(".data") || !info(q.format).has_blocks() || q.format == FormatId::fp8_block) return;   // whose codes follow amaxes that nothing shows
    for (const Judged& other : l->judged)
      if (other.is_scalar() && other.differ > 0) return;                    // and those of a tensor's wrong amax
    scales |= j->differ > 0;
    data |= l->find(".data")->differ > 0;
    Hypothesis& h = l->library.emplace_back();
    h.id = kCame;
    h.wide = true;
    const bool as_seen = d == Direction::row || geometry(q, l->lane().problem.x.shape, d).transposed;
    const int64_t n = length_of(q.block);
    h.scale = [j, &q, as_seen, n, got = Codes(j->got)](const ScaleGrid&, int64_t i, int64_t b) { return got[as_seen ? scale_index(q, j->got.plane, i, b * n) : scale_index(q, j->got.plane, b * n, i)]; };
    l->by_id[h.id] = &h;
  }
  if (!scales || !data) return;
  std::vector<Ids> list = {{kCame}};
  for (const Hypothesis& h : bad_.front()->library)
    if (!h.wide && !h.named_set && h.stage >= Stage::scaled_value && (h.code || h.scaled || !h.keys.empty()) && !h.element && !h.scale && !h.amax) list.push_back({kCame, h.id});
  std::vector<Candidate> fits = screen(list);
  std::erase_if(fits, [](const Candidate& c) { return !c.sample.data_agrees; });
  if (!fits.empty() && fits[0].ids.size() == 1) fits.resize(1);            // right: what changes nothing is right too
  if (fits.size() > 8) fits.resize(8);
  confirm(fits);
  std::erase_if(fits, [](const Candidate& c) { return !c.whole.applies || !c.whole.data_agrees; });
  for (size_t n = 0; n < std::min<size_t>(fits.size(), 3); ++n)
    found_.under_scales.push_back(fits[n].ids.size() == 1 ? "under the scales that came every code is right" : fmt::format("under the scales that came every code is explained: {}", bad_.front()->by_id.at(fits[n].ids[1])->title));
  if (fits.empty()) found_.under_scales.push_back("codes are wrong under the scales that came, too");
}

// The runners-up, over everything: of a large tensor beside an exact cause only the first.
void Search::add_runners_up() {
  const size_t most = !whole_is_large() ? 4 : unexplained() ? 3 : 1;
  std::vector<Candidate> others;
  for (const Candidate& c : singles_) {
    if (others.size() == most) break;
    if (std::none_of(exact_.begin(), exact_.end(), [&](const Candidate& e) { return e.ids == c.ids; }) && (c.sample.repaired > 0 || c.whole.repaired > 0)) others.push_back(c);
  }
  if (evidence_.in_time()) confirm(others);
  std::erase_if(others, [](const Candidate& c) { return c.whole.repaired == 0; });
  std::stable_sort(others.begin(), others.end(), [](const Candidate& a, const Candidate& b) { return a.whole.agree > b.whole.agree; });
  exact_.insert(exact_.end(), others.begin(), others.end());
}

}  // namespace assay::cause
