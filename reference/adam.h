// Optimizer steps in value space (N19): Adam, and the states that are stored beside one scale.
#pragma once
#include <cstdint>
#include <vector>

#include "contract/subject.h"
#include "reference/tensor.h"

namespace assay::reference {

// N19.1: 1 - beta^step by way of binary64, as binary32.
double bias_correction(double beta, int step);

void adam(const Run&);
void scale_state(const Run&);

// The steps that lead to p of each element.
Tracer trace_adam(const Run&);

}  // namespace assay::reference
