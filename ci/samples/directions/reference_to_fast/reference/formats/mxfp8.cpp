#include "fast/lane/mxfp8.cuh"
