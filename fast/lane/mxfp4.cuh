// mxfp4: see docs/numerics.md.
#pragma once
#include "fast/lane/layout.cuh"
