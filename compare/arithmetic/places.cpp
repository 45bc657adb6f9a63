#include "compare/arithmetic/places.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

namespace assay {

// N6.3 read backwards: the tile, then the 16-byte line, the byte group and the byte within it.
Place place_of(const Plane& plane, int64_t index) {
  Place p;
  if (plane.layout == ScaleLayout::gemm) {
    const bool by_columns = plane.tiles_by_columns();
    const int64_t tiles_along = (by_columns ? plane.padded.rows : plane.padded.cols) / 4;
    const int64_t tile = index / 512, within = index % 512;
    const int64_t line = within / 16, group = within % 16 / 4, byte = within % 4;
    const int64_t outer = tile / tiles_along * 128 + group * 32 + line;
    const int64_t along = tile % tiles_along * 4 + byte;
    p.row = by_columns ? along : outer;
    p.col = by_columns ? outer : along;
  } else if (plane.padded.cols > 0) {
    p.row = index / plane.padded.cols;
    p.col = index % plane.padded.cols;
  }
  p.padding = p.row >= plane.logical.rows || p.col >= plane.logical.cols;
  return p;
}

int64_t index_of(const Plane& plane, int64_t row, int64_t col) {
  if (plane.layout != ScaleLayout::gemm) return row * plane.padded.cols + col;
  const bool by_columns = plane.tiles_by_columns();
  const int64_t outer = by_columns ? col : row, along = by_columns ? row : col;
  const int64_t tiles_along = (by_columns ? plane.padded.rows : plane.padded.cols) / 4;
  const int64_t tile = outer / 128 * tiles_along + along / 4;
  return tile * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 + along % 4;
}

// The plane of one member of a grouped plane, under the name of the whole.
static PlaneData plane_of_member(const PlaneData& data, size_t m) {
  Plane plane = member_plane(data.plane, m);
  const auto bytes =
      std::span(data.bytes).subspan(data.plane.bytes_of(data.plane.members[m].offset), plane.bytes());
  return {std::move(plane), {bytes.begin(), bytes.end()}};
}

std::vector<PlaneData> members_of(const PlaneData& data) {
  if (data.plane.members.empty()) return {data};
  std::vector<PlaneData> out;
  for (size_t m = 0; m < data.plane.members.size(); ++m)
    out.push_back(plane_of_member(data, m)), out.back().plane.name += fmt::format("[{}]", m);
  return out;
}

std::vector<PlaneData> planes_of_member(const std::vector<PlaneData>& planes, size_t member) {
  std::vector<PlaneData> out;
  for (const PlaneData& p : planes) {
    if (p.plane.members.empty() && p.plane.name != "noop") continue;
    out.push_back(p.plane.members.empty() ? p : plane_of_member(p, member));
  }
  return out;
}

void clear_spare(PlaneData& data) {
  if (data.plane.padding != Padding::untouched) return;
  const size_t used = data.plane.bytes_of(data.plane.logical.cols);
  std::fill(data.bytes.begin() + static_cast<std::ptrdiff_t>(used), data.bytes.end(), std::byte{0});
}

std::optional<size_t> member_of(std::string_view name) {
  const size_t open = name.find('[');
  size_t member = 0;
  if (open == std::string_view::npos ||
      std::from_chars(name.data() + open + 1, name.data() + name.size(), member).ec != std::errc{})
    return {};
  return member;
}

namespace {

bool has_stem(const Plane& plane, std::string_view stem) {
  return plane.name.find(stem) != std::string::npos;
}

// The stored elements that a scale at (r, c) of a direction's scale plane covers (N6.2, N9.4, N9.6, N10.14,
// N15.4). Where a square block repeats its scale, each copy covers its own stored row or column.
Region scaled_elements(const Quantizer& q, const Plane& plane, int64_t r, int64_t c) {
  const int64_t n = length_of(q.block);
  if (q.format == FormatId::fp8_block && plane.layout == ScaleLayout::gemm)
    return {r, r + 1, c / 4 * n, (c / 4 + 1) * n};
  if (q.format == FormatId::fp8_block && is_square(q.block)) return {r * n, (r + 1) * n, c * n, (c + 1) * n};
  if (q.format == FormatId::fp8_block) return {c, c + 1, r * n, (r + 1) * n};
  if (plane.tiles_by_columns()) return {r * n, (r + 1) * n, c, c + 1};
  return {r, r + 1, c * n, (c + 1) * n};
}

}  // namespace

Region region_of(const Problem* problem, const Plane& plane, Place place) {
  const int64_t r = place.row, c = place.col;
  if (!problem) return {r, r + 1, c, c + 1};
  const Shape x = problem->x.shape;
  const Region all{0, x.rows, 0, x.cols};
  if (problem->as<Update>()) return {0, x.rows, c, c + 1};  // a slot's history decides its scale
  if (problem->as<Split>()) {
    const auto m = member_of(plane.name);
    if (!m) return all;  // offsets
    const Problem member = member_problems(*problem)[*m];
    return region_of(&member, plane, place);
  }
  if (problem->as<ScaleChain>() && plane.logical.cols == 1)
    return {r, r + 1, 0, x.cols};  // N10.16: of a pair
  if (problem->as<Hadamard>()) {   // N11.2: 16 rows make each element of y
    return plane.transposed ? Region{c / 16 * 16, c / 16 * 16 + 16, r, r + 1} : all;
  }
  if (!plane.direction) return {r, r + 1, c, c + 1};
  const std::optional<Quantizer>& q = problem->quantizer(*plane.direction);
  Region stored{r, r + 1, c, c + 1};
  const bool of_stored_row = q && q->row_scaled && !has_stem(plane, ".data") &&
                             (has_stem(plane, ".amax") || info(q->format).per_tensor_fp8());
  if (of_stored_row) {  // N3.12, N10.9
    return plane.direction == Direction::row ? Region{r, r + 1, 0, x.cols} : Region{0, x.rows, r, r + 1};
  } else if (has_stem(plane, ".scale_inv") || has_stem(plane, ".scale_gemm")) {
    if (plane.padded == Shape{1, 1} || !q) return all;
    stored = scaled_elements(*q, plane, r, c);
  } else if (!has_stem(plane, ".data")) {
    return all;  // amax, scale
  }
  const Region g = plane.transposed ? Region{stored.col0, stored.col1, stored.row0, stored.row1} : stored;
  return {std::min(g.row0, x.rows), std::min(g.row1, x.rows), std::min(g.col0, x.cols),
          std::min(g.col1, x.cols)};
}

std::string shape_text(Shape s) { return fmt::format("{}x{}", s.rows, s.cols); }

std::string place_text(const Problem* problem, const Plane& plane, Place place) {
  if (place.padding)
    return fmt::format("padding ({}, {}) of {}x{}", place.row, place.col, plane.padded.rows,
                       plane.padded.cols);
  auto range = [](const char* one, const char* many, int64_t from, int64_t to) {
    return to - from <= 1 ? fmt::format("{} {}", one, from) : fmt::format("{} {}..{}", many, from, to - 1);
  };
  if (plane.padded == Shape{1, 1}) return "the tensor's only value";
  if (problem && problem->as<Split>()) {
    const auto m = member_of(plane.name);
    if (!m) return fmt::format("entry {}", place.col);
    const Problem member = member_problems(*problem)[*m];
    return place_text(&member, plane, place);
  }
  if (problem && problem->as<ScaleChain>() && plane.logical.cols == 1)
    return fmt::format("pair {}", place.row);
  if (problem && problem->as<Gemm>() && plane.name == "d")
    return fmt::format("row n = {}, column m = {}", place.row, place.col);
  const bool data = has_stem(plane, ".data") || !plane.direction;
  if (problem && plane.transposed && data)
    return fmt::format("row {}, column {} (stored [{}][{}])", place.col, place.row, place.row, place.col);
  if (problem && (problem->as<Update>() || problem->as<ScaleChain>() || !plane.direction))
    return fmt::format("row {}, column {}", place.row, place.col);
  const Region g = region_of(problem, plane, place);
  return range("row", "rows", g.row0, g.row1) + ", " + range("column", "columns", g.col0, g.col1);
}

}  // namespace assay
