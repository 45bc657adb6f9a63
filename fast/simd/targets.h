// The instruction sets that the kernels are compiled for: AVX2, AVX-512 and NEON. The others are not worth
// their compilation, or, of SVE, of a width that only the processor knows. Included before Highway's headers.
#pragma once
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
