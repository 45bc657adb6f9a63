#include "compare/text/shell.h"

#include <fmt/format.h>

#include "compare/text/printable.h"

namespace assay {

std::string shell_quoted(std::string_view text) {
  const bool plain = printable("'" + std::string(text)) == "'" + std::string(text);
  std::string out = plain ? "'" : "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (plain) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    else if (c == '\'' || c == '\\') out += std::string("\\") + c;
    else if (byte < 0x20 || byte >= 0x7F || c == '#') out += fmt::format("\\x{:02x}", byte);
    else out += c;
  }
  return out + "'";
}

std::string shell_word(std::string_view text) {
  const bool plain = !text.empty() && text.find_first_of(" '\"\\$`*?!&|;<>()[]{}#~") == std::string::npos &&
                     printable(text) == text;
  return plain ? std::string(text) : shell_quoted(text);
}

std::string shell_unquoted(std::string_view word) {
  const bool escapes = word.starts_with("$'");
  bool quoted = false;
  std::string out;
  for (size_t i = escapes ? 1 : 0; i < word.size(); ++i) {
    if (word[i] == '\'') {
      quoted = !quoted;
    } else if (word[i] != '\\' || (quoted && !escapes)) {
      out += word[i];
    } else if (escapes && word.substr(i + 1).starts_with("x")) {
      out += static_cast<char>(std::stoi(std::string(word.substr(i + 2, 2)), nullptr, 16));
      i += 3;
    } else {
      out += word.substr(++i, 1);
    }
  }
  return out;
}

}  // namespace assay
