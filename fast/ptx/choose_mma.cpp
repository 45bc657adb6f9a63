// mma.sync (9.7.14.5.14) for the types whose sums were measured: bf16, f16 and tf32 with sums in binary32;
// and wmma.mma (9.7.14.4.5) of bf16, which is two of them.
#include <array>

#include "fast/ptx/choose.h"
#include "fast/ptx/fragments.h"
#include "fast/ptx/machine.h"
#include "fast/ptx/values_tensor.h"

namespace assay::ptx {

namespace {

constexpr unsigned kMostK = 16, kMostColumns = 16;

template <TensorFormat kFormat> void multiply(Warp& w, const Meeting& m) {
  const Instruction& i = *m.parts[0].instruction;
  if (m.count != 1 || m.lanes != ~0u)
    fail(w, i, std::countr_zero(m.lanes),
         "is carried out by a part of its warp, and .aligned asks for all of it");
  const MmaShape s = mma_shape(w.block->kernel->opcodes[i.opcode]);
  const auto element = [&](unsigned first, const Place& p) {
    const uint32_t word = w.words[i.s[first + p.index] + p.lane];
    return tensor_operand(kFormat, s.bits == 16 ? word >> (16 * p.part) & 0xFFFF : word);
  };
  const unsigned b_first = s.a_registers(), c_first = b_first + s.b_registers();
  std::array<std::array<TensorOperand, kMostK>, kMostColumns> b;
  for (unsigned column = 0; column < s.columns; ++column)
    for (unsigned k = 0; k < s.k; ++k) b[column][k] = element(b_first, place_in_b(s, k, column));
  std::array<std::array<uint32_t, kMostColumns>, kMmaRows> results;
  for (unsigned row = 0; row < kMmaRows; ++row) {
    std::array<TensorOperand, kMostK> a;
    for (unsigned k = 0; k < s.k; ++k) a[k] = element(0, place_in_a(s, row, k));
    for (unsigned column = 0; column < s.columns; ++column) {
      const Place p = place_in_c(row, column);
      results[row][column] =
          tensor_step({}, a.data(), b[column].data(), s.k, w.words[i.s[c_first + p.index] + p.lane]);
    }
  }
  // A destination may be one of the sources.
  for (unsigned row = 0; row < kMmaRows; ++row)
    for (unsigned column = 0; column < s.columns; ++column) {
      const Place p = place_in_c(row, column);
      w.words[i.d[p.index] + p.lane] = results[row][column];
    }
}

}  // namespace

bool choose_mma(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::mma_f16: i.meeting = &multiply<TensorFormat::f16>; break;
    case Form::mma_bf16:
    case Form::wmma_bf16: i.meeting = &multiply<TensorFormat::bf16>; break;
    case Form::mma_tf32: i.meeting = &multiply<TensorFormat::tf32>; break;
    default: return false;
  }
  i.flow = Flow::meeting;
  return true;
}

}  // namespace assay::ptx
