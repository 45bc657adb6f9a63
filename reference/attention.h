// Attention's core by emulation E, forward and backward, in value space (N20).
#pragma once
#include <cstdint>
#include <vector>

#include "contract/subject.h"
#include "reference/formats/format.h"
#include "reference/tensor.h"

namespace assay::reference {

// The format of a quantizer, for the casts inside.
using FormatOf = const Format& (*)(const Quantizer&);

void attention(const Run&, FormatOf);

// The steps that lead to each element of o: row `row` is token * batch + sequence, column `col` is
// head * depth + element.
Tracer trace_attention(const Run&, FormatOf);

}  // namespace assay::reference
