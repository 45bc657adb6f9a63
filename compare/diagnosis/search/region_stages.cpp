// Regions that carry the codes or the scales of another region: a page, a tile, an expert's rows. The region
// is the box around what differs, and which one it carries is fitted.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/expected_values.h"
#include "compare/diagnosis/search/codes.h"
#include "compare/diagnosis/search/stages.h"

namespace assay::cause {

namespace {

using std::string;

// A plane of a lane by lines and places, or by lines and blocks.
class Grid {
 public:
  // The data, or the scales of a format with blocks; of row scales one place a line.
  Grid(const JudgedLane& lane, const JudgedPlane& j) : got_(j.got), want_(j.want), lines_(lane.lines()) {
    const Quantizer& q = lane.quantizer();
    const bool data = j.is_data(), blocks = info(q.format).has_blocks();
    const int64_t n = data ? 1 : blocks ? length_of(q.block) : 1;
    places_ = data || blocks ? ceil_div(lane.length(), n) : 1;
    at_.reserve(static_cast<size_t>(lines_ * places_));
    const bool as_seen = lane.as_seen();
    for (int64_t i = 0; i < lines_; ++i)
      for (int64_t k = 0; k < places_; ++k) {
        const int64_t r = as_seen ? i : k * n, c = as_seen ? k * n : i;
        at_.push_back(data ? index_of(j.want.plane, r, c) : blocks ? scale_index(q, j.want.plane, r, c) : i);
      }
  }
  int64_t lines() const { return lines_; }
  int64_t places() const { return places_; }
  uint32_t got(int64_t i, int64_t k) const { return got_[at(i, k)]; }
  uint32_t want(int64_t i, int64_t k) const { return want_[at(i, k)]; }
  bool differs(int64_t i, int64_t k) const { return got(i, k) != want(i, k); }

 private:
  int64_t at(int64_t i, int64_t k) const { return at_[static_cast<size_t>(i * places_ + k)]; }
  Codes got_, want_;
  int64_t lines_ = 0, places_ = 0;
  std::vector<int64_t> at_;
};

struct Box {
  int64_t i0 = 1 << 30, i1 = 0, j0 = 1 << 30, j1 = 0, differ = 0;
  int64_t cells() const { return (i1 - i0) * (j1 - j0); }
};
Box box_of(const Grid& g) {
  Box b;
  for (int64_t i = 0; i < g.lines(); ++i)
    for (int64_t k = 0; k < g.places(); ++k) {
      if (!g.differs(i, k)) continue;
      ++b.differ;
      b.i0 = std::min(b.i0, i), b.i1 = std::max(b.i1, i + 1);
      b.j0 = std::min(b.j0, k), b.j1 = std::max(b.j1, k + 1);
    }
  return b;
}

// Whether the box holds what belongs `down` lines and `along` places further on.
bool carries(const Grid& g, const Box& b, int64_t down, int64_t along) {
  if (b.i0 + down < 0 || b.i1 + down > g.lines() || b.j0 + along < 0 || b.j1 + along > g.places())
    return false;
  for (int64_t i = b.i0; i < b.i1; ++i)
    for (int64_t k = b.j0; k < b.j1; ++k)
      if (g.got(i, k) != g.want(i + down, k + along)) return false;
  return true;
}

// Planes up to this size are searched in every place, larger ones straight above and below.
constexpr int64_t kMostPlaces = int64_t{1} << 20;

// The box with its edges moved outward to multiples of `unit`.
Box rounded(Box b, const Grid& g, int64_t unit, int64_t along_unit) {
  b.i0 = b.i0 / unit * unit, b.i1 = std::min(round_up(b.i1, unit), g.lines());
  b.j0 = b.j0 / along_unit * along_unit, b.j1 = std::min(round_up(b.j1, along_unit), g.places());
  return b;
}

string place_text(const Box& b, int64_t down, int64_t along) {
  return fmt::format(":{:+},{:+}:{}-{},{}-{}", down, along, b.i0, b.i1, b.j0, b.j1);
}

// Where the box comes from: nothing where it is too small to tell, or comes from nowhere. Straight above or
// below is looked at first.
struct Source {
  Box box;
  int64_t down, along;
};
std::optional<Source> source_of(const Grid& g) {
  const Box tight = box_of(g);
  if (tight.differ < 8) return {};
  // A region of whole lines, as where pages are mixed up, may begin and end with lines that agree by chance.
  std::vector<Box> boxes;
  for (const int64_t unit : {32, 16, 8})
    for (const int64_t along : {g.places(), int64_t{32}, int64_t{8}, int64_t{1}})
      boxes.push_back(rounded(tight, g, unit, along));
  boxes.push_back(tight);
  const auto key = [](const Box& b) { return std::tuple(b.i0, b.i1, b.j0, b.j1); };
  std::vector<Box> tried;
  for (const Box& b : boxes) {
    if (std::any_of(tried.begin(), tried.end(), [&](const Box& t) { return key(t) == key(b); })) continue;
    tried.push_back(b);
    if (b.cells() == g.lines() * g.places() || b.differ * 8 < b.cells()) continue;
    for (int64_t by = 1; by < g.lines(); ++by)
      for (const int64_t down : {-by, by})
        if (carries(g, b, down, 0)) return Source{b, down, 0};
    if (g.lines() * g.places() > kMostPlaces) continue;
    for (int64_t down = -b.i0; down + b.i1 <= g.lines(); ++down)
      for (int64_t along = -b.j0; along + b.j1 <= g.places(); ++along)
        if ((down != 0 || along != 0) && carries(g, b, down, along)) return Source{b, down, along};
  }
  return {};
}

// By how many lines everything is turned, around the end.
std::optional<int64_t> rotation_of(const Grid& g) {
  const auto line = [&](int64_t i, int64_t by) {
    for (int64_t k = 0; k < g.places(); ++k)
      if (g.got(i, k) != g.want((i + by) % g.lines(), k)) return false;
    return true;
  };
  for (int64_t by = 1; by < g.lines(); ++by) {
    bool all = true;
    for (int64_t i = 0; i < g.lines() && all; ++i) all = line(i, by);
    if (all) return by;
  }
  return {};
}

// Lines whose codes were made with the scales of other lines: which ones is tried.
std::vector<string> used_scales(const Grid& data, const JudgedLane& lane) {
  const Box tight = box_of(data);
  std::vector<string> out;
  if (tight.differ < 8) return out;
  const int64_t blocks = ceil_div(lane.length(), length_of(lane.quantizer().block));
  for (const int64_t unit : {32, 16, 8}) {
    const Box b = rounded(tight, data, unit, data.places());
    if (b.i0 == 0 && b.i1 == data.lines()) continue;
    for (int64_t by = unit; by < data.lines() && out.size() < 64; by += unit)
      for (const int64_t down : {-by, by})
        if (b.i0 + down >= 0 && b.i1 + down <= data.lines())
          out.push_back(fmt::format("scale.from.codes:{:+},+0:{}-{},0-{}", down, b.i0, b.i1, blocks));
  }
  return out;
}

// A row that explains one plane and leaves the others is taken with each of those that change codes.
void offer(SearchState& s, const std::vector<string>& ids) {
  std::vector<Candidate> list;
  for (const string& id : ids)
    if (s.bad().front()->row(id)) list.push_back({{id}, {}, {}});
  s.screening.confirm(list);
  for (Candidate& c : list) {
    if (!c.whole.applies) continue;
    if (c.whole.exact()) s.exact.push_back(c);
    c.sample = c.whole;
    if (c.whole.repaired > 0) s.singles.insert(s.singles.begin(), c);
  }
}

}  // namespace

void try_moved_regions(SearchState& s) {
  JudgedLane& lane = *s.bad().front();
  const Quantizer& q = lane.quantizer();
  const JudgedPlane *data = lane.find(".data"), *scales = lane.find(scale_stem(q.scales));
  if (s.bad().size() != 1 || !data) return;
  const bool of_rows = q.row_scaled && !info(q.format).has_blocks();
  if (of_rows) scales = lane.find(".scale_inv");
  const bool has_scales = scales && (info(q.format).has_blocks() || of_rows);
  const Grid codes(lane, *data);
  const std::optional<Source> moved = source_of(codes);
  if (has_scales && scales->differ > 0) {
    const Grid grid(lane, *scales);
    if (const auto from = source_of(grid))
      offer(s, {"scale.from.stored" + place_text(from->box, from->down, from->along)});
    if (const auto by = s.unexplained() ? rotation_of(grid) : std::nullopt)
      offer(s, {fmt::format("scale.lines_rotated:{}", *by)});
    if (s.unexplained() && moved && moved->along == 0) {
      Box whole = moved->box;
      whole.j0 = 0, whole.j1 = codes.places();
      offer(s, {"output.from" + place_text(whole, moved->down, 0)});
    }
  }
  if (s.unexplained() && moved) offer(s, {"code.from" + place_text(moved->box, moved->down, moved->along)});
  if (s.unexplained() && data->differ > 0) {
    if (const auto by = rotation_of(codes))
      offer(s, {fmt::format("code.{}s_rotated:{}", lane.lane().direction == Direction::row ? "row" : "column",
                            codes.lines() - *by)});
  }
  const bool scales_right = !has_scales || scales->differ == 0;
  if (s.unexplained() && data->differ > 0 && scales_right && info(q.format).has_blocks() &&
      q.round != Round::sr) {
    std::vector<Candidate> found = s.screening.exact_of_ids(used_scales(codes, lane), 4);
    s.exact.insert(s.exact.end(), found.begin(), found.end());
  }
}

// A single cause that leaves no scale wrong, and a region that carries the codes of another one under it.
void try_regions_under(SearchState& s) {
  constexpr size_t kMostFirst = 4;
  JudgedLane& lane = *s.bad().front();
  if (s.bad().size() != 1 || lane.quantizer().round == Round::sr || s.screening.whole_is_large()) return;
  std::vector<Candidate> found;
  size_t tried = 0;
  for (const Candidate& first : s.singles) {
    if (first.ids.size() != 1 || !first.sample.scales_agree || first.sample.repaired == 0) continue;
    const auto rows = lane.rows(first.ids);
    if (!rows || (*rows)[0]->code_place || !(*rows)[0]->layout.empty()) continue;
    if (++tried > kMostFirst || !s.screening.of().in_time()) break;
    const auto made = lane.replay->run({}, *rows);
    if (!made) continue;
    for (const JudgedPlane& j : lane.judged) {
      if (!j.is_data()) continue;
      JudgedPlane under{j.index, j.got, (*made)[j.index]};
      under.count();
      const auto moved = source_of(Grid(lane, under));
      if (!moved) continue;
      const string id = "code.from" + place_text(moved->box, moved->down, moved->along);
      if (lane.row(id)) found.push_back({{first.ids[0], id}, {}, {}});
    }
  }
  s.screening.confirm(found);
  std::erase_if(found, [](const Candidate& c) { return !c.whole.exact(); });
  s.exact = std::move(found);
}

}  // namespace assay::cause
