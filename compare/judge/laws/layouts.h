// Laws of layouts: what lies where, and which bytes of one case are copies of others.
#pragma once
#include <vector>

#include "compare/judge/laws/record.h"

namespace assay {

// Padding is zero (N6.4).
void check_padding(LawRecord& laws);
// Planes of a quantize that must agree: copies of x, copies of a square block's scale, and the two directions
// where they quantize alike (N3.9, N5.8, N7.1, N9.3, N10.14, N15.4).
void check_coherent(LawRecord& laws);
// Every entry stands where N6.3 says, by the judge's own index formula.
void check_swizzle(LawRecord& laws);
// The offsets of a split are running sums (N14.3).
void check_offsets(LawRecord& laws, const std::vector<Problem>& members);

}  // namespace assay
