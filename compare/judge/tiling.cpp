#include "compare/judge/tiling.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace assay {

namespace {

// A tile of a line with a scale for each row or column may be this much larger than others.
constexpr int64_t kLargestTile = 16;

bool computes_amax(const Quantizer& q) {
  return (q.format == FormatId::fp8_current || q.format == FormatId::nvfp4) && !q.amax;
}

bool has_lines(const Problem& p, Direction d) { return p.quantizer(d) && p.quantizer(d)->row_scaled; }

// Why planes of this line cannot be judged in parts; empty where they can.
std::string whole_because(const Problem& p) {
  if (!p.as<Quantize>() && !p.as<Cast>() && !p.as<Dequantize>())
    return fmt::format("a {} is judged as a whole", op_name(p));
  if (const Cast* cast = p.as<Cast>(); draws(p) || (cast && cast->round == Round::sr))
    return "round=sr counts its draws over the whole tensor";
  if (noop_of(p)) return "a line with noop= is judged as a whole";
  if (p.row && p.col && p.col_source == ColSource::row_dequantized && computes_amax(*p.col))
    return "the amax of the columns is that of the dequantized rows";
  if (has_lines(p, Direction::row) && has_lines(p, Direction::col))
    return "every row and every column has its own scale";
  return {};
}

int64_t units(int64_t n) { return std::max(n / kTileUnit, int64_t{1}) * kTileUnit; }

Shape part_of(const std::vector<Plane>& planes, std::string_view name) {
  for (const Plane& p : planes)
    if (p.name == name) return p.logical;
  return {};
}

Problem sized(Problem p, Shape shape) {
  p.x.shape = shape;
  return p;
}

}  // namespace

bool is_scalar(const Plane& plane) { return plane.padded == Shape{1, 1}; }

bool Tiling::needs_amax(Direction d) const {
  const std::optional<Quantizer>& q = problem.quantizer(d);
  return problem.as<Quantize>() && q && computes_amax(*q) && !q->row_scaled;
}

Problem Tiling::problem_of(const Tile& tile) const {
  Problem p = problem;
  p.flavour = Flavour::assay;  // it has set the Numerics
  p.arch = Arch::sm100;
  p.dispatch = Dispatch::automatic;
  p.x.shape = tile.shape;
  p.x.fill.at_row += tile.row;
  p.x.fill.at_col += tile.col;
  if (p.row && row_amax) p.row->amax = row_amax;
  if (p.col && col_amax) p.col->amax = col_amax;
  return p;
}

Shape Tiling::origin(const Tile& tile, const Plane& plane) const {
  const auto planes_of = plane.part == Part::input ? input_planes : output_planes;
  const Shape before = part_of(planes_of(sized(problem, {tile.row, tile.col})), plane.name),
              none = part_of(planes_of(sized(problem, {0, 0})), plane.name);
  return {before.rows - none.rows, before.cols - none.cols};
}

Tile window_around(const Tiling& tiling, const Region& region) {
  constexpr int64_t kRows = 2 * kTileUnit, kCols = 8 * kTileUnit;
  const Shape x = tiling.problem.x.shape;
  Tile out{region.row0 / kTileUnit * kTileUnit, region.col0 / kTileUnit * kTileUnit, {}};
  out.shape = {std::min(kRows, x.rows - out.row), std::min(kCols, x.cols - out.col)};
  if (has_lines(tiling.problem, Direction::row)) out.col = 0, out.shape.cols = x.cols;
  if (has_lines(tiling.problem, Direction::col)) out.row = 0, out.shape.rows = x.rows;
  return out;
}

Result<Tiling> tiling_of(const Problem& problem, int64_t elements) {
  if (const std::string why = whole_because(problem); !why.empty()) return Error{why, 0, ""};
  Tiling out{problem, {}, {}, {}};
  const Shape x = problem.x.shape;
  int64_t cols = std::min(x.cols, units(elements / std::clamp(x.rows, int64_t{1}, kTileUnit)));
  if (has_lines(problem, Direction::row)) cols = x.cols;
  int64_t rows = std::min(x.rows, units(elements / std::max(cols, int64_t{1})));
  if (has_lines(problem, Direction::col)) {
    rows = x.rows;
    cols = std::min(x.cols, units(elements / std::max(rows, int64_t{1})));
  }
  if (rows * cols > kLargestTile * std::max(elements, kTileUnit * kTileUnit))
    return Error{"rows or columns that each have a scale are longer than a part may be", 0, ""};
  for (int64_t r = 0; r < x.rows; r += rows)
    for (int64_t c = 0; c < x.cols; c += cols)
      out.tiles.push_back({r, c, {std::min(rows, x.rows - r), std::min(cols, x.cols - c)}});
  return out;
}

}  // namespace assay
