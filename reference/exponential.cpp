#include "reference/exponential.h"

#include <cmath>

#include "reference/rounding.h"

namespace assay::reference {

namespace {

// `near` is within two last places of binary64 of the value. Narrowing it is right unless a midpoint of
// binary32 lies so near that the value may be on its other side; then `again`, of more bits, decides.
template <class Again> double narrowed_once(double near, Again again) {
  constexpr double kReach = 0x1p-51;
  const double low = narrowed(near - near * kReach), high = narrowed(near + near * kReach);
  return low == high ? low : static_cast<double>(static_cast<float>(again()));
}

}  // namespace

double exact_exponential(double x) {
  if (std::isnan(x)) return kNaN;
  if (x < -104) return 0;  // e^-104 is below 2^-150, half of the least subnormal value
  return narrowed_once(std::exp(x), [x] { return std::exp(static_cast<long double>(x)); });
}

double exponential_of_two(double x) {
  if (std::isnan(x)) return kNaN;
  constexpr double kLog2E = 0x1.715476p+0, kLeastNormal = 0x1p-126;
  double t = narrowed(x * kLog2E);
  if (std::abs(t) < kLeastNormal) t = 0;
  if (t < -127) return 0;
  const double y = narrowed_once(std::exp2(t), [t] { return std::exp2(static_cast<long double>(t)); });
  return y < kLeastNormal ? 0 : y;
}

}  // namespace assay::reference
