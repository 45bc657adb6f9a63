// Laws of single operations: which values their codes may stand for.
#pragma once
#include "compare/judge/laws/record.h"

namespace assay {

// Each element of a cast is rounded as the line says (N2), and larger elements have no smaller codes.
void check_cast(LawRecord& laws);
void check_monotone(LawRecord& laws);
// With drawn bits each element is one of the two neighbouring codes (N12.3).
void check_stochastic_cast(LawRecord& laws);
// The codes of one direction stand for the scaled elements, and the scales for the amaxes.
void check_quantize(LawRecord& laws, Direction d, const Quantizer& q);
// Each element is its code times its scale.
void check_dequantize(LawRecord& laws);
// H H^T = 16 I: the rotation of a rotated block is the block again. Sums of small integers are exact; of
// other values each element of y is within half a unit of bf16 and what 16 additions lose (N11.3).
void check_hadamard(LawRecord& laws);
// Philox is a bijection of counters, so under one key no two counters share their output (N12.1).
void check_philox(LawRecord& laws);

}  // namespace assay
