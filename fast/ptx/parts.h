// Instructions that are carried out as several others.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fast/ptx/bind.h"

namespace assay::ptx {

struct Part {
  std::string opcode;
  std::vector<Operand> operands;
};

// What stands for moves, loads and stores of 128 bits, and for wmma.load and wmma.store (wmma.h); nothing for
// any other instruction. Fault: an operand that it does not take.
std::optional<std::vector<Part>> parts_of(const Opcode&, const std::vector<Operand>&, Names&);

}  // namespace assay::ptx
