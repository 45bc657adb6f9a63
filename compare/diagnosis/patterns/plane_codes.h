// The codes of one plane as they came and as they are wanted, and the values from which data codes were
// rounded.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay::patterns {

// The logical elements of a plane, row by row.
struct PlaneCodes {
  int64_t rows = 0, cols = 0;
  std::vector<uint32_t> got, want;
  std::vector<size_t> differ;  // flat indices

  PlaneCodes(const PlaneData& got, const PlaneData& want);
  int64_t row(size_t i) const { return static_cast<int64_t>(i) / cols; }
  int64_t col(size_t i) const { return static_cast<int64_t>(i) % cols; }
};

// Whether ScaledValues (compare/arithmetic/expected_values.h) finds what it reads.
bool can_scale(const Problem& problem, const Plane& plane, const std::vector<PlaneData>& inputs,
               const std::vector<PlaneData>& outputs);

// Where |v| stands between its two neighbours in the encoding: 0 on the lower one, 1/2 halfway. Nothing where
// |v| is not below `most`, the largest value.
std::optional<double> between_codes(Encoding e, double most, double v);

}  // namespace assay::patterns
