// A program that asks the runtime for the driver's cuTensorMapEncodeTiled gets one that makes maps for the
// interpreter.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "fast/ptx/tensor_map.h"
#include "fast/stand_in/device.h"

namespace assay::stand_in {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
using Query = cudaError_t (*)(const char*, void**, cudaDriverEntryPointQueryResult*);

cudaError_t by_version(const char* symbol, void** function, cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 12000, cudaEnableDefault, status);
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
cudaError_t without_version(const char* symbol, void** function, cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPoint(symbol, function, cudaEnableDefault, status);
}
#pragma GCC diagnostic pop

// A map of 8 rows and 64 columns of bf16, with boxes of 4 rows.
CUresult encode(EncodeTiled f, CUtensorMap& map, void* data, cuuint32_t columns) {
  const cuuint64_t sizes[] = {64, 8}, strides[] = {128};
  const cuuint32_t box[] = {columns, 4}, element_strides[] = {1, 1};
  return f(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, strides, box, element_strides,
           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

TEST(StandIn, MakesTensorMapsByTheDriversEntryPoint) {
  for (const Query ask : {&by_version, &without_version}) {
    Device device{Environment{}};
    const UseDevice use(device);
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status{};
    ASSERT_EQ(ask("cuTensorMapEncodeTiled", &function, &status), cudaSuccess);
    ASSERT_EQ(status, cudaDriverEntryPointSuccess);
    alignas(64) CUtensorMap map{};
    std::byte* data = device.allocate(1024, "x", 128);
    ASSERT_EQ(encode(reinterpret_cast<EncodeTiled>(function), map, data, 32), CUDA_SUCCESS);
    std::array<std::byte, ptx::kTensorMapBytes> bytes;
    std::memcpy(bytes.data(), &map, bytes.size());
    const ptx::TensorMap m = ptx::decode_tensor_map(bytes);
    EXPECT_EQ(m.address, reinterpret_cast<uint64_t>(data));
    EXPECT_EQ(m.sizes[0], 64u);
    EXPECT_EQ(m.sizes[1], 8u);
    EXPECT_EQ(m.strides[1], 128u);
    EXPECT_EQ(m.box[0], 32u);
    EXPECT_EQ(m.box[1], 4u);
    EXPECT_EQ(m.swizzle, 64u);
    try {
      encode(reinterpret_cast<EncodeTiled>(function), map, data, 31);
      FAIL() << "made a map";
    } catch (const std::runtime_error& e) {
      EXPECT_NE(std::string(e.what()).find("boxDim[0] is 31 elements of 16 bits"), std::string::npos)
          << e.what();
    }
    // A Device has no other function of the driver.
    EXPECT_EQ(ask("cuInit", &function, &status), cudaErrorSymbolNotFound);
    EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
    EXPECT_EQ(function, nullptr);
  }
}

TEST(StandIn, MakesTensorMapsByADirectCall) {
  Device device{Environment{}};
  const UseDevice use(device);
  alignas(64) CUtensorMap map{};
  EXPECT_EQ(encode(&cuTensorMapEncodeTiled, map, device.allocate(1024, "x", 128), 32), CUDA_SUCCESS);
}

// Where no Device is in use the driver answers; where there is no driver either, nobody does.
TEST(StandIn, WithoutADeviceTheDriverIsAsked) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status{};
  const bool there = by_version("cuTensorMapEncodeTiled", &function, &status) == cudaSuccess && function;
  alignas(64) CUtensorMap map{};
  alignas(128) static std::byte data[1024];
  const CUresult made = encode(&cuTensorMapEncodeTiled, map, data, 32);
  if (!there) {
    EXPECT_EQ(made, CUDA_ERROR_NOT_INITIALIZED);
  }
  std::array<std::byte, ptx::kTensorMapBytes> bytes;
  std::memcpy(bytes.data(), &map, bytes.size());
  EXPECT_THROW(ptx::decode_tensor_map(bytes), ptx::Fault);
}

}  // namespace
}  // namespace assay::stand_in
