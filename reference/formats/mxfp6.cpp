// mxfp6: E2M3 or E3M2 elements, one E8M0 scale for every 32 along the contracted dimension. Columns are
// stored transposed, as those of MXFP4 are, so that packed codes of both directions lie along their blocks
// (N18.4). The rest is a microscaling format like any other (reference/mx.h).
#include "reference/formats/format.h"
#include "reference/mx.h"
#include "reference/scaling.h"

namespace assay::reference {

namespace {

// N18.2: a division by MAX, 7.5 or 28, neither of which is a power of two.
double scaled_amax(double amax, Encoding element) { return narrowed(amax / max_of(element)); }

constexpr MxFormat kMxfp6 = {scaled_amax, "N18.1", "N18.2", "N18.3"};

}  // namespace

const Format formats::mxfp6 = {.quantize = [](const Run& run, Direction d) { quantize_mx(run, d, kMxfp6); },
                               .dequantize = dequantize_mx,
                               .scale_chain = [](const Run& run) { scale_chain_mx(run, kMxfp6); },
                               .trace = [](const Run& run, Direction d) { return trace_mx(run, d, kMxfp6); }};

}  // namespace assay::reference
