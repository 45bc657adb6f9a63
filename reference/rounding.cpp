#include "reference/rounding.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace assay::reference {

Decoder::Decoder(Encoding encoding) {
  const EncodingInfo& f = info(encoding);
  is_float_ = encoding == Encoding::f32;
  has_sign_ = f.has_sign();
  sign_ = has_sign_ ? uint32_t{1} << (f.bits - 1) : uint32_t{1} << f.bits;
  fractions_ = uint32_t{1} << f.mantissa_bits;
  max_finite_ = f.max_finite;
  infinity_ = f.infinity;
  scale_ = -(f.bias + f.mantissa_bits);
}

double value_of(Encoding encoding, uint32_t code) { return Decoder(encoding)(code); }

Encoder::Encoder(Encoding to, Round round, Overflow overflow) {
  if (to == Encoding::e8m0 || round == Round::rp) throw std::invalid_argument("E8M0 has its own rounding (N2.7)");
  const EncodingInfo& f = info(to);
  round_ = round;
  sign_ = uint32_t{1} << (f.bits - 1);
  fractions_ = uint32_t{1} << f.mantissa_bits;
  nan_ = f.nan;
  max_finite_ = f.max_finite;
  const bool saturates = f.bits == 8 ? overflow == Overflow::sat : f.bits < 8;   // N2.3
  overflow_ = saturates ? f.max_finite : f.infinity != kNoCode ? f.infinity : f.nan;
  mantissa_bits_ = f.mantissa_bits;
  emin_ = 1 - f.bias;
  max_value_ = value_of(to, f.max_finite);
}

uint32_t e8m0_code(double value, Round round, Overflow overflow) {
  static const auto powers = [] {   // powers[k] is the value of code k
    std::array<double, 255> p;
    for (int k = 0; k < 255; ++k) p[static_cast<size_t>(k)] = power_of_two(k - 127);
    return p;
  }();
  constexpr uint32_t kNaNCode = 0xFF, kLargest = 0xFE;
  if (std::isnan(value)) return kNaNCode;                                    // N2.4, N2.7
  const double magnitude = std::abs(value);                                  // N2.7: the sign is ignored
  const uint32_t beyond = overflow == Overflow::sat ? kLargest : kNaNCode;
  if (magnitude == kInfinity) return beyond;
  if (round == Round::rz) {
    const auto above = std::upper_bound(powers.begin(), powers.end(), magnitude);   // the first power above
    return above == powers.begin() ? 0 : static_cast<uint32_t>(above - powers.begin() - 1);
  }
  const auto least = std::lower_bound(powers.begin(), powers.end(), magnitude);     // the least power not below
  return least == powers.end() ? beyond : static_cast<uint32_t>(least - powers.begin());
}

Caster::Caster(Encoding from, Encoding to, Round round, Overflow overflow)
    : from_(from), to_(to), round_(round), overflow_(overflow), decode_(from) {
  if (to != Encoding::e8m0) encode_.emplace(to, round, overflow);
}

uint32_t f32_code(double result) {
  static const Encoder encoder(Encoding::f32);
  return encoder(result);
}

}  // namespace assay::reference
