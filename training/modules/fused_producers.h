// What a norm or an activation hands to the layer that follows: a rounded tensor, or one that is quantized
// already by the kernel that made it. Both routes exist because vanilla quantizers fuse and others do not,
// and because they are not equal bit for bit (TE csrc/extensions/normalization.cpp, activation.cpp).
#pragma once
#include "training/modules/linear_core.h"

namespace assay::training {

enum class ProducerKind : uint8_t { norm, activation };

struct Produced {
  Tensorlike tensor;  // of `dtype`, or quantized
  bool quantized = false;
  ArrayPtr rounded;  // null where no rounded tensor exists: delayed scaling's fused kernels
};
// `unrounded` is the producer's float32 result. Fused, by class:
//   delayed scaling                  quantizes it as it is (E1b)
//   current scaling of an activation, NVFP4 of an activation without RHT
//                                    quantizes the rounded tensor with the amax of the un-rounded one (E1a)
//   everything else                  quantizes the rounded tensor: equal to the unfused route
// Not fused: hybrids, Identity, references, and where `fuse` is off; then the result is rounded and not
// quantized.
Produced produce(Session&, const ArrayPtr& unrounded, DType dtype, ProducerKind, Quantizer* quantizer,
                 bool fuse, const std::string& who, Usages usages, const GroupPtr& group);

// A norm's kernel quantizes this rank's shard before it is gathered, unless shards travel unquantized.
bool fuses_before_gather(const LinearCall&);
// The directions that a norm's result is quantized in: of one that is gathered, columns only where they can
// travel.
Usages usages_behind_norm(const LinearCall&);

}  // namespace assay::training
