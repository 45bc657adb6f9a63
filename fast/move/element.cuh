// Elements of 1, 2 or 4 bytes as codes: one at a time, and 8 neighbours by vectors.
#pragma once
#include "fast/device.h"

namespace assay::ASSAY_FAST_NAMESPACE {

template <int kBytes> ASSAY_DEVICE uint32_t load_element(const void* p, int64_t i) {
  if constexpr (kBytes == 1) return static_cast<const uint8_t*>(p)[i];
  else if constexpr (kBytes == 2) return static_cast<const uint16_t*>(p)[i];
  else return static_cast<const uint32_t*>(p)[i];
}
template <int kBytes> ASSAY_DEVICE void store_element(void* p, int64_t i, uint32_t code) {
  if constexpr (kBytes == 1) static_cast<uint8_t*>(p)[i] = uint8_t(code);
  else if constexpr (kBytes == 2) static_cast<uint16_t*>(p)[i] = uint16_t(code);
  else static_cast<uint32_t*>(p)[i] = code;
}
// 8 elements from element `first` on, whose address is a multiple of 16, of bytes of 8. kAgain: they will be
// read again, and stay in the caches.
template <int kBytes, bool kAgain = false>
ASSAY_DEVICE void load_eight(const void* p, int64_t first, uint32_t (&out)[8]) {
  const char* from = static_cast<const char*>(p) + first * kBytes;
  uint32_t w[2 * kBytes];
  if constexpr (kBytes == 1) {
    const uint2 v = kAgain ? load8(from) : load8_streaming(from);
    w[0] = v.x, w[1] = v.y;
  } else {
#pragma unroll
    for (int k = 0; k < 2 * kBytes; k += 4) {
      const uint4 v = kAgain ? load16(from + 4 * k) : load16_streaming(from + 4 * k);
      w[k] = v.x, w[k + 1] = v.y, w[k + 2] = v.z, w[k + 3] = v.w;
    }
  }
  constexpr uint32_t kMask = kBytes == 4 ? 0xFFFFFFFFu : (1u << (8 * (kBytes % 4))) - 1u;
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = (w[j * kBytes / 4] >> (8 * (j * kBytes % 4))) & kMask;
}
template <int kBytes> ASSAY_DEVICE void store_eight(void* p, int64_t first, const uint32_t (&codes)[8]) {
  char* to = static_cast<char*>(p) + first * kBytes;
  uint32_t w[2 * kBytes] = {};
#pragma unroll
  for (int j = 0; j < 8; ++j) w[j * kBytes / 4] |= codes[j] << (8 * (j * kBytes % 4));
  if constexpr (kBytes == 1) {
    store8_streaming(to, make_uint2(w[0], w[1]));
  } else {
#pragma unroll
    for (int k = 0; k < 2 * kBytes; k += 4)
      store16_streaming(to + 4 * k, make_uint4(w[k], w[k + 1], w[k + 2], w[k + 3]));
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
