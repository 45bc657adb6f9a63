#include "compare/diagnosis/library/matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "compare/arithmetic/codes.h"

namespace assay {

Matrix::Matrix(const PlaneData& x, Direction d) : bytes_(x.bytes.data()), encoding_(x.plane.encoding) {
  const Shape s = x.plane.logical;
  const bool rows = d == Direction::row;
  lines_ = rows ? s.rows : s.cols;
  length_ = rows ? s.cols : s.rows;
  line_step_ = rows ? s.cols : 1;
  step_ = rows ? 1 : s.cols;
}

Matrix::Matrix(const Matrix& under, const Edit& edit, Encoding encoding)
    : under_(&under), edit_(&edit), encoding_(encoding), lines_(under.lines_), length_(under.length_) {}

uint32_t Matrix::stored(int64_t i, int64_t j) const {
  const std::byte* at = bytes_ + (i * line_step_ + j * step_) * (encoding_ == Encoding::f32 ? 4 : 2);
  if (encoding_ == Encoding::f32) {
    uint32_t code;
    std::memcpy(&code, at, sizeof code);
    return code;
  }
  uint16_t code;
  std::memcpy(&code, at, sizeof code);
  return code;
}

double Matrix::value(int64_t i, int64_t j) const {
  const uint32_t c = code(i, j);
  if (encoding_ == Encoding::f32) return std::bit_cast<float>(c);
  if (encoding_ == Encoding::bf16) return std::bit_cast<float>(c << 16);
  return value_of(encoding_, c);
}

double Matrix::amax(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const {
  double out = 0;
  for (int64_t i = std::max<int64_t>(i0, 0); i < std::min(i1, lines_); ++i)
    for (int64_t j = std::max<int64_t>(j0, 0); j < std::min(j1, length_); ++j)
      if (const double v = std::fabs(value(i, j)); v > out) out = v;  // false for NaN
  return out;
}

uint32_t Matrix::nan_bits() const {
  constexpr uint32_t kInfinity = 0x7F800000, kQuiet = 0x00400000;
  uint32_t out = 0;
  for (int64_t i = 0; i < lines_; ++i)
    for (int64_t j = 0; j < length_; ++j) {
      const uint32_t c = code(i, j);
      uint32_t bits = encoding_ == Encoding::bf16 ? c << 16 & 0x7FFFFFFF : c & 0x7FFFFFFF;
      if (encoding_ == Encoding::f16)
        bits = (c & 0x7FFF) > 0x7C00 ? kInfinity | kQuiet | (c & 0x3FF) << 13 : 0;
      if (bits > kInfinity) out = std::max(out, bits);
    }
  return out;
}

}  // namespace assay
