// Codes from values, in the judge's own arithmetic: the inverse of value_of (compare/arithmetic/codes.h).
// Neither side's code is used.
#pragma once
#include <cstdint>

#include "contract/encoding.h"

namespace assay {

// The code of `e` (f32, bf16, f16) nearest to v, ties to even. Values beyond the largest become infinity.
uint32_t nearest_code(Encoding e, double v);
// The same toward zero.
uint32_t truncated_code(Encoding e, double v);
// The code of an element encoding nearest to v, ties to even. Values beyond the largest saturate; a NaN
// gives the encoding's NaN.
uint32_t element_code(Encoding e, double v);

// v rounded to bf16 or to binary32.
double bf16_of(double v);
double f32_of(double v);

uint32_t sign_bit(Encoding e);
// Whether v is not zero and lies below the least normal value of `e`.
bool is_subnormal(Encoding e, double v);

}  // namespace assay
