#include "reference/blocks.h"

#include "reference/rounding.h"
#include "reference/scaling.h"

namespace assay::reference {

Values seen(const Run& run, Direction d) {
  Values x = values(run.input("x"), run.threads);  // N1.2
  return d == Direction::col ? transposed(x, run.threads) : x;
}

Span block_at(const Values& x, int64_t r, int64_t c, Block block) {
  const int64_t height = height_of(block), length = length_of(block);
  const int64_t top = r / height * height, left = c / length * length;
  return {top, left, std::min<int64_t>(top + height, x.rows()), std::min<int64_t>(left + length, x.cols())};
}

double block_amax(const Values& x, const Span& s, NanAmax nan_amax) {
  double amax = 0;
  for (int64_t r = s.r; r < s.r_end; ++r)
    for (int64_t c = s.c; c < s.c_end; ++c) {
      const double element = x.coeff(r, c);
      if (nan_amax == NanAmax::propagate && std::isnan(element)) return kNaN;  // N5.7
      amax = larger(amax, element);                                            // N5.1
    }
  return amax;
}

GivenBlocks::GivenBlocks(const Run& run, Direction d) : q_(run.quantizer(d)) {
  if (q_.scale_from != ScaleFrom::x)
    plane_ = &run.input(d, q_.scale_from == ScaleFrom::amax ? "given.block_amax" : "given.scale_inv");
}

uint32_t GivenBlocks::code(const Span& s) const {
  const Plane& plane = *plane_->plane;
  const FormatInfo& format = info(q_.format);
  const bool fp8_block = format.family == Family::fp8_block,
             as_is = format.column_data == ColumnData::as_is && plane.direction == Direction::col;
  const int64_t row = fp8_block ? s.r / height_of(q_.block) : s.r,
                block = s.c / length_of(q_.block);  // N17.12: the first of a square block's entries
  // As the scales of these formats lie (N9.4, N6.2); else a row of blocks for each stored row.
  const bool block_major = (fp8_block && !is_square(q_.block)) || as_is;
  return load(*plane_, block_major ? block * plane.logical.cols + row : row * plane.logical.cols + block);
}

double GivenBlocks::amax(const Values& x, const Span& s, NanAmax nan_amax) const {
  return q_.scale_from == ScaleFrom::amax ? value_of(Encoding::f32, code(s))
                                          : block_amax(x, s, nan_amax);  // N17.12
}

std::optional<uint32_t> GivenBlocks::scale(const Span& s) const {
  if (q_.scale_from != ScaleFrom::scale) return std::nullopt;
  return code(s);  // N17.12
}

Bytes as_stored(Bytes made, const Plane& plane, int threads) {
  if (plane.direction == Direction::col && !plane.transposed) return transposed(made, threads);
  return made;
}

}  // namespace assay::reference
