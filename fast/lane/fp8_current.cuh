// Per-tensor FP8 with current scaling: from the tensor's amax to its scale (N3.2 to N3.6).
#pragma once
#include "contract/numerics.h"
#include "fast/lane/fp8_tensor.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct CurrentScale {
  uint32_t largest = 0;                // MAX of the element encoding
  uint32_t eps = 0;
  bool pow2 = false;
  InfAmax inf_amax = InfAmax::unit;
  uint32_t limit = kMaxFinite;         // what replaces an infinite scale

  ASSAY_LANE uint32_t operator()(uint32_t amax) const {
    const uint32_t a = as_float(amax) < as_float(eps) ? eps : amax;                                           // N3.2
    if ((a & kAbs) == 0u || is_nan(a) || ((a & kAbs) == kInf && inf_amax == InfAmax::unit)) return kOne;      // N3.4
    uint32_t scale = as_bits(__fdiv_rn(as_float(largest), as_float(a)));                                      // N3.3
    if ((scale & kAbs) == kInf) scale = limit;                                                                // N3.5
    return pow2 ? scale & 0xFF800000u : scale;                                                                // N3.6
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
