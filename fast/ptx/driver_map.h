// Tensor maps as programs ask the driver for them (cuTensorMapEncodeTiled of the CUDA driver API), without a
// header of CUDA: enumerations are their numbers.
#pragma once
#include <cstdint>

#include "fast/ptx/types.h"

namespace assay::ptx {

// The arguments of cuTensorMapEncodeTiled behind the map. Dimension 0 is the innermost. `sizes`, `box` and
// `element_strides` have `rank` elements, `strides` (bytes, from dimension 1 on) one less.
struct TiledMapRequest {
  unsigned data_type = 0, rank = 0;
  uint64_t address = 0;
  const uint64_t *sizes = nullptr, *strides = nullptr;
  const uint32_t *box = nullptr, *element_strides = nullptr;
  unsigned interleave = 0, swizzle = 0, promotion = 0, fill = 0;
};

// Writes the 128 bytes of a map, which this interpreter alone reads (tensor_map.h). Fault: an argument that
// the driver's documentation excludes, or one that the interpreter does not understand; each says which.
void encode_tiled(void* map, const TiledMapRequest&);

}  // namespace assay::ptx
