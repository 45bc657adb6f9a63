#include "compare/arithmetic/encode.h"

#include <bit>
#include <cmath>

#include "compare/arithmetic/codes.h"

namespace assay {

namespace {

// v as a code of `e`, its magnitude made a whole number of the grid's steps by `whole`.
template <class Whole> uint32_t code_of(Encoding e, double v, Whole whole) {
  const EncodingInfo& f = info(e);
  const uint32_t sign = std::signbit(v) ? sign_bit(e) : 0;
  if (std::isnan(v)) return f.nan;
  const double magnitude = std::fabs(v), largest = value_of(e, f.max_finite);
  if (std::isinf(v)) return sign | f.infinity;
  const double step = step_at(e, magnitude), rounded = whole(magnitude / step) * step;
  if (rounded > largest) return sign | f.infinity;
  const double unit = step_at(e, rounded);
  const int binade = rounded < std::ldexp(1.0, 1 - f.bias) ? 0 : std::ilogb(rounded) + f.bias;
  const auto steps = static_cast<uint32_t>(rounded / unit);  // of a normal value with its hidden bit
  if (binade == 0) return sign | steps;
  return sign | ((static_cast<uint32_t>(binade) << f.mantissa_bits) + (steps - (1u << f.mantissa_bits)));
}

}  // namespace

uint32_t nearest_code(Encoding e, double v) {
  if (e == Encoding::bf16) {
    // A rotation asks this 64 times an element. Far from both ends of the exponents the carry of an integer
    // sum rounds to even.
    const auto bits = std::bit_cast<uint64_t>(v), field = bits >> 52 & 0x7FF;
    const uint64_t rounded = (bits + (uint64_t{1} << 44) - 1 + (bits >> 45 & 1)) >> 45;
    if (field > 1023 - 126 && field < 1023 + 127)
      return static_cast<uint32_t>((bits >> 63 << 15) | ((rounded & 0x3FFFF) - (uint64_t{1023 - 127} << 7)));
  }
  return code_of(e, v, [](double n) { return std::nearbyint(n); });
}

uint32_t truncated_code(Encoding e, double v) {
  const uint32_t code = code_of(e, v, [](double n) { return std::floor(n); });
  return std::isfinite(v) && !std::isfinite(value_of(e, code)) ? code - 1 : code;  // nothing finite overflows
}

uint32_t element_code(Encoding e, double v) {
  const EncodingInfo& f = info(e);
  const uint32_t sign = std::signbit(v) ? sign_bit(e) : 0;
  if (std::isnan(v)) return f.nan;
  if (std::fabs(v) >= value_of(e, f.max_finite)) return sign | f.max_finite;
  const uint32_t code = nearest_code(e, v);
  return (code & (sign_bit(e) - 1)) > f.max_finite ? sign | f.max_finite : code;
}

double bf16_of(double v) { return std::bit_cast<float>(nearest_code(Encoding::bf16, v) << 16); }
double f32_of(double v) { return static_cast<double>(static_cast<float>(v)); }

uint32_t sign_bit(Encoding e) { return 1u << (info(e).bits - 1); }
bool is_subnormal(Encoding e, double v) { return v != 0 && std::fabs(v) < std::ldexp(1.0, 1 - info(e).bias); }

}  // namespace assay
