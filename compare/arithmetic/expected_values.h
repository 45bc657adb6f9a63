// What each code of a quantized direction was rounded from: the element times its multiplier or by its
// divisor, rounded before where N17.3 says so, in the judge's own doubles, and how far the rounded steps of a
// correct side may lie from it. Laws and hints look at it.
#pragma once
#include <optional>
#include <vector>

#include "compare/arithmetic/factors.h"
#include "compare/arithmetic/rotation.h"
#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

struct Scaled {
  double value = 0;
  double slack = 0;  // 0: the value stands exactly as it is
};

// One step of narrowing to binary32: half a unit of v's last place, and half the least subnormal.
double narrowing(double v);

// The multiplier of a direction comes from the side's own scales, so that a wrong scale is one plane's breach
// and not every code's.
class ScaledValues {
 public:
  // `in` and `out` hold the planes of a quantize (of a split's member: as its own line has them). They must
  // outlive this.
  ScaledValues(const Problem& p, Direction d, const std::vector<PlaneData>& in,
               const std::vector<PlaneData>& out);

  // Of stored element (i, j). Nothing where no law says what it must be: a special tensor amax or scale,
  // which clauses decide; columns of the dequantized rows; a rotation whose sums are not exact. Nothing
  // either where `in` and `out`, of a dump, lack a plane that it is made of.
  std::optional<Scaled> at(int64_t i, int64_t j) const;
  // The element of the tensor that this direction quantizes: x, or the rotated x. Nothing as above.
  std::optional<double> element(int64_t i, int64_t j) const;
  // NVFP4: those of the stored row i.
  std::optional<TensorScales> tensor_scales(int64_t i) const;

 private:
  double tensor_amax(int64_t i) const;
  std::optional<Factor> factor(int64_t i, int64_t j) const;

  const Problem& p_;
  const Quantizer& q_;
  Direction d_;
  bool transposed_ = false;
  const PlaneData *x_ = nullptr, *scale_ = nullptr, *amax_ = nullptr, *divisor_ = nullptr;
};

// The scale of stored element (i, j), as an index of the scale plane (N3.12, N6.2, N9.4, N9.6, N10.14,
// N15.4).
int64_t scale_index(const Quantizer& q, const Plane& scales, int64_t i, int64_t j);

}  // namespace assay
