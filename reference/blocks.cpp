#include "reference/blocks.h"

#include "reference/rounding.h"
#include "reference/scaling.h"

namespace assay::reference {

Values seen(const Run& run, Direction d) {
  Values x = values(run.input("x"), run.threads);                            // N1.2
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
      if (nan_amax == NanAmax::propagate && std::isnan(element)) return kNaN;   // N5.7
      amax = larger(amax, element);                                          // N5.1
    }
  return amax;
}

Bytes as_stored(Bytes made, const Plane& plane, int threads) {
  return plane.direction == Direction::col && !plane.transposed ? transposed(made, threads) : made;
}

}  // namespace assay::reference
