// Measures the constants that `assay model` works with; run by ci/gpu.
//   hardware_speed <folder>      speed.json: launches, copies by the length of their pieces, instructions of
//   lanes a clock
// Everything is the least of several runs, and copies are of memory that no cache holds.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "hardware_speed: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

// Seconds that the device takes, by its events; the least of `runs` after two that are not counted.
template <class Work> double seconds(const Work& work, int runs = 12) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  double least = 1e9;
  for (int n = -2; n < runs; ++n) {
    check(cudaEventRecord(start));
    work();
    check(cudaEventRecord(stop));
    check(cudaEventSynchronize(stop));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start, stop));
    if (n >= 0) least = std::min(least, static_cast<double>(milliseconds) * 1e-3);
  }
  check(cudaGetLastError());
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(stop));
  return least;
}

// ---- memory

__global__ void nothing() {}
__global__ void fill(uint4* to, uint32_t seed) {
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const uint32_t h = static_cast<uint32_t>(i) * 2654435761u ^ seed;
  to[i] = make_uint4(h, h * 31, h * 17, h * 7);
}
// Each thread moves `kLoads` words of 16 bytes, which it has all in flight before it stores the first.
template <int kLoads> __global__ void copy(const uint4* __restrict__ from, uint4* __restrict__ to) {
  const uint64_t first = uint64_t{blockIdx.x} * blockDim.x * kLoads + threadIdx.x;
  uint4 words[kLoads];
#pragma unroll
  for (int n = 0; n < kLoads; ++n) words[n] = from[first + uint64_t(n) * blockDim.x];
#pragma unroll
  for (int n = 0; n < kLoads; ++n) to[first + uint64_t(n) * blockDim.x] = words[n];
}
// A sum keeps the loads alive.
__global__ void read(const uint4* __restrict__ from, uint32_t* out) {
  const uint64_t first = uint64_t{blockIdx.x} * blockDim.x * 4 + threadIdx.x;
  uint4 words[4];
#pragma unroll
  for (int n = 0; n < 4; ++n) words[n] = from[first + uint64_t(n) * blockDim.x];
  uint32_t sum = 0;
#pragma unroll
  for (int n = 0; n < 4; ++n) sum ^= words[n].x ^ words[n].y ^ words[n].z ^ words[n].w;
  if (sum == 0x12345678u) *out = sum;
}
// Reads whole lines; writes `kPiece` bytes here and then as many in a row that lies `pitch` bytes on, as
// codes of columns are written. A warp writes 512 bytes, in 512 / kPiece pieces.
template <int kPiece>
__global__ void pieces(const uint4* __restrict__ from, char* __restrict__ to, uint64_t pitch) {
  constexpr uint32_t kLanes = kPiece / 16, kRows = 32 / kLanes;  // lanes of a piece, pieces of a warp
  const uint64_t warp = (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  const uint32_t lane = threadIdx.x % 32;
  const uint4 word = from[warp * 32 + lane];
  const uint64_t across = pitch / kPiece, column = warp % across, rows = warp / across;
  *reinterpret_cast<uint4*>(to + (rows * kRows + lane / kLanes) * pitch + column * kPiece +
                            lane % kLanes * 16) = word;
}

struct Memory {
  static constexpr uint64_t kBytes = uint64_t{1} << 30;
  uint4 *from = nullptr, *to = nullptr;
  uint32_t* out = nullptr;
  Memory() {
    check(cudaMalloc(&from, kBytes));
    check(cudaMalloc(&to, kBytes));
    check(cudaMalloc(&out, 4));
    fill<<<kBytes / 16 / 256, 256>>>(from, 1);
    fill<<<kBytes / 16 / 256, 256>>>(to, 2);
    check(cudaDeviceSynchronize());
  }
};

void write_memory(std::FILE* file) {
  const Memory m;
  constexpr uint64_t kWords = Memory::kBytes / 16, kPitch = 16384;
  char* const to = reinterpret_cast<char*>(m.to);
  const auto rate = [](double s, double bytes) { return bytes / s; };
  constexpr double kBoth = 2.0 * Memory::kBytes;
  std::fprintf(file, "\"bytes_per_second\": {\n");
  std::fprintf(
      file, "  \"copy_by_the_driver\": %.4e,\n",
      rate(seconds([&] { check(cudaMemcpyAsync(m.to, m.from, Memory::kBytes, cudaMemcpyDeviceToDevice)); }),
           kBoth));
  std::fprintf(file, "  \"copy_1_load\": %.4e,\n",
               rate(seconds([&] { copy<1><<<kWords / 256, 256>>>(m.from, m.to); }), kBoth));
  std::fprintf(file, "  \"copy_4_loads\": %.4e,\n",
               rate(seconds([&] { copy<4><<<kWords / 1024, 256>>>(m.from, m.to); }), kBoth));
  std::fprintf(file, "  \"read_only\": %.4e,\n",
               rate(seconds([&] { read<<<kWords / 1024, 256>>>(m.from, m.out); }), Memory::kBytes));
  std::fprintf(file, "  \"write_only\": %.4e,\n",
               rate(seconds([&] { fill<<<kWords / 256, 256>>>(m.to, 3); }), Memory::kBytes));
  std::fprintf(file, "  \"pieces_of_512\": %.4e,\n",
               rate(seconds([&] { pieces<512><<<kWords / 256, 256>>>(m.from, to, kPitch); }), kBoth));
  std::fprintf(file, "  \"pieces_of_128\": %.4e,\n",
               rate(seconds([&] { pieces<128><<<kWords / 256, 256>>>(m.from, to, kPitch); }), kBoth));
  std::fprintf(file, "  \"pieces_of_64\": %.4e,\n",
               rate(seconds([&] { pieces<64><<<kWords / 256, 256>>>(m.from, to, kPitch); }), kBoth));
  std::fprintf(file, "  \"pieces_of_32\": %.4e\n},\n",
               rate(seconds([&] { pieces<32><<<kWords / 256, 256>>>(m.from, to, kPitch); }), kBoth));
}

void write_launches(std::FILE* file) {
  const auto launches = [](int n) {
    return seconds(
        [n] {
          for (int k = 0; k < n; ++k) nothing<<<132, 256>>>();
        },
        50);
  };
  std::fprintf(file, "\"launches_seconds\": {\"1\": %.3e, \"2\": %.3e, \"4\": %.3e, \"16\": %.3e},\n",
               launches(1), launches(2), launches(4), launches(16));
}

// ---- instructions

// One instruction, over and over, in 8 chains that do not wait for each other. Instructions that ptxas may
// fold when they are repeated, such as a minimum, have no row.
enum class What {
  fma,
  imad,
  lop3,
  prmt,
  shf,
  cvt_e4m3,
  cvt_e5m2,
  cvt_bf16,
  cvt_e4m3_f16,
  cvt_s32,
  shfl,
  ex2,
  dfma,
  hfma2,
  sel,
  popc
};
constexpr struct {
  What what;
  const char* name;
} kInstructions[] = {{What::fma, "fma.rn.f32"},
                     {What::imad, "mad.lo.u32"},
                     {What::lop3, "xor.b32"},
                     {What::prmt, "prmt.b32"},
                     {What::shf, "shf.l.wrap.b32"},
                     {What::cvt_e4m3, "cvt.rn.satfinite.e4m3x2.f32 and prmt"},
                     {What::cvt_e5m2, "cvt.rn.satfinite.e5m2x2.f32 and prmt"},
                     {What::cvt_bf16, "cvt.rn.bf16x2.f32"},
                     {What::cvt_e4m3_f16, "cvt.rn.f16x2.e4m3x2"},
                     {What::cvt_s32, "cvt.rzi.s32.f32"},
                     {What::shfl, "shfl.sync.bfly.b32"},
                     {What::ex2, "ex2.approx.ftz.f32"},
                     {What::dfma, "fma.rn.f64"},
                     {What::hfma2, "fma.rn.bf16x2"},
                     {What::sel, "selp.b32"},
                     {What::popc, "popc.b32"}};

template <What kWhat> __device__ void step(uint32_t& v, uint32_t other) {
  float f = __uint_as_float(v);
  const float g = __uint_as_float(other);
  if constexpr (kWhat == What::fma) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(f) : "f"(g));
  if constexpr (kWhat == What::ex2) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(f));
  if constexpr (kWhat == What::fma || kWhat == What::ex2) v = __float_as_uint(f);
  if constexpr (kWhat == What::imad) asm volatile("mad.lo.u32 %0, %0, %1, %1;" : "+r"(v) : "r"(other));
  if constexpr (kWhat == What::lop3) asm volatile("lop3.b32 %0, %0, %1, %0, 0x96;" : "+r"(v) : "r"(other));
  if constexpr (kWhat == What::prmt) asm volatile("prmt.b32 %0, %0, %1, 0x2143;" : "+r"(v) : "r"(other));
  if constexpr (kWhat == What::shf) asm volatile("shf.l.wrap.b32 %0, %0, %1, 7;" : "+r"(v) : "r"(other));
  if constexpr (kWhat == What::sel)
    asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; selp.b32 %0, %0, %1, p;}" : "+r"(v) : "r"(other));
  if constexpr (kWhat == What::popc) asm volatile("popc.b32 %0, %0;" : "+r"(v));
  if constexpr (kWhat == What::shfl) asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, -1;" : "+r"(v));
  if constexpr (kWhat == What::hfma2) asm volatile("fma.rn.bf16x2 %0, %0, %1, %1;" : "+r"(v) : "r"(other));
  if constexpr (kWhat == What::cvt_s32) asm volatile("cvt.rzi.s32.f32 %0, %1;" : "=r"(v) : "f"(f));
  if constexpr (kWhat == What::cvt_bf16) asm volatile("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(v) : "f"(f));
  if constexpr (kWhat == What::cvt_e4m3)
    asm volatile("{.reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, %1, %1; mov.b32 %0, {h, h};}"
                 : "=r"(v)
                 : "f"(f));
  if constexpr (kWhat == What::cvt_e5m2)
    asm volatile("{.reg .b16 h; cvt.rn.satfinite.e5m2x2.f32 h, %1, %1; mov.b32 %0, {h, h};}"
                 : "=r"(v)
                 : "f"(f));
  if constexpr (kWhat == What::cvt_e4m3_f16)
    asm volatile("{.reg .b16 h, l; mov.b32 {l, h}, %0; cvt.rn.f16x2.e4m3x2 %0, l;}" : "+r"(v));
  if constexpr (kWhat == What::dfma) {
    double d = __hiloint2double(static_cast<int>(v), 0);
    asm volatile("fma.rn.f64 %0, %0, %0, %0;" : "+d"(d));
    v = static_cast<uint32_t>(__double2hiint(d));
  }
}

constexpr int kChains = 8, kSteps = 128, kRounds = 8;
// Clocks of one block for its rounds, by the clock of its SM.
template <What kWhat> __global__ void repeated(uint32_t* out, long long* clocks, uint32_t other) {
  uint32_t v[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) v[c] = threadIdx.x * 0x01010101u + static_cast<uint32_t>(c) + 0x3F800000u;
  __syncthreads();
  const long long start = clock64();
  for (int round = 0; round < kRounds; ++round)
#pragma unroll
    for (int n = 0; n < kSteps; ++n) step<kWhat>(v[n % kChains], other);
  __syncthreads();
  const long long stop = clock64();
  uint32_t sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum ^= v[c];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  if (threadIdx.x == 0) clocks[blockIdx.x] = stop - start;
}

template <What kWhat> double lanes_a_clock() {
  constexpr int kThreads = 1024;
  uint32_t* out;
  long long *clocks, least = 0;
  check(cudaMalloc(&out, kThreads * 4));
  check(cudaMalloc(&clocks, 8));
  for (int n = 0; n < 6; ++n) {
    repeated<kWhat><<<1, kThreads>>>(out, clocks, 0x3F800001u);
    long long once = 0;
    check(cudaMemcpy(&once, clocks, 8, cudaMemcpyDeviceToHost));
    if (n == 0 || once < least) least = once;
  }
  check(cudaFree(out));
  check(cudaFree(clocks));
  return double(kThreads) * kSteps * kRounds / double(least);
}

template <size_t kIndex = 0> void write_instructions(std::FILE* file) {
  if constexpr (kIndex < std::size(kInstructions)) {
    std::fprintf(file, "  \"%s\": %.2f%s\n", kInstructions[kIndex].name,
                 lanes_a_clock<kInstructions[kIndex].what>(),
                 kIndex + 1 < std::size(kInstructions) ? "," : "");
    write_instructions<kIndex + 1>(file);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: hardware_speed <folder>\n");
    return 2;
  }
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));
  int kilohertz = 0;
  check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
  const std::string path = std::string(argv[1]) + "/speed.json";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (!file) {
    std::fprintf(stderr, "hardware_speed: %s cannot be written\n", path.c_str());
    return 1;
  }
  std::fprintf(
      file, "{\n\"gpu\": \"%s\", \"multiprocessors\": %d, \"greatest_gigahertz\": %.3f, \"l2_bytes\": %d,\n",
      device.name, device.multiProcessorCount, kilohertz * 1e-6, device.l2CacheSize);
  write_launches(file);
  write_memory(file);
  std::fprintf(file, "\"lanes_a_clock_and_multiprocessor\": {\n");
  write_instructions(file);
  std::fprintf(file, "}\n}\n");
  if (std::fclose(file) != 0) return 1;
  std::printf("speed.json written to %s\n", argv[1]);
  return 0;
}
