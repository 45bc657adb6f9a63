#include "fast/ptx/driver_map.h"

#include <array>
#include <cstring>
#include <string>

#include "fast/ptx/tensor_map.h"

namespace assay::ptx {

namespace {

struct DataType {
  const char* name;
  uint32_t bits;
  bool floating;
  uint32_t group_align = 0;  // of packed values with gaps: what address and strides are multiples of
};
// In the order of CUtensorMapDataType.
constexpr std::array<DataType, 16> kDriverTypes = {{{"UINT8", 8, false},
                                                    {"UINT16", 16, false},
                                                    {"UINT32", 32, false},
                                                    {"INT32", 32, false},
                                                    {"UINT64", 64, false},
                                                    {"INT64", 64, false},
                                                    {"FLOAT16", 16, true},
                                                    {"FLOAT32", 32, true},
                                                    {"FLOAT64", 64, true},
                                                    {"BFLOAT16", 16, true},
                                                    {"FLOAT32_FTZ", 32, true},
                                                    {"TFLOAT32", 32, true},
                                                    {"TFLOAT32_FTZ", 32, true},
                                                    {"16U4_ALIGN8B", 4, false},
                                                    {"16U4_ALIGN16B", 4, false, 32},
                                                    {"16U6_ALIGN16B", 6, false, 32}}};
// In the order of CUtensorMapSwizzle: the bytes that are swizzled, and the atoms that stay together.
constexpr std::array<uint32_t, 7> kSwizzleBytes = {0, 32, 64, 128, 128, 128, 128};
constexpr std::array<uint32_t, 7> kSwizzleAtoms = {16, 16, 16, 16, 32, 32, 64};
constexpr unsigned kInterleaves = 3, kPromotions = 4, kFills = 2, kFlippedSwizzle = 5;
constexpr uint64_t kMostTensorSize = uint64_t{1} << 32, kMostTensorStride = uint64_t{1} << 40;
constexpr uint32_t kMostBoxSize = 256, kMostElementStride = 8;

[[noreturn]] void refuse_request(const std::string& why) { throw Fault("cuTensorMapEncodeTiled: " + why); }
std::string digits_of(uint64_t v) { return std::to_string(v); }
std::string element_of_array(const char* array, uint64_t n) {
  return std::string(array) + "[" + digits_of(n) + "]";
}

void check_enumerations(const TiledMapRequest& r) {
  const auto within = [](const char* name, unsigned value, size_t count) {
    if (value >= count)
      refuse_request(std::string(name) + " is " + digits_of(value) + ", which is no value of its type");
  };
  within("tensorDataType", r.data_type, kDriverTypes.size());
  within("interleave", r.interleave, kInterleaves);
  within("swizzle", r.swizzle, kSwizzleBytes.size());
  within("l2Promotion", r.promotion, kPromotions);
  within("oobFill", r.fill, kFills);
}

void check_dimension(const TiledMapRequest& r, const DataType& t, uint32_t d) {
  if (r.sizes[d] == 0 || r.sizes[d] > kMostTensorSize)
    refuse_request(element_of_array("globalDim", d) + " is " + digits_of(r.sizes[d]) +
                   ", and must be 1 to 2^32");
  if (r.box[d] == 0 || r.box[d] > kMostBoxSize)
    refuse_request(element_of_array("boxDim", d) + " is " + digits_of(r.box[d]) + ", and must be 1 to 256");
  // Of dimension 0 it is ignored where nothing is interleaved.
  if ((d > 0 || r.interleave) && (r.element_strides[d] == 0 || r.element_strides[d] > kMostElementStride))
    refuse_request(element_of_array("elementStrides", d) + " is " + digits_of(r.element_strides[d]) +
                   ", and must be 1 to 8");
  if (d == 0) return;
  const uint64_t stride = r.strides[d - 1];
  const uint64_t multiple = r.interleave == 2 || t.group_align ? 32 : 16;
  if (stride % multiple || stride >= kMostTensorStride)
    refuse_request(element_of_array("globalStrides", d - 1) + " is " + digits_of(stride) +
                   ", and must be a multiple of " + digits_of(multiple) + " below 2^40");
}

// What the documentation demands, in its order.
void check_request(const void* map, const TiledMapRequest& r) {
  if (reinterpret_cast<uint64_t>(map) % kTensorMapAlign || !map)
    refuse_request("tensorMap must lie at a multiple of 64 bytes");
  check_enumerations(r);
  const DataType& t = kDriverTypes[r.data_type];
  if (r.rank == 0 || r.rank > kMostDimensions || (r.interleave && r.rank < 3))
    refuse_request("tensorRank is " + digits_of(r.rank) + ", and must be " + (r.interleave ? "3" : "1") +
                   " to 5");
  if (!r.sizes || !r.box || !r.element_strides || (r.rank > 1 && !r.strides))
    refuse_request("an array of sizes or strides is null");
  const uint64_t align = r.interleave == 2 || t.group_align ? 32 : 16;
  if (r.address % align || !r.address)
    refuse_request("globalAddress must be a multiple of " + digits_of(align) + " that is not 0");
  for (uint32_t d = 0; d < r.rank; ++d) check_dimension(r, t, d);
  if (t.group_align && (r.sizes[0] % 128 || r.box[0] != 128))
    refuse_request(std::string("globalDim[0] of ") + t.name +
                   " must be a multiple of 128, and boxDim[0] must be 128");
  if (t.bits == 4 && r.sizes[0] % 2)
    refuse_request("globalDim[0] of 16U4_ALIGN8B is " + digits_of(r.sizes[0]) +
                   ", and must be a multiple of 2");
  const uint64_t inner = uint64_t{r.box[0]} * t.bits;  // bits
  if (!r.interleave && !t.group_align && inner % 128)
    refuse_request("boxDim[0] is " + digits_of(r.box[0]) + " elements of " + digits_of(t.bits) +
                   " bits, and must be a multiple of 16 bytes");
  if (!r.interleave && r.swizzle && inner > 8 * kSwizzleBytes[r.swizzle])
    refuse_request("boxDim[0] is " + digits_of(inner / 8) + " bytes, and the swizzle allows " +
                   digits_of(kSwizzleBytes[r.swizzle]));
  if (r.interleave == 2 && r.swizzle != 1)
    refuse_request("an interleave of 32 bytes needs the swizzle of 32 bytes");
  if (r.fill && !t.floating)
    refuse_request(std::string("oobFill asks for NaN, which ") + t.name + " does not have");
}

void check_understood(const TiledMapRequest& r) {
  const auto refuse_kind = [](const std::string& what) { refuse_request(what + " is not understood here"); };
  const DataType& t = kDriverTypes[r.data_type];
  if (t.group_align) refuse_kind(std::string("tensorDataType ") + t.name);
  if (r.interleave) refuse_kind("an interleave");
  if (r.swizzle == kFlippedSwizzle) refuse_kind("a swizzle that flips 8 bytes");
  if (r.fill) refuse_kind("filling with NaN");
  for (uint32_t d = 1; d < r.rank; ++d)
    if (r.element_strides[d] != 1) refuse_kind("an element stride other than 1");
}

}  // namespace

void encode_tiled(void* map, const TiledMapRequest& r) {
  check_request(map, r);
  check_understood(r);
  const DataType& t = kDriverTypes[r.data_type];
  TensorMap m;
  m.address = r.address, m.rank = r.rank;
  m.half_bytes = t.bits == 4;
  m.element_bytes = m.half_bytes ? 1 : t.bits / 8;
  m.swizzle = kSwizzleBytes[r.swizzle], m.atom = kSwizzleAtoms[r.swizzle];
  for (uint32_t d = 0; d < r.rank; ++d) {
    m.sizes[d] = r.sizes[d], m.box[d] = r.box[d];
    m.strides[d] = d == 0 ? m.element_bytes : r.strides[d - 1];
  }
  const auto bytes = encode(m);
  std::memcpy(map, bytes.data(), bytes.size());
}

}  // namespace assay::ptx
