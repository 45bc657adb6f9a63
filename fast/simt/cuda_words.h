// CUDA's words for the host build, in namespace assay::fast_host. Values are those of the hardware, bit for
// bit: an operation that yields a NaN yields 7FFFFFFF, and fmaxf and fminf drop a single NaN and order -0
// below +0.
//
// Rules the host build adds: masks must name the caller; lanes that meet must agree on operation, operand
// size and mask; a shuffle may read only a lane that takes part; widths are powers of two up to 32; the
// deltas of __shfl_up_sync,
// __shfl_down_sync and __shfl_xor_sync are 0..31. Breaking one is a KernelFault that names the line.
// Float arithmetic relies on -ffp-contract=off, which linking assay_simt sets.
#pragma once  // NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "fast/simt/thread.h"

// The race checker sees the accesses of units that are compiled for it. The linker keeps one copy of an
// inline function, so that no unit with kernel text may lack it: assay_kernel_text() of cmake/race.cmake.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMT_UNIT_IS_WATCHED 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define SIMT_UNIT_IS_WATCHED 1
#endif
#if defined(SIMT_RACE) && SIMT_RACE && !defined(SIMT_UNIT_IS_WATCHED)
#error \
    "a unit with kernel text must be compiled for the race checker: assay_kernel_text() in its CMakeLists.txt"
#endif

// A word that touches memory. Never a call of its own, so that a report can name the kernel's line.
#define SIMT_MEMORY_WORD inline __attribute__((always_inline))

#define __global__ inline
#define __launch_bounds__(...)
#define threadIdx (::assay::simt::current->index)
#define blockIdx (::assay::simt::current_block.index)
#define blockDim (::assay::simt::current_block.threads)
#define gridDim (::assay::simt::current_block.blocks)

namespace assay::fast_host {

using uint3 = simt::Index3;
using simt::Site;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline constexpr int warpSize = 32;

// --- vector accesses -----------------------------------------------------------------------------

template <class V> inline void check_aligned(const void* p, const char* what, Site site) {
  if (__builtin_expect(reinterpret_cast<uintptr_t>(p) % sizeof(V) != 0, 0)) simt::fault(what, site);
}
// One access of the vector's size, as on the hardware; kernels are compiled without strict aliasing.
template <class V> using VectorBits = std::conditional_t<sizeof(V) == 16, unsigned __int128, uint64_t>;
template <class V> SIMT_MEMORY_WORD V load(const void* p, Site site) {
  check_aligned<V>(p, "vector load from a misaligned address", site);
  return std::bit_cast<V>(*static_cast<const VectorBits<V>*>(p));
}
template <class V> SIMT_MEMORY_WORD void store(void* p, V v, Site site) {
  check_aligned<V>(p, "vector store to a misaligned address", site);
  *static_cast<VectorBits<V>*>(p) = std::bit_cast<VectorBits<V>>(v);
}
SIMT_MEMORY_WORD uint4 load16(const void* p, Site site = Site::here()) { return load<uint4>(p, site); }
SIMT_MEMORY_WORD uint2 load8(const void* p, Site site = Site::here()) { return load<uint2>(p, site); }
SIMT_MEMORY_WORD void store16(void* p, uint4 v, Site site = Site::here()) { store(p, v, site); }
SIMT_MEMORY_WORD void store8(void* p, uint2 v, Site site = Site::here()) { store(p, v, site); }
SIMT_MEMORY_WORD uint4 load16_streaming(const void* p, Site site = Site::here()) {
  return load<uint4>(p, site);
}
SIMT_MEMORY_WORD uint2 load8_streaming(const void* p, Site site = Site::here()) {
  return load<uint2>(p, site);
}
SIMT_MEMORY_WORD void store16_streaming(void* p, uint4 v, Site site = Site::here()) { store(p, v, site); }
SIMT_MEMORY_WORD void store8_streaming(void* p, uint2 v, Site site = Site::here()) { store(p, v, site); }

template <class T> SIMT_MEMORY_WORD T __ldg(const T* p) { return *p; }

// --- barriers ------------------------------------------------------------------------------------

inline void __syncthreads(Site site = Site::here()) { simt::barrier(simt::BarrierOp::sync, false, site); }
inline int __syncthreads_count(int predicate, Site site = Site::here()) {
  return static_cast<int>(simt::barrier(simt::BarrierOp::count, predicate != 0, site));
}
inline int __syncthreads_and(int predicate, Site site = Site::here()) {
  return simt::barrier(simt::BarrierOp::all, predicate == 0, site) == 0;
}
inline int __syncthreads_or(int predicate, Site site = Site::here()) {
  return simt::barrier(simt::BarrierOp::any, predicate != 0, site) != 0;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, Site site = Site::here()) {
  simt::meet(simt::WarpOp::sync, 0, mask, 0, site);
}

// --- shuffles ------------------------------------------------------------------------------------

template <class T> inline uint64_t to_slot(T value) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "warp operations take 4- and 8-byte numbers");
  if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
  else return std::bit_cast<uint64_t>(value);
}
template <class T> inline T from_slot(uint64_t slot) {
  if constexpr (sizeof(T) == 4) return std::bit_cast<T>(static_cast<uint32_t>(slot));
  else return std::bit_cast<T>(slot);
}
// Reads `source`, or where it lies outside the segment the lane's own value.
template <class T>
inline T shuffle(simt::WarpOp op, unsigned mask, T value, unsigned source, bool inside, int width,
                 Site site) {
  if (__builtin_expect(width < 1 || width > 32 || (width & (width - 1)) != 0, 0))
    simt::fault("the width of a shuffle must be a power of two up to 32", site);
  const simt::Meeting m = simt::meet(op, sizeof(T), mask, to_slot(value), site);
  if (!inside) return value;
  if (__builtin_expect(((m.lanes >> source) & 1u) == 0, 0))
    simt::fault("a shuffle reads a lane that does not take part (not in the mask, or exited)", site);
  return from_slot<T>(m.values[source]);
}
inline void check_delta(unsigned delta, Site site) {
  if (__builtin_expect(delta > 31, 0)) simt::fault("the delta of a shuffle must be below 32", site);
}
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source_lane, int width = 32, Site site = Site::here()) {
  const unsigned inner = static_cast<unsigned>(width) - 1, lane = simt::current->lane;
  return shuffle(simt::WarpOp::shuffle, mask, value,
                 (lane & ~inner) | (static_cast<unsigned>(source_lane) & inner), true, width, site);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, Site site = Site::here()) {
  check_delta(delta, site);
  const unsigned inner = static_cast<unsigned>(width) - 1, lane = simt::current->lane;
  return shuffle(simt::WarpOp::shuffle_up, mask, value, (lane - delta) & 31u, (lane & inner) >= delta, width,
                 site);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, Site site = Site::here()) {
  check_delta(delta, site);
  const unsigned inner = static_cast<unsigned>(width) - 1, lane = simt::current->lane;
  return shuffle(simt::WarpOp::shuffle_down, mask, value, (lane + delta) & 31u,
                 (lane & inner) + delta <= inner, width, site);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, Site site = Site::here()) {
  check_delta(static_cast<unsigned>(lane_mask), site);
  const unsigned inner = static_cast<unsigned>(width) - 1, lane = simt::current->lane;
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  // A later segment is out of reach, an earlier one is not: as the hardware's bfly mode.
  return shuffle(simt::WarpOp::shuffle_xor, mask, value, source, source <= (lane | inner), width, site);
}

// --- votes, matches, reductions ------------------------------------------------------------------

// f(accumulator, value, lane) over the lanes that took part.
template <class A, class F> inline A over_lanes(const simt::Meeting& m, A accumulator, F f) {
  for (uint32_t rest = m.lanes; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
    accumulator = f(accumulator, m.values[lane], lane);
  }
  return accumulator;
}
inline unsigned vote(simt::WarpOp op, unsigned mask, int predicate, Site site) {
  const simt::Meeting m = simt::meet(op, 4, mask, predicate != 0, site);
  return over_lanes(
      m, 0u, [](unsigned a, uint64_t v, unsigned lane) { return a | static_cast<unsigned>(v) << lane; });
}
inline unsigned __ballot_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return vote(simt::WarpOp::ballot, mask, predicate, site);
}
inline int __any_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return vote(simt::WarpOp::any, mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return vote(simt::WarpOp::all, mask, !predicate, site) == 0;
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T value, Site site = Site::here()) {
  const uint64_t mine = to_slot(value);
  const simt::Meeting m = simt::meet(simt::WarpOp::match_any, sizeof(T), mask, mine, site);
  return over_lanes(m, 0u, [mine](unsigned a, uint64_t v, unsigned lane) {
    return a | static_cast<unsigned>(v == mine) << lane;
  });
}
template <class T, class F> inline T reduce(simt::WarpOp op, unsigned mask, T value, Site site, F f) {
  const simt::Meeting m = simt::meet(op, sizeof(T), mask, to_slot(value), site);
  return over_lanes(m, value, [f](T a, uint64_t v, unsigned) { return f(a, from_slot<T>(v)); });
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  return reduce(simt::WarpOp::reduce_max, mask, value, site,
                [](unsigned a, unsigned b) { return a < b ? b : a; });
}
inline int __reduce_max_sync(unsigned mask, int value, Site site = Site::here()) {
  return reduce(simt::WarpOp::reduce_max, mask, value, site, [](int a, int b) { return a < b ? b : a; });
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  return reduce(simt::WarpOp::reduce_min, mask, value, site,
                [](unsigned a, unsigned b) { return b < a ? b : a; });
}
inline int __reduce_min_sync(unsigned mask, int value, Site site = Site::here()) {
  return reduce(simt::WarpOp::reduce_min, mask, value, site, [](int a, int b) { return b < a ? b : a; });
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  const simt::Meeting m = simt::meet(simt::WarpOp::reduce_add, 4, mask, value, site);
  return over_lanes(m, 0u, [](unsigned a, uint64_t v, unsigned) { return a + static_cast<unsigned>(v); });
}
inline int __reduce_add_sync(unsigned mask, int value, Site site = Site::here()) {
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value), site));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  return reduce(simt::WarpOp::reduce_and, mask, value, site, [](unsigned a, unsigned b) { return a & b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  return reduce(simt::WarpOp::reduce_or, mask, value, site, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  const simt::Meeting m = simt::meet(simt::WarpOp::reduce_xor, 4, mask, value, site);
  return over_lanes(m, 0u, [](unsigned a, uint64_t v, unsigned) { return a ^ static_cast<unsigned>(v); });
}

// --- atomics: relaxed, as CUDA's, and always a write, as there. No float atomicAdd: its result depends on
// the order

template <class T>
concept AtomicWord =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
// The operand does not take part in deduction, so that atomicAdd(&u64, 1) compiles as it does for CUDA's
// overloads.
template <AtomicWord T> SIMT_MEMORY_WORD T atomicAdd(T* p, std::type_identity_t<T> v) {
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <AtomicWord T> SIMT_MEMORY_WORD T atomicExch(T* p, std::type_identity_t<T> v) {
  return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
template <AtomicWord T>
SIMT_MEMORY_WORD T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <AtomicWord T> SIMT_MEMORY_WORD T atomicMax(T* p, std::type_identity_t<T> v) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, old < v ? v : old, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
template <AtomicWord T> SIMT_MEMORY_WORD T atomicMin(T* p, std::type_identity_t<T> v) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, v < old ? v : old, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

// --- bits ----------------------------------------------------------------------------------------

inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline float __uint_as_float(unsigned u) { return std::bit_cast<float>(u); }
inline int __float_as_int(float f) { return std::bit_cast<int>(f); }
inline float __int_as_float(int i) { return std::bit_cast<float>(i); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
// 1 plus the place of the lowest set bit; 0 for 0.
inline int __ffs(int x) { return x == 0 ? 0 : 1 + std::countr_zero(static_cast<unsigned>(x)); }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : 1 + std::countr_zero(static_cast<unsigned long long>(x));
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
// Byte i of the result is byte (selector nibble i) of y:x. Bit 3 of a nibble would replicate a sign on the
// hardware: a fault.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector, Site site = Site::here()) {
  if (__builtin_expect((selector & 0x8888u) != 0, 0))
    simt::fault("__byte_perm: bit 3 of a selector nibble is set", site);
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i)
    out |= static_cast<unsigned>(bytes >> (8 * ((selector >> (4 * i)) & 7u)) & 0xFFu) << (8 * i);
  return out;
}

// --- float ---------------------------------------------------------------------------------------

// The hardware gives one NaN whatever its operands, and so does clause N1.3; an x86 would pass a payload on.
inline float canonical(float x) { return x != x ? std::bit_cast<float>(0x7FFFFFFFu) : x; }
// N1.1: each is one operation of the CPU, rounded once to nearest even.
inline float __fmul_rn(float a, float b) { return canonical(a * b); }
inline float __fadd_rn(float a, float b) { return canonical(a + b); }
inline float __fsub_rn(float a, float b) { return canonical(a - b); }
inline float __fmaf_rn(float a, float b, float c) { return canonical(std::fma(a, b, c)); }
// Cut toward zero. Binary64 holds the product; its sum with c and the error of that sum say on which side of
// the nearest binary32 the exact sum lies.
inline float __fmaf_rz(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, sum = product + c, added = sum - product;
  const double error = (product - (sum - added)) + (c - added);
  const float nearest = static_cast<float>(sum);
  const double beyond = static_cast<double>(nearest) - sum;
  const bool cut = nearest > 0 ? beyond > error : beyond < error;
  return canonical(cut ? std::nextafter(nearest, 0.0f) : nearest);
}
inline float __fdiv_rn(float a, float b) { return canonical(a / b); }
inline float __fsqrt_rn(float a) { return canonical(std::sqrt(a)); }
inline float __frcp_rn(float a) { return canonical(1.0f / a); }
inline float fmaxf(float a, float b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}
inline float fminf(float a, float b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return b < a ? b : a;
}
// CUDA's integer min and max; floats take fminf and fmaxf.
template <class T>
requires std::is_integral_v<T>
constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T>
requires std::is_integral_v<T>
constexpr T max(T a, T b) { return a < b ? b : a; }

}  // namespace assay::fast_host
// NOLINTEND(bugprone-reserved-identifier)
