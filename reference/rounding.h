// Encodings in value space: what a code is worth, and which code a value rounds to. Everything is done on
// binary64 values by quanta and comparisons; no bit pattern of a float is ever looked at.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

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

// The largest power of two not above a magnitude, or 0: Rump, Ogita and Oishi, "Accurate floating-point
// summation", algorithm 3.6. q has the magnitude's leading digit at its last place but one, and what a factor
// just below 1 takes from it is that digit. For finite magnitudes below 2^970.
inline double binade_of(double magnitude) {
  const double q = 0x1.0000000000001p52 * magnitude;
  return std::abs(q - 0x1.fffffffffffffp-1 * q);
}

// The codes of the values of an encoding of at most 8 bits, by look-up. Below 1 all of them are multiples of
// the least subnormal value, from 1 on of the spacing there. The value after the largest stands for all
// beyond.
class CodesOfValues {
 public:
  CodesOfValues(Encoding, uint32_t code_beyond);
  uint32_t operator()(double value) const {
    const double known = std::min(value, beyond_);
    const size_t part = known >= 1;  // an index, since a branch on it would be guessed wrong too often
    return codes_[static_cast<size_t>(known * per_multiple_[part]) + first_[part]];
  }

 private:
  double beyond_;
  std::array<double, 2> per_multiple_;  // 1 / spacing, below 1 and from 1 on
  std::array<size_t, 2> first_;         // the place of multiple 0
  std::vector<uint8_t> codes_;
};

// The code to which a binary32 value rounds: N2.1 to N2.6, generic over every encoding but E8M0.
// round: rne, with ties as said (N17.1), or rz. sat or nosat is given for E4M3 and E5M2; the wider encodings
// never saturate and the narrower ones always do.
class Encoder {
 public:
  explicit Encoder(Encoding to, Round = Round::rne, Overflow = Overflow::sat,
                   ElementTies = ElementTies::even);
  uint32_t operator()(double value) const {
    if (std::isnan(value)) return nan_;                                        // N2.4
    const uint32_t sign = sign_ * static_cast<uint32_t>(std::signbit(value));  // N2.5
    const double magnitude = std::abs(value);
    if (magnitude == kInfinity) return sign + overflow_;  // N2.2, N2.3
    const double rounded = on_grid(magnitude);
    if (narrow_) return sign + (*narrow_)(rounded);
    return sign + (rounded > max_value_ ? overflow_ : code_of(rounded));
  }
  // The value of that code.
  double rounded(double value) const {
    if (std::isnan(value)) return kNaN;  // N2.4
    const double magnitude = std::abs(value);
    const double on = magnitude == kInfinity ? kInfinity : on_grid(magnitude);
    return std::copysign(on > max_value_ ? overflow_value_ : on, value);  // N2.2, N2.3, N2.5
  }

 private:
  // The value that the magnitude rounds to, as if the encoding had no largest one: a multiple of the spacing
  // of its binade, which is that of the least normal value for all below.
  double on_grid(double magnitude) const {
    // The last place of 2^52 spacings is one spacing, so the addition itself rounds, ties to even.
    const double spacings = std::max(binade_of(magnitude) * spacings_per_binade_, least_spacings_);
    const double nearest = (magnitude + spacings) - spacings;  // N2.1
    return exact_ties_ ? nearest : otherwise(magnitude, nearest, spacings * 0x1p-52);
  }
  double otherwise(double magnitude, double nearest, double spacing) const {
    if (round_ == Round::rz)
      return std::min(nearest > magnitude ? nearest - spacing : nearest, max_value_);  // N2.6
    if (std::abs(magnitude - nearest) != spacing / 2) return nearest;
    return ties_ == ElementTies::zero ? magnitude - spacing / 2 : magnitude + spacing / 2;  // N17.1
  }
  // Codes of one sign count the values from zero: 2^m from each binade to the next.
  uint32_t code_of(double value) const;

  Round round_;
  ElementTies ties_;
  bool exact_ties_;
  uint32_t sign_, fractions_, nan_;
  uint32_t overflow_;  // what overflow and infinity give
  int mantissa_bits_, emin_;
  double max_value_, overflow_value_, spacings_per_binade_, least_spacings_;
  const CodesOfValues* narrow_;  // of at most 8 bits
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
  uint32_t operator()(uint32_t code) const {
    uint32_t any = 0;
    return (*this)(code, any);
  }
  // The same; to E8M0 the search begins at `last`, which becomes the code found.
  uint32_t operator()(uint32_t code, uint32_t& last) const {
    if (!encode_) return e8m0_code(decode_(code), round_, overflow_, last);  // N2.7
    // N2.8: BF16 goes to F32 by placing its 16 bits above 16 zeros, NaN payloads included; E8M0 does so by
    // way of BF16.
    constexpr uint32_t kPlace = 65536;
    if (from_ == Encoding::bf16 && to_ == Encoding::f32) return code * kPlace;
    if (from_ == Encoding::e8m0 && to_ == Encoding::f32)
      return Encoder(Encoding::bf16)(decode_(code)) * kPlace;
    return (*encode_)(decode_(code));
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
