#include "training/dispatch/shapes.h"

#include <gtest/gtest.h>

#include "tests/training/formats/quantizer_kit.h"

namespace assay::training {
namespace {

TEST(DispatchedShapes, ADimensionCountsFromEitherEndAndEndsThere) {
  Setting t;
  const StoragePtr s = make<MXFP8Quantizer>()->quantize(t.session, bf16({64, 96}));
  const auto cut = [&](int64_t dim) {
    return std::get<ArrayPtr>(dispatch::slice(t.session, s, dim, 0, 32))->shape;
  };
  EXPECT_EQ(cut(0), (Dims{32, 96}));
  EXPECT_EQ(cut(-2), (Dims{32, 96}));
  EXPECT_EQ(cut(1), (Dims{64, 32}));
  EXPECT_EQ(cut(-1), (Dims{64, 32}));
  for (const int64_t dim : {-4, -3, 2, 3})
    EXPECT_EQ(raised([&] { cut(dim); }), ErrorClass::value_error) << dim;
}

}  // namespace
}  // namespace assay::training
