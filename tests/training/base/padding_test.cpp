#include "training/base/padding.h"

#include <gtest/gtest.h>

#include "training/base/data.h"
#include "training/base/errors.h"

namespace assay::training {

namespace {

using Sizes = std::vector<int64_t>;

ErrorClass raised(void (*act)()) {
  try {
    act();
  } catch (const SemanticError& e) {
    return e.error_class;
  }
  return ErrorClass::assertion_error;
}

}  // namespace

TEST(Padding, RoundsEverySplitUp) {
  EXPECT_EQ(padded_splits({0, 1, 31, 32, 33}, 32), (Sizes{0, 32, 32, 32, 64}));
  EXPECT_EQ(padded_splits({17, 15}, 128), (Sizes{128, 128}));
  EXPECT_EQ(padded_splits({}, 16), Sizes{});
  EXPECT_EQ(raised([] { padded_splits({1}, 0); }), ErrorClass::value_error);
}

TEST(Padding, AddsZerosBehindEachSplitAndTakesThemAway) {
  const ArrayPtr x = drawn({7, 3}, DType::bfloat16, 1), padded = pad_rows(x, {3, 0, 4}, 4);
  ASSERT_EQ(padded->shape, (Dims{8, 3}));
  EXPECT_TRUE(equal_bytes(*clone(slice(padded, 0, 0, 3)), *clone(slice(x, 0, 0, 3))));
  EXPECT_TRUE(equal_bytes(*clone(slice(padded, 0, 3, 4)), *zeros({1, 3}, DType::bfloat16)));
  EXPECT_TRUE(equal_bytes(*clone(slice(padded, 0, 4, 8)), *clone(slice(x, 0, 3, 7))));
  EXPECT_TRUE(equal_bytes(*unpad_rows(padded, {3, 0, 4}, 4), *x));
}

TEST(Padding, RefusesSplitsThatDoNotAddUp) {
  EXPECT_EQ(raised([] { pad_rows(zeros({7, 3}, DType::bfloat16), {3, 5}, 4); }), ErrorClass::runtime_error);
  EXPECT_EQ(raised([] { unpad_rows(zeros({7, 3}, DType::bfloat16), {3, 4}, 4); }), ErrorClass::runtime_error);
  EXPECT_EQ(raised([] { pad_rows(zeros({7}, DType::bfloat16), {7}, 4); }), ErrorClass::runtime_error);
}

}  // namespace assay::training
