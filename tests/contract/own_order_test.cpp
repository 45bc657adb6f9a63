#include "contract/own_order.h"

#include <gtest/gtest.h>

#include "contract/line.h"

namespace assay {
namespace {

Problem parsed(const char* line) { return *parse_line(line); }

TEST(OwnOrder, OnlyAttentionHasOne) {
  for (const char* line :
       {"quantize nvfp4 64x64 bf16", "gemm a=mxfp8 b=mxfp8 32x32x32", "attention fp8_current 16x16 bf16"}) {
    EXPECT_FALSE(own_order(parsed(line))) << line;
    EXPECT_FALSE(own_on_gpu(parsed(line))) << line;
  }
  const Problem online = parsed("attention fp8_current 16x16 bf16 sums=online");
  EXPECT_EQ(own_order(online), "sums=online: tile by tile with a running maximum");
  EXPECT_EQ(own_on_gpu(online), own_order(online));
}

// N20.8: elsewhere ex2 is the nearest power, and every bit is pinned.
TEST(OwnOrder, AGpuHasAnExponentialOfItsOwn) {
  const Problem p = parsed("attention fp8_current 16x16 bf16 exp=ex2");
  EXPECT_FALSE(own_order(p));
  EXPECT_EQ(own_on_gpu(p), "exp=ex2: by the instruction of the GPU");
}

}  // namespace
}  // namespace assay
