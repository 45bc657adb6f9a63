// What an FP8 or NVFP4 scale is before its special cases: MAX over an amax, or an amax over MAX, by one
// division, by way of a reciprocal, or rounded to x's encoding after every operation (N17.14).
#pragma once
#include "contract/problem.h"
#include "fast/lane/decode.cuh"
#include "fast/lane/encode.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct ScaleQuotient {
  ScaleDivision by{};
  Encoding narrow = Encoding::f32;  // what the result of every operation is rounded to: f32, bf16 or f16

  static ScaleQuotient of(const Quantizer& q, Encoding source) {
    const ScaleDivision by = q.numerics.scale_division;
    return {by, by == ScaleDivision::in_source ? source : Encoding::f32};
  }
  ASSAY_LANE float rounded(float v) const {
    const uint32_t bits = as_bits(v);
    if (narrow == Encoding::bf16)
      return as_float(decode<Encoding::bf16>(encode<Encoding::bf16>(bits, Round::rne, Overflow::nosat)));
    if (narrow == Encoding::f16)
      return as_float(decode<Encoding::f16>(encode<Encoding::f16>(bits, Round::rne, Overflow::nosat)));
    return v;
  }
  ASSAY_LANE float reciprocal(float v) const { return rounded(__frcp_rn(v)); }
  // largest / a (N3.3, N10.2).
  ASSAY_LANE float over_amax(float largest, float a) const {
    return by == ScaleDivision::divide ? __fdiv_rn(largest, a) : rounded(__fmul_rn(largest, reciprocal(a)));
  }
  // a / largest (N17.5, N17.8).
  ASSAY_LANE float of_amax(float a, float largest) const {
    return by == ScaleDivision::reciprocal ? __fmul_rn(a, __frcp_rn(largest))
                                           : rounded(__fdiv_rn(a, largest));
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
