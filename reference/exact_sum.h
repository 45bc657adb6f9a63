// A sum without rounding: products of binary32 values, rounded once at the end.
#pragma once
#include <array>
#include <cstdint>

namespace assay::reference {

// A number as digits of 32 bits, of which carries are settled only when it is read. Holds at least 2^30
// terms.
class ExactSum {
 public:
  // A finite value that is a multiple of 2^-298 and below 2^257: any product of two binary32 values.
  void add(double value);
  // The sum rounded once to binary32, to nearest even; +0 for a sum of zero, infinity where it overflows.
  double rounded() const;

 private:
  static constexpr int kLeast = -298, kDigitBits = 32, kDigits = 20;
  std::array<int64_t, kDigits> digits_{};  // digit k weighs 2^(kLeast + 32 k)
};

}  // namespace assay::reference
