// The words of a body, one ahead of the other, and the operands that they make (4, 6.4).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fast/ptx/bind.h"
#include "fast/ptx/registers.h"
#include "fast/ptx/text.h"

namespace assay::ptx {

class OperandReader {
 protected:
  // Names are looked up when operands are read. Reading begins where the lexer stands, and ends with a Fault
  // after most_words: functions are read anew in place of each call, so what calls call, and call again, is
  // bounded here.
  OperandReader(Lexer lexer, Names& names, uint64_t most_words)
      : lexer_(lexer), operand_names_(names), words_left_(most_words) {
    advance(), advance();
  }

  struct State {
    Lexer lexer;
    Token now, next;
  };
  // Reads on at another place; what is returned leads back.
  State read_at(const Lexer& lexer) {
    State here{lexer_, now_, next_};
    lexer_ = lexer;
    advance(), advance();
    return here;
  }
  void go_on_at(const State& s) { lexer_ = s.lexer, now_ = s.now, next_ = s.next; }

  void advance() {
    if (words_left_-- == 0) too_long();
    now_ = std::exchange(next_, lexer_.next());
  }
  [[noreturn]] static void too_long() { throw Fault("the body is too long, with the functions it calls"); }
  bool is(std::string_view word) const { return now_.text == word; }
  std::string_view take() {
    if (now_.text.empty()) fail_at(now_.line, "the text ends inside a body");
    const std::string_view word = now_.text;
    advance();
    return word;
  }
  void need(std::string_view word) {
    if (!is(word))
      throw Fault("expected '" + std::string(word) + "', found '" + std::string(now_.text) + "'");
    advance();
  }
  uint64_t take_number() { return parse_number(take()).bits; }
  Type take_type() { return type_of(take()); }
  static Type type_of(std::string_view word) {
    const auto type = word.front() == '.' ? type_named(word.substr(1)) : std::nullopt;
    if (!type) throw Fault("'" + std::string(word) + "' is no type");
    return *type;
  }
  // (a, b, c)
  std::vector<std::string> names_in_parentheses();
  // The bytes of each: (.param .b32 _, .param .align 8 .b8 _[16])
  std::vector<uint64_t> sizes_in_parentheses();
  // One operand, with what stands behind its bar. Fault: none stands here.
  Operand operand();
  // A register of the text or a special one.
  std::optional<Register> find(std::string_view word);

  Token now_, next_;

 private:
  Operand single();
  Operand vector();
  Operand address();
  Lexer lexer_;
  Names& operand_names_;
  uint64_t words_left_;
};

}  // namespace assay::ptx
