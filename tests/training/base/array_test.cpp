#include "training/base/array.h"

#include <gtest/gtest.h>

#include "training/base/errors.h"

namespace assay::training {
namespace {

ArrayPtr counted(Dims shape) {
  std::vector<std::byte> bytes(static_cast<size_t>(count_of(shape)));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i);
  return from_bytes(std::move(shape), DType::uint8, bytes);
}
std::vector<int> values(const ArrayPtr& a) {
  std::vector<int> out;
  const ArrayPtr packed = contiguous(a);
  for (std::byte b : packed->bytes()) out.push_back(std::to_integer<int>(b));
  return out;
}
template <class F> ErrorClass raised(F f) {
  try {
    f();
  } catch (const SemanticError& e) {
    return e.error_class;
  }
  ADD_FAILURE() << "nothing was raised";
  return ErrorClass::value_error;
}

TEST(Array, NamesAndSizesOfDtypesAgree) {
  for (const char* name : {"uint8", "bool", "int32", "int64", "float16", "bfloat16", "float32"})
    EXPECT_EQ(name_of(*dtype_named(name)), name);
  EXPECT_FALSE(dtype_named("float64"));
  EXPECT_EQ(bytes_of(DType::int64), 8);
  EXPECT_EQ(encoding_of(DType::bfloat16), Encoding::bf16);
  EXPECT_EQ(dtype_of(Encoding::e2m1), DType::uint8);
  EXPECT_EQ(dtype_of(Encoding::f16), DType::float16);
  EXPECT_EQ(raised([] { encoding_of(DType::int32); }), ErrorClass::type_error);
}

TEST(Array, ShapesFlattenToAMatrix) {
  EXPECT_EQ(flattened({}), (Shape{1, 1}));
  EXPECT_EQ(flattened({5}), (Shape{1, 5}));
  EXPECT_EQ(flattened({2, 3, 5}), (Shape{6, 5}));
  EXPECT_EQ(count_of({}), 1);
}

TEST(Array, ViewsShareMemory) {
  const ArrayPtr a = counted({2, 3, 4}), v = view(a, {6, 4});
  EXPECT_TRUE(share_memory(*a, *v));
  v->bytes()[5] = std::byte{99};
  EXPECT_EQ(values(a)[5], 99);
  EXPECT_EQ(values(view(counted({4}), {2, 1, 2})), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(raised([&] { view(a, {5, 5}); }), ErrorClass::runtime_error);
}

TEST(Array, AViewOfATransposeCutsOnlyWhatLiesTogether) {
  const ArrayPtr t = transpose(counted({2, 3, 4}), 0, 1);  // [3, 2, 4], strides 4, 12, 1
  EXPECT_EQ(values(view(t, {3, 2, 2, 2})), values(t));
  EXPECT_EQ(raised([&] { view(t, {6, 4}); }), ErrorClass::runtime_error);
  EXPECT_EQ(values(view(transpose(counted({1, 5}), 0, 1), {5})), (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Array, SlicesAndTransposesReadInTheirOwnOrder) {
  const ArrayPtr a = counted({3, 4});
  EXPECT_EQ(values(slice(a, 1, 1, 3)), (std::vector<int>{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(values(slice(a, 0, 2, 3)), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(values(transpose(a, 0, 1)), (std::vector<int>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_FALSE(slice(a, 1, 1, 3)->contiguous());
  EXPECT_EQ(raised([&] { slice(a, 0, 2, 5); }), ErrorClass::runtime_error);
  EXPECT_THROW(slice(a, 1, 0, 1)->bytes(), std::logic_error);
}

TEST(Array, AsStridedStartsWhereTheViewStartsAndStaysInside) {
  const ArrayPtr a = slice(counted({4, 4}), 0, 1, 4);
  EXPECT_EQ(values(as_strided(a, {2, 2}, {4, 1})), (std::vector<int>{4, 5, 8, 9}));
  EXPECT_EQ(values(as_strided(a, {2}, {1}, 0)), (std::vector<int>{0, 1}));
  EXPECT_EQ(raised([&] { as_strided(a, {4, 4}, {4, 1}); }), ErrorClass::runtime_error);
  EXPECT_EQ(values(as_strided(a, {2, 4}, {4, 1}, 8)), (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  // Its last row begins inside and ends outside.
  EXPECT_EQ(raised([&] { as_strided(a, {2, 5}, {4, 1}, 8); }), ErrorClass::runtime_error);
}

TEST(Array, ContiguousIsItselfAndACloneIsNot) {
  const ArrayPtr a = counted({2, 2});
  EXPECT_EQ(contiguous(a), a);
  EXPECT_FALSE(share_memory(*clone(a), *a));
  EXPECT_TRUE(equal_bytes(*clone(a), *a));
  EXPECT_FALSE(equal_bytes(*view(a, {4}), *a));
}

TEST(Array, CopiesGoThroughAnyStrides) {
  const ArrayPtr from = counted({2, 3}), to = counted({3, 2});
  copy_into(*transpose(from, 0, 1), *to);
  EXPECT_EQ(values(to), (std::vector<int>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(raised([&] { copy_into(*from, *to); }), ErrorClass::runtime_error);
}

TEST(Array, ConcatenationIsAlongTheFirstDimension) {
  const std::vector<ArrayPtr> parts = {counted({1, 2}), transpose(counted({2, 2}), 0, 1)};
  EXPECT_EQ(values(concatenate(parts)), (std::vector<int>{0, 1, 0, 2, 1, 3}));
  const struct {
    ArrayPtr array;
    const char* found;
  } unlike[] = {{counted({1, 3}), "uint8 [1, 3]"},
                {counted({1, 2, 3}), "uint8 [1, 2, 3]"},
                {counted({2}), "uint8 [2]"},
                {zeros({1, 2}, DType::int32), "int32 [1, 2]"}};
  for (const auto& other : unlike) {
    try {
      concatenate(std::vector<ArrayPtr>{parts[0], other.array});
      ADD_FAILURE() << "joined " << other.found;
    } catch (const SemanticError& e) {
      EXPECT_EQ(e.error_class, ErrorClass::runtime_error);
      EXPECT_EQ(
          std::string(e.what()),
          std::string("concatenate: expected arrays of uint8 like [1, 2] except in the first dimension, "
                      "found ") +
              other.found);
    }
  }
}

TEST(Array, EmptyShapesHoldNothingAndScalarsOne) {
  EXPECT_TRUE(empty({0, 4}, DType::float32)->bytes().empty());
  EXPECT_EQ(zeros({}, DType::float32)->bytes().size(), 4u);
  EXPECT_EQ(std::to_integer<int>(empty({1}, DType::uint8, std::byte{0x5A})->bytes()[0]), 0x5A);
}

}  // namespace
}  // namespace assay::training
