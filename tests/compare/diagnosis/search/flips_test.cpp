// Values that no rule makes: few flipped bits, and one scale for every block.
#include "compare/diagnosis/search/diagnose.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "reference/subject.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

Diagnosis of_recorded(const planes::Case& c) {
  const auto reference = make_reference_subject();
  DiagnoseOptions options;
  options.flips = true;
  auto d = diagnose({c.problem, "pack", c.inputs, c.got}, *reference, options);
  EXPECT_TRUE(d) << d.error().text();
  return std::move(*d);
}
void flip(planes::Case& c, const std::string& name, int64_t row, int64_t col, int bit) {
  PlaneData& p = c[name];
  const int64_t at = index_of(p.plane, row, col);
  set_code(p.plane, p.bytes, at, code_at(p.plane, p.bytes, at) ^ (1u << bit));
}
void expect_flip(const planes::Case& c, const std::string& id, const std::string& title) {
  const Diagnosis d = of_recorded(c);
  ASSERT_EQ(d.confidence, Confidence::certain) << id << ": " << headline(d);
  EXPECT_EQ(d.explanations.front().ids, std::vector{id});
  EXPECT_NE(d.explanations.front().title.find(title), std::string::npos) << d.explanations.front().title;
}

TEST(DiagnoseFlips, OneFlippedBitOfWhatIsStored) {
  for (const std::string format : {"mxfp8", "nvfp4", "fp8_block", "mxfp6", "fp8_current"}) {
    planes::Case c("quantize " + format + " 64x256 bf16 dir=both seed=3");
    flip(c, "row.data", 19, 36, 2);
    expect_flip(c, "flipped.data=4:19-20,36-37@row",
                "one flipped bit: bit 2 of row.data, row 19, column 36: ");
  }
  planes::Case scale("quantize mxfp8 64x256 bf16 dir=row");
  flip(scale, "row.scale_inv", 9, 5, 3);
  expect_flip(scale, "flipped.scale_inv=8:9-10,5-6",
              "one flipped bit: bit 3 of row.scale_inv, row 9, columns 160..191: ");
  planes::Case whole("quantize fp8_current 64x256 bf16 dir=row");
  flip(whole, "row.scale_inv", 0, 0, 20);
  expect_flip(whole, "flipped.scale_inv=100000:0-1,0-1", "one flipped bit: bit 20 of row.scale_inv");
}

// A flip in a last bit, or to a zero, may be a rounding or a lost code as well.
TEST(DiagnoseFlips, AFlipThatMayBeArithmeticSaysSo) {
  planes::Case c("quantize mxfp8 64x256 bf16 dir=row");
  flip(c, "row.data", 19, 136, 0);
  expect_flip(c, "flipped.data=1:19-20,136-137", "another rounding of this one value gives the same code");
}

TEST(DiagnoseFlips, FewFlippedBits) {
  planes::Case c("quantize mxfp8 64x256 bf16 dir=row");
  flip(c, "row.data", 19, 136, 4);
  flip(c, "row.data", 35, 40, 5);
  const Diagnosis d = of_recorded(c);
  EXPECT_EQ(d.confidence, Confidence::certain);
  EXPECT_EQ(d.explanations.front().ids,
            (std::vector<std::string>{"flipped.data=10:19-20,136-137", "flipped.data=20:35-36,40-41"}));
  flip(c, "row.data", 50, 50, 1);  // two bits of one code: no flip
  flip(c, "row.data", 50, 50, 2);
  EXPECT_EQ(of_recorded(c).confidence, Confidence::unexplained);
}

// The kernel read x with a flipped bit, or the dump has one: the block of that element follows in both
// directions.
TEST(DiagnoseFlips, AFlippedBitOfTheInput) {
  planes::Case c("quantize mxfp8 64x256 bf16 dir=both seed=5");
  PlaneData& x = c.inputs.front();
  ASSERT_EQ(x.plane.name, "x");
  const int64_t at = index_of(x.plane, 21, 77);
  set_code(x.plane, x.bytes, at, code_at(x.plane, x.bytes, at) ^ (1u << 11));
  expect_flip(c, "input.flipped=800:21-22,77-78", "one flipped bit: bit 11 of x, row 21, column 77");
}

// A subject that makes the same bytes twice flips no bit. And a hypothesis that makes thousands of new
// differences is the next best at most.
TEST(DiagnoseFlips, ASubjectsOneWrongCodeIsUnexplained) {
  planes::Case c("quantize mxfp8 64x256 bf16 dir=row");
  flip(c, "row.data", 19, 136, 4);
  const auto reference = make_reference_subject();
  const auto d = diagnose({c.problem, "mine", c.inputs, c.got}, *reference, {});
  ASSERT_TRUE(d);
  EXPECT_EQ(d->confidence, Confidence::unexplained) << headline(*d);
  ASSERT_FALSE(d->explanations.empty());
  EXPECT_GT(d->explanations.front().made_anew(), 1000);
}

// A constant is called one, also where the first block has that scale by right.
TEST(DiagnoseFlips, EveryScaleIsAConstant) {
  for (const uint32_t constant : {0x78u, 0x75u}) {
    planes::Case c("quantize mxfp8 64x256 bf16 dir=row");
    c.spoil("row.scale_inv", [&](int64_t, int64_t, uint32_t) { return constant; });
    const auto reference = make_reference_subject();
    const auto d = diagnose({c.problem, "mine", c.inputs, c.got}, *reference, {});
    ASSERT_TRUE(d);
    EXPECT_EQ(d->explanations.front().title,
              fmt::format("every scale is {:02X} (2^{}), a constant (the stored scale only)", constant,
                          static_cast<int>(constant) - 127));
  }
}

}  // namespace
}  // namespace assay
