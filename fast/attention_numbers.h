// What all elements of an attention share, made once on the host: kernels see binary32 alone (N20.4, N20.10).
#pragma once
#include <bit>
#include <cmath>

#include "contract/attention.h"
#include "fast/device.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// N20.4.
inline float softmax_scale(const Attention& op, int64_t depth) {
  return op.softmax_scale ? std::bit_cast<float>(*op.softmax_scale) : float(1.0 / std::sqrt(double(depth)));
}
// N20.10: what kept probabilities are multiplied by.
inline float keep_factor(const Attention& op) { return 1.0f / (1.0f - std::bit_cast<float>(op.dropout)); }

}  // namespace assay::ASSAY_FAST_NAMESPACE
