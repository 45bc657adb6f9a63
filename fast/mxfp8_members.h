// Members of a split in MXFP8, by the kernel in registers. Defined in fast/mxfp8_members.cu.
#pragma once
#include <string>

#include "fast/move/members.cuh"
#include "fast/table.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// Quantizes all members of a split whose rows vary, where that kernel computes what is asked for, and says
// how. Empty, with nothing launched, where it does not: other formats and numerics, square
// blocks, F32 and F16, columns that vary or are no multiple of 8. `starts`: n + 1 entries on the device,
// which launches before this one fill.
std::string split_mxfp8_members(const Job&, const MemberStart* starts, int64_t members);

}  // namespace assay::ASSAY_FAST_NAMESPACE
