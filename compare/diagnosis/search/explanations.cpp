#include "compare/diagnosis/search/explanations.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "contract/line.h"

namespace assay::cause {

namespace {

using std::string;

string scoped(const string& id, std::optional<Direction> d) {
  return d ? id + "@" + string(name_of(*d)) : id;
}

std::vector<const Candidate*> exact_in(const Causes& causes) {
  std::vector<const Candidate*> list;
  for (const Candidate& c : causes.candidates)
    if (c.whole.exact()) list.push_back(&c);
  return list;
}

// Whether a cause changes nothing in a lane that came out right; nothing where it does not apply there.
std::optional<bool> unchanged(JudgedLane& lane, const Ids& ids) {
  for (const string& id : ids)
    if (lane.lane().direction) lane.row(id);  // one that was fitted elsewhere acts here too
  if (const auto sample = sample_of(lane, 4096)) {
    const Fit fit = fit_sample(*sample, ids);
    if (fit.applies && !fit.exact()) return false;
  }
  const Fit fit = fit_whole(lane, ids);
  return fit.applies ? std::optional(fit.exact()) : std::nullopt;
}

class Explanations {
 public:
  Explanations(JudgedCase& judged_case, CausesByDirection& causes);
  std::vector<Explanation> run();

 private:
  // Hypotheses of which each acts on one direction, or on all.
  using Parts = std::vector<std::pair<Ids, std::optional<Direction>>>;
  const Hypothesis* row_of(const string& id, std::optional<Direction> d) const;
  Explanation explanation(const Parts& parts) const;
  void add(const Parts& parts, std::initializer_list<const Candidate*> fits, int64_t rest = 0);
  void of_one_direction(std::optional<Direction> d);
  void of_two_directions();
  void exact_in_both();
  bool shows(Direction d, const string& id) const;
  void partial_in_both();
  void in_one_of_two(Direction d, Direction other);

  JudgedCase& case_;
  CausesByDirection& causes_;
  int64_t of_ = 0, differ_ = 0,
          agree_elsewhere_ = 0;  // elements of all planes; those in lanes that do not differ
  std::vector<Explanation> out_;
};

Explanations::Explanations(JudgedCase& judged_case, CausesByDirection& causes)
    : case_(judged_case),
      causes_(causes),
      of_(case_.beside_of),
      differ_(case_.beside_differ),
      agree_elsewhere_(of_ - differ_) {
  for (const JudgedLane& l : case_.lanes)
    for (const JudgedPlane& j : l.judged) {
      of_ += j.of;
      differ_ += j.differ;
      if (!l.differs()) agree_elsewhere_ += j.of;
    }
}

std::vector<Explanation> Explanations::run() {
  if (causes_.size() == 1) of_one_direction(causes_.begin()->first);
  else if (causes_.size() == 2) of_two_directions();
  return std::move(out_);
}

// ---- one explanation --------------------------------------------------------------------------------------

const Hypothesis* Explanations::row_of(const string& id, std::optional<Direction> d) const {
  for (const JudgedLane& l : case_.lanes) {
    if (d && l.lane().direction != d) continue;
    if (const auto found = l.by_id.find(id); found != l.by_id.end()) return found->second;
  }
  return nullptr;
}

Explanation Explanations::explanation(const Parts& parts) const {
  Explanation e;
  bool first = true, lines_only = true;
  Problem line = case_.seen.problem;
  for (const auto& [ids, d] : parts)
    for (const string& id : ids) {
      const Hypothesis* h = row_of(id, d);
      if (!h) continue;
      const string side = d ? *d == Direction::row ? " (rows)" : " (columns)" : "";
      e.ids.push_back(scoped(id, d));
      e.title += (e.title.empty() ? "" : "; ") + h->title + side;
      if (first || h->stage < e.stage) e.stage = h->stage;
      if (!h->clause.empty() && e.clause.find(h->clause) == string::npos)
        e.clause += (e.clause.empty() ? "" : ", ") + h->clause;
      first = false;
      if (h->keys.empty() || h->element) lines_only = false;
      const auto changed = lines_only ? with_keys(line, h->keys, d) : std::nullopt;
      if (changed) line = *changed;
      else lines_only = false;
    }
  if (lines_only) e.line = to_line(line);
  return e;
}

// `rest`: elements that agree and that none of the fits counts.
void Explanations::add(const Parts& parts, std::initializer_list<const Candidate*> fits, int64_t rest) {
  Explanation e = explanation(parts);
  e.of = of_;
  e.differ = differ_;
  e.agree = agree_elsewhere_ + rest;
  for (const Candidate* c : fits) {
    e.agree += c->whole.agree;
    e.repaired += c->whole.repaired;
  }
  out_.push_back(std::move(e));
}

// ---- one direction ----------------------------------------------------------------------------------------

// Causes in one direction. Lanes that do not differ must not differ under them either, or they hold for this
// direction alone.
void Explanations::of_one_direction(std::optional<Direction> d) {
  for (const Candidate& c : causes_[d].candidates) {
    bool whole = true, visible = false, elsewhere = false;
    if (c.whole.exact()) {
      for (JudgedLane& l : case_.lanes) {
        if (l.differs()) continue;
        const auto same = unchanged(l, c.ids);
        if (!same) continue;
        if (l.lane().direction == d) whole &= *same;  // a member that came out right
        else elsewhere = true, visible |= !*same;
      }
      if (!whole) continue;
    } else {
      elsewhere = visible = case_.lanes.size() > case_.lanes_of(d, false).size();
    }
    if (!visible) add({{c.ids, std::nullopt}}, {&c});
    if (visible || (elsewhere && c.whole.exact())) add({{c.ids, d}}, {&c});
  }
}

// ---- two directions ---------------------------------------------------------------------------------------

void Explanations::of_two_directions() {
  exact_in_both();
  partial_in_both();
  in_one_of_two(Direction::row, Direction::col);
  in_one_of_two(Direction::col, Direction::row);
}

// Whether a direction shows a cause: it has a row for it, or would have one for what was fitted in the other
// direction.
bool Explanations::shows(Direction d, const string& id) const {
  const JudgedLane& of = *case_.lanes_of(d, true).front();
  return of.by_id.contains(id) ||
         (id.find(':') != string::npos && hypothesis_named(id, of.lane().problem, d));
}

// One cause of both, where each direction has of it what it shows; else causes of each direction side by
// side.
void Explanations::exact_in_both() {
  const auto rows = exact_in(causes_[Direction::row]), cols = exact_in(causes_[Direction::col]);
  for (const Candidate* r : rows)
    for (const Candidate* c : cols) {
      Ids all = c->ids;
      for (const string& id : r->ids)
        if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
      size_t in_rows = 0, in_cols = 0;
      for (const string& id : all) {
        in_rows += shows(Direction::row, id);
        in_cols += shows(Direction::col, id);
      }
      if (in_rows == r->ids.size() && in_cols == c->ids.size()) add({{all, std::nullopt}}, {r, c});
    }
  if (!out_.empty()) return;
  for (size_t i = 0; i < std::min<size_t>(rows.size(), 4); ++i)
    for (size_t k = 0; k < std::min<size_t>(cols.size(), 4); ++k)
      add({{rows[i]->ids, Direction::row}, {cols[k]->ids, Direction::col}}, {rows[i], cols[k]});
}

void Explanations::partial_in_both() {
  for (const Candidate& r : causes_[Direction::row].candidates)
    for (const Candidate& c : causes_[Direction::col].candidates)
      if (r.ids == c.ids && !(r.whole.exact() && c.whole.exact())) add({{r.ids, std::nullopt}}, {&r, &c});
}

// Causes of one direction, which say nothing of the other.
void Explanations::in_one_of_two(Direction d, Direction other) {
  int64_t kept = 0;
  for (const JudgedLane* l : case_.lanes_of(other, true))
    for (const JudgedPlane& j : l->judged) kept += j.of - j.differ;
  const auto& there = causes_[other].candidates;
  for (const Candidate& c : causes_[d].candidates) {
    const auto same = [&](const Candidate& o) { return o.ids == c.ids; };
    const bool both = std::any_of(there.begin(), there.end(), same);
    if (!both && out_.size() < 12) add({{c.ids, d}}, {&c}, kept);
  }
}

// How little an explanation says of other tensors: a rule says most ("layout.data:nibbles_swapped" is one), a
// number that was fitted to this one least, and a place that was fitted (a region, a map of codes) lies
// between them. One scale for everything is a rule before the others: which block has it too is chance.
int how_fitted(const Explanation& e) {
  if (e.ids.size() == 1 && e.ids[0].starts_with("scale.constant")) return -1;
  int out = 0;
  for (const string& id : e.ids) {
    const size_t colon = id.find(':');
    const bool place =
        colon != string::npos && colon + 1 < id.size() && (id[colon + 1] < 'a' || id[colon + 1] > 'z');
    // Two encodings have the same bytes for zeros and a few other values, and for nothing else.
    const bool by_chance = id.starts_with("line.out=");
    out = std::max(out, holds_number(id) || by_chance ? 2 : place ? 1 : 0);
  }
  return out;
}

// Of equals the most likely comes first.
bool better(const Explanation& a, const Explanation& b) {
  if (a.exact() != b.exact()) return a.exact();
  if (!a.exact()) return a.agree > b.agree;
  if (a.ids.size() == b.ids.size() && how_fitted(a) != how_fitted(b)) return how_fitted(a) < how_fitted(b);
  return a.ids.size() != b.ids.size() ? a.ids.size() < b.ids.size()
                                      : a.stage > b.stage;  // the nearest to what is seen
}

}  // namespace

void explain(JudgedCase& judged_case, CausesByDirection& causes, Diagnosis& out) {
  out.explanations = Explanations(judged_case, causes).run();
  std::vector<Explanation>& list = out.explanations;
  std::stable_sort(list.begin(), list.end(), better);
  const auto is_exact = [](const Explanation& e) { return e.exact(); };
  if (!list.empty() && list.front().exact()) {  // causes that are more than is needed
    const size_t least = list.front().ids.size();
    std::erase_if(list, [&](const Explanation& e) { return e.exact() && e.ids.size() > least; });
  }
  const auto exact = static_cast<size_t>(std::count_if(list.begin(), list.end(), is_exact));
  if (list.size() > exact + 3) list.resize(exact + 3);
  const auto mostly = [](const Explanation& e) {  // one that makes more than it explains is no cause
    return e.repaired * 2 > e.differ && e.made_anew() <= e.repaired;
  };
  const bool most = !list.empty() && mostly(list.front());
  if (exact > 0) out.confidence = exact == 1 ? Confidence::certain : Confidence::equivalent;
  else out.confidence = most ? Confidence::partial : Confidence::unexplained;
}

}  // namespace assay::cause
