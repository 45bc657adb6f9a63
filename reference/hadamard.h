// The random Hadamard transform of NVFP4 columns (N11): 16 consecutive elements along the contracted
// dimension become 16 sums of all of them.
#pragma once
#include <vector>

#include "reference/tensor.h"

namespace assay::reference {

// N11.1: H[i][j], +1 or -1, for i and j below 16; and the sign of input element i.
double hadamard_sign(int i, int j);
double input_sign(uint16_t sign_mask, int i);

// Every 16 consecutive elements of each row of v, rotated: BF16 values (N11.3). v has BF16 values and rows of
// a multiple of 16.
Values rotated(const Values& v, uint16_t sign_mask, RhtSum, int threads);

// Op hadamard: y [cols, rows], the rotated transpose of x, and its amax (N11.2, N11.4). Steps of y at column
// `row` of its row `col`.
void hadamard(const Run&);
Tracer trace_hadamard(const Run&);
// The steps of element (i, j) of rotated(v).
std::vector<TraceStep> trace_rotated(const Values& v, uint16_t sign_mask, RhtSum, int64_t i, int64_t j);

}  // namespace assay::reference
