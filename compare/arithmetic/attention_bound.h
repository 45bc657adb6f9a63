// What a kernel whose bits are not pinned may add to the distance from emulation E: by a rounding to n, by a
// sum in its own order, by a cast of its own (N20.18, N20.20 to N20.22). Plain numbers: no planes, no lines.
#pragma once
#include <algorithm>
#include <cmath>

#include "contract/encoding.h"

namespace assay {

// N20.20: shares of the sum of magnitudes that the order and the width of a sum may change, over the elements
// of a head and over tokens; of an exponential; of a logit that is an exponential's argument.
inline constexpr double kOfLogits = 0x1p-10, kOfSums = 0x1p-7, kOfExponential = 0x1p-20,
                        kOfArgument = 0x1p-22;
// N20.20: exponentials below it may be zeros.
inline constexpr double kFlushed = 0x1p-126;

// N20.18: rounding to the nominal type.
class NominalRounding {
 public:
  explicit NominalRounding(Encoding n);
  // What rounding a value within `off` of y may change.
  double step(double y, double off) const { return std::max(half_ * (std::fabs(y) + off), least_); }
  // How far n(y') may be from `kept`, where y' is within `off` of y.
  double after(double y, double off, double kept) const { return off + step(y, off) + std::fabs(y - kept); }
  // Whether n makes an infinity of some value within `off` of y, but not of all; or nothing is known of y.
  bool may_overflow(double y, double off) const {
    return std::isinf(off) || (std::fabs(y) + off >= limit_ && std::fabs(y) - off < limit_);
  }

 private:
  double half_, least_, limit_;  // u; half the least step; from there on infinity
};

// N20.20: a sum of products in the clauses' order, the sum of magnitudes, and that of what factors may be
// off.
struct BoundedSum {
  double value = 0, magnitude = 0, off = 0;
  bool nan = false, infinite = false;  // of a factor: no order hides it

  void add(double a, double a_off, double b, double b_off);
  // How far a kernel's sum may be from this one, whose order and width may change `share` of the magnitudes.
  // 0 where it is 0, an infinity or a NaN in any order; infinite where only some orders overflow.
  double error(double share) const;
};

// N20.22: how a kernel casts S, or another tensor under one scale.
struct KernelCast {
  Encoding element{};
  double inverse = 1;  // of the scale that E casts by
  // Only of S: whether exponentials may be cast in its place, by the largest code if the scale is computed;
  // the sum of the row's exponentials, and 1 / (1 - dropout).
  bool exponentials = false, computed = false;
  double total = 1, keep_factor = 1;

  // The largest value that a code stands for.
  double largest() const;
  // How far the kernel's value may be from `now`, where E casts x to `now` and what the kernel casts is
  // within `off` of x. Infinite: nothing is claimed. 0: no cast rounds there.
  double off(double x, double off, double now, const NominalRounding&) const;
};

}  // namespace assay
