// wgmma (9.7.15) for the types whose sums were measured: bf16, f16, tf32 and FP8 with sums in binary32.
#include <array>
#include <cstring>

#include "fast/ptx/choose.h"
#include "fast/ptx/handlers.h"
#include "fast/ptx/values_tensor.h"
#include "fast/ptx/wgmma.h"

namespace assay::ptx {

namespace {

constexpr unsigned kMostK = 32;

TensorFormat format_of(Type t) {
  switch (t) {
    case Type::f16: return TensorFormat::f16;
    case Type::bf16: return TensorFormat::bf16;
    case Type::tf32: return TensorFormat::tf32;
    case Type::e4m3: return TensorFormat::e4m3;
    default: return TensorFormat::e5m2;
  }
}

// The part of one warp in eight columns: sources are A in registers or its descriptor, the descriptor of B,
// the accumulators, and whether they are added to.
void multiply_tile(Warp& w, const Instruction& i) {
  const Kernel& kernel = *w.block->kernel;
  const unsigned a_sources = kernel.products[i.target].a_in_registers ? 4 : 1;
  const ProductParts p =
      product_parts(kernel, i, w.index, read_cell(w, i.s[0], true, 0), read_cell(w, i.s[a_sources], true, 0),
                    predicate(w, i, a_sources + 5) != 0);
  const MmaShape& s = p.shape;
  const TensorFormat a_format = format_of(p.op->types[1]), b_format = format_of(p.op->types[2]);
  const auto in_memory = [&](const SharedMatrix& m, unsigned line, unsigned k) {
    uint32_t bits = 0;
    std::memcpy(&bits, w.block->shared.data() + m.at(line, k), m.element);
    return bits;
  };
  std::array<std::array<TensorOperand, kMostK>, kMmaColumns> b;
  for (unsigned column = 0; column < kMmaColumns; ++column)
    for (unsigned k = 0; k < s.k; ++k) {
      TensorOperand& o = b[column][k];
      o = tensor_operand(b_format, in_memory(p.b, p.first_column + column, k));
      o.negative = o.negative != p.form->b_negated;
    }
  for (unsigned row = 0; row < kMmaRows; ++row) {
    std::array<TensorOperand, kMostK> a;
    for (unsigned k = 0; k < s.k; ++k) {
      uint32_t bits = 0;
      if (p.form->a_in_registers) {
        const Place at = place_in_a(s, row, k);
        bits = static_cast<uint32_t>(uint64_t{w.words[i.s[at.index] + at.lane]} >> (s.bits * at.part) &
                                     ((uint64_t{1} << s.bits) - 1));
      } else {
        bits = in_memory(p.a, p.first_row + row, k);
      }
      a[k] = tensor_operand(a_format, bits);
      a[k].negative = a[k].negative != p.form->a_negated;
    }
    for (unsigned column = 0; column < kMmaColumns; ++column) {
      const Place at = place_in_c(row, column);
      uint32_t& sum = w.words[i.d[at.index] + at.lane];
      sum = tensor_step(tensor_rule(a_format), a.data(), b[column].data(), s.k, p.adds ? sum : 0);
    }
  }
}

}  // namespace

bool choose_wgmma(const Opcode& op, Instruction& i) {
  switch (op.row->form) {
    case Form::wgmma_half:
    case Form::wgmma_bf16:
    case Form::wgmma_tf32:
    case Form::wgmma_fp8:
      i.meeting = &issue_product;
      i.handler = &multiply_tile;
      break;
    case Form::wgmma_fence: i.meeting = &fence_products; break;
    case Form::wgmma_commit: i.meeting = &close_product_group; break;
    case Form::wgmma_wait: i.meeting = &wait_for_products; break;
    default: return false;
  }
  i.flow = Flow::meeting;
  return true;
}

}  // namespace assay::ptx
