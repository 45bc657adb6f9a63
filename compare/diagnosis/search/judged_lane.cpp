#include "compare/diagnosis/search/judged_lane.h"

#include <algorithm>
#include <utility>

#include "compare/diagnosis/search/codes.h"

namespace assay::cause {

using std::string;

bool holds_number(const string& id) {
  const size_t equals = id.find('=');
  return equals != string::npos && id.size() >= equals + 9 &&
         id.find_first_not_of("0123456789ABCDEF,", equals + 1) == string::npos;
}

void JudgedPlane::count() {
  of = differ = 0;
  const Codes g(got), w(want);
  for_logical(want.plane, [&](int64_t i) {
    ++of;
    differ += g[i] != w[i];
  });
}

bool JudgedLane::differs() const {
  return std::any_of(judged.begin(), judged.end(), [](const JudgedPlane& j) { return j.differ > 0; });
}

const JudgedPlane* JudgedLane::find(std::string_view stem) const {
  for (const JudgedPlane& j : judged)
    if (j.want.plane.name.ends_with(stem)) return &j;
  return nullptr;
}

const Quantizer& JudgedLane::quantizer() const { return *lane().problem.quantizer(*lane().direction); }

int64_t JudgedLane::lines() const {
  return lane().direction == Direction::row ? lane().problem.x.shape.rows : lane().problem.x.shape.cols;
}

int64_t JudgedLane::length() const {
  return lane().direction == Direction::row ? lane().problem.x.shape.cols : lane().problem.x.shape.rows;
}

bool JudgedLane::as_seen() const {
  const Direction d = *lane().direction;
  return d == Direction::row || geometry(quantizer(), lane().problem.x.shape, d).transposed;
}

const Hypothesis* JudgedLane::row(const string& id, const string& title) {
  if (const auto found = by_id.find(id); found != by_id.end()) return found->second;
  // The lane of a swizzle has no direction; its line has one.
  const Direction d = lane().direction.value_or(lane().problem.row ? Direction::row : Direction::col);
  auto named = hypothesis_named(id, lane().problem, d);
  if (!named) return nullptr;
  Hypothesis& h = library.emplace_back(std::move(*named));
  if (!title.empty()) h.title = title;
  by_id.emplace(id, &h);
  return &h;
}

std::optional<std::vector<const Hypothesis*>> JudgedLane::rows(const Ids& ids) const {
  std::vector<const Hypothesis*> out;
  for (const string& id : ids) {
    const auto found = by_id.find(id);
    if (found == by_id.end()) return {};
    out.push_back(found->second);
  }
  return out;
}

Ids JudgedLane::in_order(const Hypothesis& a, const Hypothesis& b) const {
  bool first = a.stage < b.stage;
  if (a.stage == b.stage)
    for (const Hypothesis& h : library)
      if (&h == &a || &h == &b) {
        first = &h == &a;
        break;
      }
  return first ? Ids{a.id, b.id} : Ids{b.id, a.id};
}

}  // namespace assay::cause
