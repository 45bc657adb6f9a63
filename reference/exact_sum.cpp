#include "reference/exact_sum.h"

#include <cmath>

#include "reference/rounding.h"

namespace assay::reference {

namespace {

constexpr int64_t kBase = int64_t{1} << 32;  // of a digit

}  // namespace

void ExactSum::add(double value) {
  int exponent;
  std::frexp(value, &exponent);  // below 2^exponent
  for (int k = (exponent - 1 - kLeast) / kDigitBits; value != 0; --k) {
    const double weight = power_of_two(kLeast + kDigitBits * k);
    const int64_t digit = static_cast<int64_t>(value / weight);  // toward zero; below 2^32 in magnitude
    digits_[static_cast<size_t>(k)] += digit;
    value -= static_cast<double>(digit) * weight;  // exact: the lower bits of value
  }
}

double ExactSum::rounded() const {
  std::array digits = digits_;
  const auto settle = [&digits] {  // every digit but the last into [0, 2^32)
    for (size_t k = 0; k + 1 < digits.size(); ++k) {
      const int64_t carry = (digits[k] - (digits[k] % kBase + kBase) % kBase) / kBase;
      digits[k] -= carry * kBase;
      digits[k + 1] += carry;
    }
  };
  settle();
  const bool negative = digits.back() < 0;
  if (negative) {
    for (int64_t& digit : digits) digit = -digit;
    settle();
  }
  size_t top = digits.size() - 1;
  while (top > 0 && digits[top] == 0) --top;
  // The two highest digits from the first that is not zero have at least 33 significant bits, and at most 53
  // of these are kept. A rest below them makes the last bit one: a number that is odd so far down rounds to
  // 24 bits as the whole does, and is never taken for a tie.
  uint64_t high = static_cast<uint64_t>(digits[top]);
  int exponent = kLeast + kDigitBits * static_cast<int>(top);
  bool rest = false;
  if (top > 0) {
    high = high * kBase + static_cast<uint64_t>(digits[top - 1]);
    exponent -= kDigitBits;
  }
  for (size_t k = 0; k + 1 < top; ++k) rest |= digits[k] != 0;
  for (; high >= uint64_t{1} << 53; high /= 2, ++exponent) rest |= high % 2 != 0;
  if (rest && high % 2 == 0) ++high;
  const double value = narrowed(static_cast<double>(high) * power_of_two(exponent));
  return negative ? -value : value;
}

}  // namespace assay::reference
