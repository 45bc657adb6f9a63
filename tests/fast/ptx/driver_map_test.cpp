// Tensor maps as cuTensorMapEncodeTiled makes them: each argument that its documentation excludes is named.
#include "fast/ptx/driver_map.h"

#include <gtest/gtest.h>

#include <functional>

#include "fast/ptx/tensor_map.h"

namespace assay::ptx {
namespace {

struct Request {
  alignas(64) std::array<std::byte, kTensorMapBytes> map{};
  std::array<uint64_t, 6> sizes = {96, 40, 7, 1, 1, 1}, strides = {256, 20480, 256, 256, 256};
  std::array<uint32_t, 6> box = {64, 32, 3, 1, 1, 1}, element_strides = {1, 1, 1, 1, 1, 1};
  size_t shift = 0;  // of the map's own address
  // bf16, three dimensions, boxes of 128 bytes that are swizzled.
  TiledMapRequest r{9, 3, 0x1000, nullptr, nullptr, nullptr, nullptr, 0, 3, 2, 0};
  std::string error() {
    if (!r.sizes) r.sizes = sizes.data();
    r.strides = strides.data(), r.box = box.data(), r.element_strides = element_strides.data();
    try {
      encode_tiled(map.data() + shift, r);
    } catch (const Fault& e) {
      return e.what();
    }
    return "";
  }
};

TEST(PtxDriverMap, IsTheMapThatCopiesRead) {
  Request q;
  ASSERT_EQ(q.error(), "");
  const TensorMap m = decode_tensor_map(q.map);
  EXPECT_EQ(m.address, 0x1000u);
  EXPECT_EQ(m.rank, 3u);
  EXPECT_EQ(m.element_bytes, 2u);
  EXPECT_FALSE(m.half_bytes);
  EXPECT_EQ(m.swizzle, 128u);
  for (uint32_t d = 0; d < 3; ++d) {
    EXPECT_EQ(m.sizes[d], q.sizes[d]) << d;
    EXPECT_EQ(m.box[d], q.box[d]) << d;
    EXPECT_EQ(m.strides[d], d == 0 ? 2 : q.strides[d - 1]) << d;
  }
  // Every data type that is understood, with the bytes of its elements.
  const uint32_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  for (unsigned type = 0; type < std::size(kBytes); ++type) {
    Request each;
    each.r.data_type = type, each.r.swizzle = 0;
    ASSERT_EQ(each.error(), "") << type;
    EXPECT_EQ(decode_tensor_map(each.map).element_bytes, kBytes[type]) << type;
  }
  for (const auto& [swizzle, atom] : {std::pair{4u, 32u}, {6u, 64u}}) {
    Request large;
    large.r.swizzle = swizzle;
    ASSERT_EQ(large.error(), "") << swizzle;
    EXPECT_EQ(decode_tensor_map(large.map).swizzle, 128u);
    EXPECT_EQ(decode_tensor_map(large.map).atom, atom);
  }
  Request packed;
  packed.r.data_type = 13, packed.r.swizzle = 1;
  ASSERT_EQ(packed.error(), "");
  EXPECT_TRUE(decode_tensor_map(packed.map).half_bytes);
  EXPECT_EQ(decode_tensor_map(packed.map).inner_bytes(), 32u);
}

TEST(PtxDriverMap, WhatTheDocumentationExcludesIsNamed) {
  const struct {
    std::function<void(Request&)> change;
    const char* words;
  } kWrong[] = {
      {[](Request& q) { q.shift = 16; }, "tensorMap must lie at a multiple of 64 bytes"},
      {[](Request& q) { q.r.data_type = 16; }, "tensorDataType is 16, which is no value of its type"},
      {[](Request& q) { q.r.interleave = 3; }, "interleave is 3"},
      {[](Request& q) { q.r.swizzle = 7; }, "swizzle is 7"},
      {[](Request& q) { q.r.promotion = 4; }, "l2Promotion is 4"},
      {[](Request& q) { q.r.fill = 2; }, "oobFill is 2"},
      {[](Request& q) { q.r.rank = 0; }, "tensorRank is 0, and must be 1 to 5"},
      {[](Request& q) { q.r.rank = 6; }, "tensorRank is 6, and must be 1 to 5"},
      {[](Request& q) { q.r.rank = 2, q.r.interleave = 1; }, "tensorRank is 2, and must be 3 to 5"},
      {[](Request& q) { q.r.address = 0x1008; }, "globalAddress must be a multiple of 16"},
      {[](Request& q) { q.r.address = 0; }, "globalAddress must be a multiple of 16 that is not 0"},
      {[](Request& q) { q.r.address = 0x1010, q.r.interleave = 2, q.r.swizzle = 1; },
       "globalAddress must be a multiple of 32"},
      {[](Request& q) { q.sizes[1] = 0; }, "globalDim[1] is 0, and must be 1 to 2^32"},
      {[](Request& q) { q.sizes[2] = (uint64_t{1} << 32) + 1; }, "globalDim[2] is 4294967297"},
      {[](Request& q) { q.strides[0] = 200; },
       "globalStrides[0] is 200, and must be a multiple of 16 below 2^40"},
      {[](Request& q) { q.strides[1] = uint64_t{1} << 40; }, "globalStrides[1] is 1099511627776"},
      {[](Request& q) { q.r.interleave = 2, q.r.swizzle = 1, q.strides[0] = 208; },
       "globalStrides[0] is 208, and must be a multiple of 32"},
      {[](Request& q) { q.box[1] = 257; }, "boxDim[1] is 257, and must be 1 to 256"},
      {[](Request& q) { q.box[2] = 0; }, "boxDim[2] is 0"},
      {[](Request& q) { q.box[0] = 60; },
       "boxDim[0] is 60 elements of 16 bits, and must be a multiple of 16 bytes"},
      {[](Request& q) { q.element_strides[1] = 9; }, "elementStrides[1] is 9, and must be 1 to 8"},
      {[](Request& q) { q.element_strides[2] = 0; }, "elementStrides[2] is 0"},
      {[](Request& q) { q.r.swizzle = 2; }, "boxDim[0] is 128 bytes, and the swizzle allows 64"},
      {[](Request& q) { q.r.interleave = 2; }, "an interleave of 32 bytes needs the swizzle of 32 bytes"},
      {[](Request& q) { q.r.data_type = 1, q.r.fill = 1; },
       "oobFill asks for NaN, which UINT16 does not have"},
      {[](Request& q) { q.r.data_type = 13, q.r.fill = 1, q.r.swizzle = 0; },
       "which 16U4_ALIGN8B does not have"},
      {[](Request& q) { q.r.data_type = 13, q.sizes[0] = 97; }, "globalDim[0] of 16U4_ALIGN8B is 97"},
      {[](Request& q) { q.r.data_type = 14; }, "globalDim[0] of 16U4_ALIGN16B must be a multiple of 128"},
      {[](Request& q) { q.r.data_type = 14, q.sizes[0] = q.box[0] = 128; },
       "tensorDataType 16U4_ALIGN16B is not understood here"},
      {[](Request& q) { q.r.interleave = 1; }, "an interleave is not understood here"},
      {[](Request& q) { q.r.swizzle = 5; }, "a swizzle that flips 8 bytes is not understood"},
      {[](Request& q) { q.r.fill = 1; }, "filling with NaN is not understood here"},
      {[](Request& q) { q.element_strides[1] = 2; }, "an element stride other than 1 is not understood here"},
      {[](Request& q) { q.box[0] = 32; }, "only equal ones are understood"},
  };
  for (const auto& w : kWrong) {
    Request q;
    w.change(q);
    const std::string error = q.error();
    EXPECT_NE(error.find(w.words), std::string::npos) << w.words << " is not in: " << error;
  }
  // The first element stride is ignored.
  Request ignored;
  ignored.element_strides[0] = 0;
  EXPECT_EQ(ignored.error(), "");
}

}  // namespace
}  // namespace assay::ptx
