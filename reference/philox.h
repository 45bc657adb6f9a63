// Philox4x32 (N12.1), the generator behind stochastic rounding: a counter of 128 bits and a key of 64 give
// four words of 32. Written on integers as they are defined, products and quotients of powers of two.
#pragma once
#include <array>
#include <cstdint>

#include "reference/tensor.h"

namespace assay::reference {

__extension__ using Counter =
    unsigned __int128;  // its words from the least significant are Philox's x, y, z, w
using Words = std::array<uint32_t, 4>;

// `key` holds k0 in its low half. rounds: 1 and up.
Words philox4x32(Counter, uint64_t key, int rounds = 10);

// Op philox: each row of y [n, 4] is Philox of the same row of x [n, 4] and key [n, 2].
void philox(const Run&);

}  // namespace assay::reference
