#include "compare/diagnosis/search/screening.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include <fmt/format.h>

#include "compare/diagnosis/search/parallel.h"

namespace assay::cause {

using std::string;

namespace {

// Of tensors from here on, what a sample leaves is held to a larger sample before everything.
constexpr int64_t kLargeElements = int64_t{1} << 18;

}  // namespace

size_t elements_of(const std::vector<Sample>& samples) {
  size_t n = 0;
  for (const Sample& s : samples) n += s.elements();
  return n;
}

void sort_by_loss(std::vector<Candidate>& list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const Candidate& a, const Candidate& b) { return a.sample.loss < b.sample.loss; });
}

Screening::Screening(JudgedCase& judged_case, std::optional<Direction> d)
    : case_(judged_case),
      direction_(d),
      lanes_(judged_case.lanes_of(d, true)),
      samples_(sampled(kSampleElements)) {
  if (elements_of(samples_) > 16 * kSampleElements) prefix_ = sampled(kSampleElements, true);
  if (elements_of(prefix_) * 4 > elements_of(samples_)) prefix_.clear();
}

bool Screening::whole_is_large() const {
  return lanes_.front()->lane().problem.x.shape.count() > kLargeElements;
}

// ---- screening and confirming -----------------------------------------------------------------------------

std::vector<Sample> Screening::sampled(int64_t elements, bool leading) const {
  const size_t most = std::min<size_t>(lanes_.size(), 3);
  std::vector<const JudgedLane*> of;
  for (size_t n = 0; n < most; ++n)
    of.push_back(lanes_[n * (lanes_.size() - 1) / std::max<size_t>(most - 1, 1)]);
  of.erase(std::unique(of.begin(), of.end()), of.end());
  std::vector<Sample> out;
  for (const JudgedLane* lane : of)
    if (auto sample = sample_of(*lane, elements / static_cast<int64_t>(of.size()), leading))
      out.push_back(std::move(*sample));
  return out;
}

std::vector<Candidate> Screening::screen(const std::vector<Sample>& samples,
                                         const std::vector<Ids>& list) const {
  std::vector<Candidate> out(list.size());
  std::atomic<size_t> done = 0;
  parallel(case_.jobs, list.size(), [&](size_t n) {
    out[n].ids = list[n];
    if (case_.in_time())
      for (const Sample& s : samples) {
        const Fit one = fit_sample(s, list[n]);
        if (!one.applies) {
          out[n].sample = {};
          break;
        }
        out[n].sample += one;
      }
    if (const size_t now = ++done; now % 16 == 0)
      case_.progress(
          fmt::format("{} {} of {} hypotheses", direction_ ? name_of(*direction_) : "", now, list.size()));
  });
  std::erase_if(out, [](const Candidate& c) { return !c.sample.applies; });
  return out;
}

// Where samples have to be long, what already fails on a short one is not held to them.
std::vector<Candidate> Screening::screen(const std::vector<Ids>& list) const {
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

void Screening::confirm(std::vector<Candidate>& candidates) const {
  std::vector<Fit> fits(candidates.size() * lanes_.size());
  parallel(case_.jobs, fits.size(), [&](size_t n) {
    if (case_.in_time())  // else it does not apply: nothing is called exact that was not looked at
      fits[n] = fit_whole(*lanes_[n % lanes_.size()], candidates[n / lanes_.size()].ids);
  });
  for (size_t c = 0; c < candidates.size(); ++c) {
    Fit whole;
    bool applies = true;
    for (size_t l = 0; l < lanes_.size(); ++l) {
      applies &= fits[c * lanes_.size() + l].applies;
      whole += fits[c * lanes_.size() + l];
    }
    whole.applies = applies;
    candidates[c].whole = whole;
  }
}

std::vector<Candidate> Screening::exact_of(std::vector<Candidate> list, size_t most) const {
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

std::vector<Candidate> Screening::exact_of_ids(const std::vector<string>& ids, size_t most) {
  std::vector<Ids> list;
  for (const string& id : ids) {
    bool everywhere = true;
    for (JudgedLane* l : lanes_) everywhere &= l->row(id) != nullptr;
    if (everywhere) list.push_back({id});
  }
  return exact_of(screen(list), most);
}

std::vector<Ids> Screening::library(const std::function<bool(const Hypothesis&)>& wanted) const {
  std::vector<Ids> out;
  for (const Hypothesis& h : lanes_.front()->library)
    if (wanted(h)) out.push_back({h.id});
  return out;
}

const Hypothesis* Screening::known(const Candidate& c) const {
  const auto found = c.ids.size() == 1 ? lanes_.front()->by_id.find(c.ids[0]) : lanes_.front()->by_id.end();
  return found == lanes_.front()->by_id.end() || found->second->wide ? nullptr : found->second;
}

}  // namespace assay::cause
