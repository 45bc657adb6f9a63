// Regions of a tensor that were not read, and scales that are too few to say whose they are.
#include "compare/diagnosis/search/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compare/diagnosis/report/text.h"
#include "reference/subject.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

Diagnosis of(const planes::Case& c) {
  const auto reference = make_reference_subject();
  auto d = diagnose({c.problem, "mine", c.inputs, c.got}, *reference, {});
  EXPECT_TRUE(d) << d.error().text();
  return std::move(*d);
}

// The largest element of a block lies in the tile that was not read, so the block has another scale, and its
// codes outside of the tile follow. They do not widen the tile.
TEST(DiagnoseRegions, ATileThatHoldsTheAmaxOfABlock) {
  planes::Case c("quantize fp8_block 256x256 bf16 dir=both seed=1");
  PlaneData read = c.inputs.front();
  for (int64_t r = 64; r < 96; ++r)
    for (int64_t k = 32; k < 64; ++k) set_code(read.plane, read.bytes, index_of(read.plane, r, k), 0);
  auto reference = make_reference_subject();
  c.got = execute(*reference, c.problem, {read}, {}).planes;
  int64_t scales = 0;  // that differ
  const PlaneData &got = c["row.scale_inv"], &want = c.wanted("row.scale_inv");
  for (int64_t i = 0; i < got.plane.padded.count(); ++i)
    scales += code_at(got.plane, got.bytes, i) != code_at(want.plane, want.bytes, i);
  ASSERT_GT(scales, 0) << "the case shows nothing";
  const Diagnosis d = of(c);
  ASSERT_EQ(d.confidence, Confidence::certain) << diagnosis_screen(d);
  EXPECT_EQ(d.explanations.front().ids, std::vector<std::string>{"input.zero:64-96,32-64"});
}

// Of blocks of 128x128 a scale stands for 128 rows: two wrong ones are no region of another tensor.
TEST(DiagnoseRegions, TwoScalesAreNotOfAnotherTensor) {
  planes::Case c("quantize fp8_block 256x384 bf16 block=128x128 dir=both seed=1");
  PlaneData& p = c["col.scale_inv"];
  ASSERT_EQ(p.plane.logical.count(), 6);
  const uint32_t first = code_at(p.plane, p.bytes, index_of(p.plane, 2, 0)),
                 second = code_at(p.plane, p.bytes, index_of(p.plane, 2, 1));
  set_code(p.plane, p.bytes, index_of(p.plane, 2, 0), first + (3u << 20));
  set_code(p.plane, p.bytes, index_of(p.plane, 2, 1), second + (5u << 19));
  const Diagnosis d = of(c);
  EXPECT_TRUE(std::none_of(d.fingerprints.begin(), d.fingerprints.end(), [](const std::string& text) {
    return text.find("of another tensor") != std::string::npos;
  })) << diagnosis_screen(d);
}

}  // namespace
}  // namespace assay
