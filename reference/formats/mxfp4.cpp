// mxfp4: E2M1 elements in pairs, one E8M0 scale for every 32 along the contracted dimension. Columns are
// stored transposed, so that the pairs of both directions lie along their blocks (N15.4). The rest is a
// microscaling format like any other (reference/mx.h).
#include "reference/formats/format.h"
#include "reference/mx.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

// N15.2: a division by 6, where MXFP8 multiplies.
double scaled_amax(double amax, Encoding element) { return narrowed(amax / max_of(element)); }

constexpr MxFormat kMxfp4 = {scaled_amax, "N15.1", "N15.2", "N15.3"};

}  // namespace

const Format formats::mxfp4 = {.quantize = [](const Run& run, Direction d) { quantize_mx(run, d, kMxfp4); },
                               .dequantize = dequantize_mx,
                               .scale_chain = [](const Run& run) { scale_chain_mx(run, kMxfp4); },
                               .trace = [](const Run& run, Direction d) { return trace_mx(run, d, kMxfp4); }};

}  // namespace assay::reference
