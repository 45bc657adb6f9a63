// Data that training is judged on: seeded tensors, by the fills of fixtures/. Random gradients throughout: a
// constant one hides which random numbers were drawn.
#pragma once
#include <cstdint>

#include "contract/problem.h"
#include "training/base/array.h"

namespace assay::training {

// A tensor of one fill (fixtures/fill.h), flattened to [rows, columns].
ArrayPtr drawn(Dims shape, DType dtype, uint64_t seed, FillKind kind = FillKind::normal);

// A normal tensor with what gradients have and normal data lack: one element in eight is -0.0 (as after ReLU
// or dropout), the leading 32x32 elements are +0 (an all-zero block of every format but those of 128), and
// the last element is 1000 (an outlier).
ArrayPtr gradient(Dims shape, DType dtype, uint64_t seed);

// Writes a column whose binary32 sum depends on the order: 2^24, ones, and -2^24 last. From top to bottom the
// ones are lost; by chunks those of the last chunk are not. A bf16 matrix of two rows or more.
void plant_sum_order(Array& matrix, int64_t column);

}  // namespace assay::training
