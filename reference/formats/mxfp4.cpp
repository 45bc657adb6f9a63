// mxfp4: see docs/numerics.md.
#include "reference/formats/format.h"

namespace assay::reference {

const Format formats::mxfp4 = {};

}  // namespace assay::reference
