__device__ unsigned f(unsigned a) { unsigned r; asm("brev.b32 %0, %1;" : "=r"(r) : "r"(a)); return r; }
