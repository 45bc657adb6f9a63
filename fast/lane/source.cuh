// The high-precision operand in registers: 8 neighbouring elements as raw 32-bit words, two elements a word
// for the 16-bit encodings. Absolute values compare as integers there, so an amax is found before anything is
// widened.
#pragma once
#include "fast/lane/decode.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Maxima of two unsigned halves at once.
ASSAY_LANE uint32_t max_halves(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __vmaxu2(a, b);
#else
  const uint32_t low = (a & 0xFFFFu) > (b & 0xFFFFu) ? a : b, high = a > b ? a : b;
  return (low & 0xFFFFu) | (high & 0xFFFF0000u);
#endif
}

template <Encoding E> struct Source {
  static constexpr Encoding kEncoding = E;
  static constexpr bool kHalves = Layout<E>::kBytes == 2;
  static constexpr int kPerWord = kHalves ? 2 : 1;
  static constexpr int kWords = 8 / kPerWord;  // words of 8 elements
  static constexpr uint32_t kAbsWord = kHalves ? 0x7FFF7FFFu : kAbs;
  static constexpr uint32_t kInfCode = Layout<E>::kInfCode;
  // Blocks of 256 threads per multiprocessor for a kernel that holds 64 elements a thread, as many as fit
  // without spills: 80, 128, 255 registers.
  static constexpr int kBlocks = E == Encoding::bf16 ? 3 : E == Encoding::f16 ? 2 : 1;

  // Element j of 8, widened exactly (N1.2).
  ASSAY_LANE static uint32_t widen(const uint32_t* words, int j) {
    if constexpr (E == Encoding::f32) return words[j];
    else if constexpr (E == Encoding::bf16) return j % 2 ? words[j / 2] & 0xFFFF0000u : words[j / 2] << 16;
    else return decode<E>(j % 2 ? words[j / 2] >> 16 : words[j / 2] & 0xFFFFu);
  }
  // Maximum of each element of two words of absolute values.
  ASSAY_LANE static uint32_t max(uint32_t a, uint32_t b) {
    if constexpr (kHalves) return max_halves(a, b);
    else return a > b ? a : b;
  }
  // Whether a word of absolute values holds a NaN.
  ASSAY_LANE static bool any_nan(uint32_t word) {
    if constexpr (kHalves) return (word & 0xFFFFu) > kInfCode || (word >> 16) > kInfCode;
    else return word > kInfCode;
  }
  // The word with NaN elements replaced by zeros.
  ASSAY_LANE static uint32_t drop_nan(uint32_t word) {
    if constexpr (kHalves) {
      const uint32_t low = word & 0xFFFFu, high = word >> 16;
      return (low > kInfCode ? 0u : low) | (high > kInfCode ? 0u : high) << 16;
    } else {
      return word > kInfCode ? 0u : word;
    }
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
