// Binary32 patterns where conversions part: what the tests of conversions try.
#pragma once
#include <cstdint>
#include <vector>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {

// Every bf16 and every f16 value, and binary32 around every value and midpoint of small formats, and at every
// exponent.
inline std::vector<uint64_t> samples() {
  std::vector<uint64_t> out;
  for (uint64_t n = 0; n < 65536; ++n) out.push_back(n << 16);
  Draw draw;
  for (uint64_t exponent = 0; exponent < 256; ++exponent)
    for (int n = 0; n < 1024; ++n) {
      uint64_t fraction = draw() & 0x7FFFFF;
      // Few bits in front, then nothing, a half, or just beside it: where roundings part.
      if (n % 4)
        fraction = (fraction & (0x7FFFFFull << (23 - n % 12) & 0x7FFFFF)) + (n % 4 == 1   ? 0
                                                                             : n % 4 == 2 ? 1
                                                                                          : 0x7FFFFF);
      out.push_back((draw() & 1) << 31 | exponent << 23 | (fraction & 0x7FFFFF));
    }
  return out;
}

}  // namespace assay::ptx
