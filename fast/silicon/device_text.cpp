#include "fast/silicon/device_text.h"

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "fast/ptx/one_entry.h"

namespace assay::silicon {

namespace {

void replace_word_behind(std::string& text, std::string_view directive, const std::string& word) {
  const size_t at = text.find(directive);
  if (at == std::string::npos) return;
  const size_t begin = at + directive.size();
  text.replace(begin, text.find('\n', begin) - begin, word);
}

}  // namespace

std::string device_text(const ptx::Module& module, const std::string& entry, const std::string& architecture,
                        const std::string& newest) {
  std::optional<std::string> text = ptx::one_entry(module.text(), entry, ptx::Lines::left_out);
  if (!text) throw std::runtime_error("the text has no entry " + entry);
  replace_word_behind(*text, ".target ", architecture);
  if (std::atof(module.version().c_str()) > std::atof(newest.c_str()))
    replace_word_behind(*text, ".version ", newest);
  return *text;
}

}  // namespace assay::silicon
