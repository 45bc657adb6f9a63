__global__ void k(float* p) { p[3] = __fmaf_rn(p[0], p[1], p[2]); }
