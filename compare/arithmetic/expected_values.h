// What each code of a quantized direction was rounded from: the element times its multiplier or by its divisor, rounded before where N17.3 says so, in the judge's own doubles,
// and how far the rounded steps of a correct side may lie from it. Laws and hints look at it.
#pragma once
#include <optional>
#include <vector>

#include "compare/arithmetic/rotation.h"
#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

struct Scaled {
  double value = 0;
  double slack = 0;     // 0: the value stands exactly as it is
};

// One step of narrowing to binary32: half a unit of v's last place, and half the least subnormal.
double narrowing(double v);

// The divisions between an amax and its scales (N17.14), each step rounded as binary32 rounds.
class Division {
 public:
  Division(const Quantizer& q, Encoding source) : rule_(q.numerics.scale_division), source_(source) {}
  double encode(double most, double amax) const;   // MAX or F * 6 over the amax (N3.3, N10.2)
  double decode(double amax, double most) const;   // and the other way round (N17.5, N17.8)
  double rounded(double quotient) const;           // of fl(1 / scale), fl(b / 6)

 private:
  ScaleDivision rule_;
  Encoding source_;
};

// S and P of NVFP4 (N10.2, N17.8).
struct TensorScales {
  double encode = 1, decode = 1;
};
// Nothing where the amax is no ordinary number, for clauses decide then.
std::optional<TensorScales> tensor_scales(double amax, const Quantizer&, Encoding source);
// Whether the rules that q has read P.
bool reads_decode(Nvfp4Scale);
bool reads_decode(Multiplier);

// The multiplier of a direction comes from the side's own scales, so that a wrong scale is one plane's breach and not every code's.
class ScaledValues {
 public:
  // `in` and `out` hold the planes of a quantize (of a split's member: as its own line has them). They must outlive this.
  ScaledValues(const Problem& p, Direction d, const std::vector<PlaneData>& in, const std::vector<PlaneData>& out);

  // Of stored element (i, j). Nothing where no law says what it must be: a special tensor amax or scale, which clauses decide; columns of the
  // dequantized rows; a rotation whose sums are not exact.
  std::optional<Scaled> at(int64_t i, int64_t j) const;
  // The element of the tensor that this direction quantizes: x, or the rotated x. Nothing as above.
  std::optional<double> element(int64_t i, int64_t j) const;
  // NVFP4: those of the stored row i.
  std::optional<TensorScales> tensor_scales(int64_t i) const;

 private:
  struct Factor {
    double value = 0, slack = 0;      // slack: relative for a divisor
    bool divides = false;
  };
  std::optional<Factor> factor(int64_t i, int64_t j) const;
  std::optional<Factor> nvfp4_factor(int64_t i, uint32_t code, double scale) const;

  const Problem& p_;
  const Quantizer& q_;
  Direction d_;
  bool transposed_ = false;
  const PlaneData *x_ = nullptr, *scale_ = nullptr, *amax_ = nullptr, *divisor_ = nullptr;
};

// The scale of stored element (i, j), as an index of the scale plane (N3.12, N6.2, N9.4, N9.6, N10.14, N15.4).
int64_t scale_index(const Quantizer& q, const Plane& scales, int64_t i, int64_t j);

}  // namespace assay
