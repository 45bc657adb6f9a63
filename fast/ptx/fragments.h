// Where the elements of the matrices of mma.sync lie in the registers of a warp (9.7.14.5.5 to 9.7.14.5.8): A
// has 16 rows and k columns, B k rows and 8 columns, C and D 16 rows and 8 columns. The rows of A and of each
// 8 columns of D that a warp has in wgmma lie in the same way (9.7.15.5.1.1). B, C and D of wmma have 16
// columns: first the registers of columns 0 to 7, then those of 8 to 15. The ISA leaves that open
// (9.7.14.4.1); ptxas makes two mma of every wmma in this way, for each architecture from sm_80 to sm_120 and
// each layout that the opcode names.
#pragma once
#include <string>
#include <utility>

#include "fast/ptx/forms.h"

namespace assay::ptx {

inline constexpr unsigned kMmaRows = 16, kMmaColumns = 8;

struct MmaShape {
  unsigned k = 16, bits = 16;  // products of an element of D; of an element of A and B
  unsigned columns = kMmaColumns;
  unsigned in_register() const { return 32 / bits; }
  unsigned a_registers() const { return kMmaRows * k / 32 / in_register(); }
  unsigned b_registers() const { return columns * k / 32 / in_register(); }
  unsigned c_registers() const { return kMmaRows * columns / 32; }
};
inline MmaShape mma_shape(const Opcode& op) {
  if (op.row->name == "wgmma") {
    const unsigned bits = op.last() == Type::tf32                              ? 32
                          : op.last() == Type::e4m3 || op.last() == Type::e5m2 ? 8
                                                                               : 16;
    return {256 / bits, bits};
  }
  if (op.row->name == "wmma") return {16, 16, 16};
  return {op.has("m16n8k4") ? 4u : op.has("m16n8k8") ? 8u : 16u, op.types[1] == Type::tf32 ? 32u : 16u};
}

// The columns of B and D in a wgmma: "m64n128k16" has 128.
inline unsigned product_columns(const Opcode& op) {
  for (const std::string& word : op.modifiers)
    if (word.starts_with("m64n")) return static_cast<unsigned>(std::stoul(word.substr(4)));
  return 0;
}

// The element in a lane, a register of the fragment, and a part of that, from its lowest bits on.
struct Place {
  unsigned lane, index, part;
};
// Four neighbouring lanes have a stretch of k: of a register's elements each, and then again for the next.
inline Place place_of_k(const MmaShape& s, unsigned line, unsigned k) {
  const unsigned stretch = 4 * s.in_register(), within = k % stretch;
  return {4 * (line % 8) + within / s.in_register(), k / stretch, within % s.in_register()};
}
inline Place place_in_a(const MmaShape& s, unsigned row, unsigned k) {
  Place p = place_of_k(s, row, k);
  p.index = 2 * p.index + row / 8;
  return p;
}
inline Place place_in_b(const MmaShape& s, unsigned k, unsigned column) {
  Place p = place_of_k(s, column, k);
  p.index += column / kMmaColumns * (s.b_registers() * kMmaColumns / s.columns);
  return p;
}
inline Place place_in_c(unsigned row, unsigned column) {
  const unsigned within = column % kMmaColumns;
  return {4 * (row % 8) + within / 2, 4 * (column / kMmaColumns) + 2 * (row / 8) + within % 2, 0};
}
// The row and the column of C and D of a register of a lane.
inline std::pair<unsigned, unsigned> element_of_c(unsigned lane, unsigned index) {
  return {lane / 4 + 8 * (index / 2 % 2), index / 4 * kMmaColumns + 2 * (lane % 4) + index % 2};
}

}  // namespace assay::ptx
