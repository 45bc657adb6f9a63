#include "compare/judge/parity.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/compare/fakes.h"

namespace assay {
namespace {

TEST(Parity, SaysOfEachLaterPlaneWhetherTheCauseExplainsIt) {
  const auto differing = [](const char* name, int64_t differ, int64_t explained) {
    PlaneDifference d;
    d.plane.name = name;
    d.plane.encoding = Encoding::e4m3;
    d.plane.logical = d.plane.padded = {4, 8};
    d.differ = differ;
    d.of = 32;
    d.explained = explained;
    return d;
  };
  Judgement j;
  j.cause = differing("row.scale_inv", 1, 0);
  j.after = {differing("row.data", 4, 3), differing("row.more", 2, 2)};
  j.beside = {differing("col.data", 5, 0)};
  const auto breach = parity_breach(fakes::problem("quantize mxfp8 4x8 bf16"), j, "fake", "reference");
  ASSERT_TRUE(breach);
  const std::vector<std::string> after = {
      "row.data (e4m3)   4 of 32 differ, 3 inside the blocks that the cause affects",
      "row.more (e4m3)   2 of 32 differ, all inside the blocks that the cause affects",
      "col.data (e4m3)   5 of 32 differ, in another member or direction"};
  EXPECT_EQ(breach->after, after);
}

// Under the scale 1, which 448 has, 1.0625 is a tie of 1 (38) and 1.125 (39); 1 is not.
TEST(Parity, OnlyATieIsCalledATie) {
  const auto reference = make_reference_subject();
  // Every element but the first is one code too large.
  const auto hint = [&](int count, const std::string& others) {
    const Problem p =
        fakes::problem(fmt::format("quantize mxfp8 1x{} bf16 dir=row fill=literal:43e0{}", count, others));
    const std::vector<PlaneData> inputs = *make_inputs(p, *reference);
    const std::vector<PlaneData> want = execute(*reference, p, inputs, {}).planes;
    std::vector<PlaneData> got = want;
    for (size_t i = 1; i < static_cast<size_t>(count); ++i) {
      EXPECT_EQ(got[1].bytes[i], std::byte{0x38});
      got[1].bytes[i] = std::byte{0x39};
    }
    Breach b = *parity_breach(p, judge(&p, got, want), "fake", "reference");
    look_for_ties(p, inputs, got, want, b);
    return b.hint;
  };
  const char* ties = "one code apart, and only where the scaled value is a tie: rounding rule, not layout";
  const char* away = "one code apart, always away from zero: a rounding rule, or rounding twice";
  EXPECT_EQ(hint(2, "3f88"), ties);
  EXPECT_EQ(hint(2, "3f80"), "one code apart: rounding or its order, not layout");
  EXPECT_EQ(hint(3, "3f883f88"), ties);
  EXPECT_EQ(hint(3, "3f883f80"), away);
  EXPECT_EQ(hint(3, "3f803f88"), away);
}

}  // namespace
}  // namespace assay
