// One element of a step of Adam on binary32 patterns (N19). Every operation is pinned: none is contracted,
// none is approximate.
#pragma once
#include "fast/lane/layout.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// What all elements of a step share.
struct AdamNumbers {
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, decay = 0;
  float rest1 = 1, rest2 = 1;  // 1 - beta
  float c1 = 1, c2 = 1;        // bias corrections (N19.1)
  bool l2 = false;
};

struct AdamElement {
  float g = 0, p = 0, m = 0, v = 0;
};

// a * b + c: two operations, or one (N19.2).
template <bool kFused> ASSAY_LANE float product_and_sum(float a, float b, float c) {
  if constexpr (kFused) return __fmaf_rn(a, b, c);
  else return __fadd_rn(__fmul_rn(a, b), c);
}

// The element after the step; its g is the gradient with its decay.
template <bool kFused> ASSAY_LANE AdamElement adam_step(const AdamNumbers& n, AdamElement e) {
  if (n.l2) e.g = product_and_sum<kFused>(n.decay, e.p, e.g);                            // N19.3
  e.m = product_and_sum<kFused>(n.beta1, e.m, __fmul_rn(n.rest1, e.g));                  // N19.2
  e.v = product_and_sum<kFused>(n.beta2, e.v, __fmul_rn(__fmul_rn(n.rest2, e.g), e.g));  // N19.2
  const float root = __fsqrt_rn(__fdiv_rn(e.v, n.c2));
  float update = __fdiv_rn(__fdiv_rn(e.m, n.c1), __fadd_rn(root, n.eps));       // N19.4
  if (!n.l2) update = product_and_sum<kFused>(n.decay, e.p, update);            // N19.3
  e.p = product_and_sum<kFused>(as_float(as_bits(n.lr) ^ kSign), update, e.p);  // N19.4
  return e;
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
