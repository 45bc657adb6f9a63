// The random Hadamard transform of N11 on 16 values, in the judge's own arithmetic.
#pragma once
#include <cstdint>
#include <optional>

#include "fixtures/inputs.h"

namespace assay {

// N11.1 as a kernel sums: element k of the rotated values, by butterflies in binary32, scaled by 1/4.
// `stages` has a bit for each of the four stages of butterflies that is done; with `rounded` each stage is
// rounded to bf16.
double rotated16(const float (&x)[16], uint16_t sign_mask, int64_t k, unsigned stages = 15,
                 bool rounded = false);

// N11.1 without any rounding, times 4: element r % 16 of the 16 rows of x around row r, in column c.
// Nothing where one of the 16 elements is NaN or infinite.
std::optional<double> rotated(const PlaneData& x, uint16_t sign_mask, int64_t r, int64_t c);

}  // namespace assay
