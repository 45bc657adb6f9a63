// The arithmetic of a gemm beside its operands': one product after the other, and what becomes of their sum
// (N16.2, N16.8, N16.9).
#pragma once
#include "fast/lane/layout.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Two operations, never a fused one.
ASSAY_LANE float accumulate(float acc, float a, float b) { return __fadd_rn(acc, __fmul_rn(a, b)); }

// The amaxes that the sum left out, of a row of a and of a row of b (N16.9).
enum class RowScaled : uint8_t { none, one, both };
ASSAY_LANE float times_amaxes(RowScaled rows, float v, float a, float b) {
  if (rows == RowScaled::none) return v;
  return rows == RowScaled::both ? __fmul_rn(__fmul_rn(v, b), a) : __fmul_rn(v, __fmul_rn(a, b));
}

// N16.8, before the cast. What is absent is no operation: adding a zero would lose the sign of another.
struct GemmEpilogue {
  float alpha = 1, beta = 0;
  bool multiplies = false, adds_c = false, adds_bias = false;
  ASSAY_LANE float operator()(float v, float c, float bias) const {
    if (multiplies) v = __fmul_rn(v, alpha);
    if (adds_c) v = __fadd_rn(v, __fmul_rn(beta, c));
    if (adds_bias) v = __fadd_rn(v, bias);
    return v;
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
