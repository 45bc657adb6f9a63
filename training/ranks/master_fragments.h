// Fragments of flat parameters: their amaxes by block, and their bytes in the planes of a parameter. Bits are
// moved and magnitudes compared; every code and scale comes from the Subject.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "training/formats/ops.h"

namespace assay::training {

// A block of a matrix: 1x32, 32x1, 128x128, ...
struct BlockShape {
  int64_t rows = 1, cols = 1;
};

// A piece of a matrix [rows, cols] as the flat elements from `offset` on, in a 16-bit or 32-bit float dtype.
struct Fragment {
  ArrayPtr values;  // null: none
  int64_t offset = 0;
  Shape matrix;
  int64_t count() const { return values ? values->count() : 0; }
};

// The magnitude bits of each block, in the dtype of the values, block rows first; 0 where the fragment has no
// element.
std::vector<uint32_t> block_amaxes(const Fragment&, BlockShape);

// The matrix that has the fragment's elements in their places, zeros beside them, and in each block that is
// not wholly the fragment's one element more, such that the block's amax is the given one. What a block
// quantizer makes of it has the group's scales and the fragment's codes.
ArrayPtr standing_for_all(const Fragment&, BlockShape, const std::vector<uint32_t>& amaxes, DType dtype);

// Bytes of the fragment from `made`, a plane of the whole matrix with a byte an element, into `plane` from
// byte `at` on.
void copy_fragment(const Array& made, const Fragment&, Array& plane, int64_t at);
// The same with two codes in a byte. From an odd offset on, byte and half part: the byte counts from the
// fragment's first element, the half from the matrix's.
void copy_nibbles(const Array& made, const Fragment&, Array& plane, int64_t at);

}  // namespace assay::training
