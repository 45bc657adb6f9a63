__device__ int f(int v) { return __shfl_xor_sync(__activemask(), v, 1); }
