#include "compare/arithmetic/places.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/compare/fakes.h"

namespace assay {
namespace {

// place_of and index_of are inverse, in both orders and directions, and the tile order is a permutation.
TEST(Places, OfTheTileOrder) {
  for (const char* line :
       {"quantize mxfp8 130x200 bf16 dir=both scales=gemm", "quantize mxfp8 130x200 bf16 dir=both"})
    for (const Plane& plane : output_planes(fakes::problem(line))) {
      std::set<std::pair<int64_t, int64_t>> seen;
      for (int64_t i = 0; i < plane.padded.count(); ++i) {
        const Place p = place_of(plane, i);
        ASSERT_EQ(index_of(plane, p.row, p.col), i) << plane.name;
        ASSERT_EQ(p.padding, p.row >= plane.logical.rows || p.col >= plane.logical.cols);
        seen.insert({p.row, p.col});
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), plane.padded.count()) << plane.name;
    }
}

// By hand from N6.3: row scales of 256 columns have T = 2 tiles along; scale (r = 37, j = 5) is in tile 1,
// line 5, group 1, byte 1.
TEST(Places, OneByHand) {
  const std::vector<Plane> planes =
      output_planes(fakes::problem("quantize mxfp8 64x256 bf16 dir=row scales=gemm"));
  EXPECT_EQ(planes[0].name, "row.scale_gemm");
  EXPECT_EQ(index_of(planes[0], 37, 5), 512 + 5 * 16 + 1 * 4 + 1);
}

TEST(Places, AndRegionsInWords) {
  const Problem p = fakes::problem("quantize mxfp8 64x80 bf16 dir=both");
  for (const Plane& plane : output_planes(p)) {
    if (plane.name == "row.scale_inv") {
      EXPECT_EQ(place_text(&p, plane, {false, 12, 2}), "row 12, columns 64..79");
    }
    if (plane.name == "col.scale_inv") {
      EXPECT_EQ(place_text(&p, plane, {false, 1, 7}), "rows 32..63, column 7");
    }
    if (plane.name == "col.data") {
      EXPECT_EQ(place_text(&p, plane, {false, 1, 7}), "row 1, column 7");
    }
    if (plane.name == "row.scale_inv") {
      EXPECT_EQ(place_text(&p, plane, {true, 100, 3}), "padding (100, 3) of 128x4");
    }
  }
  const Problem t = fakes::problem("quantize fp8_current 8x16 bf16 dir=both");
  for (const Plane& plane : output_planes(t))
    if (plane.name == "col.data") {
      EXPECT_EQ(place_text(&t, plane, {false, 3, 5}), "row 5, column 3 (stored [3][5])");
    }
  const Problem by_rows = fakes::problem("quantize fp8_current 8x16 bf16 dir=both row_scaled=1");  // N3.12
  for (const Plane& plane : output_planes(by_rows))
    if (!plane.name.ends_with(".data")) {
      EXPECT_EQ(place_text(&by_rows, plane, {false, 5, 0}),
                plane.name.starts_with("row") ? "row 5, columns 0..15" : "rows 0..7, column 5")
          << plane.name;
    }
  const Problem product = fakes::problem("gemm a=mxfp8 b=mxfp8 5x7x32");
  EXPECT_EQ(place_text(&product, output_planes(product)[0], {false, 6, 4}), "row n = 6, column m = 4");
}

}  // namespace
}  // namespace assay
