// Binary64 under the directed roundings (9.7.3), on integers: sums, products, quotients and roots are exact
// until they are rounded once.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "fast/ptx/rounding.h"
#include "fast/ptx/values_float.h"

namespace assay::ptx {

// A magnitude that is not zero: significand * 2^exponent, and, with `rest`, something below its last place,
// which then has at least 55 places before it.
struct WideMagnitude {
  unsigned __int128 significand = 0;
  int exponent = 0;
  bool rest = false;
};

inline int leading_zeros(unsigned __int128 v) {
  const auto high = static_cast<uint64_t>(v >> 64);
  return high ? std::countl_zero(high) : 64 + std::countl_zero(static_cast<uint64_t>(v));
}

// Toward zero, down or up.
inline double round_f64(const WideMagnitude& v, bool negative, Rounding rounding) {
  constexpr uint64_t kInfinity = 0x7FF0000000000000ull, kSign = 0x8000000000000000ull;
  constexpr int kLeastUnit = -1074;
  const int leading = 127 - leading_zeros(v.significand) + v.exponent;
  const int unit = leading - 52 > kLeastUnit ? leading - 52 : kLeastUnit, dropped = unit - v.exponent;
  bool inexact = v.rest;
  uint64_t units = 0;
  if (dropped <= 0) {
    units = static_cast<uint64_t>(v.significand) << -dropped;
  } else if (dropped > 127) {
    inexact = true;
  } else {
    units = static_cast<uint64_t>(v.significand >> dropped);
    inexact |= (v.significand & ((static_cast<unsigned __int128>(1) << dropped) - 1)) != 0;
  }
  const bool outward = negative ? rounding == Rounding::rm : rounding == Rounding::rp;
  units += inexact && outward;
  // A normal value's units count its leading one, so codes run on over binades.
  uint64_t bits = units + (static_cast<uint64_t>(unit - kLeastUnit) << 52);
  if (bits >= kInfinity) bits = outward ? kInfinity : kInfinity - 1;
  return as_double(bits | (negative ? kSign : 0));
}

// The exact sum of two magnitudes with signs.
inline double sum_f64(WideMagnitude a, bool a_negative, WideMagnitude b, bool b_negative, Rounding rounding) {
  for (WideMagnitude* v : {&a, &b}) {  // two places for carries in front
    const int shift = leading_zeros(v->significand) - 2;
    v->significand <<= shift, v->exponent -= shift;
  }
  if (a.exponent < b.exponent || (a.exponent == b.exponent && a.significand < b.significand))
    std::swap(a, b), std::swap(a_negative, b_negative);
  const int shift = a.exponent - b.exponent;
  if (shift > 127) {
    b = {0, a.exponent, true};
  } else if (shift) {
    b.rest = (b.significand & ((static_cast<unsigned __int128>(1) << shift) - 1)) != 0;
    b.significand >>= shift;
  }
  a.rest = b.rest;
  if (a_negative == b_negative) a.significand += b.significand;
  else a.significand -= b.significand + (b.rest ? 1 : 0);
  if (a.significand == 0) return rounding == Rounding::rm ? -0.0 : 0.0;
  return round_f64(a, a_negative, rounding);
}

// A zero of the sum of zeros and of numbers that cancel (IEEE 754, 6.3).
inline double zero_sum(bool a_negative, bool b_negative, Rounding rounding) {
  return (a_negative == b_negative ? a_negative : rounding == Rounding::rm) ? -0.0 : 0.0;
}

inline WideMagnitude product_of(double a, double b) {
  const Magnitude x = magnitude(a), y = magnitude(b);
  return {static_cast<unsigned __int128>(x.significand) * y.significand, x.exponent + y.exponent};
}

// What is not finite does not depend on the rounding.
inline double fma_f64(double a, double b, double c, Rounding rounding) {
  if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) return FmaF{}(a, b, c);
  const bool negative = std::signbit(a) != std::signbit(b);
  if (a == 0 || b == 0) return c == 0 ? zero_sum(negative, std::signbit(c), rounding) : c;
  const WideMagnitude product = product_of(a, b);
  if (c == 0) return round_f64(product, negative, rounding);
  const Magnitude m = magnitude(c);
  return sum_f64(product, negative, {m.significand, m.exponent}, std::signbit(c), rounding);
}
inline double add_f64(double a, double b, Rounding rounding) {
  if (!std::isfinite(a) || !std::isfinite(b)) return AddF{}(a, b);
  return fma_f64(a, 1, b, rounding);
}
inline double sub_f64(double a, double b, Rounding rounding) {
  if (!std::isfinite(a) || !std::isfinite(b)) return SubF{}(a, b);
  return fma_f64(a, 1, -b, rounding);
}
inline double mul_f64(double a, double b, Rounding rounding) {
  if (!std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) return MulF{}(a, b);
  return round_f64(product_of(a, b), std::signbit(a) != std::signbit(b), rounding);
}
inline double div_f64(double a, double b, Rounding rounding) {
  if (!std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) return DivF{}(a, b);
  Magnitude x = magnitude(a), y = magnitude(b);
  for (Magnitude* v : {&x, &y}) {
    const int shift = std::countl_zero(v->significand);
    v->significand <<= shift, v->exponent -= shift;
  }
  const unsigned __int128 dividend = static_cast<unsigned __int128>(x.significand) << 64;
  const WideMagnitude quotient{dividend / y.significand, x.exponent - y.exponent - 64,
                               dividend % y.significand != 0};
  return round_f64(quotient, std::signbit(a) != std::signbit(b), rounding);
}
inline double sqrt_f64(double a, Rounding rounding) {
  if (!std::isfinite(a) || a <= 0) return SqrtF{}(a);
  const Magnitude m = magnitude(a);
  const int shift = std::countl_zero(m.significand) + 62;
  unsigned __int128 square = static_cast<unsigned __int128>(m.significand) << shift;
  int exponent = m.exponent - shift;
  if (exponent % 2) square <<= 1, --exponent;
  uint64_t root = 0;
  for (uint64_t bit = uint64_t{1} << 63; bit; bit >>= 1) {
    const unsigned __int128 tried = root | bit;
    if (tried * tried <= square) root |= bit;
  }
  return round_f64({root, exponent / 2, static_cast<unsigned __int128>(root) * root != square}, false,
                   rounding);
}

}  // namespace assay::ptx
