// One step of a tensor core as it was measured on Hopper, with sums in binary32: products are exact; all
// terms are cut toward zero to multiples of one unit below the largest exponent; their exact sum is cut
// toward zero. For bf16, f16 and tf32 the unit lies 25 bits below, and the sum keeps the 23 fraction bits of
// binary32; for the FP8 of wgmma both are 13. The PTX ISA leaves this order and precision open
// (9.7.14.5.14, 9.7.15.5.2).
#pragma once
#include <bit>
#include <cstdint>
#include <cstdlib>

namespace assay::ptx {

enum class TensorFormat : uint8_t { bf16, f16, tf32, e4m3, e5m2 };

// Bits below the largest exponent at which terms are cut, and fraction bits of the sum.
struct TensorRule {
  int unit_bits = 25, fraction_bits = 23;
};
inline TensorRule tensor_rule(TensorFormat f) {
  return f == TensorFormat::e4m3 || f == TensorFormat::e5m2 ? TensorRule{13, 13} : TensorRule{};
}

// significand * 2^place; `exponent` is that of the code, which a subnormal shares with the least normal.
struct TensorOperand {
  int64_t significand = 0;
  int place = 0, exponent = 0;
  bool negative = false, infinite = false, nan = false;
  bool zero() const { return significand == 0 && !infinite && !nan; }
};

inline TensorOperand unpack_operand(uint32_t sign, uint32_t exponent, uint32_t most, uint32_t fraction,
                                    int fraction_bits, int bias) {
  TensorOperand o;
  o.negative = sign != 0;
  o.nan = exponent == most && fraction;
  o.infinite = exponent == most && !fraction;
  o.exponent = (exponent ? static_cast<int>(exponent) : 1) - bias;
  o.place = o.exponent - fraction_bits;
  o.significand = o.nan || o.infinite ? 0 : (exponent ? int64_t{1} << fraction_bits : 0) | fraction;
  return o;
}
inline TensorOperand tensor_operand(TensorFormat f, uint32_t bits) {
  switch (f) {
    case TensorFormat::bf16: return unpack_operand(bits >> 15 & 1, bits >> 7 & 255, 255, bits & 127, 7, 127);
    case TensorFormat::f16: return unpack_operand(bits >> 15 & 1, bits >> 10 & 31, 31, bits & 1023, 10, 15);
    case TensorFormat::e5m2: return unpack_operand(bits >> 7 & 1, bits >> 2 & 31, 31, bits & 3, 2, 15);
    case TensorFormat::e4m3: {
      // No infinities: of the largest exponent one fraction alone is NaN.
      TensorOperand o = unpack_operand(bits >> 7 & 1, bits >> 3 & 15, 16, bits & 7, 3, 7);
      if ((bits & 0x7F) == 0x7F) o.nan = true, o.significand = 0;
      return o;
    }
    default: break;
  }
  // The low bits of tf32 are not looked at; they may still be all that makes a NaN one.
  TensorOperand o = unpack_operand(bits >> 31, bits >> 23 & 255, 255, bits >> 13 & 1023, 10, 127);
  if ((bits >> 23 & 255) == 255 && bits & 0x7FFFFF) o.nan = true, o.infinite = false;
  return o;
}

// The sum of `count` products a[k] b[k] and of the binary32 value c.
inline uint32_t tensor_step(const TensorRule& rule, const TensorOperand* a, const TensorOperand* b,
                            unsigned count, uint32_t c_bits) {
  const TensorOperand c = unpack_operand(c_bits >> 31, c_bits >> 23 & 255, 255, c_bits & 0x7FFFFF, 23, 127);
  bool nan = c.nan, up = c.infinite && !c.negative, down = c.infinite && c.negative, any = c.significand != 0;
  int largest = any ? c.exponent : -100000;
  for (unsigned k = 0; k < count; ++k) {
    nan = nan || a[k].nan || b[k].nan;
    if (a[k].infinite || b[k].infinite) {
      nan = nan || a[k].zero() || b[k].zero();
      (a[k].negative != b[k].negative ? down : up) = true;
    } else if (a[k].significand && b[k].significand) {
      any = true;
      if (a[k].exponent + b[k].exponent > largest) largest = a[k].exponent + b[k].exponent;
    }
  }
  if (nan || (up && down)) return 0x7FFFFFFF;
  if (up) return 0x7F800000;
  if (down) return 0xFF800000;
  if (!any) return 0;
  const int unit = largest - rule.unit_bits;
  const auto in_units = [unit](int64_t magnitude, int place, bool negative) -> int64_t {
    if (magnitude == 0) return 0;  // a product with a zero may have any place
    const int shift = place - unit;
    const int64_t cut = shift >= 0 ? magnitude << shift : shift > -63 ? magnitude >> -shift : 0;
    return negative ? -cut : cut;
  };
  int64_t sum = in_units(c.significand, c.place, c.negative);
  for (unsigned k = 0; k < count; ++k)
    sum += in_units(a[k].significand * b[k].significand, a[k].place + b[k].place,
                    a[k].negative != b[k].negative);
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  const auto magnitude = static_cast<uint64_t>(std::llabs(sum));
  const int top = static_cast<int>(std::bit_width(magnitude)) - 1 + unit;  // 2^top <= |sum|
  if (top >= 128) return sign | 0x7F800000;
  const int last = (top < -126 ? -126 : top) - rule.fraction_bits, shift = unit - last;
  const uint64_t cut = shift >= 0 ? magnitude << shift : shift > -63 ? magnitude >> -shift : 0;
  const uint64_t kept = cut << (23 - rule.fraction_bits);
  if (top < -126)
    return kept ? sign | static_cast<uint32_t>(kept) : 0;  // N16.4: a sum that is cut to zero is +0
  return sign | static_cast<uint32_t>(top + 127) << 23 | static_cast<uint32_t>(kept & 0x7FFFFF);
}

}  // namespace assay::ptx
