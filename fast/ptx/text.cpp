#include "fast/ptx/text.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace assay::ptx {

namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}

// The value of a whole word of digits; Fault where it is none or takes more than 64 bits.
uint64_t digits(std::string_view word, std::string_view text, int base) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size())
    throw Fault("'" + std::string(word) + "' is no number of 64 bits");
  return value;
}

}  // namespace

void fail_at(uint32_t line, const std::string& what) {
  throw Fault("PTX line " + std::to_string(line) + ": " + what);
}

void Lexer::skip_blank() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') ++line_;
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.substr(at_, 2) == "/*") {
      const size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) fail_at(line_, "a comment does not end");
      line_ += static_cast<uint32_t>(
          std::count(text_.begin() + static_cast<long>(at_), text_.begin() + static_cast<long>(end), '\n'));
      at_ = end + 2;
    } else {
      return;
    }
  }
}

size_t Lexer::word_end() const {
  size_t end = at_;
  const bool number = std::isdigit(static_cast<unsigned char>(text_[at_])) && text_.substr(at_, 2) != "0x";
  while (end < text_.size()) {
    // The sign of a decimal fraction's exponent: 1.5e-3.
    const bool sign = (text_[end] == '-' || text_[end] == '+') && number &&
                      (text_[end - 1] == 'e' || text_[end - 1] == 'E') &&
                      text_.substr(at_, end - at_).find('.') != std::string_view::npos;
    if (text_.substr(end, 2) == "::") end += 2;
    else if (is_word(text_[end]) || sign) ++end;
    else break;
  }
  return end;
}

Token Lexer::next() {
  skip_blank();
  if (at_ >= text_.size()) return {{}, line_};
  const size_t from = at_;
  if (text_[at_] == '"') {
    const size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) fail_at(line_, "a string does not end");
    at_ = end + 1;
  } else {
    at_ = is_word(text_[at_]) ? word_end() : at_ + 1;
  }
  return {text_.substr(from, at_ - from), line_};
}

void Lexer::skip_body() {
  const uint32_t begin = line_;
  for (int depth = 1; depth > 0;) {
    if (at_ >= text_.size()) fail_at(begin, "a body does not end");
    const char c = text_[at_];
    if (c == '"') {
      next();
    } else if (c == '/') {
      const size_t before = at_;
      skip_blank();
      if (at_ == before) ++at_;
    } else {
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      line_ += c == '\n';
      ++at_;
    }
  }
}

bool begins_number(std::string_view word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0]));
}

Number parse_number(std::string_view word) {
  if (!begins_number(word)) throw Fault("'" + std::string(word) + "' is no number");
  const std::string_view prefix = word.substr(0, 2);
  if (prefix == "0f" || prefix == "0F") {
    if (word.size() != 10) throw Fault("'" + std::string(word) + "' needs eight hexadecimal digits");
    return {Number::Form::binary32, digits(word, word.substr(2), 16)};
  }
  if (prefix == "0d" || prefix == "0D") {
    if (word.size() != 18) throw Fault("'" + std::string(word) + "' needs sixteen hexadecimal digits");
    return {Number::Form::binary64, digits(word, word.substr(2), 16)};
  }
  if (word.find('.') != std::string_view::npos) {
    const std::string text(word);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end) throw Fault("'" + text + "' is no number");
    return {Number::Form::binary64, std::bit_cast<uint64_t>(value)};
  }
  std::string_view text = word;
  if (text.size() > 1 && text.back() == 'U') text.remove_suffix(1);
  if (prefix == "0x" || prefix == "0X") return {Number::Form::integer, digits(word, text.substr(2), 16)};
  if (prefix == "0b" || prefix == "0B") return {Number::Form::integer, digits(word, text.substr(2), 2)};
  return {Number::Form::integer, digits(word, text, text.size() > 1 && text[0] == '0' ? 8 : 10)};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!blank) out += c;
    else if (!out.empty() && out.back() != ' ') out += ' ';
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace assay::ptx
