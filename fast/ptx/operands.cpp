#include "fast/ptx/operands.h"

namespace assay::ptx {

namespace {

bool is_word(std::string_view word) {
  const char c = word.front();
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}
void negate(Number& n) {
  if (n.form == Number::Form::integer) n.bits = 0 - n.bits;
  else n.bits ^= n.form == Number::Form::binary32 ? 0x80000000ull : 0x8000000000000000ull;
}

}  // namespace

Operand OperandReader::operand() {
  Operand o = single();
  if (is("|")) {
    advance();
    o.parts.push_back(single());
    o.barred = true;
  }
  return o;
}
Operand OperandReader::single() {
  if (is("{")) return vector();
  if (is("[")) return address();
  Operand o;
  bool negative = false;
  if (is("-")) advance(), negative = true;
  if (is("!")) advance(), o.inverted = true;
  const std::string_view word = take();
  if (!is_word(word)) throw Fault("expected an operand, found '" + std::string(word) + "'");
  o.text = word;
  if (begins_number(word)) {
    o.what = Operand::What::number;
    o.number = parse_number(word);
    if (negative) negate(o.number);
    return o;
  }
  if (negative) throw Fault("only a number may be negative");
  if (word == "_") o.what = Operand::What::sink;
  else if (word == "WARP_SZ") o.what = Operand::What::number, o.number = {Number::Form::integer, kLanes};
  else if (const auto r = find(word)) o.what = Operand::What::reg, o.reg = *r;
  else o.what = Operand::What::symbol;
  if (o.what == Operand::What::symbol && is("+"))
    advance(), o.displacement = static_cast<int64_t>(take_number());
  return o;
}
std::optional<Register> OperandReader::find(std::string_view word) {
  if (const auto r = operand_names_.find_register(word)) return r;
  const Register* special = operand_names_.find_special(word);
  return special ? std::optional(*special) : std::nullopt;
}
Operand OperandReader::vector() {
  Operand o;
  o.what = Operand::What::vector;
  o.text = "{";
  need("{");
  do {
    if (is(",")) advance();
    o.parts.push_back(single());
  } while (is(","));
  need("}");
  return o;
}
// [base], [base+8], [base+-8], [16], [map, {x, y}]
Operand OperandReader::address() {
  Operand o;
  need("[");
  o = single();
  if (o.what == Operand::What::number) {
    o.displacement = static_cast<int64_t>(o.number.bits);
    o.number = {};
  } else if (o.what != Operand::What::reg && o.what != Operand::What::symbol) {
    throw Fault("'" + o.text + "' is no address");
  }
  while (is("+") || is("-")) {
    bool negative = take() == "-";
    if (is("-")) advance(), negative = !negative;
    const auto step = static_cast<int64_t>(take_number());
    o.displacement += negative ? -step : step;
  }
  if (is(",")) {
    advance();
    o.parts = vector().parts;
  }
  need("]");
  o.address = true;
  return o;
}

std::vector<std::string> OperandReader::names_in_parentheses() {
  std::vector<std::string> out;
  need("(");
  while (!is(")")) {
    out.emplace_back(take());
    if (!is(")")) need(",");
  }
  need(")");
  return out;
}

std::vector<uint64_t> OperandReader::sizes_in_parentheses() {
  std::vector<uint64_t> out;
  need("(");
  while (!is(")")) {
    Type type = Type::b32;
    need(".param");
    while (now_.text.starts_with('.'))
      if (is(".align")) advance(), take_number();
      else type = take_type();
    take();
    out.push_back(static_cast<uint64_t>(info(type).bytes()));
    if (is("[")) advance(), out.back() *= take_number(), need("]");
    if (!is(")")) need(",");
  }
  need(")");
  return out;
}

}  // namespace assay::ptx
