__global__ void k(double* p) { p[0] = p[1] * p[2]; }
