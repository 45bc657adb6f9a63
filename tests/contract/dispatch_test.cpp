// hand:dispatch. TransformerEngine's kernel selection (N8), one row per condition.
#include <gtest/gtest.h>

#include "contract/dispatch.h"
#include "contract/line.h"

namespace assay {
namespace {

struct Row {
  const char* line;      // its flavour=te is appended
  const char* kernel;    // empty: rejected
  NegZero neg_zero = NegZero::keep;
  NanAmax column_nan = NanAmax::ignore;
};

TEST(Dispatch, TransformerEngineKernels) {
  constexpr NegZero plus = NegZero::plus;
  for (const Row& r : {
           Row{"quantize mxfp8 64x64 bf16", "mxfp8 specialised, both directions", plus},
           Row{"quantize mxfp8 64x64 f16 arch=sm120", "mxfp8 specialised, both directions", plus, NanAmax::propagate},
           Row{"quantize mxfp8 64x64 f16 arch=sm110", "mxfp8 specialised, both directions", plus, NanAmax::propagate},
           Row{"quantize mxfp8 64x64 f32", "mxfp8 generic"},
           Row{"quantize mxfp8 64x64 bf16 block=32x32", "mxfp8 generic"},
           Row{"quantize mxfp8 64x64 bf16 noop=0", "mxfp8 generic"},
           Row{"quantize mxfp8 64x48 bf16", "mxfp8 generic"},
           Row{"quantize mxfp8 63x64 bf16", "mxfp8 generic"},
           Row{"quantize mxfp8 63x128 bf16 dir=row", "mxfp8 specialised, rows", plus},
           Row{"quantize mxfp8 63x128 bf16 dir=row arch=sm120", "mxfp8 specialised, rows", plus},
           Row{"quantize mxfp8 64x64 bf16 dir=row", "mxfp8 generic"},
           Row{"quantize mxfp8 64x128 bf16 dir=col", "mxfp8 generic"},
           Row{"quantize mxfp8 64x64 bf16 dispatch=generic", "mxfp8 generic"},
           Row{"quantize mxfp8 64x64 bf16 dispatch=specialised", "mxfp8 specialised, both directions", plus},
           Row{"quantize mxfp8 64x48 bf16 dispatch=specialised", ""},
           Row{"quantize mxfp8 64x40 bf16", ""},
           Row{"quantize mxfp8 64x64 bf16 arch=sm90", ""},
           Row{"quantize fp8_current 64x64 bf16 arch=sm90", "fp8 cast_transpose"},
           Row{"quantize fp8_delayed 7x9 f32 dir=row", "fp8 cast"},
           Row{"quantize fp8_delayed 7x9 f32 dir=col", ""},
           Row{"quantize fp8_delayed 7x9 f32 dispatch=specialised", ""},
           Row{"quantize identity 7x9 f32", "copy"},
           Row{"quantize mxfp8/fp8_current 64x64 bf16", ""},
       }) {
    const auto p = parse_line(std::string(r.line) + " flavour=te");
    ASSERT_TRUE(p) << r.line << ": " << p.error().text();
    const TeKernel k = te_kernel(*p);
    EXPECT_EQ(k.name, r.kernel) << r.line;
    EXPECT_EQ(k.rejected.empty(), *r.kernel != 0) << r.line;
    if (!k.rejected.empty()) continue;
    if (p->row) {
      EXPECT_EQ(p->row->numerics.neg_zero, r.neg_zero) << r.line;
      EXPECT_EQ(p->row->numerics.nan_amax, NanAmax::ignore) << r.line;
    }
    if (p->col) {
      EXPECT_EQ(p->col->numerics.neg_zero, r.neg_zero) << r.line;
      EXPECT_EQ(p->col->numerics.nan_amax, r.column_nan) << r.line;
    }
  }
}

TEST(Dispatch, SwizzleCountsWholeBlocks) {   // N8.3
  EXPECT_EQ(parse_line("swizzle mxfp8 64x48 e8m0 flavour=te")->row->numerics.swizzle_extent, SwizzleExtent::floor);
  EXPECT_EQ(parse_line("swizzle mxfp8 64x48 e8m0")->row->numerics.swizzle_extent, SwizzleExtent::ceil);
}

}  // namespace
}  // namespace assay
