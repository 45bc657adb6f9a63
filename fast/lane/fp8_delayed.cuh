// Per-tensor FP8 with delayed scaling: the new scale of one slot (N4). The element arithmetic is
// fp8_tensor.cuh's.
#pragma once
#include "contract/problem.h"
#include "fast/lane/fp8_tensor.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// x * 2^n rounded once, for any n: exponents by addition, the subnormal end by a shift that rounds to nearest
// even.
ASSAY_LANE uint32_t times_power_of_two(uint32_t x, int n) {
  const uint32_t sign = x & kSign, a = x & kAbs;
  if (a >= kInf) return canonical(x);
  if (a == 0u) return x;
  int exponent = int(a >> 23);
  uint32_t significand = a & kFraction;
  if (exponent == 0) {
    const int lead = __clz(int(significand)) - 8;
    significand <<= lead;
    exponent = 1 - lead;
  } else {
    significand |= 0x00800000u;
  }
  n = n < -600 ? -600 : n > 600 ? 600 : n;
  exponent += n;
  if (exponent > 254) return sign | kInf;
  if (exponent > 0) return sign | uint32_t(exponent) << 23 | (significand & kFraction);
  const int shift = 1 - exponent < 25 ? 1 - exponent : 25;
  return sign | ((significand + (1u << (shift - 1)) - 1u + ((significand >> shift) & 1u)) >> shift);
}

struct DelayedScale {
  uint32_t largest = 0;  // MAX of the element encoding
  UpdateRule rule = UpdateRule::bulk;
  int margin = 0;

  ASSAY_LANE uint32_t operator()(uint32_t amax, uint32_t old) const {
    const bool usable =
        amax != 0u && amax < kInf;  // finite and above 0, as integers: the sign bit is above infinity
    uint32_t scale = old;
    if (usable && rule == UpdateRule::unfused)
      scale = times_power_of_two(as_bits(__fmul_rn(__fdiv_rn(1.0f, as_float(amax)), as_float(largest))),
                                 -margin);  // N4.5
    else if (usable)
      scale = as_bits(__fdiv_rn(as_float(times_power_of_two(largest, -margin)), as_float(amax)));  // N4.6
    const bool infinite = rule == UpdateRule::unfused ? scale == kInf : (scale & kAbs) == kInf;
    return infinite ? kMaxFinite : canonical(scale);  // N4.7, N1.3
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
