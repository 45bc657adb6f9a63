__global__ void k(float* p) { p[0] = __fdividef(p[1], p[2]); }
