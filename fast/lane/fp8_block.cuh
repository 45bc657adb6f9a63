// fp8_block: see docs/numerics.md.
#pragma once
#include "fast/lane/layout.cuh"
