#include "compare/arithmetic/expansion.h"

#include <cmath>
#include <cstddef>

namespace assay {

void Expansion::add(double value) {
  size_t kept = 0;
  for (double part : parts_) {
    if (std::fabs(value) < std::fabs(part)) std::swap(value, part);
    const double sum = value + part, lost = part - (sum - value);  // exact, since the first is the larger
    if (lost != 0) parts_[kept++] = lost;
    value = sum;
  }
  parts_.resize(kept);
  if (value != 0) parts_.push_back(value);
}

double Expansion::to_binary32() const {
  if (parts_.empty()) return 0;
  double top = parts_.back();
  if (parts_.size() > 1) {
    // The exact sum lies strictly between `top` and a neighbour of it. Of the two doubles around it the one
    // with an odd last digit rounds to 24 bits as the sum does: it is never a tie, nor on the other side of
    // one.
    const double toward = parts_[parts_.size() - 2] > 0 ? HUGE_VAL : -HUGE_VAL;
    int exponent;
    const bool odd = std::fmod(std::ldexp(std::frexp(top, &exponent), 53), 2) != 0;
    if (!odd) top = std::nextafter(top, toward);
  }
  return static_cast<double>(static_cast<float>(top));
}

}  // namespace assay
