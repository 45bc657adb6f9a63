#include "compare/diagnosis/search/diagnose.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "compare/diagnosis/search/evidence.h"
#include "compare/diagnosis/patterns/coordinates.h"
#include "compare/diagnosis/patterns/fingerprints.h"
#include "compare/diagnosis/patterns/summaries.h"
#include "compare/diagnosis/search/search.h"
#include "compare/arithmetic/expected_values.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;
using namespace cause;

// What was found in each direction, put together and described.
class Answer {
 public:
  Answer(const Observation& seen, Subject& reference, const DiagnoseOptions& options) : evidence_(seen, reference, options) {}
  Result<Diagnosis> run();

 private:
  using Parts = std::vector<std::pair<Ids, std::optional<Direction>>>;     // of which each acts on one direction, or on all
  Explanation explanation(const Parts& parts);
  void combine(Diagnosis& out);
  void combine_one(std::optional<Direction> d, Diagnosis& out);
  void combine_two(Direction rows, Direction cols, Diagnosis& out);
  void add(Diagnosis& out, Explanation e, std::initializer_list<const Candidate*> parts, int64_t rest = 0);
  Stage stage_of_unexplained(const LaneState& lane) const;
  void describe(Diagnosis& out);
  void stages(Diagnosis& out);
  void separate(Diagnosis& out);
  void find_invisible(Diagnosis& out);
  void judge_padding(Diagnosis& out);

  Evidence evidence_;
  std::map<std::optional<Direction>, Found> found_;
  int64_t of_ = 0, differ_ = 0, agree_elsewhere_ = 0;                       // elements of all planes; those in lanes that do not differ
};

// ---- explanations ----------------------------------------------------------------------------------------------------------

string scoped(const string& id, std::optional<Direction> d) { return d ? id + "@" + string(name_of(*d)) : id; }

Explanation Answer::explanation(const Parts& parts) {
  Explanation e;
  bool first = true, lines_only = true;
  Problem line = evidence_.seen.problem;
  for (const auto& [ids, d] : parts)
    for (const string& id : ids) {
      const Hypothesis* h = nullptr;
      for (const LaneState& l : evidence_.lanes)
        if ((!d || l.lane().direction == d) && !h)
          if (const auto found = l.by_id.find(id); found != l.by_id.end()) h = found->second;
      if (!h) continue;
      e.ids.push_back(scoped(id, d));
      e.title += (e.title.empty() ? "" : "; ") + h->title + (d ? *d == Direction::row ? " (rows)" : " (columns)" : "");
      if (first || h->stage < e.stage) e.stage = h->stage;
      if (!h->clause.empty() && e.clause.find(h->clause) == string::npos) e.clause += (e.clause.empty() ? "" : ", ") + h->clause;
      first = false;
      if (h->keys.empty() || h->element) lines_only = false;
      if (lines_only) {
        const auto changed = with_keys(line, h->keys, d);
        if (changed) line = *changed;
        else lines_only = false;
      }
    }
  if (lines_only) e.line = to_line(line);
  return e;
}

void Answer::add(Diagnosis& out, Explanation e, std::initializer_list<const Candidate*> parts, int64_t rest) {
  e.of = of_;
  e.differ = differ_;
  e.agree = agree_elsewhere_ + rest;
  for (const Candidate* c : parts) {
    e.agree += c->whole.agree;
    e.repaired += c->whole.repaired;
  }
  out.explanations.push_back(std::move(e));
}

std::vector<const Candidate*> exact_in(const Found& found) {
  std::vector<const Candidate*> list;
  for (const Candidate& c : found.candidates)
    if (c.whole.exact()) list.push_back(&c);
  return list;
}

// Whether a cause changes nothing in a lane that came out right; nothing where it does not apply there.
std::optional<bool> unchanged(LaneState& lane, const Ids& ids) {
  for (const string& id : ids)
    if (lane.lane().direction) lane.row(id);                                // one that was fitted elsewhere acts here too
  if (const auto sample = sample_of(lane, 4096)) {
    const Fit fit = fit_sample(*sample, ids);
    if (fit.applies && !fit.exact()) return false;
  }
  const Fit fit = fit_whole(lane, ids);
  return fit.applies ? std::optional(fit.exact()) : std::nullopt;
}

// Causes in one direction. Lanes that do not differ must not differ under them either, or they hold for this direction alone.
void Answer::combine_one(std::optional<Direction> d, Diagnosis& out) {
  for (const Candidate& c : found_[d].candidates) {
    bool whole = true, visible = false, elsewhere = false;
    if (c.whole.exact()) {
      for (LaneState& l : evidence_.lanes) {
        if (l.differs()) continue;
        const auto same = unchanged(l, c.ids);
        if (!same) continue;
        if (l.lane().direction == d) whole &= *same;                        // a member that came out right
        else elsewhere = true, visible |= !*same;
      }
      if (!whole) continue;
    } else {
      elsewhere = visible = evidence_.lanes.size() > evidence_.lanes_of(d, false).size();
    }
    if (!visible) add(out, explanation({{c.ids, std::nullopt}}), {&c});
    if (visible || (elsewhere && c.whole.exact())) add(out, explanation({{c.ids, d}}), {&c});
  }
}

void Answer::combine_two(Direction first, Direction second, Diagnosis& out) {
  const auto rows = exact_in(found_[first]), cols = exact_in(found_[second]);
  // One cause of both: what each direction has of it is what that direction shows.
  const auto has = [&](Direction d, const string& id) {
    const LaneState& of = *evidence_.lanes_of(d, true).front();
    return of.by_id.contains(id) || (id.find(':') != string::npos && hypothesis_named(id, of.lane().problem, d));   // fitted in one direction, it would act in the other too
  };
  for (const Candidate* r : rows)
    for (const Candidate* c : cols) {
      Ids all = c->ids;
      for (const string& id : r->ids)
        if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
      size_t in_rows = 0, in_cols = 0;
      for (const string& id : all) {
        in_rows += has(Direction::row, id);
        in_cols += has(Direction::col, id);
      }
      if (in_rows == r->ids.size() && in_cols == c->ids.size()) add(out, explanation({{all, std::nullopt}}), {r, c});
    }
  if (out.explanations.empty())
    for (size_t i = 0; i < std::min<size_t>(rows.size(), 4); ++i)
      for (size_t k = 0; k < std::min<size_t>(cols.size(), 4); ++k) add(out, explanation({{rows[i]->ids, first}, {cols[k]->ids, second}}), {rows[i], cols[k]});
  for (const Candidate& r : found_[first].candidates)
    for (const Candidate& c : found_[second].candidates)
      if (r.ids == c.ids && !(r.whole.exact() && c.whole.exact())) add(out, explanation({{r.ids, std::nullopt}}), {&r, &c});
  for (const Direction d : {first, second}) {
    const Direction other = d == first ? second : first;
    int64_t kept = 0;                                                       // of the other direction, which the part says nothing of
    for (const LaneState* l : evidence_.lanes_of(other, true))
      for (const Judged& j : l->judged) kept += j.of - j.differ;
    for (const Candidate& c : found_[d].candidates) {
      const auto& there = found_[other].candidates;
      const bool both = std::any_of(there.begin(), there.end(), [&](const Candidate& o) { return o.ids == c.ids; });
      if (!both && out.explanations.size() < 12) add(out, explanation({{c.ids, d}}), {&c}, kept);
    }
  }
}

void Answer::combine(Diagnosis& out) {
  of_ = evidence_.beside_of;
  differ_ = evidence_.beside_differ;
  agree_elsewhere_ = of_ - differ_;
  for (const LaneState& l : evidence_.lanes)
    for (const Judged& j : l.judged) {
      of_ += j.of;
      differ_ += j.differ;
      if (!l.differs()) agree_elsewhere_ += j.of;
    }
  if (found_.size() == 1) combine_one(found_.begin()->first, out);
  else if (found_.size() == 2) combine_two(Direction::row, Direction::col, out);
  std::stable_sort(out.explanations.begin(), out.explanations.end(), [](const Explanation& a, const Explanation& b) {
    if (a.exact() != b.exact()) return a.exact();
    if (!a.exact()) return a.agree > b.agree;
    return a.ids.size() != b.ids.size() ? a.ids.size() < b.ids.size() : a.stage > b.stage;   // the nearest to what is seen
  });
  const auto count = [&] { return static_cast<size_t>(std::count_if(out.explanations.begin(), out.explanations.end(), [](const Explanation& e) { return e.exact(); })); };
  if (count() > 0) {                                                        // causes that are more than is needed
    const size_t least = out.explanations.front().ids.size();
    std::erase_if(out.explanations, [&](const Explanation& e) { return e.exact() && e.ids.size() > least; });
  }
  const size_t exact = count();
  if (out.explanations.size() > exact + 3) out.explanations.resize(exact + 3);
  if (exact > 0) out.confidence = exact == 1 ? Confidence::certain : Confidence::equivalent;
  else out.confidence = !out.explanations.empty() && out.explanations.front().repaired * 2 > out.explanations.front().differ ? Confidence::partial : Confidence::unexplained;
}

// ---- what is seen ----------------------------------------------------------------------------------------------------------

// Where a difference begins that nothing explains, as far as the planes tell.
Stage Answer::stage_of_unexplained(const LaneState& lane) const {
  std::vector<PlaneData> got_all;
  for (const Judged& j : lane.judged) got_all.push_back(j.got);
  const auto prints = [&](const Judged& j) {
    std::set<string> out;
    for (const Fingerprint& f : fingerprints(lane.lane().problem, j.got, j.want, lane.lane().inputs, got_all)) out.insert(f.id);
    return out;
  };
  const auto any = [](const std::set<string>& have, std::initializer_list<const char*> of) { return std::any_of(of.begin(), of.end(), [&](const char* id) { return have.contains(id); }); };
  const Judged *amax = lane.find(".amax"), *scale = lane.find(".scale"), *inverse = lane.find(".scale_inv"), *data = lane.find(".data");
  if (!inverse) inverse = lane.find(".scale_gemm");
  if (amax && amax->differ > 0) return Stage::amax;
  if (!lane.lane().direction) return Stage::code;
  const Quantizer& q = *lane.lane().problem.quantizer(*lane.lane().direction);
  if (scale && scale->differ > 0) return Stage::tensor_scale;
  if (inverse && inverse->differ > 0) {
    if (!info(q.format).has_blocks()) return Stage::tensor_scale;
    const std::set<string> have = prints(*inverse);
    if (any(have, {"multiset", "multiset_rows", "multiset_columns"})) return Stage::layout;
    if (any(have, {"amax_index", "amax_tail", "amax_outside"})) return Stage::amax;
    return Stage::block_scale;
  }
  if (!data) return Stage::code;
  if (data->want.plane.packed) {                                           // bytes that differ hold the same two codes
    bool swapped = true;
    for (size_t i = 0; i < data->got.bytes.size() && swapped; ++i) {
      const std::byte g = data->got.bytes[i], w = data->want.bytes[i];
      swapped = g == w || g == (w << 4 | w >> 4);
    }
    if (swapped) return Stage::packing;
  }
  const std::set<string> have = prints(*data);
  if (any(have, {"multiset", "multiset_rows", "multiset_columns"})) return Stage::layout;
  return Stage::code;
}

void Answer::stages(Diagnosis& out) {
  for (const Direction d : kDirections) {
    const std::vector<LaneState*> lanes = evidence_.lanes_of(d, false);
    if (lanes.empty()) continue;
    const Quantizer& q = *lanes.front()->lane().problem.quantizer(d);
    const bool blocks = info(q.format).has_blocks();
    std::map<Stage, StageVerdict> verdicts;
    for (const Stage s : kStages) {
      if (s == Stage::rht && !q.rht && !(out.first == s && out.direction == d)) continue;
      if ((s == Stage::tensor_scale && blocks) || (s == Stage::block_scale && !blocks) || (s == Stage::amax && q.format == FormatId::identity)) continue;
      verdicts[s] = {s, d, StageOutcome::unseen, 0, 0, ""};
    }
    const auto see = [&](Stage s, int64_t differ, int64_t of) {
      StageVerdict& v = verdicts[s];
      v.stage = s;
      v.direction = d;
      v.differ += differ;
      v.of += of;
      v.outcome = v.differ > 0 ? StageOutcome::differs : StageOutcome::equal;
    };
    bool wrong_scales = false;
    int64_t good_blocks = 0;
    for (const LaneState* l : lanes) {
      const Judged* scales = nullptr;
      for (const Judged& j : l->judged) {
        const string& name = j.want.plane.name;
        if (name.ends_with(".amax")) see(Stage::amax, j.differ, j.of);
        else if (name.find(".scale") != string::npos) {
          see(blocks ? Stage::block_scale : Stage::tensor_scale, j.differ, j.of);
          scales = &j;
        }
      }
      const Judged* data = l->find(".data");
      if (!data) continue;
      if (!scales || scales->differ == 0) {
        bool tensor_wrong = false;
        for (const Judged& j : l->judged) tensor_wrong |= j.want.plane.padded == Shape{1, 1} && j.differ > 0;
        if (!tensor_wrong) {
          see(Stage::code, data->differ, data->of);
          continue;
        }
      }
      wrong_scales = true;
      if (!blocks || !scales) continue;
      // Codes count where their block's scale agrees.
      const Plane &p = data->want.plane, &sp = scales->want.plane;
      const Codes got(data->got), want(data->want), scales_got(scales->got), scales_want(scales->want);
      int64_t differ = 0, of = 0;
      std::vector<int8_t> equal(static_cast<size_t>(sp.padded.count()), -1);
      for_places(p, [&](int64_t r, int64_t c, int64_t at) {
        const int64_t s = scale_index(q, sp, r, c);
        int8_t& known = equal[static_cast<size_t>(s)];
        if (known < 0) {
          known = scales_got[s] == scales_want[s];
          good_blocks += known;
        }
        if (!known) return;
        ++of;
        differ += got[at] != want[at];
      });
      see(Stage::code, differ, of);
    }
    if (wrong_scales) {
      StageVerdict& v = verdicts[Stage::code];
      v.note = blocks ? fmt::format("in {} blocks whose scale agrees", good_blocks) : "the scale of the tensor differs";
      if (v.differ == 0) v.outcome = StageOutcome::follows;
    }
    for (auto& [stage, v] : verdicts) {
      if (out.first == stage && (!out.direction || out.direction == d) && out.confidence != Confidence::unexplained) {
        if (v.outcome == StageOutcome::unseen) v.note = "no plane shows it: the explanation says so";
        v.outcome = StageOutcome::differs;
      } else if (out.first && *out.first < stage && v.outcome == StageOutcome::differs && out.confidence != Confidence::unexplained && out.confidence != Confidence::partial && out.explanations.front().ids.size() == 1 && !out.explanations.front().ids[0].starts_with("flavour.")) {
        v.outcome = StageOutcome::follows;
      }
    }
    for (const auto& [stage, v] : verdicts) out.stages.push_back(v);
  }
}

void Answer::describe(Diagnosis& out) {
  // Each of these looks at whole planes, and none at another.
  std::deque<std::vector<PlaneData>> got;                                   // of each lane
  std::vector<std::function<void()>> looks;
  const bool many = evidence_.lanes.size() > 8;
  const Judged* shown = nullptr;                                            // the first plane that differs; of many elements, as a tensor's one value lies nowhere
  const LaneState* lane = nullptr;
  std::deque<PlaneSummary> summaries;
  for (const LaneState& l : evidence_.lanes) {
    std::vector<PlaneData>& all = got.emplace_back();
    for (const Judged& j : l.judged) all.push_back(j.got);
    for (const Judged& j : l.judged) {
      if (many && j.differ == 0) continue;
      if (j.differ > 0 && (!lane || (lane == &l && shown->of == 1))) lane = &l, shown = j.of > 1 || !shown ? &j : shown;
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
  if (shown) {
    const Problem& p = lane->lane().problem;
    looks.push_back([&] { out.heat = heat_map(p, shown->got, shown->want); });
    looks.push_back([&] { out.where = coordinates(p, shown->got, shown->want); });
    looks.push_back([&] {
      for (const Fingerprint& f : fingerprints(p, shown->got, shown->want, lane->lane().inputs, got[static_cast<size_t>(std::find_if(evidence_.lanes.begin(), evidence_.lanes.end(), [&](const LaneState& l) { return &l == lane; }) - evidence_.lanes.begin())])) out.fingerprints.push_back(f.text);
    });
  }
  parallel(evidence_.jobs, looks.size(), [&](size_t n) { looks[n](); });
  for (const auto& [got_there, want] : evidence_.beside) {
    PlaneSummary s;
    s.plane = want.plane.name;
    s.encoding = info(want.plane.encoding).name;
    s.of = want.plane.logical.count();
    for (int64_t i = 0; i < s.of; ++i) s.differ += Codes(want.plane, got_there.bytes)[i] != Codes(want)[i];
    out.planes.push_back(std::move(s));
  }
  out.planes.insert(out.planes.end(), std::make_move_iterator(summaries.begin()), std::make_move_iterator(summaries.end()));
}

// Lines on which explanations that are equal here differ: other fills of the same line, of a small tensor.
void Answer::separate(Diagnosis& out) {
  std::vector<const Explanation*> exact;
  for (const Explanation& e : out.explanations)
    if (e.exact() && exact.size() < 4) exact.push_back(&e);
  if (exact.size() < 2 || !evidence_.seen.problem.as<Quantize>()) return;
  static constexpr FillKind kFills[] = {FillKind::edges, FillKind::ties, FillKind::wide, FillKind::nonfinite, FillKind::denormal, FillKind::amax_edges, FillKind::negative_zeros, FillKind::outliers, FillKind::normal};
  std::set<std::pair<size_t, size_t>> together;
  for (size_t a = 0; a < exact.size(); ++a)
    for (size_t b = a + 1; b < exact.size(); ++b) together.insert({a, b});
  for (const FillKind kind : kFills) {
    if (together.empty() || !evidence_.in_time()) return;
    Problem p = evidence_.seen.problem;
    p.x.fill = {};
    p.x.fill.kind = kind;
    p.x.shape = {std::min<int64_t>(p.x.shape.rows, 128), std::min<int64_t>(p.x.shape.cols, 256)};
    if (validate(p)) continue;
    const auto inputs = make_inputs(p, evidence_.reference);
    if (!inputs) continue;
    std::vector<Result<std::vector<PlaneData>>> made;
    for (const Explanation* e : exact) made.push_back(predict(*e, p, *inputs, evidence_.reference));
    const size_t before = together.size();
    std::erase_if(together, [&](const auto& pair) {
      const auto &x = made[pair.first], &y = made[pair.second];
      if (!x || !y) return false;
      for (size_t i = 0; i < x->size(); ++i)
        if ((*x)[i].bytes != (*y)[i].bytes) return true;
      return false;
    });
    if (together.size() < before) out.separating.push_back(to_line(p));
  }
}

void Answer::find_invisible(Diagnosis& out) {
  std::optional<std::set<string>> common;
  for (const auto& [d, found] : found_) {
    std::set<string> here(found.unseen.begin(), found.unseen.end());
    if (!common) {
      common = here;
      continue;
    }
    std::erase_if(*common, [&](const string& id) { return !here.contains(id); });
  }
  if (!common) return;
  for (const LaneState& l : evidence_.lanes) {                                       // in the library's order
    for (const Hypothesis& h : l.library)
      if (common->contains(h.id)) out.invisible.push_back(h.id);
    if (!out.invisible.empty()) return;
  }
}

// GEMM-layout padding, where every element is right: it must be 0 (N6.4). Compact padding is nobody's.
void Answer::judge_padding(Diagnosis& out) {
  int64_t padding = 0;
  std::set<uint32_t> codes;
  Encoding encoding = Encoding::e8m0;
  for (const LaneState& l : evidence_.lanes)
    for (const Judged& j : l.judged) {
      const Plane& plane = j.want.plane;
      if (plane.layout == ScaleLayout::compact) continue;
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
  e.title = "padding was never cleared" + (codes.size() == 1 ? fmt::format(": what is not 0 of it is {}", code_hex(encoding, *codes.begin())) : string());
  e.stage = Stage::layout;
  e.clause = "N6.4";
  e.agree = e.of = out.elements;
  e.repaired = e.differ = padding;
  out.explanations = {std::move(e)};
  out.confidence = Confidence::certain;
  out.first = Stage::layout;
  stages(out);
}

Result<Diagnosis> Answer::run() {
  Diagnosis out;
  out.line = to_line(evidence_.seen.problem);
  out.subject = evidence_.seen.subject;
  if (const auto error = evidence_.gather()) return *error;
  for (const LaneState& l : evidence_.lanes)
    for (const Judged& j : l.judged) out.elements += j.of;
  out.elements += evidence_.beside_of;
  if (out.elements == 0 && evidence_.seen.problem.x.shape.count() > 0) return Error{"nothing was compared: no plane holds an element", 0, ""};
  const bool differs = evidence_.beside_differ > 0 || std::any_of(evidence_.lanes.begin(), evidence_.lanes.end(), [](const LaneState& l) { return l.differs(); });
  if (differs) {
    for (const std::optional<Direction> d : {std::optional<Direction>{}, std::optional(Direction::row), std::optional(Direction::col)})
      if (!evidence_.lanes_of(d, true).empty()) {
        static const std::vector<Candidate> kNone;
        const auto rows = found_.find(Direction::row);
        found_[d] = Search(evidence_, d, rows == found_.end() ? kNone : rows->second.candidates).run();
      }
    combine(out);
    const LaneState* bad = nullptr;
    for (const LaneState& l : evidence_.lanes)
      if (!bad && l.differs()) bad = &l;
    if (bad) out.direction = bad->lane().direction;
    if (out.confidence == Confidence::certain || out.confidence == Confidence::equivalent) out.first = out.explanations.front().stage;
    else out.first = bad ? stage_of_unexplained(*bad) : Stage::layout;
    if (out.first == Stage::rht && !evidence_.lanes_of(Direction::col, true).empty()) out.direction = Direction::col;   // N11.2: what differs of rows has a cause of its own
    evidence_.progress("describing");
    describe(out);
    if (out.confidence == Confidence::unexplained || out.confidence == Confidence::partial)
      for (const auto& [d, found] : found_)
        for (const string& text : found.under_scales) out.fingerprints.insert(out.fingerprints.begin(), fmt::format("{}: {}", d ? name_of(*d) : "", text));
    stages(out);
    separate(out);
    find_invisible(out);
  } else {
    judge_padding(out);
  }
  std::set<string> tried;
  for (const LaneState& l : evidence_.lanes) {
    out.evaluations += l.replay->runs();
    for (const Hypothesis& h : l.library) tried.insert(h.id);
  }
  out.hypotheses = static_cast<int>(tried.size());
  out.seconds = evidence_.elapsed();
  return out;
}

}  // namespace

Result<Diagnosis> diagnose(const Observation& seen, Subject& reference, const DiagnoseOptions& options) { return Answer(seen, reference, options).run(); }

}  // namespace assay
