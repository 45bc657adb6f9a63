// hand:env. The floating-point environment of both sides, with the flags that they are built with and on the
// threads and fibers that they run on (N1.1); and that the probe finds what it is meant to find.
#include <gtest/gtest.h>

#include <cfenv>
#include <thread>

#include "fast/launch.h"
#include "reference/parallel.h"
#include "tests/env/probe.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace assay::env {
namespace {

using Faults = std::vector<std::string>;

bool mentions(const Faults& faults, const std::string& word) {
  for (const std::string& fault : faults)
    if (fault.find(word) != std::string::npos) return true;
  return false;
}

TEST(Env, Reference) { EXPECT_EQ(probe_reference(), Faults{}); }
TEST(Env, FastHost) { EXPECT_EQ(probe_fast_host(), Faults{}); }

TEST(Env, OnThreads) {
  std::vector<Faults> seen(4, Faults{"did not run"});
  reference::parallel_for(4, 4, [&](int64_t i) { seen[static_cast<size_t>(i)] = probe_reference(); });
  for (const Faults& faults : seen) EXPECT_EQ(faults, Faults{});
  Faults faults = {"did not run"};
  std::thread([&] { faults = probe_fast_host(); }).join();
  EXPECT_EQ(faults, Faults{});
}

void probe_kernel(Faults* out) { out[threadIdx.x] = probe_fast_host(); }

TEST(Env, InAKernelOnTheHostExecutor) {
  std::vector<Faults> seen(3, Faults{"did not run"});
  ASSAY_FAST_NAMESPACE::launch({.name = "probe", .grid = 1, .block = 3}, probe_kernel, seen.data());
  for (const Faults& faults : seen) EXPECT_EQ(faults, Faults{});
}

#if defined(__x86_64__)
TEST(Env, TheProbeFindsContraction) {
  if (!__builtin_cpu_supports("fma")) GTEST_SKIP() << "this processor has no FMA";
  EXPECT_TRUE(mentions(probe_contracted(), "contraction: a float"));
  EXPECT_TRUE(mentions(probe_contracted(), "contraction: a double"));
}

TEST(Env, TheProbeFindsFastMath) {
  const Faults faults = probe_fast_math();
  EXPECT_TRUE(mentions(faults, "-ffast-math"));
  EXPECT_TRUE(mentions(faults, "simplified"));
}

TEST(Env, TheProbeFindsFlushedSubnormals) {
  const unsigned before = _mm_getcsr();
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(before | kFlushToZero);
  const Faults flushed = probe_reference();
  _mm_setcsr(before | kDenormalsAreZero);
  const Faults zero = probe_reference();
  _mm_setcsr(before);
  EXPECT_TRUE(mentions(flushed, "flush to zero: a subnormal float"));
  EXPECT_TRUE(mentions(flushed, "flush to zero: a subnormal double"));
  EXPECT_TRUE(mentions(flushed, "narrowing to a subnormal"));
  EXPECT_TRUE(mentions(zero, "denormals are zero: a subnormal float"));
  EXPECT_TRUE(mentions(zero, "denormals are zero: a subnormal double"));
}
#endif

TEST(Env, TheProbeFindsRoundingModes) {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const Faults faults = probe_reference();
    std::fesetround(FE_TONEAREST);
    EXPECT_TRUE(mentions(faults, "rounding mode"));
    EXPECT_TRUE(mentions(faults, "rounding: "));
    EXPECT_TRUE(mentions(faults, "float division"));
  }
}

}  // namespace
}  // namespace assay::env
