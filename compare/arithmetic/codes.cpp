#include "compare/arithmetic/codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace assay {

namespace {

// The parts of a code. E8M0 is all exponent; the significand is then 1.
struct Parts {
  bool negative;
  int exponent;
  uint32_t fraction;
};

uint32_t low_bits(int n) { return n >= 32 ? 0xFFFFFFFFu : (1u << n) - 1; }

Parts parts_of(const EncodingInfo& e, uint32_t code) {
  Parts p{};
  p.fraction = code & low_bits(e.mantissa_bits);
  p.exponent = static_cast<int>((code >> e.mantissa_bits) & low_bits(e.exponent_bits));
  p.negative = e.has_sign() && ((code >> (e.bits - 1)) & 1) != 0;
  return p;
}

uint32_t magnitude(const EncodingInfo& e, uint32_t code) {
  return e.has_sign() ? code & low_bits(e.bits - 1) : code & low_bits(e.bits);
}

std::string binary(uint32_t v, int digits) {
  std::string out;
  for (int i = digits - 1; i >= 0; --i) out += ((v >> i) & 1) != 0 ? '1' : '0';
  return out;
}

template <class T> std::string shortest(T v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return std::string(text, end);
}

}  // namespace

void set_code(const Plane& plane, std::span<std::byte> bytes, int64_t index, uint32_t code) {
  if (!plane.packed) return set_code(plane.encoding, bytes, index, code);
  const int64_t width = plane.bits();
  for (int64_t bit = index * width, i = 0; i < width; ++i, ++bit) {
    std::byte& byte = bytes[static_cast<size_t>(bit / 8)];
    const std::byte mask{static_cast<unsigned char>(1u << bit % 8)};
    byte = (code >> i & 1) != 0 ? byte | mask : byte & ~mask;
  }
}

void set_code(Encoding e, std::span<std::byte> bytes, int64_t index, uint32_t code) {
  const size_t size = static_cast<size_t>(info(e).bytes());
  std::memcpy(bytes.data() + static_cast<size_t>(index) * size, &code, size);
}

bool is_nan(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  const uint32_t m = magnitude(e, code);
  if (e.infinity != kNoCode) return m > e.infinity;
  // E4M3 and E8M0 have one NaN; in the narrower ones what a quantizer writes for NaN is a number (N2.4).
  return e.nan != e.max_finite && m == e.nan;
}

namespace {

double value_by_parts(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (is_nan(encoding, code)) return std::numeric_limits<double>::quiet_NaN();
  const Parts p = parts_of(e, code);
  if (e.mantissa_bits == 0) return std::ldexp(1.0, p.exponent - e.bias);
  const double sign = p.negative ? -1.0 : 1.0;
  if (e.infinity != kNoCode && magnitude(e, code) == e.infinity)
    return sign * std::numeric_limits<double>::infinity();
  const double fraction = std::ldexp(static_cast<double>(p.fraction), -e.mantissa_bits);
  if (p.exponent == 0) return sign * std::ldexp(fraction, 1 - e.bias);
  return sign * std::ldexp(1.0 + fraction, p.exponent - e.bias);
}

// Of the encodings of one byte, by code.
using Values = std::array<double, 256>;
const Values& values_of(Encoding encoding) {
  static const auto kAll = [] {
    std::array<Values, kEncodings.size()> all{};
    for (size_t e = 0; e < all.size(); ++e)
      if (kEncodings[e].bits <= 8 && kEncodings[e].is_float())
        for (uint32_t code = 0; code < 256; ++code)
          all[e][code] = value_by_parts(static_cast<Encoding>(e), code);
    return all;
  }();
  return kAll[static_cast<size_t>(encoding)];
}

}  // namespace

double value_of(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (!e.is_float()) return code;
  if (e.bits <= 8 && code < 256) return values_of(encoding)[code];
  if (encoding != Encoding::f32 && encoding != Encoding::bf16) return value_by_parts(encoding, code);
  const float v = std::bit_cast<float>(encoding == Encoding::f32 ? code : code << 16);
  return std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v;
}

bool is_saturated(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (!e.is_float()) return false;
  const uint32_t m = magnitude(e, code);
  return m == e.max_finite || (e.infinity != kNoCode && m == e.infinity);
}

double step_at(Encoding encoding, double v) {
  const EncodingInfo& e = info(encoding);
  if (e.mantissa_bits == 0 || !e.is_float()) return 0;
  // ilogb and ldexp, by the exponent field: of an infinity or a NaN that of zero; no encoding reaches the
  // subnormals of binary64.
  const int field = static_cast<int>(std::bit_cast<uint64_t>(v) >> 52 & 0x7FF), least = 1 - e.bias;
  const int exponent = field == 0x7FF ? least : std::max(field - 1023, least);
  return std::bit_cast<double>(static_cast<uint64_t>(exponent - e.mantissa_bits + 1023) << 52);
}

std::string code_bits(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (!e.is_float()) return binary(code, e.bits);
  std::string out;
  if (code & ~low_bits(e.bits))
    out = "!";  // bits beside the code are set: N6.1 stores a narrow code in a byte of zeros
  if (e.has_sign()) out += binary(code >> (e.bits - 1), 1) + ".";
  out += binary(code >> e.mantissa_bits, e.exponent_bits);
  if (e.mantissa_bits) out += "." + binary(code, e.mantissa_bits);
  return out;
}

std::string code_hex(Encoding e, uint32_t code) { return fmt::format("{:0{}X}", code, 2 * info(e).bytes()); }

std::string value_text(Encoding e, uint32_t code) {
  if (!info(e).is_float()) return std::to_string(code);
  if (is_nan(e, code)) return "nan";
  if (info(e).mantissa_bits == 0) return fmt::format("2^{}", static_cast<int>(code) - info(e).bias);
  return shortest(
      static_cast<float>(value_of(e, code)));  // every encoding's values are exact in binary32 (N2.8)
}

std::string f32_hex_text(uint32_t bits) { return fmt::format("{:a}", value_of(Encoding::f32, bits)); }
std::string number_text(double v) { return shortest(v); }

std::optional<int64_t> ordinal(Encoding encoding, uint32_t code) {
  const EncodingInfo& e = info(encoding);
  if (is_nan(encoding, code)) return {};
  const int64_t m = magnitude(e, code);
  if (!e.is_float()) return m;
  return parts_of(e, code).negative ? -m : m;
}

std::optional<int64_t> codes_apart(Encoding e, uint32_t a, uint32_t b) {
  const auto x = ordinal(e, a), y = ordinal(e, b);
  if (!x || !y) return {};
  return *x < *y ? *y - *x : *x - *y;
}

}  // namespace assay
