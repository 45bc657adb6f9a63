// Both directions of one x, of two formats.
#pragma once
#include <string>

#include "fast/table.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// Launches what a quantize with two formats needs, and says what served.
std::string quantize_hybrid(const Job&);

}  // namespace assay::ASSAY_FAST_NAMESPACE
