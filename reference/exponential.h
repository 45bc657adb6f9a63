// e^x of a non-positive binary32 value, correctly rounded, and 2^(x log2 e) as a kernel computes it (N20.8).
#pragma once
#include "contract/problem.h"

namespace assay::reference {

// fl(e^x). x is 0 or negative, -infinity or NaN.
double exact_exponential(double x);
// x times fl(log2 e), rounded; then 2 to that power, correctly rounded. Subnormal factors and results are +0.
double exponential_of_two(double x);

inline double exponential(ExpRule rule, double x) {
  return rule == ExpRule::exact ? exact_exponential(x) : exponential_of_two(x);
}

}  // namespace assay::reference
