// wgmma (9.7.15): a warpgroup, four warps behind each other from a multiple of four on, multiplies 64 rows of
// A and the columns of B, which lie in shared memory, into accumulators in its registers. Each warp has 16 of
// the rows, and carries out its part when it waits for the group that the product belongs to: as late as the
// text allows. What it does then are instructions behind the end of the kernel's code, one for each 8
// columns.
#pragma once
#include <cstdint>

#include "fast/ptx/fragments.h"
#include "fast/ptx/machine.h"

namespace assay::ptx {

inline constexpr unsigned kGroupWarps = 4;

// A matrix in shared memory, as its descriptor says (9.7.15.5.1.2). A line is a row of A or a column of B.
struct SharedMatrix {
  uint64_t start = 0, leading = 0, stride = 0;  // in bytes
  unsigned swizzle = 0, base_offset = 0;        // bytes of a swizzled stretch, or 0
  unsigned element = 2;                         // bytes
  bool along_lines = false;                     // neighbours in memory are of neighbouring lines, not of k
  // The offset of an element.
  uint64_t at(unsigned line, unsigned k) const;
  // Calls f(offset) for each 16 bytes of lines [first, first + lines), and of k elements each.
  template <class F> void for_chunks(unsigned first, unsigned lines, unsigned depth, F f) const {
    const unsigned in_chunk = 16 / element;
    for (unsigned line = first; line < first + lines; line += along_lines ? in_chunk : 1)
      for (unsigned k = 0; k < depth; k += along_lines ? 1 : in_chunk) f(at(line, k));
  }
};
SharedMatrix shared_matrix(uint64_t descriptor, unsigned element_bytes, bool along_lines);

// The operands of one product of a warp, when it is carried out.
struct ProductParts {
  const Opcode* op;
  const Kernel::Product* form;
  MmaShape shape;
  unsigned first_row;     // of the warp in A
  unsigned first_column;  // of this instruction in B
  SharedMatrix a, b;      // `a` where it is not in registers
  bool adds;              // to what the accumulators hold
};
// Of an instruction behind the end of the code; its registers hold the descriptors.
ProductParts product_parts(const Kernel&, const Instruction& tile, unsigned warp, uint64_t a, uint64_t b,
                           bool adds);

// Handlers. Fault: not the whole warpgroup, or not with the same operands; a descriptor that is not
// understood or reaches outside shared memory.
void issue_product(Warp&, const Meeting&);
void fence_products(Warp&, const Meeting&);
void close_product_group(Warp&, const Meeting&);
void wait_for_products(Warp&, const Meeting&);

// The block is at its end. Fault: some warps of a warpgroup carried out a product without the others.
void finish_products(const Block&);

}  // namespace assay::ptx
