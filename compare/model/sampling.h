// Counts of a large tensor from those of smaller ones of the same tile pattern.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"

namespace assay::model {

// A tensor of at most so many elements is counted whole.
inline constexpr int64_t kCountedWhole = int64_t{16} << 20;

// How large the tensors are that are counted: `large` where the counts of `small` are not straight.
enum class Sample : uint8_t { small, large };

// The lines to count for `p`: itself where it is small; else three of other shapes, whose rows and columns
// leave the remainders of the line's by 256. The last two are a base and one of twice its rows; the first has
// twice the columns, or half as many rows more where the line has few columns. The base has so many columns
// and rows that neighbours in a plane of scales lie in different lines of memory, as in larger tensors, and
// so many elements that a grid of a fixed number of blocks is full. Where rows cannot change (the members of
// a split), the columns alone do. Error: the op's shape cannot be changed, so that the line is too large to
// be counted.
Result<std::vector<Problem>> sample_lines(const Problem& p, Sample sample = Sample::small);

// Counts by name of one launch.
using Totals = std::map<std::string, double, std::less<>>;

// One size that was counted.
struct SizedTotals {
  double elements = 0;
  Totals totals;
};

struct Extrapolated {
  Totals totals;
  double departure = 0;   // the largest relative departure of a counted size from the straight line
  std::string departing;  // the count that has it
};

// The counts of a tensor of `elements` elements, from the straight line through the last two sizes; the sizes
// before them prove it. One size alone is taken as it is. Counts of at most a thousandth of the launch's
// instructions of warps prove nothing and are not held to the line.
Extrapolated extrapolated(const std::vector<SizedTotals>& sizes, double elements);

}  // namespace assay::model
