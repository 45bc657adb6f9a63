// Where rows and columns cannot come from one tensor, and what that says of the reason.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "compare/diagnosis/diagnosis.h"
#include "contract/problem.h"

namespace assay::coherent {

class ApartElements {
 public:
  explicit ApartElements(Shape shape) : shape_(shape), apart_(static_cast<size_t>(shape.count())) {}

  void mark(int64_t r, int64_t c) { apart_[index(r, c)] = 1; }
  // What an element that is marked tells of the reason: signs and sizes of its value in the rows and in the
  // columns.
  void tell(int64_t r, int64_t c, double row_value, double col_value);

  // Coordinates that tell where the marked elements lie.
  std::vector<Coordinate> where(const Problem& problem) const;
  // "columns stale: 97 % of the elements ...", of `apart` elements that are marked among `of` that were
  // judged.
  std::string verdict(int64_t apart, int64_t of) const;

 private:
  struct Bands;
  size_t index(int64_t r, int64_t c) const { return static_cast<size_t>(r * shape_.cols + c); }
  Bands bands(bool rows) const;
  std::string stale(int share) const;

  Shape shape_;
  std::vector<char> apart_;
  int64_t told_ = 0, opposite_ = 0;    // marked elements with two values; those of opposite signs
  std::array<int64_t, 17> binades_{};  // those whose values lie n binades apart, from -8 to 8
};

}  // namespace assay::coherent
