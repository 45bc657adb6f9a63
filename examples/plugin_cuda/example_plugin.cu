// A plugin of device pointers that passes: MXFP8 rows with the default numerics, one thread for each block
// of 32. It shows the interface and is meant to be read.
//
//   nvcc -shared -Xcompiler -fPIC -std=c++17 -O2 -arch=sm_90a -I<assay> example_plugin.cu -o
//   libexample_cuda.so
//   assay run --plugin ./libexample_cuda.so 'quantize mxfp8 64x256 bf16 dir=row fill=ties'
//   assay bench --plugin ./libexample_cuda.so 'quantize mxfp8 4096x4096 bf16 dir=row'
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <string>

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "contract/assay_plugin.h"

namespace {

// What the kernel needs to know; pointers are the device's.
struct Job {
  const uint16_t* x;  // bf16
  uint8_t *scales, *codes;
  int64_t rows, cols, blocks,
      scale_cols;  // of a row: blocks that hold elements, and scales with their padding
  bool e4m3;
};

__host__ __device__ inline float from_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

__host__ __device__ inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// Entry i of the padded scales, and the 32 elements that it scales, where there are any.
__host__ __device__ inline void quantize_block(const Job& job, int64_t i) {
  const int64_t row = i / job.scale_cols, block = i % job.scale_cols;
  job.scales[i] = 0;  // padding is zero: N6.4
  if (row >= job.rows || block >= job.blocks) return;
  const int64_t first = row * job.cols + block * 32,
                n = job.cols - block * 32 < 32 ? job.cols - block * 32 : 32;

  uint32_t amax = 0;  // magnitudes of floats stand in the order of their bits; a NaN is ignored: N5.1
  for (int64_t k = 0; k < n; ++k) {
    const uint32_t magnitude = static_cast<uint32_t>(job.x[first + k] & 0x7FFF) << 16;
    if (magnitude <= 0x7F800000 && magnitude > amax) amax = magnitude;
  }
  float largest;
  memcpy(&largest, &amax, 4);

  // The least power of two not below amax / MAX, as E8M0: N5.3.
  const uint32_t p = bits_of(largest * (job.e4m3 ? 1.0f / 448 : 1.0f / 57344));
  uint32_t k = p >> 23;
  if ((p & 0x7FFFFF) != 0 && (k != 0 || (p & 0x7FFFFF) > 0x400000))
    ++k;  // a subnormal up to 2^-127 has the scale 2^-127, which is code 0
  if (k > 254) k = 254;
  job.scales[i] = static_cast<uint8_t>(k);

  // 2^(127 - k); N5.4. For k = 254 it is the subnormal 2^-127.
  const uint32_t power = k == 254 ? 0x00400000u : (254 - k) << 23;
  float multiplier;
  memcpy(&multiplier, &power, 4);
  for (int64_t e = 0; e < n; ++e)
    job.codes[first + e] = __nv_cvt_float_to_fp8(from_bf16(job.x[first + e]) * multiplier, __NV_SATFINITE,
                                                 job.e4m3 ? __NV_E4M3 : __NV_E5M2);
}

#ifdef EXAMPLE_ON_HOST  // how tests/plugin runs this file on a machine that has no GPU
const char* quantize(const Job& job, int64_t count) {
  for (int64_t i = 0; i < count; ++i) quantize_block(job, i);
  return nullptr;
}
#else
__global__ void quantize_kernel(Job job, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) quantize_block(job, i);
}

// Queues the kernel on the default stream; Assay waits for the device. Null, or what went wrong.
const char* quantize(const Job& job, int64_t count) {
  if (count == 0) return nullptr;
  quantize_kernel<<<static_cast<unsigned>((count + 255) / 256), 256>>>(job, count);
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}
#endif

// The words that this plugin knows; "seed=" stands for any seed. A line with any other is unsupported, also
// one of a choice that is added later.
const char* const kKnown[] = {"dir=row",
                              "block=1x32",
                              "scales=compact",
                              "scale_from=x",
                              "noop=none",
                              "element=",
                              "fill=",
                              "seed=",
                              "at=",
                              "flavour=",
                              "arch=",
                              "dispatch=",
                              "neg_zero=keep",
                              "zero_amax=guarded",
                              "nan_code=positive",
                              "nan_amax=ignore",
                              "element_ties=even",
                              "element_overflow=saturate",
                              "pre_round=none",
                              "mx_scale=up",
                              "mx_inf=max"};

bool known(const std::string& word) {
  return std::any_of(std::begin(kKnown), std::end(kKnown), [&](const std::string& k) {
    return k.back() == '=' ? word.compare(0, k.size(), k) == 0 : word == k;
  });
}

const assay_plane* find(const assay_plane* planes, size_t count, const char* name) {
  const assay_plane* end = planes + count;
  const assay_plane* found =
      std::find_if(planes, end, [&](const assay_plane& p) { return std::strcmp(p.name, name) == 0; });
  return found == end ? nullptr : found;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) uint32_t assay_plugin_abi(void) { return ASSAY_PLUGIN_ABI; }
__attribute__((visibility("default"))) const char* assay_plugin_name(void) {
  return "example: mxfp8 rows in CUDA";
}
__attribute__((visibility("default"))) int assay_plugin_memory(void) { return ASSAY_MEMORY_DEVICE; }

__attribute__((visibility("default"))) int assay_plugin_supports(const char* line, char* why,
                                                                 size_t why_bytes) {
  std::istringstream words(line);
  std::string op, format, shape, source, word;
  words >> op >> format >> shape >> source;
  if (op != "quantize" || format != "mxfp8" || source != "bf16")
    return std::snprintf(why, why_bytes, "only quantize mxfp8 of bf16"), 0;
  while (words >> word)
    if (!known(word)) return std::snprintf(why, why_bytes, "not %s", word.c_str()), 0;
  return 1;
}

__attribute__((visibility("default"))) int assay_plugin_run(const char*, const assay_plane* inputs,
                                                            size_t input_count, const assay_plane* outputs,
                                                            size_t output_count, char* message,
                                                            size_t message_bytes) {
  const assay_plane *x = find(inputs, input_count, "x"),
                    *scales = find(outputs, output_count, "row.scale_inv"),
                    *codes = find(outputs, output_count, "row.data");
  if (!x || !scales || !codes)
    return std::snprintf(message, message_bytes, "no plane x, row.scale_inv or row.data"), 1;
  const Job job{static_cast<const uint16_t*>(x->data),
                static_cast<uint8_t*>(scales->data),
                static_cast<uint8_t*>(codes->data),
                x->rows,
                x->cols,
                (x->cols + 31) / 32,
                scales->padded_cols,
                std::strcmp(codes->encoding, "e4m3") == 0};
  const char* trouble = quantize(job, scales->padded_rows * scales->padded_cols);
  return trouble ? (std::snprintf(message, message_bytes, "launching the kernel: %s", trouble), 1) : 0;
}

}  // extern "C"
