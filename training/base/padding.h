// Padding of experts' rows to the multiple that their format's kernels want, and its removal after the work
// (TE module/fp8_padding.py, fp8_unpadding.py). The multiple is align_size of the recipe
// (training/recipes/recipe.h).
#pragma once
#include <cstdint>
#include <vector>

#include "training/base/array.h"

namespace assay::training {

// Each split rounded up to a multiple of `align`, which is positive (ValueError); none stays none.
std::vector<int64_t> padded_splits(const std::vector<int64_t>& splits, int64_t align);
// x [sum of splits, K] with rows of +0 behind each split that is no multiple. RuntimeError where splits do
// not add up to the rows of x.
ArrayPtr pad_rows(const ArrayPtr& x, const std::vector<int64_t>& splits, int64_t align);
// The rows of `padded` that pad_rows did not add. RuntimeError where padded splits do not add up.
ArrayPtr unpad_rows(const ArrayPtr& padded, const std::vector<int64_t>& splits, int64_t align);

}  // namespace assay::training
