__global__ void k(float* p) { atomicAdd(p, p[threadIdx.x + 1]); }
