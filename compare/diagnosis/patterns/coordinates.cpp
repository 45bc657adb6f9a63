#include "compare/diagnosis/patterns/coordinates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/diagnosis/patterns/bands.h"
#include "compare/diagnosis/patterns/corners.h"
#include "compare/diagnosis/patterns/plane_codes.h"

namespace assay {

using namespace patterns;

namespace {

using std::string;

constexpr double kSure =
    45;  // of significance(): far beyond what the best of all ranges of all readings reaches by chance
constexpr double kWorth = 0.08;  // of Candidate::gain
constexpr size_t kShown = 6;

// ---- information ------------------------------------------------------------------------------------------

double entropy(double p) { return p <= 0 || p >= 1 ? 0 : -p * std::log(p) - (1 - p) * std::log(1 - p); }

// Information, in nats for an element, that being inside gives on differing.
double information(double differ, double all, double inside_differ, double inside) {
  if (inside <= 0 || inside >= all) return 0;
  const double outside = all - inside;
  return entropy(differ / all) - inside / all * entropy(inside_differ / inside) -
         outside / all * entropy((differ - inside_differ) / outside);
}

// ---- the tensor, counted ----------------------------------------------------------------------------------

struct UnitSize {
  int64_t rows = 1, cols = 1;
};
UnitSize block_of(const Problem& problem, const Plane& plane) {
  if (!plane.direction || !plane.members.empty() || !problem.quantizer(*plane.direction)) return {};
  const Quantizer& q = *problem.quantizer(*plane.direction);
  const int64_t n = length_of(q.block);
  if (n == 0) return {};
  if (is_square(q.block)) return {n, n};
  return *plane.direction == Direction::row ? UnitSize{1, n} : UnitSize{n, 1};
}
UnitSize unit_of(const Problem& problem, const Plane& plane) {
  return plane.name.ends_with(".data") ? block_of(problem, plane) : UnitSize{};
}
// From one element of the plane to the next, in the tensor.
UnitSize step_of(const Problem& problem, const Plane& plane) {
  if (plane.name.find(".scale_") == string::npos || plane.logical.count() == 0) return {};
  const Region first = region_of(&problem, plane, {});
  return {std::max<int64_t>(1, first.row1 - first.row0), std::max<int64_t>(1, first.col1 - first.col0)};
}

// Where the plane's elements stand, in steps: a plane with one element for several rows or columns has no
// coordinates between them.
struct View {
  Corners at;
  UnitSize unit, step;
  Shape length;  // of the tensor, in elements
  bool holds(size_t i) const { return at.row[i] < at.rows && at.col[i] < at.cols; }
};
View view_of(const Problem& problem, const Plane& plane) {
  View v{corners_of(problem, plane), unit_of(problem, plane), step_of(problem, plane), {}};
  v.length = {v.at.rows, v.at.cols};
  if (v.step.rows > 1 || v.step.cols > 1) {
    for (int64_t& r : v.at.row) r /= v.step.rows;
    for (int64_t& c : v.at.col) c /= v.step.cols;
    v.at.rows = ceil_div(v.at.rows, v.step.rows);
    v.at.cols = ceil_div(v.at.cols, v.step.cols);
  }
  return v;
}

// What coordinates are counted over: the tensor's elements, and units of which all elements differ for one
// reason.
struct Grid {
  Counts row{0}, col{0};                 // by coordinate
  Counts unit_row{0}, unit_col{0};       // units by coordinate of the unit
  int64_t unit_rows = 1, unit_cols = 1;  // elements that a unit covers
  int64_t differ = 0, of = 0, unit_differ = 0, units = 0;
};

Grid grid_of(const PlaneCodes& codes, const Corners& at, UnitSize unit) {
  Grid g;
  g.unit_rows = unit.rows;
  g.unit_cols = unit.cols;
  const int64_t down = ceil_div(at.rows, unit.rows), across = ceil_div(at.cols, unit.cols);
  g.row = Counts(static_cast<size_t>(at.rows));
  g.col = Counts(static_cast<size_t>(at.cols));
  std::vector<int8_t> unit_state(
      static_cast<size_t>(down * across));  // 0 no element, 1 none differs, 2 one does
  for (size_t i = 0; i < codes.got.size(); ++i) {
    const int64_t r = at.row[i], c = at.col[i];
    if (r >= at.rows || c >= at.cols) continue;
    const bool bad = codes.got[i] != codes.want[i];
    ++g.row.of[static_cast<size_t>(r)];
    ++g.col.of[static_cast<size_t>(c)];
    g.row.differ[static_cast<size_t>(r)] += bad;
    g.col.differ[static_cast<size_t>(c)] += bad;
    int8_t& state = unit_state[static_cast<size_t>(
        unit.rows == 1 && unit.cols == 1 ? r * across + c : r / unit.rows * across + c / unit.cols)];
    state = std::max(state, static_cast<int8_t>(bad ? 2 : 1));
    ++g.of;
    g.differ += bad;
  }
  g.unit_row = Counts(static_cast<size_t>(down));
  g.unit_col = Counts(static_cast<size_t>(across));
  for (int64_t r = 0; r < down; ++r)
    for (int64_t c = 0; c < across; ++c) {
      const int8_t state = unit_state[static_cast<size_t>(r * across + c)];
      for (auto [counts, k] : {std::pair(&g.unit_row, r), std::pair(&g.unit_col, c)}) {
        counts->of[static_cast<size_t>(k)] += state != 0;
        counts->differ[static_cast<size_t>(k)] += state == 2;
      }
      g.units += state != 0;
      g.unit_differ += state == 2;
    }
  return g;
}

// Twice the log likelihood ratio of "inside differs at its own rate" against chance, in units where a unit is
// one observation.
double significance(const Grid& g, const Band& b) {
  const int64_t size = b.rows ? g.unit_rows : g.unit_cols,
                n = static_cast<int64_t>(b.rows ? g.row.of.size() : g.col.of.size());
  bool whole = true;  // a unit lies inside or outside, never across
  for (int64_t v = 0; v < n && whole; ++v) whole = b.contains(v) == b.contains(v / size * size);
  const Counts& counts = whole ? (b.rows ? g.unit_row : g.unit_col) : (b.rows ? g.row : g.col);
  int64_t differ = 0, inside = 0;
  for (size_t k = 0; k < counts.of.size(); ++k)
    if (b.contains(static_cast<int64_t>(k) * (whole ? size : 1))) {
      differ += counts.differ[k];
      inside += counts.of[k];
    }
  const double all = static_cast<double>(whole ? g.units : g.of),
               bad = static_cast<double>(whole ? g.unit_differ : g.differ);
  return 2 * all * information(bad, all, static_cast<double>(differ), static_cast<double>(inside));
}

// ---- candidates -------------------------------------------------------------------------------------------

struct Candidate {
  std::vector<Band> bands;  // all must hold
  int64_t differ = 0, inside = 0;
  double gain = 0;  // share of the uncertainty that is taken away
  bool contains(int64_t r, int64_t c) const {
    return std::all_of(bands.begin(), bands.end(), [&](const Band& b) { return b.contains(b.rows ? r : c); });
  }
};

void sort_by_gain(std::vector<Candidate>& list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const Candidate& a, const Candidate& b) { return a.gain > b.gain + 1e-9; });
}

// Adds a candidate inside which elements differ more often than elsewhere.
void consider(std::vector<Candidate>& list, Candidate c, const Grid& grid) {
  const double all = static_cast<double>(grid.of), bad = static_cast<double>(grid.differ);
  const double differ = static_cast<double>(c.differ), inside = static_cast<double>(c.inside);
  c.gain = all * information(bad, all, differ, inside) / (all * entropy(bad / all));
  if (differ * all > bad * inside && c.gain > 0) list.push_back(std::move(c));
}

// The ranges of rows, and those of columns, that stand out under each way to read them.
std::vector<Candidate> of_one_axis(const Grid& grid) {
  std::vector<Candidate> out;
  const double rate = static_cast<double>(grid.differ) / static_cast<double>(grid.of);
  for (const bool rows : {true, false}) {
    const Counts& counts = rows ? grid.row : grid.col;
    for (const Reading& reading : readings()) {
      const bool repeats = static_cast<int64_t>(counts.of.size()) >= reading.divisor * reading.modulus;
      if (reading.modulus && !repeats) continue;
      const Counts classes = by_reading(counts, reading);
      for (const bool lowest : {false, true}) {
        Band b = best_band(classes, rate, lowest);
        b.rows = rows;
        b.reading = reading;
        if (significance(grid, b) < kSure) continue;
        Candidate c;
        c.bands = {b};
        for (size_t k = 0; k < classes.of.size(); ++k)
          if ((static_cast<int64_t>(k) >= b.from && static_cast<int64_t>(k) <= b.to) != b.complement) {
            c.differ += classes.differ[k];
            c.inside += classes.of[k];
          }
        consider(out, std::move(c), grid);
      }
    }
  }
  return out;
}

// The best of rows and the best of columns at once: a tile, or a lane in some rows.
std::optional<Candidate> of_both_axes(const std::vector<Candidate>& list, const PlaneCodes& codes,
                                      const View& view) {
  const auto best = [&](bool rows) {
    return std::find_if(list.begin(), list.end(),
                        [&](const Candidate& c) { return c.bands[0].rows == rows; });
  };
  const auto r = best(true), c = best(false);
  if (r == list.end() || c == list.end()) return {};
  const Corners& at = view.at;
  Candidate both;
  both.bands = {r->bands[0], c->bands[0]};
  std::vector<char> in_row(static_cast<size_t>(at.rows)), in_col(static_cast<size_t>(at.cols));
  for (int64_t v = 0; v < at.rows; ++v) in_row[static_cast<size_t>(v)] = r->bands[0].contains(v);
  for (int64_t v = 0; v < at.cols; ++v) in_col[static_cast<size_t>(v)] = c->bands[0].contains(v);
  for (size_t i = 0; i < codes.got.size(); ++i)
    if (view.holds(i) && in_row[static_cast<size_t>(at.row[i])] && in_col[static_cast<size_t>(at.col[i])]) {
      ++both.inside;
      both.differ += codes.got[i] != codes.want[i];
    }
  return both;
}

// Whether two candidates hold about the same elements, or one holds all of the other's: judged on a sample
// whose stride is no power of two.
bool repeats(const Candidate& one, const Candidate& better, const Corners& at) {
  const size_t stride = at.row.size() / 16384 * 2 + 1;
  int64_t either = 0, both = 0, inside = 0, other = 0;
  for (size_t i = 0; i < at.row.size(); i += stride) {
    const bool a = one.contains(at.row[i], at.col[i]), b = better.contains(at.row[i], at.col[i]);
    either += a || b;
    both += a && b;
    inside += a;
    other += b;
  }
  return both * 3 >= either * 2 || both == inside || both == other;
}

// Of sorted candidates those that are worth showing and say something new.
std::vector<Candidate> worth_showing(const std::vector<Candidate>& list, const Corners& at) {
  std::vector<Candidate> out;
  for (const Candidate& c : list) {
    if (c.gain < kWorth || out.size() == kShown) break;
    const auto same = [&](const Candidate& better) { return repeats(c, better, at); };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(c);
  }
  return out;
}

// ---- what is shown ----------------------------------------------------------------------------------------

// The smallest box around all that differs.
struct Box {
  int64_t row0 = 0, row1 = -1, col0 = 0, col1 = -1;  // inclusive
  int64_t held = 0;                                  // elements of the plane inside
};
Box box_around(const PlaneCodes& codes, const View& view) {
  const Corners& at = view.at;
  Box b{at.rows, -1, at.cols, -1, 0};
  for (size_t i : codes.differ) {
    if (!view.holds(i)) continue;
    b.row0 = std::min(b.row0, at.row[i]);
    b.row1 = std::max(b.row1, at.row[i]);
    b.col0 = std::min(b.col0, at.col[i]);
    b.col1 = std::max(b.col1, at.col[i]);
  }
  for (size_t i = 0; i < codes.got.size(); ++i)
    b.held += at.row[i] >= b.row0 && at.row[i] <= b.row1 && at.col[i] >= b.col0 && at.col[i] <= b.col1;
  return b;
}

Coordinate coordinate_of(const Box& box, const View& view, const Grid& grid) {
  const auto range = [](const char* axis, int64_t from, int64_t to, int64_t step, int64_t of) {
    const int64_t a = from * step, b = std::min((to + 1) * step, of) - 1;
    return a == b ? fmt::format("{} {}", axis, a) : fmt::format("{}s {}..{}", axis, a, b);
  };
  const string rows = range("row", box.row0, box.row1, view.step.rows, view.length.rows);
  const string cols = range("column", box.col0, box.col1, view.step.cols, view.length.cols);
  return {fmt::format("all in {}, {}", rows, cols), grid.differ, grid.differ, box.held, grid.of};
}

Coordinate coordinate_of(const Candidate& c, const View& view, const Grid& grid) {
  Coordinate out{"", c.differ, grid.differ, c.inside, grid.of};
  for (const Band& b : c.bands) {
    const string text = b.rows ? band_text(b, view.at.rows, view.unit.rows, view.step.rows, view.length.rows)
                               : band_text(b, view.at.cols, view.unit.cols, view.step.cols, view.length.cols);
    out.what += (out.what.empty() ? "" : " and ") + text;
  }
  return out;
}

// Of a whole split: the member that holds nearly all differences.
std::vector<Coordinate> member_coordinates(const PlaneCodes& codes, const Plane& plane) {
  std::vector<Coordinate> out;
  const int64_t differ_of = static_cast<int64_t>(codes.differ.size());
  for (size_t m = 0; m < plane.members.size(); ++m) {
    const Member& member = plane.members[m];
    const auto first = static_cast<size_t>(member.offset);
    const auto end = static_cast<size_t>(member.offset + member.padded.count());
    const auto from = std::lower_bound(codes.differ.begin(), codes.differ.end(), first);
    const int64_t differ = std::lower_bound(from, codes.differ.end(), end) - from;
    if (static_cast<double>(differ) > 0.9 * static_cast<double>(differ_of))
      out.push_back({fmt::format("member {}", m), differ, differ_of, member.padded.count(),
                     static_cast<int64_t>(codes.got.size())});
  }
  return out;
}

}  // namespace

std::vector<Coordinate> coordinates(const Problem& problem, const PlaneData& got, const PlaneData& want) {
  const PlaneCodes codes(got, want);
  if (codes.differ.empty() || codes.differ.size() == codes.got.size()) return {};
  if (!got.plane.members.empty()) return member_coordinates(codes, got.plane);
  const View view = view_of(problem, got.plane);
  const Grid grid = grid_of(codes, view.at, view.unit);
  if (grid.differ == 0 || grid.differ == grid.of) return {};

  std::vector<Candidate> list = of_one_axis(grid);
  sort_by_gain(list);
  if (auto both = of_both_axes(list, codes, view)) {
    consider(list, std::move(*both), grid);
    sort_by_gain(list);
  }
  const std::vector<Candidate> shown = worth_showing(list, view.at);

  std::vector<Coordinate> out;
  // All that differs in one small box is said whether chance could have put it there or not.
  const Box box = box_around(codes, view);
  const bool known = std::any_of(shown.begin(), shown.end(), [&](const Candidate& c) {
    return c.differ == grid.differ && c.inside == box.held;
  });
  if (box.held * 8 <= grid.of && !known) out.push_back(coordinate_of(box, view, grid));
  for (const Candidate& c : shown) out.push_back(coordinate_of(c, view, grid));
  if (out.size() > kShown) out.pop_back();
  return out;
}

}  // namespace assay
