// What conversions make of their operands: one function for each rule of 9.7.9.21.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "fast/ptx/rounding.h"
#include "fast/ptx/values_float.h"

namespace assay::ptx {

// Integer to integer with .sat: into the range of D.
template <class D, class S> D saturate_to(S v) {
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): S and D are numbers here, also those of one byte
  const __int128 x = v, low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
  return static_cast<D>(x < low ? low : x > high ? high : x);
}

// Integer to a format of at most 32 bits, rounded once.
template <class S> uint32_t encode_integer(S v, const SmallFormat& f, Rounding rounding) {
  const bool negative = v < 0;
  const uint64_t size = negative ? uint64_t(0) - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  return round_to({size, 0}, negative, f, {rounding});
}
// Integer to binary64: only those beyond 2^53 are rounded.
template <class S> double f64_of_integer(S v, Rounding rounding) {
  const auto near = static_cast<double>(v);
  const __int128 rest = static_cast<__int128>(v) - static_cast<__int128>(near);
  const bool down = rounding == Rounding::rm || (rounding == Rounding::rz && v > 0),
             up = rounding == Rounding::rp || (rounding == Rounding::rz && v < 0);
  if (rest < 0 && down) return std::nextafter(near, -INFINITY);
  if (rest > 0 && up) return std::nextafter(near, INFINITY);
  return near;
}

// A number rounded to an integer value: .rni .rzi .rmi .rpi.
template <class T> T round_to_integer(T v, Rounding rounding) {
  if (!std::isfinite(v)) return v;
  const T down = std::floor(v), rest = v - down;
  bool up = false;
  switch (rounding) {
    case Rounding::rz: up = v < 0 && rest > 0; break;
    case Rounding::rm: break;
    case Rounding::rp: up = rest > 0; break;
    default: up = rest > T(0.5) || (rest == T(0.5) && std::fmod(down, T(2)) != 0);
  }
  return std::copysign(up ? down + 1 : down, v);
}
// Float to integer: clamped to the range of D. A NaN gives 0, but the sign bit alone where the source or the
// destination has 64 bits.
template <class D, class S> D integer_of(S v, Rounding rounding) {
  constexpr unsigned bits = 8 * sizeof(D);
  if (v != v)
    return sizeof(D) == 8 || sizeof(S) == 8 ? static_cast<D>(std::make_unsigned_t<D>(1) << (bits - 1)) : D(0);
  const S whole = round_to_integer(v, rounding);
  const S end = std::ldexp(S(1), std::is_signed_v<D> ? bits - 1 : bits);  // the first value above the range
  if (whole >= end) return std::numeric_limits<D>::max();
  if (std::is_signed_v<D> ? whole < -end : whole < 0) return std::numeric_limits<D>::min();
  return static_cast<D>(whole);
}

// Binary32 to a code of 4 to 16 bits.
inline uint32_t code_of(float v, const SmallFormat& f, const RoundingRule& rule) {
  return encode(v, f, rule);
}

// Binary32 to E8M0: the magnitude, rounded to a power of two toward zero or up. A NaN is 255. The ISA does
// not say what a negative number gives; the magnitude is taken here.
inline uint32_t e8m0_of(float v, Rounding rounding, bool satfinite) {
  const uint32_t size = bits_of(v) & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return 255;
  if (size == 0x7F800000u) return satfinite ? 254 : 255;
  const uint32_t exponent = size >> 23, fraction = size & 0x7FFFFFu;
  uint32_t code = exponent;
  if (rounding == Rounding::rp)
    code += exponent ? fraction != 0 : fraction > 0x400000u;  // 2^-127 is 0x00400000
  return code > 254 ? (satfinite ? 254 : 255) : code;
}

// E8M0 to bf16: exact; 2^-127 is a subnormal number.
inline uint32_t bf16_of_e8m0(uint32_t code) {
  return code == 255 ? kBf16.nan : code == 0 ? 0x0040u : code << 7;
}

// Binary32 to TF32: halves away from zero, the low 13 bits zero.
inline uint32_t tf32_of(uint32_t bits) {
  if ((bits & 0x7F800000u) == 0x7F800000u) return (bits & 0x7FFFFFu) ? kNan32 : bits;
  return (bits + 0x1000u) & ~0x1FFFu;
}

// Two codes of a packed type: a above b. Codes of six bits stand in bytes.
inline uint32_t packed(uint32_t a, uint32_t b, const SmallFormat& f) {
  return a << (f.bits == 6 ? 8 : f.bits) | b;
}

// cvt.rs: the random bits of the elements a, b, e, f, whose codes stand in this order from the top. Four-bit
// codes take a byte each: f byte 0, e byte 2, b byte 1, a byte 3. Eight-bit codes take sixteen bits: e and f
// the low half, a and b the high one.
inline uint32_t random_of(uint32_t bits, int element, const SmallFormat& f) {
  static constexpr std::array<int, 4> kByte = {3, 1, 2, 0};
  return f.bits == 4   ? bits >> (8 * kByte[static_cast<size_t>(element)]) & 0xFF
         : element < 2 ? bits >> 16
                       : bits & 0xFFFF;
}
inline uint32_t four_codes(const std::array<float, 4>& v, uint32_t bits, const SmallFormat& f, bool relu) {
  uint32_t out = 0;
  for (int k = 0; k < 4; ++k) {
    const RoundingRule rule{Rounding::rs, true, relu, random_of(bits, k, f), f.bits == 4 ? 8 : 16};
    out = out << f.bits | code_of(v[static_cast<size_t>(k)], f, rule);
  }
  return out;
}

// The most frequent conversions once more, without branches, so that compilers make vector code of them.
// Tests hold them to code_of. Nearest even with satfinite to a format of eight bits: adding 1.5 * 2^23 units
// rounds at the unit.
template <const SmallFormat& kFormat> uint32_t code8_fast(float v) {
  constexpr int kLeast = 127 + kFormat.least_exponent;
  const uint32_t bits = bits_of(v), size = bits & 0x7FFFFFFFu, sign = bits >> 24 & 0x80u;
  const uint32_t exponent = (size >> 23) > uint32_t{kLeast} ? size >> 23 : uint32_t{kLeast};
  const float unit = as_float((exponent + 23 - kFormat.mantissa) << 23 | 0x400000u);
  const uint32_t units = bits_of(as_float(size) + unit) - bits_of(unit);
  const uint32_t code = units + ((exponent - kLeast) << kFormat.mantissa);
  const uint32_t kept = size >= 0x7E000000u || code > kFormat.greatest ? kFormat.greatest : code;
  return size > 0x7F800000u ? kFormat.nan : sign | kept;
}
inline uint32_t bf16_fast(float v) {
  const uint32_t bits = bits_of(v);
  return v != v ? kBf16.nan : (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
}

}  // namespace assay::ptx
