// MXFP4, one block: its amax, which is found as MXFP8's is (N15.1), to the value whose E8M0 code is stored
// (N15.2). What follows from the code is MXFP8's (lane/mxfp8.cuh), the elements are E2M1 (lane/convert.cuh).
#pragma once
#include "fast/lane/mxfp8.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// fl(amax / 6): a division, where MXFP8 has a product.
ASSAY_LANE uint32_t mxfp4_scaled_amax(uint32_t amax) {
  return as_bits(__fdiv_rn(as_float(amax), as_float(kLargest<Encoding::e2m1>)));
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
