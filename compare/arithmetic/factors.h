// From an amax to its scales, and from a stored scale to what elements are multiplied by (N3, N5.4, N9, N10,
// N17), in the judge's own arithmetic. Everything is here twice on purpose. The exact forms take the steps
// that the line's Numerics name, each rounded as binary32 rounds. The forms with slack say how far the
// rounded steps of any correct side may lie from a value, and nothing where clauses about special values
// decide.
#pragma once
#include <optional>

#include "contract/encoding.h"
#include "contract/planes.h"
#include "contract/problem.h"

namespace assay {

// The divisions between an amax and its scales (N17.14), each step rounded as binary32 rounds.
class Division {
 public:
  Division(const Quantizer& q, Encoding source) : rule_(q.numerics.scale_division), source_(source) {}
  double encode(double most, double amax) const;  // MAX or F * 6 over the amax (N3.3, N10.2)
  double decode(double amax, double most) const;  // and the other way round (N17.5, N17.8)
  double rounded(double quotient) const;          // of fl(1 / scale), fl(b / 6)

 private:
  ScaleDivision rule_;
  Encoding source_;
};

// ---- the scales of an NVFP4 tensor ----

// 448 * 6, or 256 * 6: what the tensor scale maps the amax to (N10.2, N10.13).
double full_range(const Quantizer& q);
// N10.2: S of any amax, special ones included.
float encode_scale(const Quantizer& q, float amax, Encoding source);

// S and P (N10.2, N17.8).
struct TensorScales {
  double encode = 1, decode = 1;
};
// Nothing where the amax is not an ordinary number.
std::optional<TensorScales> tensor_scales(double amax, const Quantizer& q, Encoding source);
// Whether the rules that q has read P.
bool reads_decode(Nvfp4Scale rule);
bool reads_decode(Multiplier rule);
// Whether elements are divided, not multiplied.
bool divides_elements(Multiplier rule);
// N17.10: what elements under a scale of 0 are multiplied by, where it is not the limit.
float zero_scale_multiplier(ZeroMultiplier rule);
// Whether a product that is inverted, s / S or s P, is infinite in binary32, so that the multiplier is 0
// (N10.8, N17.10); under given_product it may be. Nothing where it is infinite or nearly so.
std::optional<bool> inverts_infinity(Multiplier rule, double product);
// N17.15: the distance from 1 to the next value.
double source_epsilon(Encoding source);

// ---- what elements are multiplied by, or divided by ----

struct Factor {
  double value = 1;
  bool divides = false;
  double slack = 0;   // 0 of an exact one; relative for a divisor
  double before = 1;  // with `divides`: a divisor that comes first, a step of its own (N17.10)
};

// The factor of a block from what is stored of its scale, and the value that is cast.
class Factors {
 public:
  // Both must outlive this.
  Factors(const Quantizer& q, Encoding source) : q_(q), source_(source) {}

  // `amax` and `tensor_amax` are read where the format needs them; `scale` is that of a per-tensor format.
  Factor of(uint32_t scale_code, Encoding scales, double amax, double tensor_amax, double scale) const;
  // What is cast: narrowed once, perhaps rounded again (N17.3).
  double scaled(double x, const Factor& f) const;

 private:
  Factor fp8_block(double scale_inv, double amax) const;
  Factor nvfp4(float scale, float tensor_amax) const;

  const Quantizer& q_;
  Encoding source_;
};

// The factor that a stored scale code stands for, with slack. `tensor_amax` is read for NVFP4. Nothing where
// no law says what it must be.
std::optional<Factor> factor_within(const Quantizer& q, Encoding source, const Plane& scales, uint32_t code,
                                    double tensor_amax);

}  // namespace assay
