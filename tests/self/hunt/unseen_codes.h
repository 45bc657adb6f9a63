// What unseen_plugin.cpp computes with: codes of small encodings, and powers of two.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace unseen {

using i64 = int64_t;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

constexpr u32 kNan = 0x7FFFFFFF;
constexpr float kMaxFloat = 3.40282346638528859812e38f;

inline u32 bits(float v) {
  u32 b;
  std::memcpy(&b, &v, 4);
  return b;
}
inline float number(u32 b) {
  float v;
  std::memcpy(&v, &b, 4);
  return v;
}
inline i64 cdiv(i64 a, i64 b) { return (a + b - 1) / b; }
inline bool nan(float v) { return (bits(v) & 0x7FFFFFFF) > 0x7F800000; }
inline bool infinite(float v) { return (bits(v) & 0x7FFFFFFF) == 0x7F800000; }
inline float magnitude(float v) { return number(bits(v) & 0x7FFFFFFF); }

struct Small {
  int mantissa, bias, max_code, sign_bit;
  float max;
};
constexpr Small kE4M3{3, 7, 0x7E, 0x80, 448.0f};
constexpr Small kE5M2{2, 15, 0x7B, 0x80, 57344.0f};
constexpr Small kE2M1{1, 1, 0x07, 0x08, 6.0f};
constexpr Small kF16{10, 15, 0x7BFF, 0x8000, 65504.0f};

// The magnitude of v on the target's grid, in units of codes, to nearest even, and not yet limited.
inline int grid(float v, const Small& t) {
  const u32 b = bits(v) & 0x7FFFFFFF;
  const int field = static_cast<int>(b >> 23);
  const u32 significand = field ? (b & 0x7FFFFF) | 0x800000 : b;
  const int e = field ? field - 127 : -126, least = 1 - t.bias;
  const int shift = 23 - t.mantissa + (e < least ? least - e : 0);
  if (shift > 25) return 0;
  u32 q = significand >> shift;
  const u32 rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
  if (rest > half || (rest == half && (q & 1))) ++q;
  return static_cast<int>(q) + (e > least ? (e - least) << t.mantissa : 0);
}

inline u8 to_fp8(float v, const Small& t, bool saturate = true) {
  if (nan(v)) return 0x7F;
  const int sign = bits(v) >> 31 ? 0x80 : 0;
  const int q = infinite(v) ? 0x1000 : grid(v, t);
  if (q <= t.max_code) return static_cast<u8>(sign | q);
  if (saturate) return static_cast<u8>(sign | t.max_code);
  return static_cast<u8>(sign | (t.bias == 7 ? 0x7F : 0x7C));
}

inline u16 to_f16(float v) {
  if (nan(v)) return 0x7FFF;
  const int q = infinite(v) ? 0x7C00 : grid(v, kF16);
  return static_cast<u16>((bits(v) >> 16 & 0x8000) | (q > 0x7BFF ? 0x7C00 : q));
}

inline u16 to_bf16(float v) {
  if (nan(v)) return 0x7FFF;
  const u32 b = bits(v);
  return static_cast<u16>((b + 0x7FFF + (b >> 16 & 1)) >> 16);
}

inline float from_f16(u16 h) {
  const u32 sign = static_cast<u32>(h & 0x8000) << 16;
  const int e = h >> 10 & 31;
  u32 f = h & 1023;
  if (e == 31) return number(f ? kNan : sign | 0x7F800000);
  if (e) return number(sign | static_cast<u32>(e + 112) << 23 | f << 13);
  const float v = static_cast<float>(f) * 0x1p-24f;
  return number(bits(v) | sign);
}

inline float from_small(int code, const Small& t) {
  const bool negative = code & t.sign_bit;
  const int m = code & (t.sign_bit - 1);
  if (t.bias == 7 && m == 0x7F) return number(kNan);
  if (t.bias == 15 && m > 0x7C) return number(kNan);
  if (t.bias == 15 && m == 0x7C) return number(negative ? 0xFF800000 : 0x7F800000);
  const int e = m >> t.mantissa, f = m & ((1 << t.mantissa) - 1);
  const float v = e ? std::ldexp(static_cast<float>(f + (1 << t.mantissa)), e - t.bias - t.mantissa)
                    : std::ldexp(static_cast<float>(f), 1 - t.bias - t.mantissa);
  return negative ? -v : v;
}

// 2^(k-127), exactly.
inline float power(int k) {
  return k == 255 ? number(kNan) : k ? number(static_cast<u32>(k) << 23) : number(0x00400000);
}
// 2^(127-k)
inline float inverse_power(int k) { return k == 255 ? number(kNan) : power(254 - k); }

}  // namespace unseen
