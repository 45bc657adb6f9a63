// MXFP6, one block: its amax, which is found as MXFP8's is (N18.1), to the value whose E8M0 code is stored
// (N18.2), and four codes of 6 bits as three bytes (N18.4). What follows from the code is MXFP8's
// (lane/mxfp8.cuh), the elements are E2M3 or E3M2 (lane/convert.cuh).
#pragma once
#include "fast/lane/mxfp8.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// fl(amax / 7.5) or fl(amax / 28).
template <Encoding E> ASSAY_LANE uint32_t mxfp6_scaled_amax(uint32_t amax) {
  static_assert(E == Encoding::e2m3 || E == Encoding::e3m2);
  return as_bits(__fdiv_rn(as_float(amax), as_float(kLargest<E>)));
}

// Four codes, a byte each, moved together into the low 24 bits, and back (N6.8).
ASSAY_LANE uint32_t squeeze_sixes(uint32_t bytes) {
  const uint32_t pairs = (bytes & 0x003F003Fu) | (bytes & 0x3F003F00u) >> 2;  // 12 bits in either half
  return (pairs & 0xFFFu) | (pairs >> 4 & 0xFFF000u);
}
ASSAY_LANE uint32_t spread_sixes(uint32_t bits) {
  const uint32_t pairs = (bits & 0xFFFu) | (bits & 0xFFF000u) << 4;
  return (pairs & 0x003F003Fu) | (pairs & 0x0FC00FC0u) << 2;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
