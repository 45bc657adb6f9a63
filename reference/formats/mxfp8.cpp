// mxfp8: FP8 elements, one E8M0 scale for every 32 along the contracted dimension. Row data are scaled along
// rows, column data down columns, and both are stored as x is (N6.1). From the amax on it is a microscaling
// format like any other (reference/mx.h).
#include "reference/formats/format.h"
#include "reference/mx.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

// N5.2: a product with fl(1 / MAX), not a division.
double scaled_amax(double amax, Encoding element) { return narrowed(amax * narrowed(1.0 / max_of(element))); }

constexpr MxFormat kMxfp8 = {scaled_amax, "N5.1", "N5.2", "N5.5"};

}  // namespace

const Format formats::mxfp8 = {.quantize = [](const Run& run, Direction d) { quantize_mx(run, d, kMxfp8); },
                               .dequantize = dequantize_mx,
                               .scale_chain = [](const Run& run) { scale_chain_mx(run, kMxfp8); },
                               .trace = [](const Run& run, Direction d) { return trace_mx(run, d, kMxfp8); }};

}  // namespace assay::reference
