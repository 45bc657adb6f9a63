// e^x of a non-positive binary32 pattern in fixed point, correctly rounded (N20.8). The argument is a whole
// number of 2^-57, so its product with log2 e is known to far more bits than the result has; the power of two
// of the fraction is a series in integers of 64 bits.
#pragma once
#include "contract/problem.h"
#include "fast/lane/layout.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The high half of a product.
ASSAY_LANE uint64_t high_product(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return uint64_t((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// 2^-f, f = fraction / 2^64, as a fraction of 2^64 in [2^63, 2^64): the series of e^(-f ln 2), whose terms
// alternate and fall.
ASSAY_LANE uint64_t power_of_fraction(uint64_t fraction) {
  constexpr uint64_t kLn2 = 0xB17217F7D1CF79ABull;
  constexpr uint64_t kInverseFactorial[] = {
      // 2^64 / k!, rounded down
      0xFFFFFFFFFFFFFFFFull, 0xFFFFFFFFFFFFFFFFull, 0x8000000000000000ull, 0x2AAAAAAAAAAAAAAAull,
      0x0AAAAAAAAAAAAAAAull, 0x0222222222222222ull, 0x005B05B05B05B05Bull, 0x000D00D00D00D00Dull,
      0x0001A01A01A01A01ull, 0x00002E3BC74AAD8Eull, 0x0000049F93EDDE27ull, 0x0000006B99159FD5ull,
      0x00000008F76C77FCull, 0x00000000B092309Dull, 0x000000000C9CBA54ull, 0x0000000000D73F9Full,
      0x00000000000D73F9ull, 0x000000000000CA96ull, 0x0000000000000B41ull, 0x0000000000000097ull,
      0x0000000000000007ull};
  const uint64_t r = high_product(fraction, kLn2);
  uint64_t sum = kInverseFactorial[20];
#pragma unroll
  for (int k = 19; k >= 0; --k) sum = kInverseFactorial[k] - high_product(r, sum);
  return sum;
}

// significand / 2^64 * 2^-places, rounded to nearest; no result lies on a midpoint, but those that are exact.
ASSAY_LANE uint32_t rounded_power(uint64_t significand, uint32_t places) {
  if (significand >> 63 == 0) significand <<= 1, ++places;
  // A result whose exponent field would be 0 or less is subnormal and loses more places.
  const uint32_t more = places > 125u ? places - 125u : 0u, drop = 40u + more;
  if (drop > 64u) return 0u;
  const uint32_t kept = drop < 64u ? uint32_t(significand >> drop) : 0u;
  const uint32_t up = uint32_t(significand >> (drop - 1u)) & 1u;
  return (more != 0u ? 0u : (125u - places) << 23) + kept + up;
}

// |x| as a whole number of 2^-57, for patterns from 2^-25 to below 2^7.
ASSAY_LANE uint64_t fixed_point(uint32_t a) {
  return uint64_t((a & kFraction) | 0x00800000u) << ((a >> 23) - 93u);
}

ASSAY_LANE float exact_exponential(float x) {
  const uint32_t a = as_bits(x) & kAbs;
  if (a > kInf) return as_float(kNan);
  if (a <= 0x33000000u) return 1.0f;  // 2^-25 and below
  if (a >= 0x42D00000u) return 0.0f;  // from 104 on, below half of the least subnormal value
  constexpr uint64_t kLog2E = 0xB8AA3B295C17F0BBull, kLog2ERest = 0xBE87FED0691D3E88ull;  // / 2^63, / 2^127
  const uint64_t fixed = fixed_point(a);
  uint64_t high = high_product(fixed, kLog2E), low = fixed * kLog2E;
  const uint64_t rest = high_product(fixed, kLog2ERest);
  low += rest, high += low < rest ? 1u : 0u;  // |x| log2 e in units of 2^-120
  return as_float(rounded_power(power_of_fraction(high << 8 | low >> 56), uint32_t(high >> 56)));
}

// N20.8, exp=ex2: the factor is rounded, and the instruction flushes subnormals. The host takes the correctly
// rounded power in its place.
ASSAY_LANE float exponential_of_two(float x) {
  const float t = __fmul_rn(x, as_float(0x3FB8AA3Bu));
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(t));
  return y;
#else
  const uint32_t a = as_bits(t) & kAbs;
  if (a > kInf) return as_float(kNan);
  if (a <= 0x33000000u) return 1.0f;
  if (a > 0x42FC0000u) return 0.0f;  // below 2^-126
  const uint64_t fixed = fixed_point(a);
  return as_float(rounded_power(power_of_fraction(fixed << 7), uint32_t(fixed >> 57)));
#endif
}

ASSAY_LANE float exponential(ExpRule rule, float x) {
  return rule == ExpRule::exact ? exact_exponential(x) : exponential_of_two(x);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
