// LayerNorm and RMSNorm, forward and backward, in binary32 with sums from left to right. Inputs are widened
// exactly; results are float32 and not rounded: a fused norm + quantize kernel of delayed scaling quantizes
// these, everything else first rounds them to the module's dtype (Session's cast). Source: TE
// common/normalization. The order of sums is Assay's own (the kernels' depends on their tiling), so this is
// shared code: docs/independence.md.
#pragma once
#include "training/base/array.h"
#include "training/base/session.h"

namespace assay::training {

enum class Norm : uint8_t { LayerNorm, RMSNorm };
std::string_view name_of(Norm);

struct NormSettings {
  Norm norm = Norm::LayerNorm;
  float eps = 1e-5f;
  bool zero_centered_gamma = false;  // the scale is gamma + 1
};

// What forward leaves for backward: statistics of each row, float32 [M]; `mean` is null for RMSNorm.
struct NormForward {
  ArrayPtr out;  // as x
  ArrayPtr mean, rsigma;
};
// With x [..., K], gamma [K] and, for LayerNorm, beta [K] (null: none), for each row:
//   LayerNorm  mean = sum(x) / K, var = sum((x - mean)^2) / K, rsigma = 1 / sqrt(var + eps), out = (x - mean)
//              * rsigma * gamma + beta
//   RMSNorm    rsigma = 1 / sqrt(sum(x^2) / K + eps), out = x * rsigma * gamma
// Special values follow from the operations: a NaN or an infinity makes its row NaN.
NormForward norm_forward(Session&, const NormSettings&, const ArrayPtr& x, const ArrayPtr& gamma,
                         const ArrayPtr& beta);

struct NormBackward {
  ArrayPtr dx;             // as x
  ArrayPtr dgamma, dbeta;  // [K]; dbeta is null for RMSNorm
};
// Gradients for the gradient `dz` of the output. With y = (x - mean) * rsigma and g = dz * gamma:
//   dx = rsigma * (g - (mean(g * y) * y + mean(g))), without the last term for RMSNorm; dgamma, dbeta are
//   sums over rows, top to bottom.
NormBackward norm_backward(Session&, const NormSettings&, const ArrayPtr& dz, const ArrayPtr& x,
                           const ArrayPtr& gamma, const NormForward& saved);

}  // namespace assay::training
