#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/report/html_sections.h"
#include "compare/text/html.h"
#include "contract/line.h"

namespace assay::sections {

using std::string;

namespace {

// ---- the heat map -----------------------------------------------------------------------------------------

// 0: none differs; 5: all do; between them by share.
int heat_of(int64_t differ, int64_t of) {
  if (differ <= 0 || of <= 0) return 0;
  if (differ >= of) return 5;
  const double share = static_cast<double>(differ) / static_cast<double>(of);
  return share < 0.01 ? 1 : share < 0.1 ? 2 : share < 0.5 ? 3 : 4;
}

string range(int64_t tile, int64_t size, int64_t end) {
  const int64_t first = tile * size, last = std::max(first, std::min(first + size, end) - 1);
  return first == last ? grouped(first) : grouped(first) + "–" + grouped(last);
}

// The map with tiles joined in pairs as long as one of each pair holds nothing: a scale stands only where its
// block begins.
HeatMap joined(HeatMap h) {
  for (const bool columns : {true, false})
    for (int64_t& count = columns ? h.cols : h.rows; count > 1;) {
      auto at = [&](int64_t line, int64_t i) {
        return static_cast<size_t>(columns ? line * h.cols + i : i * h.cols + line);
      };
      const int64_t lines = columns ? h.rows : h.cols;
      bool hollow = true;
      for (int64_t line = 0; hollow && line < lines; ++line)
        for (int64_t i = 0; hollow && i + 1 < count; i += 2)
          hollow = h.of[at(line, i)] == 0 || h.of[at(line, i + 1)] == 0;
      if (!hollow) break;
      const int64_t half = (count + 1) / 2;
      HeatMap out = h;
      (columns ? out.cols : out.rows) = half;
      (columns ? out.tile_cols : out.tile_rows) *= 2;
      out.differ.assign(static_cast<size_t>(half * lines), 0);
      out.of = out.differ;
      for (int64_t line = 0; line < lines; ++line)
        for (int64_t i = 0; i < count; ++i) {
          const size_t to = static_cast<size_t>(columns ? line * half + i / 2 : i / 2 * h.cols + line);
          out.differ[to] += h.differ[at(line, i)];
          out.of[to] += h.of[at(line, i)];
        }
      h = std::move(out);
    }
  return h;
}

// The elements that the map covers. Its last tiles may reach beyond the tensor.
Shape shape_of(const HeatMap& h, const string& line) {
  const Shape shape{h.rows * h.tile_rows, h.cols * h.tile_cols};
  const auto p = parse_line(line);
  return p && p->x.shape.rows <= shape.rows && p->x.shape.cols <= shape.cols ? p->x.shape : shape;
}

// One rectangle for each tile that holds something, and how many do.
struct Tiles {
  const HeatMap& map;
  const Shape shape;
  const int64_t wide, high;             // of a tile, in pixels, with a gap of one
  int64_t hit = 0, full = 0, held = 0;  // tiles that differ, that differ everywhere, that hold something
  std::vector<size_t> differing;
  string rects;

  Tiles(const HeatMap& h, Shape s)
      : map(h),
        shape(s),
        wide(std::clamp<int64_t>(600 / h.cols, 7, 30)),
        high(std::clamp<int64_t>(480 / h.rows, 7, 30)) {
    for (size_t i = 0; i < h.differ.size(); ++i)
      if (h.of[i] != 0) add(i);
  }
  int64_t row(size_t i) const { return static_cast<int64_t>(i) / map.cols; }
  int64_t col(size_t i) const { return static_cast<int64_t>(i) % map.cols; }
  string rows_text(size_t i) const { return range(row(i), map.tile_rows, shape.rows); }
  string cols_text(size_t i) const { return range(col(i), map.tile_cols, shape.cols); }
  double share(size_t i) const {
    return static_cast<double>(map.differ[i]) / static_cast<double>(std::max<int64_t>(map.of[i], 1));
  }

  void add(size_t i) {
    ++held;
    hit += map.differ[i] > 0;
    full += map.differ[i] > 0 && map.differ[i] == map.of[i];
    if (map.differ[i] > 0) differing.push_back(i);
    rects += fmt::format(
        "<rect class=\"h{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">"
        "<title>rows {}, columns {}: {} of {}</title></rect>\n",
        heat_of(map.differ[i], map.of[i]), col(i) * wide, row(i) * high, wide - 1, high - 1, rows_text(i),
        cols_text(i), grouped(map.differ[i]), grouped(map.of[i]));
  }
};

string legend() {
  static constexpr std::string_view kShares[] = {"none",       "under 1 %",     "under 10 %",
                                                 "under 50 %", "50 % and more", "all"};
  string out = "<ul class=\"legend\" aria-label=\"Share of a tile that differs\">";
  for (size_t i = 0; i < std::size(kShares); ++i)
    out += fmt::format(
        "<li><svg viewBox=\"0 0 9 9\" aria-hidden=\"true\"><rect class=\"h{}\" width=\"9\" "
        "height=\"9\"/></svg>{}</li>",
        i, kShares[i]);
  return out + "</ul>\n";
}

// What the colours say, in words, where the tiles are not all alike.
string worst_tiles(const Tiles& tiles) {
  std::vector<size_t> order = tiles.differing;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tiles.share(a) > tiles.share(b); });
  // Five of many that are alike say nothing.
  if (order.empty() || (order.size() > 5 && tiles.share(order[0]) == tiles.share(order[5]))) return "";
  if (order.size() > 5) order.resize(5);
  string out = "<table><caption>Tiles with the largest share</caption>" +
               table_head({{"rows"}, {"columns"}, {"differ", "n"}}) + "<tbody>\n";
  for (const size_t i : order)
    out += fmt::format("<tr><td>{}</td><td>{}</td><td class=\"n\">{} of {}</td></tr>\n", tiles.rows_text(i),
                       tiles.cols_text(i), grouped(tiles.map.differ[i]), grouped(tiles.map.of[i]));
  return out + "</tbody></table>\n";
}

string heat(const Diagnosis& d) {
  if (!d.heat || d.heat->rows <= 0 || d.heat->cols <= 0) return {};
  const auto size = static_cast<size_t>(d.heat->rows * d.heat->cols);
  if (d.heat->differ.size() != size || d.heat->of.size() != size) return {};
  const HeatMap h = joined(*d.heat);
  const Tiles tiles(h, shape_of(h, d.line));
  string full;
  if (tiles.full)
    full = "; in " +
           (tiles.full == tiles.hit && tiles.hit > 1 ? string("all of these") : grouped(tiles.full)) +
           " everything differs";
  const string summary =
      fmt::format("{} of {} tiles hold differences{}", grouped(tiles.hit), grouped(tiles.held), full);
  const int64_t wide = h.cols * tiles.wide - 1, high = h.rows * tiles.high - 1;
  string out = fmt::format("<h3 id=\"heat\">{} by tile</h3>\n<p>Tiles of {} × {} elements. {}.</p>\n",
                           escaped(h.plane), grouped(h.tile_rows), grouped(h.tile_cols), summary);
  out += fmt::format(
      "<div class=\"map\"><span class=\"corner\"></span>"
      "<span class=\"ends\"><span>column 0</span><span>{}</span></span>"
      "<span class=\"ends tall\"><span>row 0</span><span>{}</span></span>\n"
      "<svg class=\"heat\" role=\"img\" aria-label=\"Heat map of {}: {}\" width=\"{}\" height=\"{}\" "
      "viewBox=\"0 0 {} {}\">\n{}</svg></div>\n",
      grouped(tiles.shape.cols - 1), grouped(tiles.shape.rows - 1), escaped(h.plane), summary, wide, high,
      wide, high, tiles.rects);
  return out + legend() + worst_tiles(tiles);
}

// ---- coordinates ------------------------------------------------------------------------------------------

string coordinate_table(const std::vector<Coordinate>& list) {
  string out = "<h3>Coordinates that tell</h3>\n<div class=\"scroll\"><table class=\"coordinates\">" +
               table_head({{"where"}, {"of what differs", "n"}, {"of everything", "n"}}) + "<tbody>\n";
  for (const Coordinate& c : list)
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"n\" title=\"{} of {}\">{}</td>"
        "<td class=\"n\" title=\"{} of {}\">{}</td></tr>\n",
        escaped(c.what), grouped(c.differ), grouped(c.differ_of), percent(c.differ, c.differ_of),
        grouped(c.inside), grouped(c.inside_of), percent(c.inside, c.inside_of));
  return out + "</tbody></table></div>\n";
}

string no_coordinates(const Diagnosis& d) {
  const bool all = std::any_of(d.planes.begin(), d.planes.end(), [&](const PlaneSummary& p) {
    return p.plane == d.heat->plane && p.differ == p.of;
  });
  return fmt::format(
      "<h3>Coordinates</h3>\n<p>{}</p>\n",
      all ? "Every element of this plane differs."
          : "The places of the differences do not follow a row, column, block, tile, lane or tail.");
}

}  // namespace

string where(const Diagnosis& d) {
  const string map = heat(d);
  const string list = !d.where.empty() ? coordinate_table(d.where) : d.heat ? no_coordinates(d) : "";
  if (map.empty() && list.empty()) return {};
  return fmt::format(
      "<section>\n<h2>Where</h2>\n<div "
      "class=\"pair\">\n<div>\n{}</div>\n<div>\n{}</div>\n</div>\n</section>\n",
      map, list);
}

}  // namespace assay::sections
