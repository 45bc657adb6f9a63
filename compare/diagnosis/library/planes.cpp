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
     "blocks run along the other axis; codes stand in their places, scales as the other direction's", amax,
     "blocks:logical"},
    {"blocks_across_turned",
     "blocks run along the other axis; codes stand in their places, scales as the other direction's, "
     "transposed",
     amax, "blocks:transposed"},
    {"codes_across",
     "elements are scaled by blocks along the other axis, but the scales of the right ones are stored",
     scaled_value, "blocks:codes"},
};

template <size_t n> void add_table(Rows& rows, const PlaneRow (&table)[n]) {
  for (const PlaneRow& row : table) {
    Hypothesis& h = rows.add(std::string("plane.") + row.id, row.title, row.stage, "N6.1");
    h.of_other = row.of_other;
    h.wide = true;
  }
}

}  // namespace

void add_plane_rows(Rows& rows) {
  add_table(rows, kDataRows);
  if (!rows.format.has_blocks()) return;
  add_table(rows, kScaleRows);
  if (!rows.square && rows.q.round != Round::sr) add_table(rows, kBlockRows);
}

}  // namespace assay
