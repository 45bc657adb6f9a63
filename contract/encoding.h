// Element encodings: the bit layouts that data, scales and sources may have. Generated from encodings.def.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace assay {

enum class Encoding : uint8_t {
#define ENCODING(name, ...) name,
#include "contract/encodings.def"
#undef ENCODING
};

// Marks a code that an encoding does not have.
inline constexpr uint32_t kNoCode = 0xFFFFFFFFu;

// The layout of one encoding. Codes are positive codes; see encodings.def.
struct EncodingInfo {
  std::string_view name;
  int bits;  // 4, 6, 8, 16 or 32
  int exponent_bits, mantissa_bits, bias;
  uint32_t max_finite, nan, infinity;
  std::string_view safetensors;  // dtype name in a safetensors header

  // True where the top bit of a code is a sign. E8M0 has none.
  constexpr bool has_sign() const { return exponent_bits + mantissa_bits < bits; }
  // False for the unsigned integers.
  constexpr bool is_float() const { return exponent_bits > 0; }
  // Bytes that one element takes when stored unpacked: 1, 2 or 4. 4- and 6-bit codes take a byte.
  constexpr int bytes() const { return bits <= 8 ? 1 : bits / 8; }
  // The fewest codes that fill whole bytes where they are packed (N6.8): 2 of 4 bits, 4 of 6 bits.
  constexpr int packed_codes() const {
    int n = 1;
    while (n * bits % 8 != 0) n *= 2;
    return n;
  }
};

inline constexpr std::array kEncodings = {
#define ENCODING(name, bits, e, m, bias, max, nan, inf, st) \
  EncodingInfo{#name, bits, e, m, bias, max, nan, inf, st},
#include "contract/encodings.def"
#undef ENCODING
};

// The floating-point encodings are the first rows.
inline constexpr size_t kFloatEncodings = [] {
  size_t n = 0;
  while (n < kEncodings.size() && kEncodings[n].is_float()) ++n;
  return n;
}();

constexpr const EncodingInfo& info(Encoding e) { return kEncodings[static_cast<size_t>(e)]; }

// The encodings of tensors that are not quantized.
constexpr bool is_wide_float(Encoding e) {
  return e == Encoding::f32 || e == Encoding::bf16 || e == Encoding::f16;
}

// The encoding called `name` in a line ("bf16"), or nothing.
constexpr std::optional<Encoding> encoding_named(std::string_view name) {
  for (size_t i = 0; i < kEncodings.size(); ++i)
    if (kEncodings[i].name == name) return static_cast<Encoding>(i);
  return std::nullopt;
}

// A binary32 value as its bit pattern. The contract holds no float; see contract/f32_text.h.
using F32Bits = uint32_t;

}  // namespace assay
