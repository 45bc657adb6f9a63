// The matrices of 8x8 elements of 16 bits that ldmatrix and stmatrix move between shared memory and the
// registers of a warp (9.7.14.5.15, 9.7.14.5.16).
#pragma once
#include <array>
#include <cstdint>
#include <cstring>

#include "fast/ptx/machine.h"

namespace assay::ptx {

inline constexpr unsigned kMatrixRows = 8, kMatrixRowBytes = 16;

// Calls f(matrix, row, column, lane, half): element (row, column) lies in the low or the high half of the
// lane's register for this matrix. The address of row r of matrix k is that of lane 8k + r.
template <class F> void for_elements(const Instruction& i, F f) {
  const bool transposed = i.code != 0;
  for (unsigned matrix = 0; matrix < i.vector; ++matrix)
    for (unsigned row = 0; row < kMatrixRows; ++row)
      for (unsigned column = 0; column < 8; ++column) {
        const unsigned major = transposed ? column : row, minor = transposed ? row : column;
        f(matrix, row, column, 4 * major + minor / 2, minor % 2);
      }
}

// The half of a lane's register that an element of 16 bits comes from where a matrix in registers is
// transposed (movmatrix, 9.7.14.5.17): element (row, column) comes from (column, row).
struct HalfPlace {
  unsigned lane, half;
};
inline HalfPlace transposed(const HalfPlace& to) {
  const unsigned row = to.lane / 4, column = 2 * (to.lane % 4) + to.half;
  return {4 * column + row / 2, row % 2};
}

// The offset in shared memory of the row whose address a lane holds. Fault: it is not in shared memory, is
// no multiple of 16, or lies outside.
inline uint64_t matrix_row(Warp& w, const Instruction& i, unsigned lane) {
  uint64_t address = w.words[i.s[0] + lane];
  if (i.wide_s) std::memcpy(&address, w.words + i.s[0] + 2 * lane, sizeof address);
  address += static_cast<uint64_t>(i.offset);
  if (!i.wide_s) address = static_cast<uint32_t>(address);
  resolve(w, i, static_cast<int>(lane), address, kMatrixRowBytes, i.kind == Class::store);
  if (located(i, address) != Space::shared)
    fail(w, i, static_cast<int>(lane), "is given an address outside shared memory");
  return address;
}

// Of all rows that the instruction moves; the others are 0. A load may overwrite the register that holds
// them.
using MatrixRows = std::array<uint64_t, kLanes>;
inline MatrixRows matrix_rows(Warp& w, const Instruction& i) {
  MatrixRows rows{};
  for (unsigned lane = 0; lane < kMatrixRows * i.vector; ++lane) rows[lane] = matrix_row(w, i, lane);
  return rows;
}

}  // namespace assay::ptx
