// The scale rule that a quantizer with current scaling asks for. `source`: x's encoding.
#pragma once
#include "contract/problem.h"
#include "fast/lane/fp8_current.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

inline CurrentScale current_scale(const Quantizer& q, Encoding source) {
  CurrentScale rule;
  rule.largest = q.element == Encoding::e4m3 ? kLargest<Encoding::e4m3> : kLargest<Encoding::e5m2>;
  rule.eps = q.eps;
  rule.pow2 = q.pow2;
  rule.inf_amax = q.numerics.inf_amax;
  if (q.numerics.scale_limit == ScaleLimit::source_max && source != Encoding::f32)  // N3.5
    rule.limit = source == Encoding::bf16 ? kLargest<Encoding::bf16> : kLargest<Encoding::f16>;
  rule.order = q.numerics.scale_order;
  rule.quotient = ScaleQuotient::of(q, source);
  rule.zero_divides = q.numerics.zero_amax == ZeroAmax::divided;
  if (q.numerics.zero_amax == ZeroAmax::epsilon)  // 2^-7, 2^-10, 2^-23
    rule.epsilon = source == Encoding::bf16  ? 0x3C000000u
                   : source == Encoding::f16 ? 0x3A800000u
                                             : 0x34000000u;
  return rule;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
