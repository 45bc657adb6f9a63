// Roundings on integers: one function rounds an exact value to any format. No result depends on the rounding
// mode of the host.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace assay::ptx {

// Nearest even, toward zero, down, up, nearest with halves away from zero, and by random bits
// (6.6, 9.7.9.21).
enum class Rounding : uint8_t { rn, rz, rm, rp, rna, rs };

// Values as PTX makes them where the ISA leaves the payload of a NaN open (9.7.3): the quiet NaN without a
// sign.
inline constexpr uint32_t kNan32 = 0x7FFFFFFFu;
inline constexpr uint64_t kNan64 = 0x7FF8000000000000ull;

inline float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }
inline double as_double(uint64_t bits) { return std::bit_cast<double>(bits); }
inline uint64_t bits_of(double v) { return std::bit_cast<uint64_t>(v); }
inline float nan32() { return as_float(kNan32); }

// A format of a sign, an exponent and a mantissa. Codes without their sign run on from value to value.
struct SmallFormat {
  int bits, mantissa;
  int least_exponent;  // of the least normal value
  uint32_t greatest;   // the code of the largest finite value
  uint32_t infinity;   // its code, or kNone
  uint32_t nan;        // what a NaN becomes: the largest finite value where the format has no NaN
};
inline constexpr uint32_t kNone = 0xFFFFFFFFu;
inline constexpr SmallFormat kBinary32{32, 23, -126, 0x7F7FFFFF, 0x7F800000, kNan32};
inline constexpr SmallFormat kF16{16, 10, -14, 0x7BFF, 0x7C00, 0x7FFF};
inline constexpr SmallFormat kBf16{16, 7, -126, 0x7F7F, 0x7F80, 0x7FFF};
inline constexpr SmallFormat kE4m3{8, 3, -6, 0x7E, kNone, 0x7F};
inline constexpr SmallFormat kE5m2{8, 2, -14, 0x7B, 0x7C, 0x7F};
inline constexpr SmallFormat kE2m3{6, 3, 0, 0x1F, kNone, 0x1F};
inline constexpr SmallFormat kE3m2{6, 2, -2, 0x1F, kNone, 0x1F};
inline constexpr SmallFormat kE2m1{4, 1, 0, 0x7, kNone, 0x7};

// How a value is rounded to a format.
struct RoundingRule {
  Rounding rounding = Rounding::rn;
  bool satfinite = false;  // beyond the largest finite value: that value, for infinities too
  bool relu = false;       // negative values become +0; a NaN stays a NaN
  uint32_t random = 0;     // Rounding::rs: added to the first `random_bits` bits that are dropped
  int random_bits = 0;
};

// A finite magnitude: significand * 2^exponent.
struct Magnitude {
  uint64_t significand;
  int exponent;
};

// Whether the magnitude grows by one unit: `dropped` bits of the significand do not fit.
inline bool rounds_up(uint64_t significand, int dropped, bool negative, const RoundingRule& rule) {
  const int kept = std::min(dropped, 63);
  const uint64_t units = dropped > 63 ? 0 : significand >> kept;
  const uint64_t rest = dropped > 63 ? significand : significand & ((uint64_t{1} << kept) - 1);
  if (rest == 0) return false;
  const bool over_half = dropped <= 63 && rest > uint64_t{1} << (kept - 1),
             half = dropped <= 63 && rest == uint64_t{1} << (kept - 1);
  switch (rule.rounding) {
    case Rounding::rn: return over_half || (half && (units & 1));
    case Rounding::rna: return over_half || half;
    case Rounding::rz: return false;
    case Rounding::rm: return negative;
    case Rounding::rp: return !negative;
    case Rounding::rs: break;
  }
  // The first random_bits bits behind the unit, then the random number: a carry rounds up.
  const auto fraction =
      dropped > 127
          ? 0
          : static_cast<uint64_t>((static_cast<unsigned __int128>(rest) << rule.random_bits) >> dropped);
  return fraction + rule.random >= uint64_t{1} << rule.random_bits;
}

// The code of a finite magnitude without its sign; beyond `greatest` it runs on as if the format had no end.
inline uint64_t round_magnitude(Magnitude m, bool negative, const SmallFormat& f, const RoundingRule& rule) {
  if (m.significand == 0) return 0;
  const int leading = 63 - std::countl_zero(m.significand) + m.exponent;
  const int exponent = std::max(leading, f.least_exponent);
  const int dropped = exponent - f.mantissa - m.exponent;
  uint64_t units = dropped <= 0 ? m.significand << -dropped : dropped > 63 ? 0 : m.significand >> dropped;
  if (dropped > 0) units += rounds_up(m.significand, dropped, negative, rule);
  // A normal value's units count its leading one, so codes run on over binades.
  return units + (static_cast<uint64_t>(exponent - f.least_exponent) << f.mantissa);
}

// The code of (-1)^negative * m in the format, with its sign.
inline uint32_t round_to(Magnitude m, bool negative, const SmallFormat& f, const RoundingRule& rule) {
  if (rule.relu && negative) return 0;
  uint64_t code = round_magnitude(m, negative, f, rule);
  if (code > f.greatest) {
    const bool inward = rule.rounding == Rounding::rz || (rule.rounding == Rounding::rm && !negative) ||
                        (rule.rounding == Rounding::rp && negative);
    code = rule.satfinite || f.infinity == kNone || inward ? f.greatest : f.infinity;
  }
  return (negative ? 1u << (f.bits - 1) : 0u) | static_cast<uint32_t>(code);
}

inline Magnitude magnitude(double v) {
  const uint64_t bits = bits_of(v) & 0x7FFFFFFFFFFFFFFFull, exponent = bits >> 52,
                 fraction = bits & 0xFFFFFFFFFFFFFull;
  return exponent ? Magnitude{fraction | 1ull << 52, static_cast<int>(exponent) - 1075}
                  : Magnitude{fraction, -1074};
}
// Any binary64 value in a format of at most 32 bits.
inline uint32_t encode(double v, const SmallFormat& f, const RoundingRule& rule) {
  if (v != v) return f.nan;
  const bool negative = std::signbit(v);
  if (std::isinf(v)) {
    if (rule.relu && negative) return 0;
    const uint32_t code = rule.satfinite || f.infinity == kNone ? f.greatest : f.infinity;
    return (negative ? 1u << (f.bits - 1) : 0u) | code;
  }
  return round_to(magnitude(v), negative, f, rule);
}
inline float round_f32(double v, Rounding rounding) { return as_float(encode(v, kBinary32, {rounding})); }

// The value of a code; a code of a NaN gives a NaN.
inline float decode(uint32_t code, const SmallFormat& f) {
  const uint32_t sign = code >> (f.bits - 1) & 1, body = code & ((1u << (f.bits - 1)) - 1);
  if (body > f.greatest && body != f.infinity) return nan32();
  const uint32_t exponent = body >> f.mantissa, fraction = body & ((1u << f.mantissa) - 1);
  float v = INFINITY;
  if (body != f.infinity)
    v = exponent == 0 ? std::ldexp(static_cast<float>(fraction), f.least_exponent - f.mantissa)
                      : std::ldexp(static_cast<float>(fraction | 1u << f.mantissa),
                                   static_cast<int>(exponent) - 1 + f.least_exponent - f.mantissa);
  return sign ? -v : v;
}

// A sum that was rounded to nearest, and the rest that it lost: the same sum rounded to odd. A value rounded
// to odd in binary64 and then to a format of at most 51 bits is rounded once (Boldo and Melquiond, 2008).
inline double to_odd(double sum, double rest) {
  if (rest == 0 || !std::isfinite(sum)) return sum;
  uint64_t bits = bits_of(sum);
  if (bits & 1) return sum;
  // Toward the exact value: away from zero where the rest has the sum's sign.
  bits += std::signbit(rest) == std::signbit(sum) ? 1 : uint64_t(0) - 1;
  return as_double(bits);
}
inline double sum_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double part = sum - a, rest = (a - (sum - part)) + (b - part);  // Knuth's two-sum: exact
  return to_odd(sum, rest);
}

}  // namespace assay::ptx
