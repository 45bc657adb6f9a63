#include "fast/ptx/one_entry.h"

#include <algorithm>

namespace assay::ptx {

namespace {

std::string_view stripped(std::string_view line) {
  line = line.substr(0, line.find("//"));
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

// The entry that a line declares; empty where it declares none.
std::string_view declared_entry(std::string_view code) {
  constexpr std::string_view kEntry = ".entry";
  const size_t at = code.find(kEntry);
  if (at == std::string_view::npos) return {};
  const size_t begin = code.find_first_not_of(" \t", at + kEntry.size());
  if (begin == std::string_view::npos) return {};
  return code.substr(begin, code.find_first_of("( \t{", begin) - begin);
}

// Goes through the lines once and keeps those of one entry, and of the module around the entries.
class Extraction {
 public:
  Extraction(std::string_view entry, Lines lines) : entry_(entry), numbered_(lines == Lines::numbered) {}

  void take(std::string_view line, size_t number) {
    const std::string_view code = stripped(line);
    if (in_section_) {
      in_section_ = !code.ends_with('}');
      return;
    }
    if (!in_entry_ && code.starts_with(".section")) {
      in_section_ = !code.ends_with('}');
      return;
    }
    if (const std::string_view word = code.substr(0, code.find_first_of(" \t"));
        word == ".loc" || word == ".file")
      return;
    if (const std::string_view name = declared_entry(code); !name.empty()) start_entry(name);
    if (!in_entry_) return keep_module_line(line, code);
    if (kept_) {
      if (numbered_ && depth_ > 0 && starts_statement(code))
        out += ".loc 1 " + std::to_string(number) + " 0\n";
      out.append(line) += '\n';
    }
    follow(code);
  }

  std::string out;
  bool found = false;

 private:
  void start_entry(std::string_view name) {
    in_entry_ = true, kept_ = name == entry_, found = found || kept_;
    depth_ = 0, opened_ = false;
  }
  void keep_module_line(std::string_view line, std::string_view code) {
    const size_t debug = line.find(", debug");
    out.append(code.starts_with(".target") ? line.substr(0, debug) : line) += '\n';
    if (numbered_ && code.starts_with(".address_size")) out += ".file 1 \"kernel.ptx\"\n";
  }
  // A statement begins where the one before has ended, and is no directive, label or brace.
  bool starts_statement(std::string_view code) const {
    if (code.empty() || !ended_) return false;
    return (code[0] == '@' || (code[0] >= 'a' && code[0] <= 'z')) && !code.ends_with(':');
  }
  void follow(std::string_view code) {
    if (code.empty()) return;
    const auto braces = std::count(code.begin(), code.end(), '{') - std::count(code.begin(), code.end(), '}');
    depth_ += static_cast<int>(braces);
    opened_ = opened_ || code.find('{') != std::string_view::npos;
    ended_ = std::string_view(";:{}").find(code.back()) != std::string_view::npos;
    if (opened_ && depth_ == 0) in_entry_ = false;
  }

  std::string_view entry_;
  bool numbered_;
  bool in_section_ = false, in_entry_ = false, kept_ = false, opened_ = false, ended_ = true;
  int depth_ = 0;
};

}  // namespace

std::optional<std::string> one_entry(std::string_view text, std::string_view entry, Lines lines) {
  Extraction extraction(entry, lines);
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    extraction.take(text.substr(0, end), ++number);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (!extraction.found) return {};
  return extraction.out;
}

}  // namespace assay::ptx
