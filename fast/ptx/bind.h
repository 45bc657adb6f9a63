// Operands as they are written, and their places in an instruction by the row of its form.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fast/ptx/forms.h"
#include "fast/ptx/registers.h"
#include "fast/ptx/text.h"

namespace assay::ptx {

struct Operand {
  enum class What : uint8_t { reg, number, symbol, vector, sink } what = What::sink;
  std::string text;  // for errors, and the name of a symbol
  Register reg;
  Number number;
  bool inverted = false;  // !p
  bool address = false;   // in brackets: what is the base
  bool barred = false;    // parts[0] is a second destination: d|p
  int64_t displacement = 0;
  std::vector<Operand> parts;  // of a vector, or behind a bar
};

class Binder {
 public:
  Binder(Kernel& kernel, Names& names) : k_(kernel), names_(names) {}
  // Fault: an operand that the row does not allow.
  void bind(const Opcode&, const std::vector<Operand>&, Instruction&);
  // The one operand of a branch. Fault: it is none.
  static std::string label(const std::vector<Operand>&);

 private:
  void bind_one(const Opcode&, std::string_view pattern, const Operand&, Instruction&);
  void bind_move(const Opcode&, const Operand& to, const Operand& from, Instruction&);
  void destination(const Operand&, int bits, bool relaxed, Instruction&);
  void predicate_destination(const Operand&, Instruction&);
  void predicate_source(const Operand&, Instruction&);
  void address(const Operand&, Instruction&);
  void bulk_address(char letter, const Opcode&, const Operand&, Instruction&);
  void copy_target(const Operand&, Instruction&);
  void accessed(const Opcode&, const Operand&, bool load, Instruction&);
  void product(char letter, const Opcode&, const Operand&, Instruction&);
  void set_numbers(const Opcode&, const Instruction&);
  void multiplied(char letter, const Opcode&, const Operand&, Instruction&);
  void fragments(const Opcode&, const Operand&, bool written, Instruction&);
  void add_source(uint32_t place, Instruction&);
  // The register of a source of a type; numbers and symbols become constants.
  uint32_t source(const Operand&, Type, bool relaxed, bool* wide = nullptr);
  uint32_t symbol_address(const Operand&, bool wide);
  uint64_t number_bits(const Operand&, Type) const;
  Kernel& k_;
  Names& names_;
};

}  // namespace assay::ptx
