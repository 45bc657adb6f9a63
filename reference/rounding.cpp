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

double value_of(Encoding encoding, uint32_t code) {
  if (encoding == Encoding::f32) return std::bit_cast<float>(code);
  return Decoder(encoding)(code);
}

Encoder::Encoder(Encoding to, Round round, Overflow overflow, ElementTies ties) {
  if (to == Encoding::e8m0 || round == Round::rp)
    throw std::invalid_argument("E8M0 has its own rounding (N2.7)");
  const EncodingInfo& f = info(to);
  round_ = round;
  ties_ = ties;
  sign_ = uint32_t{1} << (f.bits - 1);
  fractions_ = uint32_t{1} << f.mantissa_bits;
  nan_ = f.nan;
  max_finite_ = f.max_finite;
  const bool saturates = f.bits == 8 ? overflow == Overflow::sat : f.bits < 8;  // N2.3
  overflow_ = saturates ? f.max_finite : f.infinity != kNoCode ? f.infinity : f.nan;
  mantissa_bits_ = f.mantissa_bits;
  emin_ = 1 - f.bias;
  max_value_ = value_of(to, f.max_finite);
}

uint32_t e8m0_code(double value, Round round, Overflow overflow, uint32_t& last) {
  static constexpr auto powers =
      [] {  // powers[k] is the value of code k; below and above them nothing and infinity
        std::array<double, 257> p{};
        for (int k = 0; k < 255; ++k) p[static_cast<size_t>(k + 1)] = power_of_two(k - 127);
        p[256] = kInfinity;
        return p;
      }();
  static constexpr const double* power = powers.data() + 1;
  constexpr uint32_t kNaNCode = 0xFF, kLargest = 0xFE;
  if (std::isnan(value)) return kNaNCode;    // N2.4, N2.7
  const double magnitude = std::abs(value);  // N2.7: the sign is ignored
  const uint32_t beyond = overflow == Overflow::sat ? kLargest : kNaNCode;
  if (magnitude == kInfinity) return beyond;
  const int k = static_cast<int>(last);
  if (round == Round::rz) {
    if (magnitude >= power[k] && magnitude < power[k + 1]) return last;
    const auto above = std::upper_bound(power, power + 255, magnitude);  // the first power above
    return last = above == power ? 0 : static_cast<uint32_t>(above - power - 1);
  }
  if (magnitude > power[k - 1] && magnitude <= power[k]) return last;
  const auto least = std::lower_bound(power, power + 255, magnitude);  // the least power not below
  return least == power + 255 ? beyond : last = static_cast<uint32_t>(least - power);
}

uint32_t e8m0_code(double value, Round round, Overflow overflow) {
  uint32_t any = 0;
  return e8m0_code(value, round, overflow, any);
}

Caster::Caster(Encoding from, Encoding to, Round round, Overflow overflow)
    : from_(from), to_(to), round_(round), overflow_(overflow), decode_(from) {
  if (to != Encoding::e8m0) encode_.emplace(to, round, overflow);
}

uint32_t f32_code(double result) {
  if (std::isnan(result)) return info(Encoding::f32).nan;
  return std::bit_cast<uint32_t>(
      static_cast<float>(result));  // rounded to nearest even; an F32 code is this machine's float
}

}  // namespace assay::reference
