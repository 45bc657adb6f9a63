// What only a GPU can say, for docs/numerics.md: run by ci/gpu.   hardware_facts <folder>
//   facts.json             the NaN codes of the conversion instructions, the NaN that arithmetic makes,
//                          approximate functions over every mantissa of some binades
//   gpu_bf16.safetensors   d = c + dot(a, b) of mma.m16n8k16 for wide bf16 a and for b as the rotation has it
//                          (N11.3): the form that the test
//                          Hadamard.TensorCoreRecordings judges
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "hardware_facts: %s\n", cudaGetErrorString(status));
  std::exit(1);
}
template <class T> struct Device {
  T* at = nullptr;
  size_t n;
  explicit Device(const std::vector<T>& from) : n(from.size()) {
    check(cudaMalloc(&at, n * sizeof(T)));
    check(cudaMemcpy(at, from.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Device() { cudaFree(at); }
  std::vector<T> back() const {
    std::vector<T> out(n);
    check(cudaMemcpy(out.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }
};

__global__ void special_values(const uint32_t* x, uint32_t* out, int n) {
  const int i = int(threadIdx.x);
  if (i >= n) return;
  const float v = __uint_as_float(x[i]);
  uint16_t e4m3, e5m2, bf16;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(e4m3) : "f"(0.0f), "f"(v));
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(e5m2) : "f"(0.0f), "f"(v));
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bf16) : "f"(v));
  out[5 * i] = e4m3 & 0xFFu;
  out[5 * i + 1] = e5m2 & 0xFFu;
  out[5 * i + 2] = bf16;
  out[5 * i + 3] = __float_as_uint(__fmul_rn(v, 1.0f));
  out[5 * i + 4] = __float_as_uint(__fdiv_rn(1.0f, v));
}

enum class Function { rcp, ex2, rsqrt, sqrt, lg2 };
constexpr const char* kFunctions[] = {"rcp", "ex2", "rsqrt", "sqrt", "lg2"};

__global__ void approximate(Function f, uint32_t first, uint32_t* out) {
  const uint32_t mantissa = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = __uint_as_float(first + mantissa);
  float y = 0;
  if (f == Function::rcp) asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  if (f == Function::ex2) asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  if (f == Function::rsqrt) asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  if (f == Function::sqrt) asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  if (f == Function::lg2) asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  out[mantissa] = __float_as_uint(y);
}

float nearest(Function f, float x) {
  const double d = x;
  switch (f) {
    case Function::rcp: return 1.0f / x;
    case Function::ex2: return float(std::exp2(d));
    case Function::rsqrt: return float(1.0 / std::sqrt(d));
    case Function::sqrt: return float(std::sqrt(d));
    case Function::lg2: return float(std::log2(d));
  }
  return 0;
}

// One warp makes 16 x 8 outputs of k = 16; row r of a with column r of b (r < 8) is one recorded dot product.
__global__ void dot_products(const uint16_t* a, const uint16_t* b, float* d) {
  const uint32_t lane = threadIdx.x, group = lane >> 2, pair = lane & 3u;
  const uint16_t *ra = a + blockIdx.x * 8 * 16, *rb = b + blockIdx.x * 8 * 16;
  auto two = [](const uint16_t* row, uint32_t k) { return uint32_t(row[k]) | uint32_t(row[k + 1]) << 16; };
  const uint32_t a0 = two(ra + group * 16, 2 * pair), a2 = two(ra + group * 16, 2 * pair + 8);
  const uint32_t b0 = two(rb + group * 16, 2 * pair), b1 = two(rb + group * 16, 2 * pair + 8);
  float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(a0), "r"(0u), "r"(a2), "r"(0u), "r"(b0), "r"(b1));
  // c0, c1 are row `group`, columns 2 pair and 2 pair + 1.
  if (2 * pair == group) d[blockIdx.x * 8 + group] = c0;
  if (2 * pair + 1 == group) d[blockIdx.x * 8 + group] = c1;
}

uint64_t mix(uint64_t x) {  // SplitMix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

void write_recording(const std::string& folder, const std::string& gpu) {
  constexpr size_t kRows = 65536;
  std::vector<uint16_t> a(kRows * 16), b(kRows * 16);
  std::vector<float> c(kRows, 0.0f), d(kRows, 0.0f);
  for (size_t i = 0; i < a.size(); ++i) {
    const uint64_t h = mix(i);
    const uint64_t exponent = 127 - 20 + (h >> 32) % 41;  // 40 binades
    a[i] = static_cast<uint16_t>((h & 0x8000) | exponent << 7 | (h >> 16 & 0x7F));
    b[i] = static_cast<uint16_t>((h >> 48 & 1) << 15 | 0x3E80);  // +-0.25
  }
  const Device<uint16_t> da(a), db(b);
  const Device<float> dd(d);
  dot_products<<<kRows / 8, 32>>>(da.at, db.at, dd.at);
  check(cudaGetLastError());
  d = dd.back();

  const size_t ab = a.size() * 2, cd = kRows * 4;
  char head[1024];
  int size =
      std::snprintf(head, sizeof head,
                    "{\"__metadata__\":{\"gpu\":\"%s\",\"element\":\"bf16\",\"k\":\"16\",\"instruction\":"
                    "\"mma\"},\"a\":{\"dtype\":\"BF16\",\"shape\":[%zu,16],\"data_offsets\":[0,%zu]},"
                    "\"b\":{\"dtype\":\"BF16\",\"shape\":[%zu,16],\"data_offsets\":[%zu,%zu]},\"c\":{"
                    "\"dtype\":\"F32\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]},"
                    "\"d\":{\"dtype\":\"F32\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}}",
                    gpu.c_str(), kRows, ab, kRows, ab, 2 * ab, kRows, 2 * ab, 2 * ab + cd, kRows, 2 * ab + cd,
                    2 * ab + 2 * cd);
  while (size % 8 != 0) head[size++] = ' ';
  const uint64_t length = static_cast<uint64_t>(size);
  std::ofstream out(folder + "/gpu_bf16.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8).write(head, size);
  out.write(reinterpret_cast<const char*>(a.data()), std::streamsize(ab))
      .write(reinterpret_cast<const char*>(b.data()), std::streamsize(ab));
  out.write(reinterpret_cast<const char*>(c.data()), std::streamsize(cd))
      .write(reinterpret_cast<const char*>(d.data()), std::streamsize(cd));
  if (!out.flush()) std::exit(1);
}

// How far an approximate function (.approx.ftz) is from the nearest number, in units of the last place, over
// the mantissas of the binade that begins with the pattern `first`.
void write_approximate(std::ofstream& out, Function f, uint32_t first) {
  constexpr uint32_t kMantissas = 1u << 23;
  const Device<uint32_t> results(std::vector<uint32_t>(kMantissas, 0));
  approximate<<<kMantissas / 256, 256>>>(f, first, results.at);
  check(cudaGetLastError());
  uint64_t hash = 0xcbf29ce484222325u;
  int64_t equal = 0, one = 0, least = 0, most = 0;
  const std::vector<uint32_t> got = results.back();
  for (uint32_t m = 0; m < kMantissas; ++m) {
    const uint32_t bits = first + m;
    float x;
    std::memcpy(&x, &bits, 4);
    const float want = nearest(f, x);
    uint32_t w;
    std::memcpy(&w, &want, 4);
    const int64_t off = int64_t(int32_t(got[m])) - int64_t(int32_t(w));
    equal += off == 0, one += off == 1 || off == -1;
    least = off < least ? off : least, most = off > most ? off : most;
    hash = (hash ^ got[m]) * 0x100000001b3u;
  }
  char line[256];
  std::snprintf(line, sizeof line,
                "{\"function\": \"%s\", \"first\": \"%08X\", \"equal\": %lld, \"one_apart\": %lld, "
                "\"least\": %lld, \"most\": %lld, \"fnv1a_of_words\": \"%016llx\"}",
                kFunctions[int(f)], first, (long long)equal, (long long)one, (long long)least,
                (long long)most, (unsigned long long)hash);
  out << line;
}

struct Binade {
  Function function;
  uint32_t first;
};
constexpr Binade kBinades[] = {
    {Function::rcp, 0x00800000},   {Function::rcp, 0x32000000},   {Function::rcp, 0x3F800000},
    {Function::rcp, 0x7E000000},   {Function::rcp, 0x7E800000},   {Function::ex2, 0xB3800000},
    {Function::ex2, 0xB4000000},   {Function::ex2, 0xBE800000},   {Function::ex2, 0xBF000000},
    {Function::ex2, 0xBF800000},   {Function::ex2, 0xC0000000},   {Function::ex2, 0xC2800000},
    {Function::ex2, 0x3E000000},   {Function::ex2, 0x3F000000},   {Function::ex2, 0x3F800000},
    {Function::rsqrt, 0x3F800000}, {Function::rsqrt, 0x40000000}, {Function::sqrt, 0x3F800000},
    {Function::sqrt, 0x40000000},  {Function::lg2, 0x3F000000},   {Function::lg2, 0x3F800000},
    {Function::lg2, 0x40000000}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: hardware_facts <folder>\n");
    return 2;
  }
  const std::string folder = argv[1];
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));

  const std::vector<uint32_t> inputs = {0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF,
                                        0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001};
  const Device<uint32_t> x(inputs), results(std::vector<uint32_t>(5 * inputs.size(), 0));
  special_values<<<1, 32>>>(x.at, results.at, int(inputs.size()));
  check(cudaGetLastError());
  const std::vector<uint32_t> got = results.back();

  std::ofstream out(folder + "/facts.json");
  out << "{\n\"gpu\": \"" << device.name << "\", \"compute_capability\": \"" << device.major << '.'
      << device.minor << "\",\n\"special_values\": [\n";
  char line[256];
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::snprintf(line, sizeof line,
                  "{\"x\": \"%08X\", \"e4m3\": \"%02X\", \"e5m2\": \"%02X\", \"bf16\": \"%04X\", "
                  "\"x_times_1\": \"%08X\", \"1_over_x\": \"%08X\"}%s\n",
                  inputs[i], got[5 * i], got[5 * i + 1], got[5 * i + 2], got[5 * i + 3], got[5 * i + 4],
                  i + 1 < inputs.size() ? "," : "");
    out << line;
  }
  out << "],\n\"approximate\": [\n";
  for (const Binade& b : kBinades) {
    write_approximate(out, b.function, b.first);
    out << (&b != std::end(kBinades) - 1 ? ",\n" : "\n");
  }
  out << "]\n}\n";
  if (!out.flush()) return 1;
  write_recording(folder, device.name);
  std::printf("facts.json and gpu_bf16.safetensors written to %s\n", folder.c_str());
  return 0;
}
