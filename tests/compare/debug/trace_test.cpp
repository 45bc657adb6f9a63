// Trace: the outputs that belong to an element.
#include "compare/debug/trace.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/format.h"
#include "contract/line.h"
#include "contract/planes.h"
#include "reference/subject.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

// The outputs of an element by the reference, "<plane> <place>" each.
std::vector<std::string> outputs_of(const Problem& p, Direction d, int64_t row, int64_t col) {
  TraceOptions options{p, "other", "reference", std::pair{row, col}, d, {}, 60, {}};
  const auto t = trace(options, fakes::with("other", nullptr));
  EXPECT_TRUE(t) << to_line(p) << ": " << t.error().text();
  std::vector<std::string> out;
  if (t)
    for (const TraceRow& o : t->outputs) out.push_back(o.what);
  return out;
}

// Every plane of a quantizer's direction has an element to which each element of x belongs, whatever the
// format, its blocks and where the element stands.
TEST(Trace, EveryPlaneOfTheDirectionHasAnOutput) {
  for (const FormatInfo& format : kFormats)
    for (size_t b = 0; b < count_words(kWords<Block>); ++b) {
      const std::string_view block = word_at(kWords<Block>, b);
      if (!has_word(format.blocks, block)) continue;
      for (const char* dir : {"row", "col"}) {
        const std::string line =
            "quantize " + std::string(format.name) + " 144x272 bf16 dir=" + dir +
            (format.blocks.find('|') == std::string_view::npos ? "" : " block=" + std::string(block));
        const auto p = parse_line(line);
        ASSERT_TRUE(p) << line << ": " << p.error().text();
        const Direction d = p->row ? Direction::row : Direction::col;
        for (const auto& [row, col] : {std::pair{0, 0}, {1, 0}, {0, 1}, {3, 200}, {130, 5}, {143, 271}}) {
          const std::vector<std::string> outputs = outputs_of(*p, d, row, col);
          for (const Plane& plane : output_planes(*p)) {
            const auto is_of_plane = [&](const std::string& o) { return o.starts_with(plane.name + " "); };
            EXPECT_EQ(std::count_if(outputs.begin(), outputs.end(), is_of_plane), 1)
                << line << " (" << row << ", " << col << "): " << plane.name;
          }
        }
      }
    }
}

TEST(Trace, ScalesThatStandBlockByBlockAreFoundAtTheirPlace) {
  const auto has = [](const char* line, Direction d, int64_t row, int64_t col, const std::string& output) {
    const std::vector<std::string> outputs = outputs_of(fakes::problem(line), d, row, col);
    EXPECT_EQ(std::count(outputs.begin(), outputs.end(), output), 1) << line << ": " << output;
  };
  has("quantize fp8_block 64x512 bf16 dir=row", Direction::row, 3, 200,
      "row.scale_inv row 3, columns 128..255");
  has("quantize fp8_block 512x64 bf16 dir=col", Direction::col, 200, 3,
      "col.scale_inv rows 128..255, column 3");
}

}  // namespace
}  // namespace assay
