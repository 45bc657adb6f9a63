#include "fast/ptx/parts.h"

#include "fast/ptx/wmma.h"

namespace assay::ptx {

namespace {

// The two registers of 64 bits of an operand of 128.
Operand halves(const Operand& o) {
  if (o.what == Operand::What::vector && o.parts.size() == 2) return o;
  if (o.what != Operand::What::reg || o.reg.type != Type::b128)
    throw Fault("'" + o.text + "' is neither a register of 128 bits nor two of 64 in braces");
  Operand both, half = o;
  both.what = Operand::What::vector;
  half.reg.type = Type::b64;
  both.parts.push_back(half);
  half.reg.place += 2 * kLanes;
  both.parts.push_back(half);
  return both;
}

std::vector<Part> parts_of_halves(const Opcode& op, std::vector<Operand> operands) {
  if (operands.size() != 2)
    throw Fault("'" + op.text + "' takes 2 operands, not " + std::to_string(operands.size()));
  if (op.row->form != Form::mov_b128) {
    Operand& moved = operands[op.row->kind == Class::load ? 0 : 1];
    moved = halves(moved);
    const size_t type = op.text.find(".b128");
    return {{op.text.substr(0, type) + ".v2.b64" + op.text.substr(type + 5), std::move(operands)}};
  }
  const Operand to = halves(operands[0]), from = halves(operands[1]);
  return {{"mov.b64", {to.parts[0], from.parts[0]}}, {"mov.b64", {to.parts[1], from.parts[1]}}};
}

}  // namespace

std::optional<std::vector<Part>> parts_of(const Opcode& op, const std::vector<Operand>& operands,
                                          Names& names) {
  switch (op.row->form) {
    case Form::wmma_load:
    case Form::wmma_load_sum:
    case Form::wmma_store: return parts_of_wmma(op, operands, names);
    default: break;
  }
  if (op.first() == Type::b128) return parts_of_halves(op, operands);
  return {};
}

}  // namespace assay::ptx
