// Laws of scales: they bring an amax within range, and two scales of one amax are inverse to each other.
#pragma once
#include "compare/arithmetic/expected_values.h"
#include "compare/judge/laws/record.h"

namespace assay {

// A block's scale brings its largest magnitude within the element's range (N5.1 to N5.3, N9.2, N10.6, N15.2,
// N17.6 to N17.9, N17.11), or it is the one that is given.
void check_block_scales(LawRecord& laws, Direction d, const Quantizer& q, const ScaledValues& scaled);
// The amax of a tensor, or of each stored row of it, is its largest magnitude (N10.1, N10.9).
void check_tensor_amax(LawRecord& laws, Direction d, const Quantizer& q, const ScaledValues& scaled);
// amax is the largest magnitude; scale * scale_inv is 1; the scaled amax is within range (N3.1, N3.3, N3.7).
// All of it holds of the tensor or of each stored row (N3.12).
void check_tensor_scales(LawRecord& laws, Direction d, const Quantizer& q, const ScaledValues& scaled);
void check_scale_chain(LawRecord& laws);

}  // namespace assay
