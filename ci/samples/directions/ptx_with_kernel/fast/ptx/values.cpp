#include "fast/lane/encode.cuh"
