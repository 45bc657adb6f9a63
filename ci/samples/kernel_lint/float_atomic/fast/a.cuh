__device__ void f(void* p, float v) { atomicAdd(reinterpret_cast<float*>(p), v); }
