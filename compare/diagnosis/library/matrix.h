// The tensor x as one direction of a quantize sees it, and blocks of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "contract/encoding.h"
#include "contract/format.h"
#include "fixtures/inputs.h"

namespace assay {

// Lines, and along each the contracted dimension, in which blocks lie. Element (i, j) is x(i, j) for rows
// and x(j, i) for columns.
class Matrix {
 public:
  // Reads another matrix differently: the code that stands at (i, j) instead of its own.
  using Edit = std::function<uint32_t(const Matrix& under, int64_t i, int64_t j)>;

  // What is pointed to must outlive this.
  Matrix(const PlaneData& x, Direction d);
  Matrix(const Matrix& under, const Edit& edit, Encoding encoding);

  int64_t lines() const { return lines_; }
  int64_t length() const { return length_; }
  Encoding encoding() const { return encoding_; }
  uint32_t code(int64_t i, int64_t j) const { return edit_ ? (*edit_)(*under_, i, j) : stored(i, j); }
  double value(int64_t i, int64_t j) const;
  // max |x| over the part of these lines and places that exists, from 0; a NaN is skipped.
  double amax(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const;
  double amax() const { return amax(0, lines_, 0, length_); }
  // The largest pattern of any NaN, as binary32 without its sign, quiet where widening makes it so; 0 where
  // no element is NaN.
  uint32_t nan_bits() const;
  // x before any edit.
  const Matrix& source() const { return under_ ? under_->source() : *this; }

 private:
  uint32_t stored(int64_t i, int64_t j) const;

  const std::byte* bytes_ = nullptr;
  const Matrix* under_ = nullptr;
  const Edit* edit_ = nullptr;
  Encoding encoding_;
  int64_t lines_, length_, line_step_ = 0, step_ = 0;
};

// One block: the places [j0, j1) of the lines [i0, i1) of what is quantized, cut off at the edge of the
// tensor.
struct BlockView {
  const Matrix& x;  // rotated, where the line rotates
  const Matrix& unrotated;
  int64_t i0, i1, j0, j1;
  int64_t height, length;  // of a whole block
  double amax() const { return x.amax(i0, i1, j0, j1); }
};

}  // namespace assay
