// From an opcode to the handler that carries it out. Each function knows some of the forms of the table, and
// returns whether it knows this one; what it does to an instruction that it does not know is thrown away.
// Operands are bound already.
#pragma once
#include "fast/ptx/kernel.h"

namespace assay::ptx {

bool choose_integer(const Opcode&, Instruction&);
bool choose_float(const Opcode&, Instruction&);
bool choose_half(const Opcode&, Instruction&);
bool choose_compare(const Opcode&, Instruction&);
bool choose_compare_half(const Opcode&, Instruction&);
bool choose_convert(const Opcode&, Instruction&);
bool choose_directed(const Opcode&, Instruction&);
bool choose_narrow(const Opcode&, Instruction&);
bool choose_simd(const Opcode&, Instruction&);
bool choose_memory(const Opcode&, Instruction&);
bool choose_warp(const Opcode&, Instruction&);
bool choose_matrix(const Opcode&, Instruction&);
bool choose_mma(const Opcode&, Instruction&);
bool choose_wgmma(const Opcode&, Instruction&);
bool choose_copy(const Opcode&, Instruction&);
bool choose_mbarrier(const Opcode&, Instruction&);
bool choose_control(const Opcode&, Instruction&);

// Fault: the table has a row that no function knows.
inline void choose(const Opcode& op, Instruction& i) {
  i.kind = op.row->kind;
  for (auto* known :
       {choose_integer, choose_float, choose_half, choose_compare, choose_compare_half, choose_convert,
        choose_directed, choose_narrow, choose_simd, choose_memory, choose_warp, choose_matrix, choose_mma,
        choose_wgmma, choose_copy, choose_mbarrier, choose_control}) {
    Instruction chosen = i;
    if (!known(op, chosen)) continue;
    i = chosen;
    return;
  }
  throw Fault("'" + op.text + "' has no handler");
}

// The rounding that an opcode names; to the nearest even where it names none.
inline uint32_t rounding_code(const Opcode& op) {
  // In the order of Rounding.
  if (op.has("rz") || op.has("rzi")) return 1;
  if (op.has("rm") || op.has("rmi")) return 2;
  if (op.has("rp") || op.has("rpi")) return 3;
  if (op.has("rna")) return 4;
  if (op.has("rs")) return 5;
  return 0;
}

}  // namespace assay::ptx
