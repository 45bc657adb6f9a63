#include "compare/text/printable.h"

#include <algorithm>

#include <fmt/format.h>

namespace assay {

std::string printable(std::string_view text) {
  std::string out;
  const auto byte = [&](char c) {
    out += c == '\n'   ? "\\n"
           : c == '\r' ? "\\r"
           : c == '\t' ? "\\t"
                       : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  };
  const size_t start = std::min(text.find_first_not_of(' '), text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    const size_t length = c < 0x80 ? 1 : utf8_sequence(text, i);
    const bool control =
        c < 0x20 || c == 0x7F || (c == 0xC2 && length == 2 && static_cast<unsigned char>(text[i + 1]) < 0xA0);
    const bool command = (i == start && text.substr(i, 2) == "::") || text.substr(i, 3) == "##[";
    if (control || command || length == 0) {
      for (const char part : text.substr(i, std::max<size_t>(length, 1))) byte(part);
      i += std::max<size_t>(length, 1) - 1;
    } else {
      out += text.substr(i, length);
      i += length - 1;
    }
  }
  return out;
}

size_t utf8_sequence(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned first = byte(0);
  const size_t length = first >= 0xF0 && first <= 0xF4 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (first > 0xF4 || length == 0) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const unsigned second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
    return 0;
  if (first == 0xEF && second == 0xBF && byte(2) >= 0xBE) return 0;
  if (first == 0xE2 && ((second == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||
                        (second == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9)))
    return 0;
  return length;
}

}  // namespace assay
