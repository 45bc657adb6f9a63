#include "compare/judge/laws/layouts.h"

#include <cmath>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/equal_bytes.h"
#include "compare/arithmetic/expected_values.h"
#include "compare/arithmetic/places.h"

namespace assay {

namespace {

// N3.12: an element whose stored rows have one scale has one code in both.
void check_equal_rows(LawRecord& laws) {
  laws.begin("coherent");
  const PlaneData &row = laws.out("row.data"), &col = laws.out("col.data");
  const auto same = [&](const char* stem, int64_t r, int64_t c) {
    return code(laws.out(plane_name(Direction::row, stem)), r, 0) ==
           code(laws.out(plane_name(Direction::col, stem)), c, 0);
  };
  for (int64_t r = 0; r < laws.problem.x.shape.rows; ++r)
    for (int64_t c = 0; c < laws.problem.x.shape.cols; ++c)
      if (same("scale", r, c) && same("scale_inv", r, c) && code(row, r, c) != code(col, c, r))
        laws.breach(col, c, r, [&] {
          return "row data hold " + code_hex(laws.problem.row->element, code(row, r, c)) +
                 " there, under the same scale: columns hold the same codes (N3.12)";
        });
}

void check_same_bytes(LawRecord& laws, const PlaneData& want, const PlaneData& got, const char* why) {
  laws.begin("coherent");
  if (equal_bytes(got.bytes, want.bytes)) return;
  for (int64_t r = 0; r < got.plane.logical.rows; ++r)
    for (int64_t c = 0; c < got.plane.logical.cols; ++c)
      if (code(got, r, c) != code(want, r, c))
        laws.breach(got, r, c, [&] {
          return fmt::format("{} holds {} there: {}", want.plane.name,
                             code_hex(want.plane.encoding, code(want, r, c)), why);
        });
}

void check_copies(LawRecord& laws, Direction d, const Quantizer& q, const PlaneData& scales) {
  laws.begin("coherent");
  const Shape stored = laws.out(plane_name(d, "data")).plane.logical;
  const int64_t n = length_of(q.block);
  for (int64_t i = 0; i < stored.rows; ++i)
    for (int64_t j = 0; j < stored.cols; ++j) {
      const int64_t at = scale_index(q, scales.plane, i, j),
                    first = scale_index(q, scales.plane, i / n * n, j / n * n);
      if (code_at(scales.plane, scales.bytes, at) == code_at(scales.plane, scales.bytes, first)) continue;
      const Place place = place_of(scales.plane, at);
      laws.breach(scales, place.row, place.col,
                  [] { return std::string("a square block has one scale, in every copy (N5.8, N10.14)"); });
    }
}

// One element under one scale has one code, in whichever direction; where both directions scale the same
// blocks, they share the scales.
void check_shared_scales(LawRecord& laws, const Quantizer& q) {
  const Problem& p = laws.problem;
  laws.begin("coherent");
  const PlaneData &row = laws.out("row.data"), &col = laws.out("col.data");
  const PlaneData &rows = scale_plane(Direction::row, q, laws.outputs),
                  &cols = scale_plane(Direction::col, q, laws.outputs);
  const bool shared =
      info(q.format).per_tensor_fp8() ||
      (is_square(q.block) && q.four_over_six == FourOverSix::off && q.scale_from == ScaleFrom::x);
  const bool rounds_reciprocal = q.numerics.scale_division == ScaleDivision::in_source &&
                                 q.numerics.scale_order == ScaleOrder::encode_first &&
                                 p.x.source != Encoding::f32;
  for (int64_t r = 0; r < p.x.shape.rows; ++r)
    for (int64_t c = 0; c < p.x.shape.cols; ++c) {
      const int64_t i = col.plane.transposed ? c : r, j = col.plane.transposed ? r : c;
      const uint32_t row_scale = code_at(rows.plane, rows.bytes, scale_index(q, rows.plane, r, c));
      const uint32_t col_scale = code_at(cols.plane, cols.bytes, scale_index(q, cols.plane, i, j));
      if (shared && row_scale != col_scale) {
        const Place at = place_of(cols.plane, scale_index(q, cols.plane, i, j));
        laws.breach(cols, at.row, at.col, [] {
          return std::string("row and column scales of one block differ (N3.9, N5.8, N9.3)");
        });
      }
      // The exponents that GEMM layout stores of fp8_block hide subnormal scales (N9.6). A reciprocal that is
      // rounded to 16 bits hides which of several scales it belongs to (N17.14).
      const bool hidden = q.format == FormatId::fp8_block &&
                          ((q.scales == ScaleLayout::gemm && row_scale == 0) || rounds_reciprocal);
      if ((shared || (row_scale == col_scale && !hidden)) && code(row, r, c) != code(col, i, j))
        laws.breach(col, i, j, [&] {
          return "row data hold " + code_hex(q.element, code(row, r, c)) +
                 " there, under the same scale: columns hold the same codes (N3.9, N5.8, N15.4)";
        });
    }
}

// N9.6: binary32 scales to four copies of their exponent and back.
void check_swizzled_blocks(LawRecord& laws, Direction d, const Quantizer& q, const PlaneData& from,
                           const PlaneData& to, bool inverse) {
  laws.begin("round-trip");
  const Shape stored = geometry(q, laws.problem.x.shape, d).data;
  const int64_t n = length_of(q.block);
  for (int64_t i = 0; i < stored.rows; i += is_square(q.block) && inverse ? n : 1)
    for (int64_t j = 0; j < stored.cols; j += n)
      for (int64_t copy = 0; copy < (inverse ? 1 : 4); ++copy) {
        const int64_t source = scale_index(q, from.plane, i, j),
                      target =
                          inverse ? scale_index(q, to.plane, i, j) : index_of(to.plane, i, j / n * 4 + copy);
        const uint32_t given = code_at(from.plane, from.bytes, source),
                       made = code_at(to.plane, to.bytes, target);
        const double value = value_of(Encoding::e8m0, inverse ? given : given >> 23 & 0xFF),
                     got = value_of(to.plane.encoding, made);
        if (std::isnan(value) ? std::isnan(got) : got == value) continue;
        const Place at = place_of(to.plane, target);
        laws.breach(to, at.row, at.col, [&] {
          return fmt::format("{} gave {}, expected {}", value_text(from.plane.encoding, given),
                             value_text(to.plane.encoding, made), number_text(value));
        });
      }
}

}  // namespace

void check_padding(LawRecord& laws) {
  for (const PlaneData& p : laws.outputs) {
    if (p.plane.padding != Padding::zero) continue;
    laws.begin("padding");
    for (int64_t i = 0; i < p.plane.padded.count(); ++i) {
      if (code_at(p.plane, p.bytes, i) == 0) continue;
      const Place place = place_of(p.plane, i);
      if (place.padding)
        laws.breach(
            p, place.row, place.col, [] { return std::string("padding must be 00 (N6.4)"); }, true);
    }
  }
}

void check_coherent(LawRecord& laws) {
  for (Direction d : kDirections) {
    if (!laws.problem.quantizer(d)) continue;
    const Quantizer& q = *laws.problem.quantizer(d);
    const bool of_x =
        d == Direction::row || !laws.problem.row || laws.problem.col_source == ColSource::original;
    if (q.format == FormatId::identity && of_x)
      check_same_bytes(laws, laws.in("x"), laws.out(plane_name(d, "data")),
                       "identity copies the bytes of x (N7.1)");
    // Four over six chooses by stored rows, but of one tile (N10.13).
    if (is_square(q.block)) check_copies(laws, d, q, scale_plane(d, q, laws.outputs));
  }
  const Problem& p = laws.problem;
  if (!p.row || !p.col || !(*p.row == *p.col) || p.col_source != ColSource::original || draws(p)) return;
  const Quantizer& q = *p.row;
  if (q.row_scaled) {
    if (q.format == FormatId::fp8_current) check_equal_rows(laws);
    return;
  }
  if (q.format == FormatId::identity) return;
  // Stored is an exponent of what is given.
  if (q.scale_from == ScaleFrom::scale && q.format == FormatId::fp8_block && q.scales == ScaleLayout::gemm)
    return;
  check_shared_scales(laws, q);
  for (const char* name : {"amax", "scale"}) {
    const PlaneData* a = find_plane(laws.outputs, plane_name(Direction::row, name));
    const PlaneData* b = find_plane(laws.outputs, plane_name(Direction::col, name));
    if (a && b) check_same_bytes(laws, *a, *b, "both directions share it (N3.9, N10.1)");
  }
}

void check_swizzle(LawRecord& laws) {
  const Direction d = laws.problem.row ? Direction::row : Direction::col;
  const Quantizer& q = *laws.problem.quantizer(d);
  const bool inverse = laws.problem.as<Swizzle>()->inverse;
  const PlaneData& from = laws.in(plane_name(d, inverse ? "scale_gemm" : "scale_inv"));
  const PlaneData& to = laws.out(plane_name(d, inverse ? "scale_inv" : "scale_gemm"));
  if (q.format == FormatId::fp8_block) return check_swizzled_blocks(laws, d, q, from, to, inverse);
  Shape kept = inverse ? to.plane.padded : to.plane.logical;
  if (!inverse && q.numerics.swizzle_extent == SwizzleExtent::floor) {  // N6.6
    if (d == Direction::row) kept.cols = laws.problem.x.shape.cols / 32;
    else kept.rows = laws.problem.x.shape.rows / 32;
  }
  laws.begin("round-trip");
  for (int64_t r = 0; r < to.plane.padded.rows; ++r)
    for (int64_t c = 0; c < to.plane.padded.cols; ++c) {
      const uint32_t want = r < kept.rows && c < kept.cols ? code(from, r, c) : 0;
      if (code(to, r, c) != want) {
        const bool pad = r >= to.plane.logical.rows || c >= to.plane.logical.cols;
        laws.breach(
            to, r, c,
            [&] {
              return "its place in the tile order should hold " + code_hex(to.plane.encoding, want) +
                     " (N6.3)";
            },
            pad);
      }
    }
}

void check_offsets(LawRecord& laws, const std::vector<Problem>& members) {
  const Split& op = *laws.problem.as<Split>();
  for (const PlaneData& p : laws.outputs) {
    if (!p.plane.members.empty() || !p.plane.name.ends_with("offsets")) continue;
    laws.begin("member");
    int64_t sum = 0;
    for (size_t m = 0; m <= members.size(); ++m) {
      if (static_cast<int64_t>(code(p, 0, static_cast<int64_t>(m))) != (sum & 0xFFFFFFFF))
        laws.breach(p, 0, static_cast<int64_t>(m),
                    [&] { return fmt::format("{} elements precede this member (N14.3)", sum); });
      if (m == members.size()) break;
      const std::optional<Direction> d = p.plane.direction;
      sum += d ? geometry(*members[m].quantizer(*d), op.members[m], *d).scale_padded.count()
               : op.members[m].count();
    }
  }
}

}  // namespace assay
