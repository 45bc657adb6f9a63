// Ranges of a coordinate: of rows or columns themselves, or of a way to read them such as `column % 32`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace assay::patterns {

// Elements that differ and all elements, by the value of one coordinate.
struct Counts {
  std::vector<int64_t> differ, of;
  explicit Counts(size_t n) : differ(n), of(n) {}
};

// One way to read a coordinate of the tensor: v / divisor % modulus; a modulus of 0 takes none.
struct Reading {
  int64_t divisor = 1, modulus = 0;
  int64_t operator()(int64_t v) const { return modulus ? v / divisor % modulus : v / divisor; }
};

// A range of readings of one axis, or everything but it.
struct Band {
  bool rows = false, complement = false;
  Reading reading;
  int64_t from = 0, to = 0;  // inclusive
  bool contains(int64_t v) const {
    const int64_t k = reading(v);
    return (k >= from && k <= to) != complement;
  }
};

// Readings that kernels and layouts have: single coordinates, positions in vectors, blocks and tiles, lanes
// of a warp with 2 to 16 elements each, groups taken in turn.
std::span<const Reading> readings();

Counts by_reading(const Counts& by_value, Reading reading);

// The range whose elements differ most beyond what the whole would give, by the largest sum of excess. With
// `lowest` the range that differs least, as everything but it.
Band best_band(const Counts& by_class, double rate, bool lowest);

// "column % 32 == 31". `n` coordinates cover `length` elements of the tensor, `step` elements from one to the
// next; `block`: coordinates of one block.
std::string band_text(Band band, int64_t n, int64_t block, int64_t step, int64_t length);

}  // namespace assay::patterns
