// The binary32 view of an Array, for the few operations of a training step that no Subject computes: norms,
// activations and sums over rows. Each is written once, in binary32 with a fixed order, and is shared by both
// sides of every comparison (docs/independence.md).
#pragma once
#include <span>
#include <vector>

#include "training/base/array.h"
#include "training/base/session.h"

namespace assay::training {

// The bits of a contiguous float32 Array.
std::vector<F32Bits> f32_bits(const Array&);
// The elements of `x` in row-major order, widened exactly by op cast.
std::vector<float> floats(Session&, const ArrayPtr& x);
// A contiguous float32 Array of `shape`, which has as many elements as `values`.
ArrayPtr f32_array(Dims shape, std::span<const float> values);

// In which order the rows of a gradient are added up into the gradient of a bias; all sums are binary32 and
// start at +0 (TE csrc/extensions/bias.cpp, common/cast/mxfp8/quantize_mxfp8.cuh).
enum class RowSum : uint8_t {
  plain,   // top to bottom
  chunks,  // chunks of rows top to bottom, then the chunks: the fused kernels that produce columns
  chunks_rowwise_only  // within a chunk 32 sums of every 32nd row, added in order, then the chunks: the fused
                       // MXFP8 kernel that produces rows alone
};
// Sums of `x` [..., K] over all leading dimensions: float32 [K]. Chunks have 128 rows, or 64 where the kernel
// applies an activation too.
ArrayPtr sum_rows(Session&, const ArrayPtr& x, RowSum order, int64_t rows_of_chunk = 128);
// a + b, element by element, in float32. Same shapes.
ArrayPtr add(Session&, const ArrayPtr& a, const ArrayPtr& b);

}  // namespace assay::training
