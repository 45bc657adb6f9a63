// Encodings in value space: what a code is worth, and which code a value rounds to. Everything is done on
// binary64 values by quanta and comparisons; no bit pattern of a float is ever looked at.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "contract/encoding.h"
#include "contract/problem.h"

namespace assay::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// 2^e, exact, for |e| <= kMaxPower.
inline constexpr int kMaxPower = 300;
namespace detail {
struct Powers {
  double value[2 * kMaxPower + 1];
  constexpr Powers() : value{} {
    value[kMaxPower] = 1.0;
    for (int e = 1; e <= kMaxPower; ++e) {
      value[kMaxPower + e] = value[kMaxPower + e - 1] * 2.0;
      value[kMaxPower - e] = value[kMaxPower - e + 1] / 2.0;
    }
  }
};
inline constexpr Powers kPowers;
}  // namespace detail
constexpr double power_of_two(int e) { return detail::kPowers.value[kMaxPower + e]; }

// N1.1: one binary32 step. The argument is one +, -, * or / of two binary32 values, computed in binary64; the
// result is what the binary32 operation gives, because rounding twice is innocuous here:
//   *  the exact product has at most 48 significant bits and lies within 2^-298..2^256, so binary64 holds it
//      exactly;
//   +- an exact sum that binary64 cannot hold spans more than 53 bits, and then its tail is too small to
//   reach a midpoint of
//      binary32 from either side (Figueroa: p' >= 2p + 2, and 53 >= 2*24 + 2); binary32-subnormal sums are
//      exact;
//   /  a quotient of two 24-bit significands is a midpoint of binary32 (normal or subnormal) exactly, or
//      differs from every
//      midpoint by more than 2^-50 of itself, which binary64's own error of 2^-53 cannot bridge.
// A chain of steps must be narrowed after each one.
inline double narrowed(double result) { return static_cast<double>(static_cast<float>(result)); }

// The exact value of a code (N2.8). NaN codes give a NaN, infinity codes an infinity with its sign. Bits
// above info(encoding).bits are ignored.
class Decoder {
 public:
  explicit Decoder(Encoding);
  double operator()(uint32_t code) const {
    if (is_float_) return std::bit_cast<float>(code);  // an F32 code is this machine's float
    const uint32_t magnitude = code % sign_;
    const bool negative = has_sign_ && code / sign_ % 2 == 1;
    if (magnitude > max_finite_) return magnitude == infinity_ ? (negative ? -kInfinity : kInfinity) : kNaN;
    const int exponent = static_cast<int>(magnitude / fractions_);
    const double fraction = magnitude % fractions_;
    // E8M0 has no subnormals: code 0 is 2^-127. Elsewhere exponent 0 has no leading one and the scale of
    // exponent 1.
    const double value = (exponent == 0 && has_sign_)
                             ? fraction * power_of_two(1 + scale_)
                             : (fractions_ + fraction) * power_of_two(exponent + scale_);
    return negative ? -value : value;
  }

 private:
  bool is_float_, has_sign_;
  uint32_t sign_;       // weight of the sign; of the first code past the range for E8M0
  uint32_t fractions_;  // codes per exponent: 2^m
  uint32_t max_finite_, infinity_;
  int scale_;  // -(bias + m)
};
double value_of(Encoding, uint32_t code);

// The code to which a binary32 value rounds: N2.1 to N2.6, generic over every encoding but E8M0.
// round: rne, with ties as said (N17.1), or rz. sat or nosat is given for E4M3 and E5M2; the wider encodings
// never saturate and the narrower ones always do.
class Encoder {
 public:
  explicit Encoder(Encoding to, Round = Round::rne, Overflow = Overflow::sat,
                   ElementTies = ElementTies::even);
  // What all values of one binade share. Neighbouring elements often lie in one, so a loop keeps the last.
  struct Binade {
    double low = 1, high = 0;             // the magnitudes [low, high); none at first
    double per_quantum = 0, quantum = 0;  // 1 / spacing, spacing: 2^(m-e), 2^(e-m)
    uint32_t codes = 0;                   // below the binade's first code, and for n = 0
  };
  uint32_t operator()(double value) const {
    Binade any;
    return (*this)(value, any);
  }
  // The same; `last` is a binade of this encoder or none, and becomes the value's.
  uint32_t operator()(double value, Binade& last) const {
    if (std::isnan(value)) return nan_;                                        // N2.4
    const uint32_t sign = sign_ * static_cast<uint32_t>(std::signbit(value));  // N2.5
    const double magnitude = std::abs(value);
    if (!(magnitude >= last.low && magnitude < last.high)) {
      if (magnitude == kInfinity) return sign + overflow_;  // N2.2, N2.3
      if (magnitude == 0) return sign;                      // N2.5
      last = binade_of(magnitude);
    }
    const double quanta = magnitude * last.per_quantum;  // exact: spacing 2^(e-m) becomes 1
    const double n = round_ == Round::rz ? std::trunc(quanta) : nearest(quanta);  // N2.6, N2.1
    if (n * last.quantum > max_value_)
      return sign + (round_ == Round::rz ? max_finite_ : overflow_);  // N2.6; N2.2, N2.3
    // Codes of one sign count the representable values from zero: 2^m from each binade to the next. A
    // round-up to the next binade (n = 2^(m+1)) and from the subnormals to the least normal value (e = emin,
    // n = 2^m) need no special case.
    return sign + last.codes + static_cast<uint32_t>(n);
  }

 private:
  // For 0 <= q < 2^51: the sum's last place is one, so the addition itself rounds to an integer, ties to
  // even.
  static double nearest_even(double q) { return (q + 0x1p52) - 0x1p52; }
  // q has at most 24 significant bits: adding or taking a half is exact, or rounds to that half or to nothing
  // of a tiny q.
  double nearest(double q) const {
    if (ties_ == ElementTies::even) return nearest_even(q);                        // N2.1
    return ties_ == ElementTies::zero ? std::ceil(q - 0.5) : std::floor(q + 0.5);  // N17.1
  }
  Binade binade_of(double magnitude) const {
    int exponent;
    std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent-1), 2^exponent)
    const int e = exponent - 1 > emin_ ? exponent - 1 : emin_;
    return {power_of_two(exponent - 1), power_of_two(exponent), power_of_two(mantissa_bits_ - e),
            power_of_two(e - mantissa_bits_), static_cast<uint32_t>(e - emin_) * fractions_};
  }

  Round round_;
  ElementTies ties_;
  uint32_t sign_, fractions_, nan_, max_finite_;
  uint32_t overflow_;  // what overflow and infinity give
  int mantissa_bits_, emin_;
  double max_value_;
};

// N2.7: the E8M0 code of |value|. round: rp (least power of two not below) or rz (greatest not above).
uint32_t e8m0_code(double value, Round, Overflow);
// The same; the search begins at `last`, any code but FF, which becomes the one found.
uint32_t e8m0_code(double value, Round, Overflow, uint32_t& last);

// The cast op: any code of `from` as a code of `to`. One of the two is f32, bf16 or f16; to E8M0 rounds by rp
// or rz, to all others by rne or rz.
class Caster {
 public:
  Caster(Encoding from, Encoding to, Round, Overflow);
  // Where the last element fell: what a loop keeps.
  struct Last {
    Encoder::Binade binade;
    uint32_t e8m0 = 0;
  };
  uint32_t operator()(uint32_t code) const {
    Last any;
    return (*this)(code, any);
  }
  uint32_t operator()(uint32_t code, Last& last) const {
    if (!encode_) return e8m0_code(decode_(code), round_, overflow_, last.e8m0);  // N2.7
    // N2.8: BF16 goes to F32 by placing its 16 bits above 16 zeros, NaN payloads included; E8M0 does so by
    // way of BF16.
    constexpr uint32_t kPlace = 65536;
    if (from_ == Encoding::bf16 && to_ == Encoding::f32) return code * kPlace;
    if (from_ == Encoding::e8m0 && to_ == Encoding::f32)
      return Encoder(Encoding::bf16)(decode_(code)) * kPlace;
    return (*encode_)(decode_(code), last.binade);
  }

 private:
  Encoding from_, to_;
  Round round_;
  Overflow overflow_;
  Decoder decode_;
  std::optional<Encoder> encode_;  // absent to E8M0
};

// The F32 code that stores a result: its bits, with every NaN canonical (N1.3).
uint32_t f32_code(double result);

}  // namespace assay::reference
