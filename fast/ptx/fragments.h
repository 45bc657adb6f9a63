// Where the elements of the matrices of mma.sync lie in the registers of a warp (9.7.14.5.5 to 9.7.14.5.8): A
// has 16 rows and k columns, B k rows and 8 columns, C and D 16 rows and 8 columns.
#pragma once
#include "fast/ptx/forms.h"

namespace assay::ptx {

inline constexpr unsigned kMmaRows = 16, kMmaColumns = 8;

struct MmaShape {
  unsigned k = 16, bits = 16;  // products of an element of D; of an element of A and B
  unsigned in_register() const { return 32 / bits; }
  unsigned a_registers() const { return kMmaRows * k / 32 / in_register(); }
  unsigned b_registers() const { return kMmaColumns * k / 32 / in_register(); }
};
inline MmaShape mma_shape(const Opcode& op) {
  return {op.has("m16n8k4") ? 4u : op.has("m16n8k8") ? 8u : 16u, op.types[1] == Type::tf32 ? 32u : 16u};
}

// The element in a lane, a register of the fragment, and the low or the high half of that.
struct Place {
  unsigned lane, index, half;
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
inline Place place_in_b(const MmaShape& s, unsigned k, unsigned column) { return place_of_k(s, column, k); }
inline Place place_in_c(unsigned row, unsigned column) {
  return {4 * (row % 8) + column / 2, 2 * (row / 8) + column % 2, 0};
}

}  // namespace assay::ptx
