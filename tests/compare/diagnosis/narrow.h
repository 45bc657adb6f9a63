// Numbers rounded to bf16 and to f16, ties to even, by the tests' own arithmetic.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace assay::narrow {

inline float to_bf16(float v) {
  if (std::isnan(v)) return v;
  const auto bits = std::bit_cast<uint32_t>(v);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}

// The steps of f16 at v are 2^-10 of its power of two, and 2^-24 below 2^-14.
inline float f16_step(float v) { return std::ldexp(1.0f, std::max(std::ilogb(v), -14) - 10); }
inline float to_f16(float v) {
  if (v == 0 || !std::isfinite(v)) return v;
  const float step = f16_step(v), r = std::nearbyint(v / step) * step;
  return std::fabs(r) > 65504 ? std::copysign(HUGE_VALF, v) : r;
}
// The bits of f16; of a number that is no NaN.
inline uint16_t f16_code(float v) {
  const float r = to_f16(v), size = std::fabs(r);
  const uint32_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isinf(r)) return static_cast<uint16_t>(sign | 0x7C00);
  if (size < 0x1p-14f) return static_cast<uint16_t>(sign | static_cast<uint32_t>(size * 0x1p24f));
  const int e = std::ilogb(size);
  const auto steps = static_cast<uint32_t>(std::ldexp(size, 10 - e));  // 1024 to 2047
  return static_cast<uint16_t>(sign | ((static_cast<uint32_t>(e + 15) << 10) + steps - 1024));
}

}  // namespace assay::narrow
