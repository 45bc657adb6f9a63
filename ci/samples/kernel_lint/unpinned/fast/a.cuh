__device__ float f(float a, float b, float c) { float d = a * b + c; return d; }
