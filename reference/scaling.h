// Pieces that more than one format is made of: amax, the scaled element, per-tensor FP8 elements and their way back.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "contract/numerics.h"
#include "reference/rounding.h"
#include "reference/tensor.h"

namespace assay::reference {

// The larger of an amax so far and |x|; a NaN x does not take part (N3.1, N5.1).
inline double larger(double amax, double x) {
  const double magnitude = std::abs(x);
  return magnitude > amax ? magnitude : amax;      // false for NaN
}

// N3.1: max |x| over the matrix, from `start`.
double tensor_amax(const Values& x, double start, int threads);

// fl(x * multiplier), the value that is cast (N3.8, N5.5).
inline double scaled(double x, double multiplier, NegZero neg_zero) {
  const double product = x * multiplier;                                     // exact: 48 bits, no binary64 underflow
  if (neg_zero == NegZero::plus && product == 0) return 0.0;                 // N5.6: only an exact zero; what rounds to zero keeps its sign
  return narrowed(product);
}

// Codes of n consecutive elements that share a multiplier. The encoder comes by value: stores of bytes could alias a reference.
void scaled_codes(const float* x, int64_t n, double multiplier, NegZero, Encoder cast, uint8_t* codes);

// MAX: the largest finite value of an element encoding.
double max_of(Encoding element);

// N3.8: [rows, cols] codes of x * scale.
Bytes per_tensor_elements(const Values& x, double scale, Encoding element, NegZero, int threads);

// Writes "<d>.data" from row-major codes: as they are, or as their byte transpose (N3.9, N6.1).
void store_per_tensor_data(const Run&, Direction, const Bytes& codes);

// N3.7: fl(1 / scale).
inline double decode_scale(double scale) { return narrowed(1.0 / scale); }

// fl(value * scale) rounded to `out`: the last two steps of every dequantize (N3.10, N5.9).
inline uint32_t dequantized(double value, double scale, const Encoder& out) { return out(narrowed(value * scale)); }

// N3.10: op dequantize of the per-tensor formats, whole plane and one element.
void dequantize_per_tensor(const Run&, Direction);
std::vector<TraceStep> trace_dequantize_per_tensor(const Run&, Direction, int64_t row, int64_t col);

// Steps for `assay trace`: a binary32 value, a code, and how one element becomes a code (`clause`: N3.8 or N5.5).
TraceStep value_step(std::string clause, std::string what, double value);
TraceStep code_step(std::string clause, std::string what, Encoding, uint32_t code);
std::vector<TraceStep> trace_element(double x, double multiplier, const Quantizer&, const std::string& clause);

}  // namespace assay::reference
