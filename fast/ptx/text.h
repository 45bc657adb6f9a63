// Words and numbers of PTX text (4.1 to 4.5).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fast/ptx/types.h"

namespace assay::ptx {

struct Token {
  std::string_view text;  // empty at the end of the text
  uint32_t line = 0;      // of the text, from 1
};

// Takes text apart, word by word. A word keeps its dots and its `::` ("ld.global.L1::evict_last.v4.b32"); the
// colon behind a label and every other sign is a word of its own, a string keeps its quotes. Comments are
// passed over. Fault: a comment or string without an end.
class Lexer {
 public:
  explicit Lexer(std::string_view text, size_t at = 0, uint32_t line = 1)
      : text_(text), at_(at), line_(line) {}
  Token next();
  // Passes over a body whose `{` was the last token, with what is nested in it, without taking words apart.
  // Fault: it does not end.
  void skip_body();
  // Where the text behind the last token begins, and its line.
  size_t position() const { return at_; }
  uint32_t line() const { return line_; }

 private:
  void skip_blank();
  size_t word_end() const;
  std::string_view text_;
  size_t at_;
  uint32_t line_;
};

// A number as it is written (4.5): an integer, 0f and eight hexadecimal digits, 0d and sixteen, or a decimal
// fraction, which is binary64.
struct Number {
  enum class Form : uint8_t { integer, binary32, binary64 } form = Form::integer;
  uint64_t bits = 0;
};
// Fault: `word` is no number.
Number parse_number(std::string_view word);
bool begins_number(std::string_view word);

// The lines of a text, the first at 0, without their ends.
std::vector<std::string_view> lines_of(std::string_view text);
// Without blanks at its ends, and one where several stood.
std::string squeezed(std::string_view text);

// Throws a Fault that begins with the line.
[[noreturn]] void fail_at(uint32_t line, const std::string& what);

}  // namespace assay::ptx
