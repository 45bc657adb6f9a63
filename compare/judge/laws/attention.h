// Laws of attention: its casts are quantizes of planes that lie beside them, its probabilities sum to 1,
// masked keys get nothing and give nothing, and rows of equal logits are exact.
#pragma once
#include "compare/judge/laws/record.h"

namespace assay {

void check_attention(LawRecord& laws);

}  // namespace assay
