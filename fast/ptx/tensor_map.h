// Tensor maps: what a tensor copy is told of the tensor in global memory (5.5). A map is 128 bytes that
// only those read who made them: on a device the driver and its copy engine, here this file.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fast/ptx/machine.h"

namespace assay::ptx {

inline constexpr size_t kTensorMapBytes = 128, kTensorMapAlign = 64;
inline constexpr unsigned kMostDimensions = 5;

// Dimension 0 is the innermost, whose elements lie side by side.
struct TensorMap {
  uint64_t address = 0;
  uint32_t rank = 1, element_bytes = 1;
  // Elements of 4 bits, two in a byte without gaps (16U4_ALIGN8B): sizes, box and coordinates of dimension 0
  // count them, and are even; element_bytes is 1.
  bool half_bytes = false;
  std::array<uint64_t, kMostDimensions> sizes{};    // elements
  std::array<uint64_t, kMostDimensions> strides{};  // bytes; that of dimension 0 is the element
  std::array<uint32_t, kMostDimensions> box{};      // elements that a copy moves
  uint32_t swizzle = 0;                             // 0, 32, 64 or 128 bytes
  uint32_t atom = 16;  // bytes that stay together when they are swizzled: 16, or 32 or 64 of 128

  uint64_t inner_bytes() const { return uint64_t{box[0]} * element_bytes >> half_bytes; }  // of the box
  uint64_t box_bytes() const;
};

// Fault: what the driver refuses too: no multiple of 16 where one must stand, a box beyond 256, a rank beyond
// 5, an odd number of elements of half a byte; a swizzle whose span is not the box's innermost bytes.
std::array<std::byte, kTensorMapBytes> encode(const TensorMap&);
// Fault: these bytes are no tensor map.
TensorMap decode_tensor_map(std::span<const std::byte, kTensorMapBytes>);

// The pieces of the box whose first element has these coordinates, which lies at an offset in shared memory.
// What lies outside the tensor is a piece of zeros. Fault: an odd coordinate of elements of half a byte.
std::vector<BulkPiece> pieces_of(const TensorMap&, std::span<const int32_t> first, uint64_t shared);

}  // namespace assay::ptx
