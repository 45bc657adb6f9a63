#include "contract/f32_text.h"

#include <bit>
#include <charconv>
#include <cmath>

#include "contract/words.h"

namespace assay {

Result<F32Bits> parse_f32(std::string_view text) {
  const char* end = text.data() + text.size();
  if (text.starts_with("0x")) {
    F32Bits bits = 0;
    auto [stop, status] = std::from_chars(text.data() + 2, end, bits, 16);
    if (text.size() == 10 && status == std::errc{} && stop == end) return bits;
    return Error{"expected 8 hexadecimal digits of binary32 bits, found '" + std::string(text) + "'", 0,
                 "for example 0x3F800000 for 1"};
  }
  float value = 0;
  auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status == std::errc::result_out_of_range)
    return Error{"'" + std::string(text) + "' is outside the range of binary32", 0,
                 "write the bits instead, as 0x7F7FFFFF"};
  if (text.empty() || status != std::errc{} || stop != end)
    return Error{"expected a number, found '" + std::string(text) + "'", 0,
                 "a decimal such as 1e-6, inf, nan, or bits such as 0x3F800000"};
  if (std::isnan(value)) return F32Bits{0x7FFFFFFF};
  return std::bit_cast<F32Bits>(value);
}

std::string f32_text(F32Bits bits) {
  const float value = std::bit_cast<float>(bits);
  char text[32];
  if (std::isnan(value)) return "0x" + upper(hex(bits, 8));
  auto [end, status] = std::to_chars(text, text + sizeof text, value);
  return status == std::errc{} ? std::string(text, end) : std::string{};
}

}  // namespace assay
