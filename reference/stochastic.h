// Stochastic rounding to E2M1 (N12.3): a value between two neighbours goes up with the probability of its
// distance from the lower one, decided by one random byte.
#pragma once
#include <cstdint>
#include <vector>

#include "contract/numerics.h"
#include "reference/tensor.h"

namespace assay::reference {

// The E2M1 code of a binary32 value y under `byte` (0 to 255). Values of the grid never move; NaN gives 7,
// whatever its sign.
uint32_t stochastic_code(double y, uint32_t byte, SrRule);

// Op cast with round=sr: every element of x with its byte of `bits`.
void stochastic_cast(const Run&);
// The steps of element i.
std::vector<TraceStep> trace_stochastic_cast(const Run&, int64_t i);

}  // namespace assay::reference
