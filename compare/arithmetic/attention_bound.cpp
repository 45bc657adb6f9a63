#include "compare/arithmetic/attention_bound.h"

#include <limits>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"

namespace assay {

namespace {

constexpr double kOpen = std::numeric_limits<double>::infinity();

// Half a step, relative to the least value that has it, and half the least step.
double half_step(Encoding e) { return std::ldexp(1.0, -info(e).mantissa_bits - 1); }
double half_least(Encoding e) { return value_of(e, 1) / 2; }

}  // namespace

NominalRounding::NominalRounding(Encoding n) : half_(half_step(n)), least_(half_least(n)), limit_(0) {
  const double most = value_of(n, info(n).max_finite);
  int exponent;
  std::frexp(most, &exponent);
  limit_ = most + std::ldexp(half_, exponent - 1);
}

void BoundedSum::add(double a, double a_off, double b, double b_off) {
  value = f32_of(value + f32_of(a * b));
  nan = nan || std::isnan(a) || std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) {
    // Any number but 0 times an infinity is one.
    if ((a_off != 0 && std::fabs(a) <= a_off) || (b_off != 0 && std::fabs(b) <= b_off)) off = kOpen;
    infinite = true;
    return;
  }
  magnitude += std::fabs(a * b);
  off += a_off * (std::fabs(b) + b_off) + std::fabs(a) * b_off;
}

double BoundedSum::error(double share) const {
  if (nan || (infinite && std::isfinite(off))) return 0;
  if (!std::isfinite(value) || std::isnan(off)) return kOpen;
  return off + share * (magnitude + off);
}

double KernelCast::largest() const {
  return value_of(element, info(element).max_finite) * std::fabs(inverse);
}

double KernelCast::off(double x, double off, double now, const NominalRounding& n) const {
  const double size = std::fabs(x), most = largest(), sign = std::copysign(1.0, x);
  if (std::isnan(x) || (std::isinf(x) && off == 0)) return 0;  // claimed as it is
  if (!std::isfinite(off) || !std::isfinite(now) || !std::isfinite(most)) return kOpen;
  // What is not cast yet, once it saturates: of S, of an exponential, or of whichever the kernel casts.
  double high = std::min(size, most), low = high;
  if (exponentials) {
    high = computed ? size : std::max(high, keep_factor * std::min(size / keep_factor, most));
    if (!computed) low = std::min(low, size * std::min(1.0, most));
  }
  const double away = std::max(std::fabs(now - sign * high), std::fabs(now - sign * low));
  if (off == 0 && away == 0 && low == size) return 0;
  double least = half_least(element) * std::fabs(inverse);
  if (exponentials) {
    const double of_kernel = computed ? 1 / value_of(element, info(element).max_finite) : std::fabs(inverse);
    least = std::max(least, half_least(element) * of_kernel * keep_factor / total);
  }
  // Rounding to nearest changes nothing by more than itself: to n, and then to a code.
  const double all = high + off, to_n = std::min(n.step(high, off), all);
  return away + off + to_n + std::min(half_step(element) * all + least, all + to_n);
}

}  // namespace assay
