// Grouped tensors (N14): a split is its members, each quantized as the line that it would be alone, in one
// plane of each kind.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "reference/tensor.h"

namespace assay::reference {

// Op split: writes the offsets (N14.3), and has `quantize` run the line of every member on the parts of the
// planes that are the member's (N14.2). What stands beyond the members is neither read nor written (N14.6).
void split(const Run&, const std::function<void(const Run&)>& quantize);

// The steps of element (row, col) of x, as `trace` finds them for the member that holds it and the element's
// place in that.
Tracer trace_split(const Run&, const std::function<Tracer(const Run&)>& trace);

}  // namespace assay::reference
