// Codes and values as people read them: what a failure prints and what the judge's hints look at. Everything
// here is the judge's own arithmetic, in value space with doubles; neither side's code is used.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "compare/arithmetic/places.h"
#include "contract/planes.h"

namespace assay {

// Code `index` of codes of `bits` bits that stand one after another, the first in the lowest bits (N6.8).
inline uint32_t packed_code(const std::byte* bytes, int bits, int64_t index) {
  const int64_t bit = index * bits, first = bit % 8;
  uint32_t word = std::to_integer<uint32_t>(bytes[bit / 8]);
  if (first + bits > 8) word |= std::to_integer<uint32_t>(bytes[bit / 8 + 1]) << 8;
  return word >> first & ((1u << bits) - 1);
}

// The element at flat index `index` of bytes that are not packed. Codes of fewer than 8 bits take a byte each
// and come back as the whole byte. Inline: the judge reads every code of a case several times.
inline uint32_t code_at(Encoding e, std::span<const std::byte> bytes, int64_t index) {
  const int size = info(e).bytes();
  const std::byte* at = bytes.data() + index * size;
  if (size == 1) return std::to_integer<uint32_t>(*at);
  uint16_t half;
  uint32_t word;
  if (size == 2) return std::memcpy(&half, at, sizeof half), half;
  return std::memcpy(&word, at, sizeof word), word;
}
void set_code(Encoding e, std::span<std::byte> bytes, int64_t index, uint32_t code);
// The same of a plane's bytes, in a packed plane of its bits alone (N6.8).
inline uint32_t code_at(const Plane& plane, std::span<const std::byte> bytes, int64_t index) {
  if (!plane.packed) return code_at(plane.encoding, bytes, index);
  return packed_code(bytes.data(), plane.bits(), index);
}
void set_code(const Plane& plane, std::span<std::byte> bytes, int64_t index, uint32_t code);

// Exact value of a code (N2.8): NaN for NaN codes, +-inf where the encoding has them. E8M0: 2^(code-127), NaN
// for FF.
double value_of(Encoding e, uint32_t code);
bool is_nan(Encoding e, uint32_t code);
// A finite code of the largest magnitude, or an infinity.
bool is_saturated(Encoding e, uint32_t code);
// Spacing of the encoding's grid at magnitude |v|, down to the subnormal spacing. E8M0 has no such grid: 0.
double step_at(Encoding e, double v);

std::string code_bits(Encoding e, uint32_t code);  // "0.0101.010": sign, exponent, fraction; E8M0 "01111111"
std::string code_hex(Encoding e, uint32_t code);   // "2A", two, four or eight digits
std::string value_text(
    Encoding e, uint32_t code);  // shortest decimal that reads back; "0.3125", "nan", "-0"; E8M0 "2^-3"
std::string f32_hex_text(uint32_t bits);  // "0x1.4p-2"
std::string number_text(double v);        // shortest decimal that reads back

// Place of a code on the encoding's line of finite codes and infinities: neighbours are 1 apart, -0 and +0
// both 0. Nothing for NaN.
std::optional<int64_t> ordinal(Encoding e, uint32_t code);
// Steps from one code to another; nothing when one is NaN.
std::optional<int64_t> codes_apart(Encoding e, uint32_t a, uint32_t b);

}  // namespace assay
