// Conversion policies: how a kernel turns pairs of binary32 values into codes of 8, 6 or 4 bits with N2.1,
// N2.2, N2.4, N2.5.
//   Bits       integer arithmetic, everywhere (encode.cuh)
//   Hardware   the conversion instructions where the target has them, E2M1 by the adder where it has none
//              (e2m1_adder.cuh); under the host executor a twin of another make, so that every kernel a GPU
//              can pick also runs there
#pragma once
#include "fast/lane/e2m1_adder.cuh"
#include "fast/lane/encode.cuh"
#include "fast/lane/stochastic.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Where the second code of a pair stands.
template <Encoding E> inline constexpr int kPairShift = Layout<E>::kBits == 4 ? 4 : 8;

struct Bits {
  static constexpr const char* kName = "bits";
  // The codes of lo and hi in bits 0..7 and 8..15; of 4-bit codes in bits 0..3 and 4..7.
  template <Encoding E> ASSAY_LANE static uint32_t pair(float lo, float hi) {
    return encode<E>(as_bits(lo)) | encode<E>(as_bits(hi)) << kPairShift<E>;
  }
  // The E8M0 code, rounded up and saturated (N2.7).
  ASSAY_LANE static uint32_t e8m0(float value) { return encode_e8m0(as_bits(value)); }
};

struct Hardware {
  static constexpr const char* kName = "hardware";
  // Whether E2M1 is made by the adder, for want of an instruction.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  static constexpr bool kE2m1ByAdder = false;
#else
  static constexpr bool kE2m1ByAdder = true;
#endif

#if defined(__CUDA_ARCH__)
  template <Encoding E> ASSAY_LANE static uint32_t pair(float lo, float hi) {
    static_assert(Layout<E>::kBits <= 8 && E != Encoding::e8m0);
    uint16_t codes;
    if constexpr (E == Encoding::e4m3) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(hi), "f"(lo));
    } else if constexpr (E == Encoding::e5m2) {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(hi), "f"(lo));
    } else {
#if __CUDA_ARCH__ >= 1000
      static_assert(E == Encoding::e2m3 || E == Encoding::e3m2 || E == Encoding::e2m1);
      if constexpr (E == Encoding::e2m3)
        asm("cvt.rn.satfinite.e2m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(hi), "f"(lo));
      if constexpr (E == Encoding::e3m2)
        asm("cvt.rn.satfinite.e3m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(hi), "f"(lo));
      if constexpr (E == Encoding::e2m1)
        asm("{ .reg .b8 both; cvt.rn.satfinite.e2m1x2.f32 both, %1, %2; mov.b16 %0, {both, 0}; }"
            : "=h"(codes)
            : "f"(hi), "f"(lo));
#else
      if constexpr (E == Encoding::e2m1) codes = uint16_t(e2m1_pair(lo, hi));
      else codes = uint16_t(Bits::pair<E>(lo, hi));
#endif
    }
    return codes;
  }
  ASSAY_LANE static uint32_t e8m0(float value) {
#if __CUDA_ARCH__ >= 1000
    uint16_t codes;
    asm("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(0.0f), "f"(value));
    return codes & 0xFFu;
#else
    return Bits::e8m0(value);
#endif
  }
#else
  // Twin: the adder of the host rounds. Adding 1.5 * 2^(23 + quantum) puts the quantum in the last place of
  // the sum, whose low bits then count quanta; the exponent of the quantum comes from the value's own
  // exponent.
  template <Encoding E> ASSAY_LANE static uint32_t one(float value) {
    using L = Layout<E>;
    const uint32_t a = as_bits(value) & kAbs, sign = (as_bits(value) >> (32 - L::kBits)) & L::kSignCode;
    if (a > kInf) return L::kNanCode;
    if (a >= kLargest<E>) return sign | L::kMax;
    const uint32_t exponent = a < L::kMinNormal ? L::kMinNormal >> 23 : a >> 23;
    const uint32_t magic = (exponent + L::kDrop) << 23 | 0x00400000u;  // 1.5 * 2^23 quanta
    const uint32_t sum = as_bits(__fadd_rn(as_float(a), as_float(magic)));
    const uint32_t quanta = sum - magic;
    return sign | (quanta + ((exponent - (L::kMinNormal >> 23)) << L::kMantissa));
  }
  template <Encoding E> ASSAY_LANE static uint32_t pair(float lo, float hi) {
    if constexpr (E == Encoding::e2m1) return e2m1_pair(lo, hi);
    else return one<E>(lo) | one<E>(hi) << kPairShift<E>;
  }
  // Twin: the least power of two not below, by adding the largest fraction before the exponent is read.
  ASSAY_LANE static uint32_t e8m0(float value) {
    const uint32_t a = as_bits(value) & kAbs;
    if (a > kInf) return 255u;
    if (a >= 0x7F000000u) return 254u;
    if (a < 0x00800000u) return a > 0x00400000u ? 1u : 0u;
    return (a + kFraction) >> 23;
  }
#endif

  // Eight E2M1 codes of x * multiplier, element k in bits 4k..4k+3. The multiplier has no sign; `signs` are
  // those of x, as e2m1_signs gives them. `tame`: every product is finite and below 7 in magnitude, which all
  // threads of the warp agree on; it saves the adder a step for each element.
  ASSAY_LANE static uint32_t e2m1_codes(const float (&x)[8], float multiplier, uint32_t signs, bool tame) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    uint32_t codes = 0;
#pragma unroll
    for (int k = 0; k < 8; k += 2)
      codes |= pair<Encoding::e2m1>(__fmul_rn(x[k], multiplier), __fmul_rn(x[k + 1], multiplier)) << (4 * k);
    return codes;
#else
    float y[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] = __fmul_rn(fabsf(x[k]), multiplier);
    if (!tame) {
      signs = e2m1_signs_of(y, signs);
#pragma unroll
      for (int k = 0; k < 8; ++k) y[k] = fminf(y[k], 6.0f);
    }
    return e2m1_eight(y) + signs;
#endif
  }
  // The same by stochastic rounding, byte k of `bytes` for element k. `tame`: no product is NaN.
  ASSAY_LANE static uint32_t e2m1_drawn(const float (&x)[8], float multiplier, uint32_t signs, bool tame,
                                        uint2 bytes) {
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM103_ALL)
    uint32_t codes = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h)
      codes |= StochasticHardware::four(__fmul_rn(x[4 * h], multiplier), __fmul_rn(x[4 * h + 1], multiplier),
                                        __fmul_rn(x[4 * h + 2], multiplier),
                                        __fmul_rn(x[4 * h + 3], multiplier), h == 0 ? bytes.x : bytes.y)
               << (16 * h);
    return codes;
#else
    float y[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] = __fmul_rn(fabsf(x[k]), multiplier);
    if (!tame) signs = e2m1_signs_of(y, signs);
#pragma unroll
    for (int k = 0; k < 8; ++k) y[k] = fminf(y[k], 6.0f);
    return e2m1_eight_drawn(y, bytes) + signs;
#endif
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
