#include "fast/subject_lanes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>

#include "tests/fast/run.h"

namespace assay {
namespace {

// Eight elements of one value after eight of another, since the twins take eight at once and guard those that
// the quick way gets wrong. F16, whose largest value is small, has that one everywhere.
Planes wild(const Problem& p) {
  constexpr float kKinds[] = {1e30f, NAN, -1e30f, 7.0f, -INFINITY, 6.5f, 0.3f, -NAN, 1e-40f, INFINITY};
  const Plane x = input_planes(p)[0];
  Bytes bytes(x.bytes());
  for (int64_t i = 0; i < x.padded.count(); ++i) {
    uint32_t bits = std::bit_cast<uint32_t>(kKinds[i / 8 % std::size(kKinds)]);
    if (x.encoding == Encoding::bf16) bits >>= 16;
    if (x.encoding == Encoding::f16) bits = info(Encoding::f16).max_finite;
    std::memcpy(bytes.data() + i * info(x.encoding).bytes(), &bits, size_t(info(x.encoding).bytes()));
  }
  return {{"x", bytes}};
}

// The lanes alone, in integers and by the twins of the conversion instructions, against the kernels.
TEST(LanesSubjects, ConvertAsTheKernels) {
  const auto host = make_host_subject(), lanes = make_lanes_subject(), twin = make_lanes_twin_subject();
  int by_twin = 0;
  for (const std::string line :
       {"cast e4m3 5x160 f32", "cast e4m3 5x160 bf16 overflow=nosat", "cast e5m2 5x160 f16",
        "cast e2m1 5x160 f32", "cast e2m1 5x160 bf16", "cast e2m1 5x160 f16", "cast e2m1 5x160 f32 round=rz",
        "cast e2m1 5x160 f32 round=sr", "cast e2m1 5x160 f32 round=sr sr_rule=fma",
        "cast e8m0 5x160 f32 round=rp", "cast e2m3 5x160 f32", "cast bf16 5x160 f32"}) {
    const Problem p = parsed(line);
    ASSERT_TRUE(lanes->supports(p).yes) << line;
    by_twin += twin->supports(p).yes;
    for (const Planes& given : {Planes{}, wild(p)}) {
      const Planes want = run(p, *host, {}, given).out;
      EXPECT_EQ(run(p, *lanes, {}, given).out, want) << line;
      if (twin->supports(p).yes) {
        EXPECT_EQ(run(p, *twin, {}, given).out, want) << line;
      }
    }
  }
  EXPECT_GE(by_twin, 6);
  EXPECT_EQ(lanes->supports(parsed("quantize mxfp8 4x4 bf16")).why,
            "the lanes alone only convert elements: cast");
  EXPECT_EQ(twin->supports(parsed("cast e2m1 4x4 f32 round=rz")).why,
            "no conversion instruction that kernels use does this");
}

}  // namespace
}  // namespace assay
