#include "fast/simd/simd.h"

#include <bit>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "fast/simd/kernels.h"

namespace assay::simd {

namespace {

// Best first. Narrower ones, such as SSE4, are not offered.
constexpr std::string_view kTargets[] = {"AVX3", "AVX2", "NEON"};

#if defined(__x86_64__)
// A name that clang 14 does not know as a feature.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool machine_has(std::string_view target) {
#if defined(__x86_64__)
  if (target == "AVX3")
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd");
  if (target == "AVX2")
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2") && has_f16c();
  return false;
#else
  return target == "NEON";
#endif
}

struct InUse {
  std::string_view name;
  const Kernels* kernels = nullptr;
};

InUse first_choice() {
  for (const std::string_view name : targets())
    if (!needs_certificate(name)) return {name, kernels_of(name)};
  return {};
}

InUse& in_use() {
  static InUse chosen = first_choice();
  return chosen;
}

Job job_of(const Mx& format, const Rectangle& x, Bytes data, Bytes scales, std::vector<Block>* unknown) {
  return {x.source, format.element, format.columns, x.x, x.rows, x.cols, data, scales, unknown};
}

Fp8Job job_of(const Fp8& f, const Rectangle& x, Bytes data, Bytes scales, std::vector<Block>* unknown) {
  return {x.source, f.element, f.columns, f.blocks, f.pow2, f.scale,
          x.x,      x.rows,    x.cols,    data,     scales, unknown};
}

Nvfp4Job job_of(const Nvfp4& f, const Rectangle& x, Bytes data, Bytes scales, std::vector<Block>* unknown) {
  return {x.source, f.columns, f.amax, x.x, x.rows, x.cols, data, scales, unknown};
}

// Planes that are only read.
Bytes read_only(ConstBytes bytes) { return {const_cast<std::byte*>(bytes.first), bytes.stride}; }

}  // namespace

std::vector<std::string_view> targets() {
  std::vector<std::string_view> out;
  for (const std::string_view name : kTargets)
    if (kernels_of(name) && machine_has(name)) out.push_back(name);
  return out;
}

bool needs_certificate(std::string_view target) { return target == "AVX3"; }

bool use_target(std::string_view name) {
  for (const std::string_view target : targets()) {
    if (target != name) continue;
    in_use() = {target, kernels_of(target)};
    return true;
  }
  return false;
}

std::string_view target_in_use() { return in_use().name; }
std::string_view sources() { return ASSAY_SIMD_SOURCES; }

void quantize(const Mx& format, const Rectangle& x, Bytes data, Bytes scales) {
  in_use().kernels->job(job_of(format, x, data, scales, nullptr));
}

void accept(const Mx& format, const Rectangle& x, ConstBytes data, ConstBytes scales,
            std::vector<Block>& unknown) {
  in_use().kernels->job(job_of(format, x, read_only(data), read_only(scales), &unknown));
}

void quantize(const Fp8& format, const Rectangle& x, Bytes data, Bytes scales) {
  in_use().kernels->fp8(job_of(format, x, data, scales, nullptr));
}

void accept(const Fp8& format, const Rectangle& x, ConstBytes data, ConstBytes scales,
            std::vector<Block>& unknown) {
  in_use().kernels->fp8(job_of(format, x, read_only(data), read_only(scales), &unknown));
}

void quantize(const Nvfp4& format, const Rectangle& x, Bytes data, Bytes scales) {
  in_use().kernels->nvfp4(job_of(format, x, data, scales, nullptr));
}

void accept(const Nvfp4& format, const Rectangle& x, ConstBytes data, ConstBytes scales,
            std::vector<Block>& unknown) {
  in_use().kernels->nvfp4(job_of(format, x, read_only(data), read_only(scales), &unknown));
}

void nvfp4_chain(const uint32_t* amaxes, Nvfp4Chain* out, int64_t count) {
  in_use().kernels->nvfp4_chain(amaxes, out, count);
}

void fp8_scales(Element element, bool pow2, const uint32_t* amaxes, uint32_t* factors, uint32_t* inverses,
                int64_t count) {
  in_use().kernels->factors(element, pow2, amaxes, factors, inverses, count);
}

uint32_t reciprocal(uint32_t factor) {
  const float inverse = 1.0f / std::bit_cast<float>(factor);
  return inverse != inverse ? 0x7FFFFFFF : std::bit_cast<uint32_t>(inverse);
}

uint32_t amax(Source source, const std::byte* x, int64_t count) {
  return in_use().kernels->amax(source, x, count);
}

void cast(Source source, Element element, const std::byte* x, std::byte* y, int64_t count) {
  in_use().kernels->cast(source, element, x, y, count);
}

void mx_scales(Element element, const uint32_t* amaxes, uint8_t* scales, int64_t count) {
  in_use().kernels->scales(element, amaxes, scales, count);
}

}  // namespace assay::simd
