// The tensor-core order of 8-bit scales (N6.3), as a reshape and a transpose.
#pragma once
#include "reference/tensor.h"

namespace assay::reference {

// Padded compact scales to GEMM layout and back; every entry moves, padding included. The GEMM side keeps the
// compact shape; only its flat order has a meaning. by_columns: the scales stand with the contracted
// dimension first, as those of columns stored as they are (Plane::tiles_by_columns).
Bytes to_gemm(const Bytes& compact, bool by_columns);  // N6.3
Bytes from_gemm(const Bytes& gemm, bool by_columns);   // N6.5

// Writes scales of one byte to a plane of either layout, with 0 in its padding (N6.2 to N6.4).
void store_scales(const Buffer&, const Bytes& compact);

}  // namespace assay::reference
