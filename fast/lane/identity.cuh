// Identity: the stored bytes are the source's (N7.1).
#pragma once
#include "fast/device.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// One word of any number of elements.
ASSAY_LANE uint4 identity(uint4 word) { return word; }

}  // namespace assay::ASSAY_FAST_NAMESPACE
