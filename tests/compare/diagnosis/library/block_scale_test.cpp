// Scales that tiles of a kernel store past the end of a row of scales. What came is made by loops of this
// file.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "tests/compare/diagnosis/named.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using named::expect_named;
using std::string;

// `one`: a scale of 1 as it is stored.
struct Stored {
  const char *line, *plane;
  std::vector<int> tiles;  // that are wider than a row
  uint32_t one;
};

// What the last tile of each row stores behind the row's end: after the next row's own scales are there.
void overrun(planes::Case& c, const Stored& stored, int tile, uint32_t value) {
  PlaneData& scales = c[stored.plane];
  const Plane& plane = scales.plane;
  const size_t size = plane.encoding == Encoding::f32 ? 4 : 1;
  scales.bytes = c.wanted(stored.plane).bytes;
  const auto end = static_cast<size_t>(plane.logical.cols), pitch = static_cast<size_t>(plane.padded.cols),
             lanes = (end + static_cast<size_t>(tile) - 1) / static_cast<size_t>(tile) *
                     static_cast<size_t>(tile);
  for (size_t row = 0; row + 1 < static_cast<size_t>(plane.logical.rows); ++row)
    for (size_t lane = pitch; lane < lanes && lane < pitch + end; ++lane)
      std::memcpy(scales.bytes.data() + (row * pitch + lane) * size, &value, size);
}

const std::vector<Stored>& cases() {
  static const std::vector<Stored> kCases = {
      {"quantize fp8_block 68x384 bf16 dir=row", "row.scale_inv", {8, 16, 32, 64, 128}, 0x3F800000},
      {"quantize fp8_block 384x68 bf16 dir=col", "col.scale_inv", {8, 16, 32, 64, 128}, 0x3F800000},
      {"quantize fp8_block 67x384 bf16 dir=row", "row.scale_inv", {8, 16, 32, 64, 128}, 0x3F800000},
      {"quantize mxfp8 40x608 bf16 dir=row", "row.scale_inv", {8, 16, 32, 64, 128}, 127},
      {"quantize mxfp4 40x608 bf16 dir=row", "row.scale_inv", {8, 32}, 127},
      {"quantize nvfp4 40x320 bf16 dir=row", "row.scale_inv", {8, 16, 32, 64, 128}, 0x38},
      {"quantize nvfp4 320x40 bf16 dir=col", "col.scale_inv", {8, 64}, 0x38},
  };
  return kCases;
}

TEST(BlockScaleCauses, TilesThatOverrunARowAreNamed) {
  for (const Stored& stored : cases()) {
    planes::Case c(stored.line);
    for (const int tile : stored.tiles)
      for (const bool ones : {false, true}) {
        overrun(c, stored, tile, ones ? stored.one : 0);
        SCOPED_TRACE(stored.line);
        expect_named("scale.overrun=" + std::to_string(tile) + (ones ? ",one" : "") + ".stored", c, c.got);
      }
  }
}

// Rows of scales that are padded to 128 have no room for a tile to overrun; others none for one that fits.
TEST(BlockScaleCauses, TilesThatFitAreNotTried) {
  for (const auto& [line, tiles] : {std::pair("quantize mxfp8 608x40 bf16 dir=col", 0),
                                    std::pair("quantize mxfp8 40x512 bf16 dir=row", 3),
                                    std::pair("quantize fp8_block 128x384 bf16 dir=row", 0),
                                    std::pair("quantize mxfp8 40x608 bf16 dir=row scales=gemm", 0),
                                    std::pair("quantize mxfp8 40x608 bf16 dir=row", 5)}) {
    const Problem p = *parse_line(line);
    int met = 0;
    for (const Hypothesis& h : hypotheses(p, p.row ? Direction::row : Direction::col))
      met += h.id.starts_with("scale.overrun=");
    EXPECT_EQ(met, 2 * tiles) << line;
  }
}

}  // namespace
}  // namespace assay
