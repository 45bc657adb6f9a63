// The forms of instructions that are understood (table.def), and the match of an opcode's text with them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fast/ptx/types.h"

namespace assay::ptx {

// What an instruction is counted as.
enum class Class : uint8_t {
  move,
  integer,
  floating,
  convert,
  narrow,
  special,
  compare,
  control,
  load,
  store,
  copy,
  warp,
  atomic,
  barrier
};
inline constexpr std::array<std::string_view, 14> kClassNames = {
    "move",    "integer", "floating", "convert", "narrow", "special", "compare",
    "control", "load",    "store",    "copy",    "warp",   "atomic",  "barrier"};

enum class Form : uint16_t {
#define FORM(id, name, modifiers, types, operands, kind, section) id,
#include "fast/ptx/table.def"
#undef FORM
};

struct FormRow {
  Form form;
  std::string_view name, modifiers, types, operands;
  Class kind;
  std::string_view section;
};

inline constexpr FormRow kForms[] = {
#define FORM(id, name, modifiers, types, operands, kind, section) \
  {Form::id, name, modifiers, types, operands, Class::kind, section},
#include "fast/ptx/table.def"
#undef FORM
};

// An opcode's text, understood: "mul.wide.u32" is the row mul_wide with the modifier "wide" and the type u32.
struct Opcode {
  std::string text;
  const FormRow* row = nullptr;
  std::vector<std::string> modifiers;
  std::vector<Type> types;
  bool has(std::string_view modifier) const;
  Type first() const { return types.empty() ? Type::b32 : types.front(); }
  Type last() const { return types.empty() ? Type::b32 : types.back(); }
};

// Fault: no row has this form. The message says which word is the first that no row knows.
Opcode understand(std::string_view text);

// Bytes of one element that a load, store or atomic touches.
unsigned access_bytes(const Opcode&);

// Every opcode that a row allows, one text for each choice of modifiers and types. Of an optional group both
// ways are listed. Where there are more than `most`, as many of them, evenly taken.
std::vector<std::string> spellings(const FormRow& row, size_t most);

}  // namespace assay::ptx
