#include "reference/tensor_core.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "reference/rounding.h"

namespace assay::reference {

namespace {

constexpr int kLeastF32 = -126;
constexpr size_t kMostProducts = 32;

// e with 2^e <= |x| < 2^(e+1), at least `least`. x is not zero.
int exponent_of(double x, int least) {
  int exponent;
  std::frexp(x, &exponent);
  return std::max(exponent - 1, least);
}

}  // namespace

Factor factor_of(double value, int least_exponent) {
  return {value, std::isfinite(value) && value != 0 ? exponent_of(value, least_exponent) : least_exponent};
}

std::vector<Factor> factors_of(std::span<const double> values, int least_exponent) {
  std::vector<Factor> out;
  for (double value : values) out.push_back(factor_of(value, least_exponent));
  return out;
}

double tensor_core_step(const TensorCore& core, std::span<const Factor> a, std::span<const Factor> b,
                        double c) {
  if (a.size() != b.size() || a.size() > static_cast<size_t>(core.length))
    throw std::invalid_argument("reference: too many products for one step");
  double special = c;  // what infinities and NaN of the terms add up to
  int largest = c == 0 || !std::isfinite(c) ? std::numeric_limits<int>::min() : exponent_of(c, kLeastF32);
  std::array<double, kMostProducts> products;  // exact
  for (size_t i = 0; i < a.size(); ++i) {
    const double product = products[i] = a[i].value * b[i].value;
    if (!std::isfinite(product)) special += product;
    else if (product != 0)
      largest =
          std::max(largest, a[i].exponent + b[i].exponent);  // N16.4: the product itself is not normalized
  }
  if (!std::isfinite(special)) return special;
  if (largest == std::numeric_limits<int>::min()) return 0.0;

  const double grid = power_of_two(largest - core.fraction), per_grid = power_of_two(core.fraction - largest);
  int64_t cut = static_cast<int64_t>(c * per_grid);  // N16.4: toward zero, then exact
  for (size_t i = 0; i < a.size(); ++i) cut += static_cast<int64_t>(products[i] * per_grid);
  if (cut == 0) return 0.0;
  const double sum = static_cast<double>(cut) * grid;  // exact: fewer than 53 bits
  const double last = power_of_two(exponent_of(sum, kLeastF32) - core.out_fraction);
  const double kept = std::trunc(sum / last);
  return kept == 0 ? 0.0 : narrowed(kept * last);  // N16.4: narrowed only where it is infinite
}

double tensor_core_chain(const TensorCore& core, std::span<const Factor> a, std::span<const Factor> b,
                         double c) {
  for (size_t k = 0; k < a.size(); k += static_cast<size_t>(core.length)) {
    const size_t n = std::min(static_cast<size_t>(core.length), a.size() - k);
    c = tensor_core_step(core, a.subspan(k, n), b.subspan(k, n), c);  // N16.5
  }
  return c;
}

}  // namespace assay::reference
