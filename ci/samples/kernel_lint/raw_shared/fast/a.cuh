__global__ void k() { __shared__ int tile[64]; tile[0] = 1; }
