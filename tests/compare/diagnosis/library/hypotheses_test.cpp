#include "compare/diagnosis/library/hypotheses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "contract/line.h"

namespace assay {
namespace {

// Ids name rows for good: each is there once, and is found again by its name.
TEST(Hypotheses, IdsAreUnique) {
  for (const char* line :
       {"quantize mxfp8 96x160 bf16 dir=row", "quantize nvfp4 96x160 bf16 dir=col rht=1 round=sr",
        "quantize fp8_block 160x200 f32 dir=col", "quantize fp8_current 96x160 f16 dir=row"}) {
    const Problem p = *parse_line(line);
    const Direction d = p.row ? Direction::row : Direction::col;
    std::vector<std::string> ids;
    for (const Hypothesis& h : hypotheses(p, d)) {
      ids.push_back(h.id);
      EXPECT_FALSE(h.title.empty());
    }
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    EXPECT_EQ(twice, ids.end()) << line << " " << *twice;
    EXPECT_TRUE(hypothesis_named("input.ftz", p, d));
    EXPECT_FALSE(hypothesis_named("input.nothing", p, d));
  }
}

}  // namespace
}  // namespace assay
