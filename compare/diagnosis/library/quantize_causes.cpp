// Causes of a whole quantize: columns that are made of the rows in another way, and parts of blocks that have
// scales of their own.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/diagnosis/library/whole_causes.h"
#include "contract/planes.h"

namespace assay {

namespace {

using std::string;
using Planes = std::vector<PlaneData>;
using MaybePlanes = std::optional<Planes>;
using Directions = std::vector<Direction>;

// Inputs of another line: those of `given` that it has, and the ones of `own`.
Planes inputs_of(const Problem& line, const Planes& given, const Planes& own) {
  Planes out;
  for (Plane& plane : input_planes(line)) {
    const PlaneData* from = find_plane(own, plane.name);
    if (!from) from = find_plane(given, plane.name);
    std::vector<std::byte> bytes(plane.bytes());
    if (from && from->bytes.size() == bytes.size()) bytes = from->bytes;
    out.push_back({std::move(plane), std::move(bytes)});
  }
  return out;
}

// Puts the planes of one direction into `made`.
void put_direction(Planes& made, const Planes& from, Direction d) {
  for (PlaneData& plane : made)
    if (plane.plane.direction == d)
      if (const PlaneData* own = find_plane(from, plane.plane.name)) plane.bytes = own->bytes;
}

// ---- columns of the dequantized rows ----------------------------------------------------------------------

MaybePlanes unrounded_columns(const Problem& p, const Planes& inputs, const Planes& right,
                              const RunLine& run) {
  Problem rows = p;
  rows.op = Dequantize{Encoding::f32, CodesFrom::quantized};
  rows.col.reset();
  rows.col_source = ColSource::original;
  MaybePlanes values = run(rows, inputs_of(rows, inputs, right));
  if (!values) return {};
  values->front().plane.name = "x";
  Problem columns = p;
  columns.x.source = Encoding::f32;
  columns.row.reset();
  columns.col_source = ColSource::original;
  const MaybePlanes own = run(columns, inputs_of(columns, inputs, *values));
  if (!own) return {};
  Planes made = right;
  put_direction(made, *own, Direction::col);
  return made;
}

// ---- parts of blocks --------------------------------------------------------------------------------------

// Which part of its block an element of x is in, along a direction.
struct Parts {
  Direction direction;
  int64_t length, count;
  int64_t of(int64_t row, int64_t col) const {
    return (direction == Direction::row ? col : row) % length / (length / count);
  }
};

// What the reference makes of one part alone: all other elements of x are 0.
MaybePlanes made_of_part(const Parts& parts, int64_t part, const Problem& p, const Planes& inputs,
                         const RunLine& run) {
  Planes read = inputs;
  PlaneData* x = find_plane(read, "x");
  if (!x) return {};
  const Shape shape = x->plane.logical;
  for (int64_t r = 0; r < shape.rows; ++r)
    for (int64_t c = 0; c < shape.cols; ++c)
      if (parts.of(r, c) != part) set_code(x->plane, x->bytes, index_of(x->plane, r, c), 0);
  return run(p, read);
}

// Each part of a block is quantized under a scale of its own, and the scale of part `stored` is kept.
bool take_parts(const Parts& parts, int64_t stored, const Problem& p, const Planes& inputs,
                const RunLine& run, Planes& made) {
  for (int64_t part = 0; part < parts.count; ++part) {
    const MaybePlanes own = made_of_part(parts, part, p, inputs, run);
    if (!own) return false;
    for (PlaneData& to : made) {
      if (to.plane.direction != parts.direction) continue;
      const PlaneData& from = *find_plane(*own, to.plane.name);
      if (!to.plane.name.ends_with(".data")) {
        if (part == stored) to.bytes = from.bytes;
        continue;
      }
      for (int64_t r = 0; r < to.plane.logical.rows; ++r)
        for (int64_t c = 0; c < to.plane.logical.cols; ++c)
          if ((to.plane.transposed ? parts.of(c, r) : parts.of(r, c)) == part) {
            const int64_t at = index_of(to.plane, r, c);
            set_code(to.plane, to.bytes, at, code_at(from.plane, from.bytes, at));
          }
    }
  }
  return true;
}

// Whether the scales of a direction's blocks follow from their own elements alone.
bool has_own_scales(const Problem& p, Direction d) {
  const auto& q = p.quantizer(d);
  if (!q || !info(q->format).has_blocks() || is_square(q->block)) return false;
  return q->format != FormatId::nvfp4 && q->scale_from == ScaleFrom::x && q->round != Round::sr && !q->amax;
}

void add_parts(const Problem& p, const Directions& directions, std::vector<WholeCause>& out) {
  if (!std::ranges::all_of(directions, [&](Direction d) { return has_own_scales(p, d); })) return;
  const Direction first = directions.front();
  const bool one = directions.size() == 1;
  const string where = one ? fmt::format(",{}", name_of(first)) : "";
  const string words = one ? fmt::format(" ({})", first == Direction::row ? "rows" : "columns") : "";
  const char* clause = p.quantizer(first)->format == FormatId::fp8_block ? "N9.1" : "N5.1";
  for (const int64_t count : {2, 4})
    for (const bool last : {false, true})
      out.push_back({fmt::format("block.parts={}{}{}", count, last ? ",last" : "", where),
                     fmt::format("each {} of a block is quantized under a scale of its own, and that of the "
                                 "{} is stored{}",
                                 count == 2 ? "half" : "quarter", last ? "last" : "first", words),
                     clause, Stage::amax,
                     [=](const Problem& q, const Planes& inputs, const Planes& right,
                         const RunLine& run) -> MaybePlanes {
                       Planes made = right;
                       for (const Direction d : directions) {
                         const Parts parts{d, length_of(q.quantizer(d)->block), count};
                         if (!take_parts(parts, last ? count - 1 : 0, q, inputs, run, made)) return {};
                       }
                       return made;
                     }});
}

}  // namespace

std::vector<WholeCause> quantize_causes(const Problem& p) {
  std::vector<WholeCause> out;
  if (!p.as<Quantize>()) return out;
  if (p.row && p.col && p.col_source == ColSource::row_dequantized && p.x.source != Encoding::f32)
    out.push_back({"columns.of_unrounded_rows",
                   "columns are made of dequantized rows that were not rounded to the encoding of x", "N13.1",
                   Stage::input, unrounded_columns});
  if (p.col_source != ColSource::original) return out;
  add_parts(p, {Direction::row}, out);
  add_parts(p, {Direction::col}, out);
  if (p.row && p.col) add_parts(p, {Direction::row, Direction::col}, out);
  return out;
}

}  // namespace assay
