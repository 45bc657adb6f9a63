#include "compare/diagnosis/library/hypotheses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compare/process/guarded_run.h"
#include "contract/line.h"
#include "fixtures/inputs.h"
#include "reference/subject.h"

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

const Hypothesis& named(const std::vector<Hypothesis>& rows, const std::string& id) {
  const auto at = std::find_if(rows.begin(), rows.end(), [&](const Hypothesis& h) { return h.id == id; });
  if (at == rows.end()) throw std::runtime_error("no row " + id);
  return *at;
}

// Where nothing is read otherwise, a dequantize made anew is the reference's: under one scale the first one
// serves everywhere, and results of bf16 may go through bf16.
TEST(Hypotheses, ADequantizeThatChangesNothingIsTheReferences) {
  const auto reference = make_reference_subject();
  const std::pair<const char*, const char*> lines[] = {
      {"dequantize fp8_current 5x7 f16 dir=row", "scale.first"},
      {"dequantize fp8_current 5x7 f16 dir=col", "scale.first"},
      {"dequantize mxfp8 4x32 bf16 dir=row block=32x32", "scale.first"},
      {"dequantize mxfp4 32x1 f32 dir=col", "scale.first"},
      {"dequantize nvfp4 1x16 f32 dir=row", "scale.first"},
      {"dequantize fp8_block 3x100 f16 dir=col block=128x128", "scale.first"},
      {"dequantize mxfp8 40x70 bf16 dir=row", "result.through_bf16"},
      {"dequantize mxfp8 40x70 bf16 dir=col", "result.through_bf16"},
      {"dequantize mxfp8 40x70 bf16 dir=row scales=gemm", "result.through_bf16"},
      {"dequantize mxfp4 40x70 bf16 dir=col scales=gemm", "result.through_bf16"},
      {"dequantize nvfp4 48x70 bf16 dir=col", "result.through_bf16"},
      {"dequantize nvfp4 48x70 bf16 dir=row row_scaled=1", "result.through_bf16"},
      {"dequantize fp8_block 140x300 bf16 dir=row", "result.through_bf16"},
      {"dequantize fp8_block 140x300 bf16 dir=col scales=gemm", "result.through_bf16"},
      {"dequantize fp8_block 140x300 bf16 dir=row block=128x128", "result.through_bf16"},
  };
  for (const auto& [line, id] : lines) {
    const Result<Problem> p = parse_line(line);
    ASSERT_TRUE(p) << line << ": " << p.error().text();
    const std::vector<PlaneData> inputs = *make_inputs(*p, *reference);
    const std::vector<PlaneData> want = execute(*reference, *p, inputs, Environment{}).planes;
    std::vector<PlaneData> made = want;
    for (PlaneData& plane : made) std::fill(plane.bytes.begin(), plane.bytes.end(), std::byte{0x5A});
    const std::vector<Hypothesis> rows = line_hypotheses(*p);
    named(rows, std::string("dequantize.") + id).remake(*p, inputs, made);
    EXPECT_EQ(made.front().bytes, want.front().bytes) << line;
  }
}

}  // namespace
}  // namespace assay
