// What all elements of a step of Adam share, made once on the host: kernels see binary32 alone (N19.1).
#pragma once
#include <bit>
#include <cmath>

#include "contract/problem.h"
#include "fast/lane/adam.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// beta^step as a pair of binary64 whose sum is nearer to it than one of them could be: repeated squaring,
// where each product keeps what its rounding lost.
struct TwoDoubles {
  double high = 1, low = 0;
};
inline TwoDoubles product(TwoDoubles a, TwoDoubles b) {
  const double high = a.high * b.high,
               low = std::fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high), sum = high + low;
  return {sum, low - (sum - high)};
}
// N19.1.
inline float bias_correction(float beta, int step) {
  TwoDoubles power, square{beta, 0};
  for (int n = step; n != 0; n >>= 1) {
    if (n & 1) power = product(power, square);
    square = product(square, square);
  }
  return float(1.0 - power.high);
}

inline AdamNumbers numbers_of(const Adam& op) {
  AdamNumbers n;
  n.lr = std::bit_cast<float>(op.lr), n.beta1 = std::bit_cast<float>(op.beta1),
  n.beta2 = std::bit_cast<float>(op.beta2);
  n.eps = std::bit_cast<float>(op.eps), n.decay = std::bit_cast<float>(op.decay);
  n.rest1 = 1.0f - n.beta1, n.rest2 = 1.0f - n.beta2;
  n.l2 = op.decoupling == WeightDecay::l2;
  if (!op.bias_correction) return n;
  n.c1 = bias_correction(n.beta1, op.step), n.c2 = bias_correction(n.beta2, op.step);
  return n;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
