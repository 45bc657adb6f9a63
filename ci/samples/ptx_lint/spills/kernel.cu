// 16 registers for 64 live values.
__global__ void __launch_bounds__(1024, 2) k(float* p) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = p[threadIdx.x * 64 + i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) p[i * 1024 + threadIdx.x] = __fmul_rn(v[i], v[(i * 7 + 3) % 64]);
}
