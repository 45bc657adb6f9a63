// The tensor-core order of 8-bit scales (N6.3), as a reshape and a transpose.
#pragma once
#include "reference/tensor.h"

namespace assay::reference {

// Row scales [up(M, 128), up(cdiv(K, 32), 4)] and column scales [up(cdiv(M, 32), 4), up(K, 128)], padded, to GEMM layout and
// back. Every entry moves, padding included. The GEMM side keeps the compact shape; only its flat order has a meaning.
Bytes to_gemm(const Bytes& compact, Direction);     // N6.3
Bytes from_gemm(const Bytes& gemm, Direction);      // N6.5

}  // namespace assay::reference
