#include "fast/silicon/device_text.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace assay::silicon {

namespace {

// The end of the block whose brace opens at or behind `at`: behind the brace that closes it. No brace of PTX
// stands in a string, and comments of compilers hold none.
size_t end_of_block(std::string_view text, size_t at) {
  size_t depth = 0;
  for (at = text.find('{', at); at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at + 1;
  }
  return text.size();
}

void erase_entry(std::string& text, const std::string& name) {
  for (size_t at = 0; (at = text.find(".entry", at)) != std::string::npos; ++at) {
    size_t begin = text.find_first_not_of(" \t", at + std::string_view(".entry").size());
    if (begin == std::string::npos || text.compare(begin, name.size(), name) != 0) continue;
    const size_t behind = text.find_first_not_of(" \t\r\n", begin + name.size());
    if (behind == std::string::npos || (text[behind] != '(' && text[behind] != '{')) continue;
    const size_t line = text.rfind('\n', at) + 1;  // with .visible before it
    text.erase(line, end_of_block(text, behind) - line);
    return;
  }
}

// Lines for debuggers, which name labels of sections, and the sections.
std::string without_debug(const std::string& text) {
  std::string out;
  bool in_section = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view line(text.data() + at, end - at);
    const size_t first = std::min(line.find_first_not_of(" \t"), line.size());
    const std::string_view code = line.substr(first);
    at = end;
    if (code.starts_with(".section")) in_section = code.find('}') == std::string_view::npos;
    else if (in_section) in_section = !code.starts_with('}');
    else if (!code.starts_with(".loc\t") && !code.starts_with(".loc ") && !code.starts_with(".file"))
      out += line;
  }
  return out;
}

void replace_word_behind(std::string& text, std::string_view directive, const std::string& word) {
  const size_t at = text.find(directive);
  if (at == std::string::npos) return;
  const size_t begin = at + directive.size();
  text.replace(begin, text.find('\n', begin) - begin, word);
}

}  // namespace

std::string device_text(const ptx::Module& module, const std::string& entry, const std::string& architecture,
                        const std::string& newest) {
  std::string text = without_debug(module.text());
  for (const std::string& other : module.entries())
    if (other != entry) erase_entry(text, other);
  replace_word_behind(text, ".target ", architecture);
  if (std::atof(module.version().c_str()) > std::atof(newest.c_str()))
    replace_word_behind(text, ".version ", newest);
  return text;
}

}  // namespace assay::silicon
