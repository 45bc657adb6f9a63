// Rows about regions of a direction that carry the scales or the codes of another region, with the place that
// search fits.
#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "compare/diagnosis/library/fitted_forms.h"

namespace assay::fitted {

namespace {

using std::string;
using enum Stage;

// Lines [i0, i1) and places, or blocks, [j0, j1), which hold what belongs `down` lines and `along` places
// further on.
struct Moved {
  int64_t down = 0, along = 0, i0 = 0, i1 = 0, j0 = 0, j1 = 0;
  bool holds(int64_t i, int64_t j) const { return i >= i0 && i < i1 && j >= j0 && j < j1; }
  string text(Direction d, const char* unit) const {
    const char *line = d == Direction::row ? "rows" : "columns",
               *place = d == Direction::row ? "columns" : "rows";
    const string here = fmt::format("{} {}..{}", line, i0, i1 - 1),
                 there = fmt::format("{} {}..{}", line, i0 + down, i1 - 1 + down);
    if (along == 0) return fmt::format("{} those of {}", here, there);
    return fmt::format("{}, {} {}..{} those of {}, {} {}..{}", here, *unit ? unit : place, j0, j1 - 1, there,
                       *unit ? unit : place, j0 + along, j1 - 1 + along);
  }
};
// Of "...:+64,-64:32-64,64-128".
std::optional<Moved> moved_of(const string& id) {
  const size_t colon = id.find(':');
  Moved m;
  if (colon == string::npos || std::sscanf(id.c_str() + colon, ":%ld,%ld:%ld-%ld,%ld-%ld", &m.down, &m.along,
                                           &m.i0, &m.i1, &m.j0, &m.j1) != 6)
    return {};
  return m;
}

void move_codes(Hypothesis& h, const Moved& m) {
  h.code_place = [m](int64_t i, int64_t j, int64_t lines, int64_t length) -> std::pair<int64_t, int64_t> {
    const int64_t a = i + m.down, b = j + m.along;
    return m.holds(i, j) && a >= 0 && a < lines && b >= 0 && b < length ? std::pair{a, b} : std::pair{i, j};
  };
}
void move_scales(Hypothesis& h, const Moved& m, Hypothesis::Use use) {
  h.use = use;
  h.scale = [m](const ScaleGrid& s, int64_t i, int64_t b) {
    const int64_t a = i + m.down, c = b + m.along;
    return m.holds(i, b) && a >= 0 && a < s.lines && c >= 0 && c < s.blocks ? s.at(a, c) : s.at(i, b);
  };
}

// "code.from:": codes alone.
std::optional<Hypothesis> codes_from(const string& id, const Problem&, Direction d) {
  const auto m = moved_of(id);
  if (!m) return {};
  Hypothesis h = row_of(id, code, "N6.1", fmt::format("codes of {}", m->text(d, "")));
  h.wide = true;
  move_codes(h, *m);
  return h;
}

// "scale.from.stored:", "scale.from.codes:": scales alone.
std::optional<Hypothesis> scales_from(const string& id, const Problem& lane, Direction d) {
  const auto m = moved_of(id);
  const Quantizer& q = *lane.quantizer(d);
  const bool used = id.starts_with("scale.from.codes:");
  if (!m || (!info(q.format).has_blocks() && (!q.row_scaled || used))) return {};
  Hypothesis h = row_of(
      id, used ? scaled_value : block_scale, "N6.2",
      used ? fmt::format("elements are scaled by other scales than the stored ones: {}", m->text(d, "blocks"))
           : fmt::format("stored scales of {}; elements are right", m->text(d, "blocks")));
  h.wide = true;
  if (info(q.format).has_blocks())
    move_scales(h, *m, used ? Hypothesis::Use::codes : Hypothesis::Use::stored);
  else h.inverse_place = [m = *m](int64_t i) { return m.holds(i, 0) ? i + m.down : i; };
  return h;
}

// "output.from:": codes and scales of whole lines, as where a page of the output is another one.
std::optional<Hypothesis> output_from(const string& id, const Problem& lane, Direction d) {
  const auto m = moved_of(id);
  const Quantizer& q = *lane.quantizer(d);
  if (!m || (!info(q.format).has_blocks() && !q.row_scaled)) return {};
  Hypothesis h = row_of(id, block_scale, "N6.1", fmt::format("codes and scales of {}", m->text(d, "")));
  h.wide = true;
  move_codes(h, *m);
  if (info(q.format).has_blocks()) move_scales(h, *m, Hypothesis::Use::stored);
  else h.inverse_place = [m = *m](int64_t i) { return m.holds(i, 0) ? i + m.down : i; };
  return h;
}

// "scale.lines_rotated:64": the stored scales of line i are those of line i + 64, around the end.
std::optional<Hypothesis> scales_rotated(const string& id, const Problem& lane, Direction d) {
  long by = 0;
  if (std::sscanf(id.c_str() + id.find(':'), ":%ld", &by) != 1 ||
      !info(lane.quantizer(d)->format).has_blocks())
    return {};
  const int64_t lines = d == Direction::row ? lane.x.shape.rows : lane.x.shape.cols;
  const char* what = d == Direction::row ? "rows" : "columns";
  Hypothesis h =
      row_of(id, block_scale, "N6.2",
             2 * by == lines
                 ? fmt::format("the stored scales of the two halves of the {} have changed places", what)
                 : fmt::format("the stored scales are those of {} {} further on, around the end", what, by));
  h.wide = true;
  h.use = Hypothesis::Use::stored;
  h.scale = [by](const ScaleGrid& s, int64_t i, int64_t b) { return s.at((i + by) % s.lines, b); };
  return h;
}

}  // namespace

const std::vector<Form>& region_forms() {
  static const std::vector<Form> kForms = {
      {"code.from:", codes_from},
      {"scale.from.stored:", scales_from},
      {"scale.from.codes:", scales_from},
      {"output.from:", output_from},
      {"scale.lines_rotated:", scales_rotated},
  };
  return kForms;
}

}  // namespace assay::fitted
