// Bit layouts of the encodings as compile-time integers, for code that shifts and masks binary32 patterns.
#pragma once
#include "contract/encoding.h"
#include "fast/device.h"

namespace assay::ASSAY_FAST_NAMESPACE {

inline constexpr uint32_t kSign = 0x80000000u, kAbs = 0x7FFFFFFFu, kInf = 0x7F800000u, kNan = 0x7FFFFFFFu,
                          kFraction = 0x007FFFFFu;
inline constexpr uint32_t kOne = 0x3F800000u, kMaxFinite = 0x7F7FFFFFu;

// Codes of E beside binary32 patterns.
template <Encoding E> struct Layout {
  static constexpr int kBits = info(E).bits, kMantissa = info(E).mantissa_bits, kBias = info(E).bias,
                       kBytes = info(E).bytes();
  static constexpr uint32_t kMax = info(E).max_finite, kNanCode = info(E).nan, kInfCode = info(E).infinity;
  static constexpr bool kHasInf = kInfCode != kNoCode;
  static constexpr uint32_t kSignCode = info(E).has_sign() ? 1u << (kBits - 1) : 0u;
  static constexpr int kDrop = 23 - kMantissa;  // binary32 fraction bits that E does not have
  static constexpr uint32_t kRebias = uint32_t(127 - kBias)
                                      << kMantissa;  // exponent difference, in units of the code
  static constexpr uint32_t kMinNormal = uint32_t(128 - kBias)
                                         << 23;  // binary32 pattern of the least normal value
};

// The largest finite value as a binary32 pattern: 448 or 57344.
template <Encoding E>
inline constexpr uint32_t kLargest = ((Layout<E>::kMax + Layout<E>::kRebias) << Layout<E>::kDrop);

ASSAY_LANE float as_float(uint32_t bits) { return __uint_as_float(bits); }
ASSAY_LANE uint32_t as_bits(float value) { return __float_as_uint(value); }
ASSAY_LANE bool is_nan(uint32_t bits) { return (bits & kAbs) > kInf; }
// Every NaN that arithmetic makes becomes the one pattern that is stored (N1.3).
ASSAY_LANE uint32_t canonical(uint32_t bits) { return is_nan(bits) ? kNan : bits; }

}  // namespace assay::ASSAY_FAST_NAMESPACE
