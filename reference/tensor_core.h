// One step of a tensor core, as recorded from Hopper: a sum of products whose terms are cut to a common grid, added exactly and truncated.
#pragma once
#include <span>

namespace assay::reference {

struct TensorCore {
  int length;            // L: products of one step
  int fraction;          // F: a term is cut to a multiple of 2^(E - F), E the largest exponent of a term
  int out_fraction;      // Fo: fraction bits of the result, which has binary32's range
  int least_exponent;    // of an operand: a subnormal one has this exponent and no hidden bit
};
inline constexpr TensorCore kHopperBf16 = {16, 25, 23, -126};

// c + the sum of a[i] b[i], as values; a and b have at most `length` elements of one 16-bit or narrower encoding, c is a binary32 value.
// A sum of zero is +0, one that overflows infinity. A NaN, infinity times 0, and infinities of both signs give NaN; else infinity wins.
double tensor_core_step(const TensorCore&, std::span<const double> a, std::span<const double> b, double c);

}  // namespace assay::reference
