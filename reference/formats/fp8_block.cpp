// fp8_block: see docs/numerics.md.
#include "reference/formats/format.h"

namespace assay::reference {

const Format formats::fp8_block = {};

}  // namespace assay::reference
