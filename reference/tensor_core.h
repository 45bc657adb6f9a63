// The tensor core as recorded from Hopper (N16.4): a sum of products whose terms are cut to a common grid,
// added exactly and truncated.
#pragma once
#include <span>
#include <vector>

namespace assay::reference {

struct TensorCore {
  int length;        // L: products of one step
  int fraction;      // F: a term is cut to a multiple of 2^(E - F), E the largest exponent of a term
  int out_fraction;  // Fo: fraction bits of the result, which has binary32's range
};
inline constexpr TensorCore kHopperFp8 = {32, 13, 13}, kHopperF16 = {16, 25, 23}, kHopperTf32 = {8, 25, 23};

// A factor of a product: its value, and the exponent of its code, which for a subnormal one is the least of
// its encoding.
struct Factor {
  double value;
  int exponent;
};
Factor factor_of(double value, int least_exponent);
std::vector<Factor> factors_of(std::span<const double> values, int least_exponent);

// c + the sum of a[i] b[i]. a and b have at most `length` factors of encodings of at most 19 bits, c is a
// binary32 value. A sum of zero is +0, one that overflows infinity. A NaN, infinity times 0, and infinities
// of both signs give NaN; else infinity wins.
double tensor_core_step(const TensorCore&, std::span<const Factor> a, std::span<const Factor> b, double c);

// Steps over factors of any number, each from the result of the one before, the first from c; c where there
// are none.
double tensor_core_chain(const TensorCore&, std::span<const Factor> a, std::span<const Factor> b, double c);

}  // namespace assay::reference
