__global__ void k(float* p) {
  float product, sum;
  asm("mul.f32 %0, %1, %2;" : "=f"(product) : "f"(p[0]), "f"(p[1]));
  asm("add.f32 %0, %1, %2;" : "=f"(sum) : "f"(product), "f"(p[2]));
  p[3] = sum;
}
