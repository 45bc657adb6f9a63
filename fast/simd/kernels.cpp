// Casts and scales alone, and the table of the kernels that each instruction set has. Compiled once for every
// instruction set (foreach_target.h includes this file again for each).
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "fast/simd/kernels.h"
#include "fast/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fast/simd/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fast/simd/fp8_codes.h"
#include "fast/simd/halves.h"
#include "fast/simd/steps.h"

HWY_BEFORE_NAMESPACE();
namespace assay::simd {
namespace HWY_NAMESPACE {

void run_mxfp8(const Job&);   // fast/simd/mxfp8.cpp
void run_mxfp4(const Job&);   // fast/simd/mxfp4.cpp
void run_fp8(const Fp8Job&);  // fast/simd/fp8.cpp
void run_factors(Element, bool pow2, const uint32_t* amaxes, uint32_t* factors, uint32_t* inverses,
                 int64_t count);
uint32_t run_amax(Source, const std::byte* x, int64_t count);
void run_nvfp4(const Nvfp4Job&);  // fast/simd/nvfp4.cpp
void run_nvfp4_chain(const uint32_t* amaxes, Nvfp4Chain* out, int64_t count);

void run_job(const Job& job) {
  if (job.element == Element::e2m1) run_mxfp4(job);
  else run_mxfp8(job);
}

namespace {

// One vector of elements.
template <class S, class F> HWY_INLINE void cast_vector(const std::byte* x, std::byte* y) {
  const V bits = S::load(x);
  const V a = magnitude(bits);
  write(whole_code<F>(code_of<F>(a, constant(kOne)), a, bits), y);
}

template <class S, class F> void cast_of(const std::byte* x, std::byte* y, int64_t count) {
  constexpr size_t lanes = hn::MaxLanes(D()), n = std::max(kHalfLanes, lanes);
  HWY_ALIGN std::array<std::byte, n * 4> rest{};
  HWY_ALIGN std::array<std::byte, n> made{};
  const auto vectors = [](const std::byte* from, std::byte* to) {
    if constexpr (!std::is_same_v<F, E2m1>) {
      fetch_ahead(from, n * S::kBytes);
      const Vh bits = halves_of<S>(from);
      // AVX2 is slow at shifts by amounts of their own, and few magnitudes are subnormal in E5M2.
      if constexpr (HWY_TARGET == HWY_AVX2 && std::is_same_v<F, E5m2>) {
        auto codes = HalfCodes<F, false, false>::none();
        codes.add(bits, HalfRounding<F>::offset(half(kOne)), to);
        if (codes.hold()) return;
      }
      return write_halves(any_half_code<F>(bits), to);
    }
    for (size_t i = 0; i < n; i += lanes) cast_vector<S, F>(from + i * S::kBytes, to + i);
  };
  size_t i = 0;
  for (; i + n <= static_cast<size_t>(count); i += n) vectors(x + i * S::kBytes, y + i);
  const size_t left = static_cast<size_t>(count) - i;
  if (!left) return;
  std::memcpy(rest.data(), x + i * S::kBytes, left * S::kBytes);
  vectors(rest.data(), made.data());
  std::memcpy(y + i, made.data(), left);
}
template <class S> void cast_from(Element element, const std::byte* x, std::byte* y, int64_t count) {
  switch (element) {
    case Element::e4m3: return cast_of<S, E4m3>(x, y, count);
    case Element::e5m2: return cast_of<S, E5m2>(x, y, count);
    case Element::e2m1: return cast_of<S, E2m1>(x, y, count);
  }
}

}  // namespace

void run_cast(Source source, Element element, const std::byte* x, std::byte* y, int64_t count) {
  with_source(source, [&](auto s) { cast_from<decltype(s)>(element, x, y, count); });
}

namespace {

template <class F> void scales_of(const uint32_t* amaxes, uint8_t* scales, int64_t count) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(D()));
  HWY_ALIGN std::array<uint32_t, 16> rest{};
  HWY_ALIGN std::array<std::byte, 16> made{};
  for (int64_t i = 0; i < count; i += lanes) {
    const size_t n = static_cast<size_t>(std::min(lanes, count - i));
    std::memcpy(rest.data(), amaxes + i, n * 4);
    const V bits = FromF32::load(reinterpret_cast<const std::byte*>(rest.data()));
    write(scale_of<F>(magnitude(bits)), made.data());
    std::memcpy(scales + i, made.data(), n);
  }
}

}  // namespace

void run_scales(Element element, const uint32_t* amaxes, uint8_t* scales, int64_t count) {
  switch (element) {
    case Element::e4m3: return scales_of<E4m3>(amaxes, scales, count);
    case Element::e5m2: return scales_of<E5m2>(amaxes, scales, count);
    case Element::e2m1: return scales_of<E2m1>(amaxes, scales, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace assay::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay::simd {

// Highway's own choice of a target needs its library; this one needs the headers alone.
const Kernels* kernels_of(std::string_view target) {
#if HWY_TARGETS & HWY_AVX3
  static constexpr Kernels kAvx3 = {N_AVX3::run_job,   N_AVX3::run_cast,       N_AVX3::run_scales,
                                    N_AVX3::run_fp8,   N_AVX3::run_factors,    N_AVX3::run_amax,
                                    N_AVX3::run_nvfp4, N_AVX3::run_nvfp4_chain};
  if (target == "AVX3") return &kAvx3;
#endif
#if HWY_TARGETS & HWY_AVX2
  static constexpr Kernels kAvx2 = {N_AVX2::run_job,   N_AVX2::run_cast,       N_AVX2::run_scales,
                                    N_AVX2::run_fp8,   N_AVX2::run_factors,    N_AVX2::run_amax,
                                    N_AVX2::run_nvfp4, N_AVX2::run_nvfp4_chain};
  if (target == "AVX2") return &kAvx2;
#endif
#if HWY_TARGETS & HWY_NEON
  static constexpr Kernels kNeon = {N_NEON::run_job,   N_NEON::run_cast,       N_NEON::run_scales,
                                    N_NEON::run_fp8,   N_NEON::run_factors,    N_NEON::run_amax,
                                    N_NEON::run_nvfp4, N_NEON::run_nvfp4_chain};
  if (target == "NEON") return &kNeon;
#endif
  return nullptr;
}

}  // namespace assay::simd
#endif
