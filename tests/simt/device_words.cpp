// Every word of fast/simt/cuda_words.h against a plain model of it.
#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "fast/launch.h"
#include "tests/simt/shared.h"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

constexpr unsigned kFull = 0xFFFFFFFFu;

// --- warp operations: one warp, the lanes of `mask` call, lane i with value values[i] ------------

template <class T> using Lanes = std::array<T, 32>;

template <class T, class R, class F>
__global__ void on_lanes(unsigned mask, const Lanes<T>* values, Lanes<R>* results, F f) {
  const unsigned lane = threadIdx.x;
  if (mask >> lane & 1u) (*results)[lane] = f(mask, (*values)[lane]);
}

// What each lane of `mask` gets from f(mask, own value), checked against model(lane) in every order.
template <class R, class T, class F, class M>
void expect_lanes(unsigned mask, const Lanes<T>& values, F f, M model) {
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    Lanes<R> got{};
    launch({.name = "on_lanes", .grid = 1, .block = 32}, on_lanes<T, R, F>, mask, &values, &got, f);
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (!(mask >> lane & 1u)) continue;
      const R want = model(lane);
      ASSERT_EQ(std::memcmp(&got[lane], &want, sizeof(R)), 0)
          << "lane " << lane << " mask " << std::hex << mask << " " << to_text(o);
    }
  }
}

template <class T> Lanes<T> some_values(unsigned seed) {
  std::mt19937_64 random(seed);
  Lanes<T> values;
  for (T& v : values) {
    const uint64_t bits = random();
    std::memcpy(&v, &bits, sizeof v);  // floats included: shuffles move bits
  }
  return values;
}

template <class T> void expect_shuffles() {
  const Lanes<T> v = some_values<T>(sizeof(T));
  for (int width : {1, 2, 4, 8, 16, 32}) {
    const unsigned w = static_cast<unsigned>(width);
    for (unsigned d : {0u, 1u, 2u, 3u, 7u, 15u, 16u, 31u}) {
      expect_lanes<T>(
          kFull, v, [=](unsigned m, T x) { return __shfl_up_sync(m, x, d, width); },
          [&](unsigned l) { return l % w >= d ? v[l - d] : v[l]; });
      expect_lanes<T>(
          kFull, v, [=](unsigned m, T x) { return __shfl_down_sync(m, x, d, width); },
          [&](unsigned l) { return l % w + d < w ? v[l + d] : v[l]; });
      // Reaches an earlier segment, but not a later one.
      expect_lanes<T>(
          kFull, v, [=](unsigned m, T x) { return __shfl_xor_sync(m, x, static_cast<int>(d), width); },
          [&](unsigned l) { return (l ^ d) / w <= l / w ? v[l ^ d] : v[l]; });
      expect_lanes<T>(
          kFull, v, [=](unsigned m, T x) { return __shfl_sync(m, x, static_cast<int>(d), width); },
          [&](unsigned l) { return v[l / w * w + d % w]; });
    }
  }
}

TEST(DeviceWords, ShufflesOfEveryTypeWidthAndDelta) {
  expect_shuffles<int>();
  expect_shuffles<unsigned>();
  expect_shuffles<float>();
  expect_shuffles<double>();
  expect_shuffles<unsigned long long>();
}

TEST(DeviceWords, ShuffleSourceWraps) {
  const Lanes<int> v = some_values<int>(1);
  expect_lanes<int>(
      kFull, v, [](unsigned m, int x) { return __shfl_sync(m, x, 37); }, [&](unsigned) { return v[5]; });
  expect_lanes<int>(
      kFull, v, [](unsigned m, int x) { return __shfl_sync(m, x, -1, 8); },
      [&](unsigned l) { return v[l / 8 * 8 + 7]; });
  expect_lanes<int>(
      kFull, v, [](unsigned m, int x) { return __shfl_sync(m, x, static_cast<int>(31 - threadIdx.x)); },
      [&](unsigned l) { return v[31 - l]; });
}

TEST(DeviceWords, PartialMasks) {
  const Lanes<unsigned> v = some_values<unsigned>(2);
  for (unsigned mask : {0x0000FFFFu, 0xF0F0F0F0u, 0x80000001u, 0x00000400u}) {
    expect_lanes<unsigned>(
        mask, v, [](unsigned m, unsigned x) { return __ballot_sync(m, x & 1); },
        [&](unsigned) {
          unsigned want = 0;
          for (unsigned l = 0; l < 32; ++l)
            if (mask >> l & 1u) want |= (v[l] & 1u) << l;
          return want;
        });
    expect_lanes<unsigned>(
        mask, v, [](unsigned m, unsigned x) { return __reduce_max_sync(m, x); },
        [&](unsigned) {
          unsigned want = 0;
          for (unsigned l = 0; l < 32; ++l)
            if (mask >> l & 1u) want = std::max(want, v[l]);
          return want;
        });
  }
}

// Both halves of a warp work at once under masks of their own, several times, interleaved with the full mask.
__global__ void halves(const unsigned* in, unsigned* out) {
  const unsigned lane = threadIdx.x;
  unsigned x = in[lane];
  for (int round = 0; round < 5; ++round) {
    if (lane < 16) x += __shfl_xor_sync(0x0000FFFFu, x, 1 << (round % 4));
    else
      for (int d = 8; d; d >>= 1) x ^= __shfl_xor_sync(0xFFFF0000u, x, d);
    x += __shfl_sync(kFull, x, 3 * round);
  }
  out[lane] = x;
}

TEST(DeviceWords, DisjointMasksInFlight) {
  Lanes<unsigned> x = some_values<unsigned>(3);
  const Lanes<unsigned> in = x;
  for (int round = 0; round < 5; ++round) {
    Lanes<unsigned> y = x;
    for (unsigned l = 0; l < 16; ++l) y[l] = x[l] + x[l ^ (1u << (round % 4))];
    for (unsigned d = 8; d; d >>= 1) {
      const Lanes<unsigned> z = y;
      for (unsigned l = 16; l < 32; ++l) y[l] = z[l] ^ z[l ^ d];
    }
    for (unsigned l = 0; l < 32; ++l) x[l] = y[l] + y[static_cast<unsigned>(3 * round)];
  }
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    Lanes<unsigned> got{};
    launch({.name = "halves", .grid = 1, .block = 32}, halves, in.data(), got.data());
    ASSERT_EQ(got, x) << to_text(o);
  }
}

// More masks in one block than a warp has room for at once; and masks that overlap without two lanes waiting
// for each other.
__global__ void many_masks(unsigned* out) {
  const unsigned lane = threadIdx.x;
  unsigned x = lane;
  for (unsigned last = 1; last < 32; ++last)
    for (unsigned first = 0; first < last; ++first)
      if (lane == first || lane == last)
        x += __shfl_xor_sync(1u << first | 1u << last, x, static_cast<int>(first ^ last));
  out[lane] = x;
}

TEST(DeviceWords, ManyMasks) {
  Lanes<unsigned> x;
  for (unsigned l = 0; l < 32; ++l) x[l] = l;
  for (unsigned last = 1; last < 32; ++last)
    for (unsigned first = 0; first < last; ++first) x[first] = x[last] = x[first] + x[last];
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    Lanes<unsigned> got{};
    launch({.name = "many_masks", .grid = 1, .block = 32}, many_masks, got.data());
    ASSERT_EQ(got, x) << to_text(o);
  }
}

TEST(DeviceWords, VotesAndMatches) {
  Lanes<int> v;
  for (unsigned l = 0; l < 32; ++l) v[l] = static_cast<int>(l % 5);
  expect_lanes<unsigned>(
      kFull, v, [](unsigned m, int x) { return __match_any_sync(m, x); },
      [&](unsigned l) {
        unsigned want = 0;
        for (unsigned k = 0; k < 32; ++k) want |= static_cast<unsigned>(v[k] == v[l]) << k;
        return want;
      });
  for (int threshold = -1; threshold <= 5; ++threshold) {
    const bool any = threshold < 4, all = threshold < 0;
    expect_lanes<int>(
        kFull, v, [=](unsigned m, int x) { return __any_sync(m, x > threshold); },
        [&](unsigned) { return int{any}; });
    expect_lanes<int>(
        kFull, v, [=](unsigned m, int x) { return __all_sync(m, x > threshold); },
        [&](unsigned) { return int{all}; });
  }
  // Any non-zero predicate counts.
  expect_lanes<unsigned>(
      kFull, v, [](unsigned m, int x) { return __ballot_sync(m, x ? 0x100 : 0); },
      [&](unsigned) {
        unsigned want = 0;
        for (unsigned k = 0; k < 32; ++k) want |= static_cast<unsigned>(v[k] != 0) << k;
        return want;
      });
}

template <class T, class F> T folded(const Lanes<T>& v, F f) {
  T a = v[0];
  for (unsigned l = 1; l < 32; ++l) a = f(a, v[l]);
  return a;
}

TEST(DeviceWords, Reductions) {
  const Lanes<unsigned> u = some_values<unsigned>(4);
  const Lanes<int> i = some_values<int>(5);
  auto same = [](auto value) { return [value](unsigned) { return value; }; };
  expect_lanes<unsigned>(
      kFull, u, [](unsigned m, unsigned x) { return __reduce_max_sync(m, x); },
      same(folded(u, [](unsigned a, unsigned b) { return std::max(a, b); })));
  expect_lanes<unsigned>(
      kFull, u, [](unsigned m, unsigned x) { return __reduce_min_sync(m, x); },
      same(folded(u, [](unsigned a, unsigned b) { return std::min(a, b); })));
  expect_lanes<unsigned>(
      kFull, u, [](unsigned m, unsigned x) { return __reduce_add_sync(m, x); },
      same(folded(u, std::plus<unsigned>{})));
  expect_lanes<unsigned>(
      kFull, u, [](unsigned m, unsigned x) { return __reduce_and_sync(m, x | 0xF00u); },
      same(folded(u, std::bit_and<unsigned>{}) | 0xF00u));
  expect_lanes<unsigned>(
      kFull, u, [](unsigned m, unsigned x) { return __reduce_or_sync(m, x & 0xF0u); },
      same(folded(u, std::bit_or<unsigned>{}) & 0xF0u));
  expect_lanes<unsigned>(
      kFull, u, [](unsigned m, unsigned x) { return __reduce_xor_sync(m, x); },
      same(folded(u, std::bit_xor<unsigned>{})));
  expect_lanes<int>(
      kFull, i, [](unsigned m, int x) { return __reduce_max_sync(m, x); },
      same(folded(i, [](int a, int b) { return std::max(a, b); })));
  expect_lanes<int>(
      kFull, i, [](unsigned m, int x) { return __reduce_min_sync(m, x); },
      same(folded(i, [](int a, int b) { return std::min(a, b); })));
  const auto wrapped_sum = [](int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
  };
  expect_lanes<int>(
      kFull, i, [](unsigned m, int x) { return __reduce_add_sync(m, x); }, same(folded(i, wrapped_sum)));
}

// CUDA lets lanes exit: operations wait only for those that have not, whenever they exit.
__global__ void some_exit(unsigned* out) {
  const unsigned lane = threadIdx.x;
  if (lane % 3 == 0) return;
  out[lane] = __ballot_sync(kFull, 1);
  if (lane % 3 == 1) return;
  out[lane] ^= __ballot_sync(kFull, 1);
}

TEST(DeviceWords, ExitedLanesAreNotWaitedFor) {
  unsigned one = 0, two = 0;
  for (unsigned l = 0; l < 32; ++l)
    one |= static_cast<unsigned>(l % 3 == 1) << l, two |= static_cast<unsigned>(l % 3 == 2) << l;
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    Lanes<unsigned> got{};
    launch({.name = "some_exit", .grid = 1, .block = 32}, some_exit, got.data());
    for (unsigned l = 0; l < 32; ++l)
      ASSERT_EQ(got[l], l % 3 == 0 ? 0u : l % 3 == 1 ? (one | two) : one) << l << " " << to_text(o);
  }
}

__global__ void sync_warp_exchange(unsigned* out) {
  ASSAY_SHARED(unsigned, box, [64]);
  const unsigned i = threadIdx.x, base = i & ~31u;
  box[i] = i * i;
  __syncwarp();
  out[i] = box[base + 31 - (i & 31)];
  __syncwarp();
  box[i] = out[i] + 1;
  __syncwarp(kFull);
  out[i] = box[base + (i + 1) % 32];
}

TEST(DeviceWords, SyncWarpOrdersLanes) {
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    std::array<unsigned, 64> got{};
    launch({.name = "sync_warp_exchange", .grid = 1, .block = 64}, sync_warp_exchange, got.data());
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned base = i & ~31u, j = (i + 1) % 32, source = base + 31 - j;
      ASSERT_EQ(got[i], source * source + 1) << i << " " << to_text(o);
    }
  }
}

// --- barriers ------------------------------------------------------------------------------------

__global__ void barrier_votes(const int* in, int* out) {
  const unsigned i = threadIdx.x;
  int* mine = out + 4 * i;
  mine[0] = __syncthreads_count(in[i] > 2);
  mine[1] = __syncthreads_and(in[i] >= 0);
  mine[2] = __syncthreads_and(in[i] > 0);
  mine[3] = __syncthreads_or(in[i] == 1) * 2 + __syncthreads_or(in[i] == 99);
}

TEST(DeviceWords, BarrierVotes) {
  for (unsigned threads : {1u, 31u, 32u, 33u, 96u, 200u, 1024u})
    for (const simt::ExecutorOptions& o : simt::all_orders()) {
      simt::UseOptions use(o);
      std::vector<int> in(threads), out(4 * threads, -1);
      int count = 0;
      for (unsigned i = 0; i < threads; ++i) count += (in[i] = static_cast<int>(i * 7 % 5)) > 2;
      launch({.name = "barrier_votes", .grid = 1, .block = threads}, barrier_votes, in.data(), out.data());
      const int ones = threads > 3;  // 3 * 7 % 5 == 1
      for (unsigned i = 0; i < threads; ++i) {
        ASSERT_EQ(out[4 * i], count) << to_text(o);
        ASSERT_EQ(out[4 * i + 1], 1);
        ASSERT_EQ(out[4 * i + 2], 0);  // in[0] is 0
        ASSERT_EQ(out[4 * i + 3], 2 * ones);
      }
    }
}

// --- atomics -------------------------------------------------------------------------------------

template <class T> struct Totals { T sum, highest, lowest, last, taken; };
template <class T> __global__ void atomics(Totals<T>* t, T sign) {
  const T mine = static_cast<T>(blockIdx.x * blockDim.x + threadIdx.x) * sign;
  atomicAdd(&t->sum, mine);
  atomicMax(&t->highest, mine);
  atomicMin(&t->lowest, mine);
  atomicExch(&t->last, mine);
  for (T seen = t->taken;;) {  // adds 1 by compare and swap
    const T was = atomicCAS(&t->taken, seen, seen + 1);
    if (was == seen) break;
    seen = was;
  }
}
template <class T> void expect_atomics(T sign) {
  constexpr int kThreads = 20 * 64;
  for (const simt::ExecutorOptions& o : simt::all_orders()) {
    simt::UseOptions use(o);
    Totals<T> t{0, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), 0, 0};
    launch({.name = "atomics", .grid = 20, .block = 64}, atomics<T>, &t, sign);
    T sum = 0, high = std::numeric_limits<T>::min(), low = std::numeric_limits<T>::max();
    for (int i = 0; i < kThreads; ++i) {
      const T v = static_cast<T>(i) * sign;
      sum += v;
      high = std::max(high, v);
      low = std::min(low, v);
    }
    EXPECT_EQ(t.sum, sum) << to_text(o);
    EXPECT_EQ(t.highest, high);
    EXPECT_EQ(t.lowest, low);
    EXPECT_EQ(t.taken, static_cast<T>(kThreads));
    if (o.threads == 1 && o.order == simt::ExecutorOptions::kForward) {
      EXPECT_EQ(t.last, static_cast<T>(kThreads - 1) * sign);
    }
    if (o.threads == 1 && o.order == simt::ExecutorOptions::kReverse) {
      EXPECT_EQ(t.last, T{0});
    }
  }
}
TEST(DeviceWords, Atomics) {
  expect_atomics<int>(1);
  expect_atomics<int>(-1);
  expect_atomics<unsigned>(1);
  expect_atomics<unsigned long long>(1ull << 33);
}

// Atomic operations return what was there before.
TEST(DeviceWords, AtomicsReturnTheOldValue) {
  unsigned u = 5;
  EXPECT_EQ(atomicAdd(&u, 2u), 5u);
  EXPECT_EQ(atomicMax(&u, 3u), 7u);
  EXPECT_EQ(atomicMax(&u, 9u), 7u);
  EXPECT_EQ(atomicMin(&u, 4u), 9u);
  EXPECT_EQ(atomicCAS(&u, 1u, 8u), 4u);
  EXPECT_EQ(atomicCAS(&u, 4u, 8u), 4u);
  EXPECT_EQ(atomicExch(&u, 1u), 8u);
  EXPECT_EQ(u, 1u);
}

template <class T>
concept HasAtomicAdd = requires(T* p, T v) {
  atomicAdd(p, v);
};
static_assert(HasAtomicAdd<unsigned> && !HasAtomicAdd<float> && !HasAtomicAdd<double>,
              "the order of a float sum is not fixed");

// --- bits and floats -----------------------------------------------------------------------------

TEST(DeviceWords, Bits) {
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clz(-1), 0);
  EXPECT_EQ(__clzll(1ll << 40), 23);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__ffs(static_cast<int>(0x80000000u)), 32);
  EXPECT_EQ(__ffsll(1ll << 40), 41);
  EXPECT_EQ(__popc(0xF0F01u), 9);
  EXPECT_EQ(__popcll(~0ull), 64);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x3210u), 0x33221100u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x0123u), 0x00112233u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7531u), 0x77553311u);
  EXPECT_THROW(__byte_perm(0, 0, 0x8000u), simt::KernelFault);
  EXPECT_EQ(__float_as_uint(1.0f), 0x3F800000u);
  EXPECT_EQ(__uint_as_float(0xC0000000u), -2.0f);
  EXPECT_EQ(__float_as_int(-0.0f), std::numeric_limits<int>::min());
  EXPECT_EQ(__int_as_float(0x3F800000), 1.0f);
  EXPECT_EQ(min(-1, 2), -1);
  EXPECT_EQ(max(3u, 2u), 3u);
}

unsigned bits(float f) { return __float_as_uint(f); }
float of(unsigned u) { return __uint_as_float(u); }

TEST(DeviceWords, FloatMaxAndMin) {
  const float nan = of(0xFFC12345u), other = of(0x7F800001u);
  EXPECT_EQ(bits(fmaxf(0.0f, -0.0f)), bits(0.0f));
  EXPECT_EQ(bits(fmaxf(-0.0f, 0.0f)), bits(0.0f));
  EXPECT_EQ(bits(fmaxf(-0.0f, -0.0f)), bits(-0.0f));
  EXPECT_EQ(bits(fminf(0.0f, -0.0f)), bits(-0.0f));
  EXPECT_EQ(bits(fminf(-0.0f, 0.0f)), bits(-0.0f));
  EXPECT_EQ(bits(fmaxf(nan, -3.0f)), bits(-3.0f));
  EXPECT_EQ(bits(fmaxf(-3.0f, nan)), bits(-3.0f));
  EXPECT_EQ(bits(fminf(nan, 3.0f)), bits(3.0f));
  EXPECT_EQ(bits(fminf(3.0f, nan)), bits(3.0f));
  EXPECT_EQ(bits(fmaxf(nan, other)), 0x7FFFFFFFu);
  EXPECT_EQ(bits(fminf(nan, other)), 0x7FFFFFFFu);
  EXPECT_EQ(fmaxf(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(fmaxf(2.0f, 1.0f), 2.0f);
  EXPECT_EQ(fminf(1.0f, 2.0f), 1.0f);
  EXPECT_EQ(fminf(2.0f, 1.0f), 1.0f);
}

// Steps of binary32, checked in binary64: its 53 bits are enough for the narrowed result to be the rounded
// one.
TEST(DeviceWords, FloatStepsAreRoundedOnce) {
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    const float a = of(random()), b = of(random());
    auto want = [](double exact) { return exact != exact ? 0x7FFFFFFFu : bits(static_cast<float>(exact)); };
    ASSERT_EQ(bits(__fmul_rn(a, b)), want(double{a} * b));
    ASSERT_EQ(bits(__fadd_rn(a, b)), want(double{a} + b));
    ASSERT_EQ(bits(__fsub_rn(a, b)), want(double{a} - b));
    ASSERT_EQ(bits(__fdiv_rn(a, b)), want(double{a} / b));
    ASSERT_EQ(bits(__frcp_rn(b)), want(1.0 / double{b}));
  }
  // Subnormals are kept, overflow goes to infinity.
  EXPECT_EQ(bits(__fmul_rn(of(0x00800000u), 0.5f)), 0x00400000u);
  EXPECT_EQ(bits(__fadd_rn(of(1), of(1))), 2u);
  EXPECT_EQ(bits(__fmul_rn(of(0x7F7FFFFFu), 2.0f)), 0x7F800000u);
  // One rounding where two would differ: (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24.
  const float x = 1.0f + of(0x39800000u);
  EXPECT_EQ(__fmaf_rn(x, x, -(1.0f + of(0x3A000000u))), of(0x33800000u));
  EXPECT_EQ(__fadd_rn(__fmul_rn(x, x), -(1.0f + of(0x3A000000u))), 0.0f);
  EXPECT_EQ(bits(__fmaf_rn(of(0x7F800000u), 0.0f, 1.0f)), 0x7FFFFFFFu);
}

// Against the CPU's own rounding toward zero, near and far from what the sum is rounded to.
TEST(DeviceWords, FusedSumsCutTowardZero) {
  std::mt19937 random(4);
  for (int i = 0; i < 400000; ++i) {
    const bool near = i % 2 != 0;
    const float a = of(near ? 0x3A000000u + random() % 0x06E00000u : uint32_t(random())),
                b = near ? 8.0f : of(uint32_t(random())), c = near ? 131072.0f : of(uint32_t(random()));
    volatile float x = a, y = b, z = c;
    std::fesetround(FE_TOWARDZERO);
    volatile float cut = std::fma(x, y, z);
    std::fesetround(FE_TONEAREST);
    ASSERT_EQ(bits(__fmaf_rz(a, b, c)), cut != cut ? 0x7FFFFFFFu : bits(cut)) << a << ' ' << b << ' ' << c;
  }
  EXPECT_EQ(__fmaf_rz(of(1), 1.0f, 131072.0f), 131072.0f);
  EXPECT_EQ(__fmaf_rz(-of(1), 1.0f, 131072.0f), of(0x47FFFFFFu));
  EXPECT_EQ(bits(__fmaf_rz(of(0x7F7FFFFFu), 2.0f, 0.0f)), 0x7F7FFFFFu);
  EXPECT_EQ(bits(__fmaf_rz(of(0x7F800000u), 2.0f, 0.0f)), 0x7F800000u);
}

TEST(DeviceWords, VectorAccesses) {
  alignas(16) unsigned char bytes[48];
  for (unsigned i = 0; i < 48; ++i) bytes[i] = static_cast<unsigned char>(i);
  const uint4 v = load16(bytes + 16);
  EXPECT_EQ(v.x, 0x13121110u);
  EXPECT_EQ(v.w, 0x1F1E1D1Cu);
  EXPECT_EQ(load8(bytes + 8).y, 0x0F0E0D0Cu);
  EXPECT_EQ(load16_streaming(bytes).y, 0x07060504u);
  EXPECT_EQ(load8_streaming(bytes).x, 0x03020100u);
  store16(bytes, make_uint4(1, 2, 3, 4));
  store8(bytes + 16, make_uint2(5, 6));
  store16_streaming(bytes + 32, make_uint4(7, 8, 9, 10));
  store8_streaming(bytes + 24, make_uint2(11, 12));
  const unsigned want[] = {1, 2, 3, 4, 5, 6, 11, 12, 7, 8, 9, 10};
  EXPECT_EQ(std::memcmp(bytes, want, sizeof want), 0);
  for (unsigned off = 1; off < 16; ++off) {
    EXPECT_THROW(load16(bytes + off), simt::KernelFault);
    EXPECT_THROW(store16(bytes + off, v), simt::KernelFault);
    if (off != 8) {
      EXPECT_THROW(load8(bytes + off), simt::KernelFault);
      EXPECT_THROW(store8(bytes + off, make_uint2(0, 0)), simt::KernelFault);
    }
  }
  const unsigned one = 17;
  EXPECT_EQ(__ldg(&one), 17u);
}

}  // namespace
}  // namespace assay::ASSAY_FAST_NAMESPACE
