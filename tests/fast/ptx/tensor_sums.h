// The sum of one step of a tensor core in binary64, in which each cut and each sum of the tests is exact, and
// values of the small formats by their fields.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace assay::ptx {

struct StepRule {
  int least_a, least_b;          // exponents of the least normal values
  int unit = 25, fraction = 23;  // bits below the largest exponent; of the sum
};

inline uint32_t sum_in_binary64(const StepRule& rule, const std::vector<double>& a,
                                const std::vector<double>& b, float c) {
  const auto exponent = [](double v, int least) { return std::max(std::ilogb(v), least); };
  int largest = c != 0 ? exponent(c, -126) : -100000;
  for (size_t k = 0; k < a.size(); ++k)
    if (a[k] != 0 && b[k] != 0)
      largest = std::max(largest, exponent(a[k], rule.least_a) + exponent(b[k], rule.least_b));
  if (largest == -100000) return 0;
  double sum = std::trunc(std::ldexp(static_cast<double>(c), rule.unit - largest));
  for (size_t k = 0; k < a.size(); ++k) sum += std::trunc(std::ldexp(a[k] * b[k], rule.unit - largest));
  if (sum == 0) return 0;
  const int e = std::max(std::ilogb(sum) + largest - rule.unit, -126);
  const double cut = std::trunc(std::ldexp(sum, largest - rule.unit - (e - rule.fraction)));
  const double v = std::ldexp(cut, e - rule.fraction);
  if (std::fabs(v) >= 0x1p128) return v < 0 ? 0xFF800000u : 0x7F800000u;
  return v == 0 ? 0 : std::bit_cast<uint32_t>(static_cast<float>(v));  // N16.4: +0
}

// A format by its fraction bits and its bias. E4M3 has no infinities, and NaN in the largest code alone.
struct CodeFormat {
  unsigned bits, fraction;
  int bias;
  bool infinities = true;
  int least() const { return 1 - bias; }
  double value(uint32_t code) const {
    const uint32_t most = (1u << (bits - 1 - fraction)) - 1, exponent = code >> fraction & most,
                   f = code & ((1u << fraction) - 1);
    double v = std::ldexp(exponent ? f + std::ldexp(1, static_cast<int>(fraction)) : f,
                          static_cast<int>(exponent ? exponent : 1) - bias - static_cast<int>(fraction));
    if (infinities && exponent == most) v = f ? std::nan("") : std::numeric_limits<double>::infinity();
    if (!infinities && exponent == most && f == (1u << fraction) - 1) v = std::nan("");
    return code >> (bits - 1) & 1 ? -v : v;
  }
};

}  // namespace assay::ptx
