// Planes that hold what the other direction makes.
#include <string>

#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using enum Stage;

struct PlaneRow {
  const char* id;
  const char* title;
  Stage stage;
  const char* of_other;
};
constexpr PlaneRow kDataRows[] = {
    {"data_of_other", "the data are those of the other direction", layout, "data"},
};
constexpr PlaneRow kScaleRows[] = {
    {"scales_of_other", "the scales are the bytes of the other direction's", layout, "scales"},
    {"scales_of_other_in_order", "the scales are the other direction's, in their order", layout,
     "scales:logical"},
    {"scales_of_other_transposed", "the scales are the other direction's, transposed", layout,
     "scales:transposed"},
};
constexpr PlaneRow kBlockRows[] = {
    {"blocks_across",
     "blocks run along the other axis; codes are in their places, and scales are laid out as in the other "
     "direction",
     amax, "blocks:logical"},
    {"blocks_across_turned",
     "blocks run along the other axis; codes are in their places, and scales are laid out as in the other "
     "direction, "
     "transposed",
     amax, "blocks:transposed"},
    {"codes_across",
     "elements are scaled by blocks along the other axis, but the scales of the right blocks are stored",
     scaled_value, "blocks:codes"},
};

template <size_t n> void add_table(Rows& rows, const PlaneRow (&table)[n]) {
  for (const PlaneRow& row : table) {
    Hypothesis& h = rows.add(std::string("plane.") + row.id, row.title, row.stage, "N6.1");
    h.of_other = row.of_other;
    h.wide = true;
  }
}

// ---- four codes of 6 bits in three bytes, otherwise (N18.4) ----

// Code j of four whose first stands in the lowest bits.
uint32_t six(uint32_t group, int j) { return group >> 6 * j & 63; }

uint32_t first_highest(uint32_t g) {
  const uint32_t number = six(g, 0) << 18 | six(g, 1) << 12 | six(g, 2) << 6 | six(g, 3);
  return number >> 16 | (number & 0xFF00) | (number & 0xFF) << 16;  // its bytes, the highest first
}
// torchao's pack_uint6.
uint32_t upper_fours_first(uint32_t g) {
  const uint32_t a = six(g, 0), b = six(g, 1), c = six(g, 2), d = six(g, 3);
  const uint32_t lower = (a & 3) << 6 | (b & 3) << 4 | (d & 3) << 2 | (c & 3);
  return (a >> 2 << 4 | b >> 2) | (d >> 2 << 4 | c >> 2) << 8 | lower << 16;
}
uint32_t groups_reversed(uint32_t g) {
  return six(g, 3) | six(g, 2) << 6 | six(g, 1) << 12 | six(g, 0) << 18;
}

struct PackedRow {
  const char* id;
  const char* title;
  uint32_t (*packed)(uint32_t group);
};
constexpr PackedRow kSixRows[] = {
    {"first_highest", "of four 6-bit codes in three bytes the first stands in the highest bits",
     first_highest},
    {"torchao", "four 6-bit codes stand in three bytes as torchao packs them (pack_uint6)",
     upper_fours_first},
    {"groups_reversed", "each four 6-bit codes stand in reversed order", groups_reversed},
};

void add_sixes(Rows& rows) {
  for (const PackedRow& row : kSixRows) {
    Hypothesis& h = rows.add(std::string("packing.") + row.id, row.title, packing, "N6.8");
    h.packed = row.packed;
    h.wide = true;
  }
}

}  // namespace

void add_plane_rows(Rows& rows) {
  if (is_packed(rows.q) && info(rows.q.element).bits == 6) add_sixes(rows);
  add_table(rows, kDataRows);
  if (!rows.format.has_blocks()) return;
  add_table(rows, kScaleRows);
  if (!rows.square && rows.q.round != Round::sr) add_table(rows, kBlockRows);
}

}  // namespace assay
