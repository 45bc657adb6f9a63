// ldmatrix and stmatrix (9.7.14.5.15, 9.7.14.5.16): matrices between shared memory and a warp's registers.
#include <cstring>

#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/matrix.h"
#include "fast/ptx/traffic.h"

namespace assay::ptx {

namespace {

template <bool kLoad> void move_matrices(Warp& w, const Meeting& m) {
  const Instruction& i = *m.parts[0].instruction;
  if (m.count != 1 || m.lanes != ~0u)
    fail(w, i, std::countr_zero(m.lanes),
         "is carried out by a part of its warp, and .aligned asks for all of it");
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

}  // namespace

bool choose_matrix(const Opcode& op, Instruction& i) {
  const bool load = op.row->form == Form::ldmatrix;
  if (!load && op.row->form != Form::stmatrix) return false;
  i.code = op.has("trans");
  i.meeting = load ? &move_matrices<true> : &move_matrices<false>;
  i.flow = Flow::meeting;
  return true;
}

}  // namespace assay::ptx
