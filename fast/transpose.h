// Moves elements from rows to columns, no bit of them changed: what a library that reads one layout only is
// given.
#pragma once
#include <cstdint>

#include "fast/device.h"

namespace assay::ASSAY_FAST_NAMESPACE {

// to[c, r] = from[r, c]: from is [rows, cols], to [cols, rows], both row-major and of elements of 1, 2 or 4
// bytes. Nothing is launched for no element.
void transpose_elements(const void* from, void* to, int64_t rows, int64_t cols, int bytes);

}  // namespace assay::ASSAY_FAST_NAMESPACE
