// One step of a tensor core as it was measured on Hopper for bf16, f16 and tf32 with sums in binary32:
// products are exact; all terms are cut toward zero to multiples of one unit, 25 bits below the largest
// exponent; their exact sum is cut toward zero to binary32. The PTX ISA leaves this order and precision open
// (9.7.14.5.14).
#pragma once
#include <bit>
#include <cstdint>
#include <cstdlib>

namespace assay::ptx {

enum class TensorFormat : uint8_t { bf16, f16, tf32 };

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
    default: break;
  }
  // The low bits of tf32 are not looked at; they may still be all that makes a NaN one.
  TensorOperand o = unpack_operand(bits >> 31, bits >> 23 & 255, 255, bits >> 13 & 1023, 10, 127);
  if ((bits >> 23 & 255) == 255 && bits & 0x7FFFFF) o.nan = true, o.infinite = false;
  return o;
}

// The sum of `count` products a[k] b[k] and of the binary32 value c.
inline uint32_t tensor_step(const TensorOperand* a, const TensorOperand* b, unsigned count, uint32_t c_bits) {
  constexpr int kUnitBits = 25;
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
  const int unit = largest - kUnitBits;
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
  const int last = (top < -126 ? -126 : top) - 23, shift = unit - last;
  const uint64_t kept = shift >= 0 ? magnitude << shift : shift > -63 ? magnitude >> -shift : 0;
  if (top < -126) return sign | static_cast<uint32_t>(kept);
  return sign | static_cast<uint32_t>(top + 127) << 23 | static_cast<uint32_t>(kept & 0x7FFFFF);
}

}  // namespace assay::ptx
