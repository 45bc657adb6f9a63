#include "reference/rounding.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
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

CodesOfValues::CodesOfValues(Encoding encoding, uint32_t code_beyond) {
  const EncodingInfo& f = info(encoding);
  const Decoder value(encoding);
  per_multiple_ = {1 / value(1), power_of_two(f.mantissa_bits)};
  first_ = {0, static_cast<size_t>(per_multiple_[0]) - static_cast<size_t>(per_multiple_[1])};
  const double most = value(f.max_finite);
  beyond_ = most + (most - value(f.max_finite - 1));
  const auto place = [&](double v) {
    return static_cast<size_t>(v * per_multiple_[v >= 1]) + first_[v >= 1];
  };
  codes_.resize(place(beyond_) + 1);
  for (uint32_t code = 0; code <= f.max_finite; ++code)
    codes_[place(value(code))] = static_cast<uint8_t>(code);
  codes_.back() = static_cast<uint8_t>(code_beyond);
}

namespace {

// One for each narrow encoding and what its overflow gives, made once.
const CodesOfValues* codes_of_values(Encoding encoding, bool saturates, uint32_t code_beyond) {
  struct Made {
    std::once_flag once;
    std::unique_ptr<CodesOfValues> codes;
  };
  static Made all[kFloatEncodings][2];
  Made& made = all[static_cast<size_t>(encoding)][saturates];
  std::call_once(made.once, [&] { made.codes = std::make_unique<CodesOfValues>(encoding, code_beyond); });
  return made.codes.get();
}

}  // namespace

Encoder::Encoder(Encoding to, Round round, Overflow overflow, ElementTies ties) {
  if (to == Encoding::e8m0 || round == Round::rp)
    throw std::invalid_argument("E8M0 has its own rounding (N2.7)");
  const EncodingInfo& f = info(to);
  round_ = round;
  ties_ = ties;
  exact_ties_ = round == Round::rne && ties == ElementTies::even;
  sign_ = uint32_t{1} << (f.bits - 1);
  fractions_ = uint32_t{1} << f.mantissa_bits;
  nan_ = f.nan;
  const bool saturates = f.bits == 8 ? overflow == Overflow::sat : f.bits < 8;  // N2.3
  overflow_ = saturates ? f.max_finite : f.infinity != kNoCode ? f.infinity : f.nan;
  mantissa_bits_ = f.mantissa_bits;
  emin_ = 1 - f.bias;
  max_value_ = value_of(to, f.max_finite);
  overflow_value_ = value_of(to, overflow_);
  spacings_per_binade_ = power_of_two(52 - mantissa_bits_);
  least_spacings_ = power_of_two(52 - mantissa_bits_ + emin_);
  narrow_ = f.bits <= 8 ? codes_of_values(to, saturates, overflow_) : nullptr;
}

uint32_t Encoder::code_of(double value) const {
  int exponent;
  std::frexp(value, &exponent);  // value in [2^(exponent-1), 2^exponent), or 0
  const int e = value == 0 ? emin_ : std::max(exponent - 1, emin_);
  return static_cast<uint32_t>(e - emin_) * fractions_ +
         static_cast<uint32_t>(value * power_of_two(mantissa_bits_ - e));
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
