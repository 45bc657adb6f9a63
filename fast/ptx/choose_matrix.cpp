// ldmatrix and stmatrix (9.7.14.5.15, 9.7.14.5.16): matrices between shared memory and a warp's registers,
// and movmatrix, which transposes one in registers.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/matrix.h"
#include "fast/ptx/traffic.h"

namespace assay::ptx {

namespace {

const Instruction& of_whole_warp(Warp& w, const Meeting& m) {
  const Instruction& i = *m.parts[0].instruction;
  if (m.count != 1 || m.lanes != ~0u)
    fail(w, i, std::countr_zero(m.lanes),
         "is carried out by a part of its warp, and .aligned asks for all of it");
  return i;
}

template <bool kLoad> void move_matrices(Warp& w, const Meeting& m) {
  const Instruction& i = of_whole_warp(w, m);
  const MatrixRows rows = matrix_rows(w, i);
  if (w.block->counters) count_rows(w, i, rows.data(), kMatrixRows * i.vector);
  for_elements(i, [&](unsigned matrix, unsigned row, unsigned column, unsigned lane, unsigned half) {
    std::byte* element = w.block->shared.data() + rows[kMatrixRows * matrix + row] + 2 * column;
    uint32_t& word = w.words[(kLoad ? i.d[matrix] : i.s[1 + matrix]) + lane];
    uint16_t v = static_cast<uint16_t>(word >> (16 * half));
    if constexpr (kLoad) {
      std::memcpy(&v, element, sizeof v);
      word = (word & ~(0xFFFFu << (16 * half))) | uint32_t{v} << (16 * half);
    } else {
      std::memcpy(element, &v, sizeof v);
    }
  });
}

void transpose_matrix(Warp& w, const Meeting& m) {
  const Instruction& i = of_whole_warp(w, m);
  std::array<uint32_t, kLanes> from;  // which may be the destination
  std::copy_n(w.words + i.s[0], kLanes, from.begin());
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const HalfPlace low = transposed({lane, 0}), high = transposed({lane, 1});
    w.words[i.d[0] + lane] =
        (from[low.lane] >> (16 * low.half) & 0xFFFF) | (from[high.lane] >> (16 * high.half) & 0xFFFF) << 16;
  }
}

}  // namespace

bool choose_matrix(const Opcode& op, Instruction& i) {
  if (op.row->form == Form::movmatrix) {
    i.meeting = &transpose_matrix;
    i.flow = Flow::meeting;
    return true;
  }
  const bool load = op.row->form == Form::ldmatrix;
  if (!load && op.row->form != Form::stmatrix) return false;
  i.code = op.has("trans");
  i.meeting = load ? &move_matrices<true> : &move_matrices<false>;
  i.flow = Flow::meeting;
  return true;
}

}  // namespace assay::ptx
