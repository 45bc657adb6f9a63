// A sum of doubles that loses nothing, in the judge's own arithmetic: Shewchuk's expansions. Neither side's
// code is used.
#pragma once
#include <vector>

namespace assay {

// The sum so far as doubles that do not overlap, the smallest first.
class Expansion {
 public:
  // A finite value. The sum of all magnitudes stays below 2^1000, and every value is a multiple of 2^-1000.
  void add(double value);
  // The sum rounded once to binary32, ties to even: +0 for a sum of zero, infinity where it overflows.
  double to_binary32() const;

 private:
  std::vector<double> parts_;
};

}  // namespace assay
