#include "reference/tensor_core.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "reference/rounding.h"

namespace assay::reference {

namespace {

constexpr int kLeastF32 = -126;

// e with 2^e <= |x| < 2^(e+1), at least `least`. x is not zero.
int exponent_of(double x, int least) {
  int exponent;
  std::frexp(x, &exponent);
  return std::max(exponent - 1, least);
}

struct Term {
  double value;   // exact
  int exponent;   // of its operands together: the product itself is not normalized
};

}  // namespace

double tensor_core_step(const TensorCore& core, std::span<const double> a, std::span<const double> b, double c) {
  if (a.size() != b.size() || a.size() > static_cast<size_t>(core.length)) throw std::invalid_argument("reference: too many products for one step");
  double special = c;                                                        // what infinities and NaN of the terms add up to
  std::vector<Term> terms;
  terms.reserve(a.size() + 1);
  for (size_t i = 0; i < a.size(); ++i) {
    const double product = a[i] * b[i];
    if (!std::isfinite(product)) special += product;
    else if (product != 0) terms.push_back({product, exponent_of(a[i], core.least_exponent) + exponent_of(b[i], core.least_exponent)});
  }
  if (!std::isfinite(special)) return special;
  if (c != 0) terms.push_back({c, exponent_of(c, kLeastF32)});
  if (terms.empty()) return 0.0;

  int largest = terms[0].exponent;
  for (const Term& t : terms) largest = std::max(largest, t.exponent);
  const double grid = power_of_two(largest - core.fraction);
  int64_t cut = 0;
  for (const Term& t : terms) cut += static_cast<int64_t>(std::trunc(t.value / grid));   // N11.3: toward zero, then exact
  if (cut == 0) return 0.0;
  const double sum = static_cast<double>(cut) * grid;                        // exact: fewer than 53 bits
  const double last = power_of_two(exponent_of(sum, kLeastF32) - core.out_fraction);
  return narrowed(std::trunc(sum / last) * last);                            // N11.3: narrowed only where it is infinite
}

}  // namespace assay::reference
