// Blocks: the elements that share a scale. Everything here sees x contracted along its rows, as row data are;
// what columns make of it is the same on the transpose.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "contract/format.h"
#include "contract/numerics.h"
#include "reference/parallel.h"
#include "reference/tensor.h"

namespace assay::reference {

// x as a direction sees it: contracted along its rows (N1.2, N5.1).
Values seen(const Run&, Direction);
// Where element (row, col) of x stands in what the direction sees.
inline std::pair<int64_t, int64_t> seen_at(Direction d, int64_t row, int64_t col) {
  return d == Direction::row ? std::pair{row, col} : std::pair{col, row};
}

// Rows that share a scale.
constexpr int64_t height_of(Block block) { return is_square(block) ? length_of(block) : 1; }

// The rows [r, r_end) and columns [c, c_end) of one block; fewer than its size at the edge (N5.1, N9.1,
// N10.4).
struct Span {
  int64_t r, c, r_end, c_end;
};
// The block of element (r, c).
Span block_at(const Values& x, int64_t r, int64_t c, Block block);

// max |x| over the block, from +0. A NaN element does not take part, or makes it NaN (N5.1, N5.7, N9.1,
// N10.4).
double block_amax(const Values& x, const Span&, NanAmax);

// What is given for each block of a direction (N17.12): its amax, its scale, or neither.
class GivenBlocks {
 public:
  GivenBlocks(const Run&, Direction);
  // The amax that is given, else that of the elements.
  double amax(const Values& x, const Span&, NanAmax) const;
  // The code of the scale that is given.
  std::optional<uint32_t> scale(const Span&) const;
  // Its plane.
  const ConstBuffer& plane() const { return *plane_; }

 private:
  uint32_t code(const Span&) const;

  Quantizer q_;
  const ConstBuffer* plane_ = nullptr;
};

// Calls on_block(span) for every block of x; bands of blocks in parallel.
template <class OnBlock> void for_blocks(const Values& x, Block block, int threads, OnBlock on_block) {
  const int64_t height = height_of(block), length = length_of(block);
  parallel_for(threads, ceil_div(x.rows(), height), [&](int64_t band) {
    for (int64_t c = 0; c < x.cols(); c += length) on_block(block_at(x, band * height, c, block));
  });
}

// What was made of `seen` as the plane stores it: turned back where columns are not stored transposed (N6.1,
// N6.2).
Bytes as_stored(Bytes made, const Plane&, int threads);

}  // namespace assay::reference
