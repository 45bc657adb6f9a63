// hand:dispatch. TransformerEngine's kernel selection (N8), one row per condition.
#include <gtest/gtest.h>

#include "contract/dispatch.h"
#include "contract/line.h"

namespace assay {
namespace {

struct Row {
  const char* line;    // its flavour=te is appended
  const char* kernel;  // empty: rejected
  NegZero neg_zero = NegZero::keep;
  NanAmax column_nan = NanAmax::ignore;
};

TEST(Dispatch, TransformerEngineKernels) {
  constexpr NegZero plus = NegZero::plus;
  for (const Row& r : {
           Row{"quantize mxfp8 64x64 bf16", "mxfp8 specialised, both directions", plus},
           Row{"quantize mxfp8 64x64 f16 arch=sm120", "mxfp8 specialised, both directions", plus,
               NanAmax::propagate},
           Row{"quantize mxfp8 64x64 f16 arch=sm110", "mxfp8 specialised, both directions", plus,
               NanAmax::propagate},
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
           Row{"quantize fp8_current 64x64 bf16 row_scaled=1", ""},
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

// N8.4: kernel, and the Numerics of rows and columns as the canonical line prints them.
struct Nvfp4Row {
  const char* line;
  const char* kernel;
  const char* numerics = "";  // a piece of the canonical line
};

TEST(Dispatch, Nvfp4Kernels) {
  constexpr const char* kFused = "inf_amax=zero nan_tensor_amax=unit nan_clamp=propagate";
  for (const Nvfp4Row& r : {
           Nvfp4Row{"quantize nvfp4 64x128 bf16", "nvfp4 t1d",
                    "inf_amax=unit nan_tensor_amax=clamp nan_clamp=drop"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dir=row", "nvfp4 t1d"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dir=col", "nvfp4 fb"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dir=col block=16x16", "nvfp4 q2d"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 block=16x16", "nvfp4 q2d"},
           Nvfp4Row{"quantize nvfp4 64x128 f32", "nvfp4 fb"},
           Nvfp4Row{"quantize nvfp4 64x128 f16 block=16x16", "nvfp4 fb"},
           Nvfp4Row{"quantize nvfp4 48x128 bf16", "nvfp4 fb"},
           Nvfp4Row{"quantize nvfp4 64x80 bf16", "nvfp4 fb"},
           Nvfp4Row{"quantize nvfp4 64x72 bf16", ""},
           Nvfp4Row{"quantize nvfp4 60x64 bf16", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 arch=sm90", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dispatch=fb", "nvfp4 fb"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dispatch=t1d", "nvfp4 t1d"},
           Nvfp4Row{"quantize nvfp4 64x128 f16 dispatch=t1d", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dispatch=q2d", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dispatch=rhtrc", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dir=row dispatch=rhtrc", "nvfp4 rhtrc", "inf_amax=zero"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dir=row round=sr dispatch=rhtrc", "nvfp4 rhtrc",
                    "draw=te_rhtrc"},
           Nvfp4Row{"quantize nvfp4 64x128 f16 dir=row dispatch=rhtrc", ""},
           Nvfp4Row{"quantize nvfp4 64x128 f32 dir=row dispatch=rhtrc", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dir=row row_scaled=1 dispatch=rhtrc", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dir=col dispatch=rhtrc", ""},
           Nvfp4Row{"quantize nvfp4 96x128 bf16 dir=row dispatch=rhtrc", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 dispatch=generic", ""},
           // GEMM scales
           Nvfp4Row{"quantize nvfp4 128x128 bf16 scales=gemm", ""},
           Nvfp4Row{"quantize nvfp4 128x128 f32 scales=gemm", "nvfp4 fb"},
           Nvfp4Row{"quantize nvfp4 128x128 bf16 scales=gemm block=16x16", "nvfp4 q2d"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 scales=gemm block=16x16", ""},
           // RHT
           Nvfp4Row{"quantize nvfp4 64x128 bf16 col.rht=1", "nvfp4 rhtrc", kFused},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 col.rht=1", "nvfp4 rhtrc", "nan_amax=propagate"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 col.rht=1", "nvfp4 rhtrc", "col.rht_sum=tc16"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 col.rht=1 arch=sm110", "nvfp4 rhtrc", kFused},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 col.rht=1 arch=sm120", "nvfp4 t1d, columns rotated first",
                    "col.rht_sum=tc16"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 col.rht=1 scales=gemm", "nvfp4 rhtrc"},
           Nvfp4Row{"quantize nvfp4 64x64 bf16 col.rht=1 scales=gemm", ""},
           Nvfp4Row{"quantize nvfp4 64x64 bf16 col.rht=1", "nvfp4 t1d, columns rotated first",
                    "inf_amax=unit"},
           Nvfp4Row{"quantize nvfp4 64x64 bf16 dir=col rht=1", "nvfp4 t1d, columns rotated first"},
           Nvfp4Row{"quantize nvfp4 48x64 bf16 col.rht=1", "nvfp4 fb, columns rotated first"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 col.rht=1 dispatch=t1d", "nvfp4 t1d, columns rotated first"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 col.rht=1 block=16x16", ""},
           Nvfp4Row{"quantize nvfp4 32x128 bf16 col.rht=1 dispatch=rhtrc", ""},
           // stochastic rounding
           Nvfp4Row{"quantize nvfp4 64x128 bf16 round=sr", "nvfp4 t1d",
                    "sr_rule=integer sr_bytes=interleaved draw=te_t1d"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 round=sr arch=sm120", "nvfp4 t1d",
                    "sr_rule=fma sr_bytes=ascending draw=te_t1d"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 round=sr block=16x16", "nvfp4 q2d", "draw=te_q2d"},
           Nvfp4Row{"quantize nvfp4 64x128 f32 round=sr", "nvfp4 fb", "draw=te_fb"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 round=sr col.rht=1", "nvfp4 rhtrc", "draw=te_rhtrc"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 round=sr col.rht=1 arch=sm110", ""},
           Nvfp4Row{"quantize nvfp4 64x64 bf16 round=sr col.rht=1", "nvfp4 t1d, columns rotated first",
                    "draw=te_t1d"},
           // row scaled, four over six
           Nvfp4Row{"quantize nvfp4 64x128 bf16 row_scaled=1", "nvfp4 t1d"},
           Nvfp4Row{"quantize nvfp4 64x128 f32 row_scaled=1", ""},
           Nvfp4Row{"quantize nvfp4 64x128 f32 row_scaled=1 dir=row", "nvfp4 fb"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 row_scaled=1 dir=col", ""},
           Nvfp4Row{"quantize nvfp4 64x128 f32 four_over_six=mae", "nvfp4 four over six"},
           Nvfp4Row{"quantize nvfp4 64x128 f32 four_over_six=mse e4m3_max=256 block=16x16",
                    "nvfp4 four over six"},
           Nvfp4Row{"quantize nvfp4 64x128 f32 four_over_six=mae block=16x16 dir=col", ""},
           Nvfp4Row{"quantize nvfp4 128x128 f32 four_over_six=mae scales=gemm", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 four_over_six=mae row_scaled=1 dir=row",
                    "nvfp4 four over six"},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 four_over_six=mae row_scaled=1", ""},
           Nvfp4Row{"quantize nvfp4 64x128 bf16 row.four_over_six=mae", ""},
       }) {
    const auto p = parse_line(std::string(r.line) + " flavour=te");
    ASSERT_TRUE(p) << r.line << ": " << p.error().text();
    const TeKernel k = te_kernel(*p);
    EXPECT_EQ(k.name, r.kernel) << r.line << ": " << k.rejected;
    EXPECT_EQ(k.rejected.empty(), *r.kernel != 0) << r.line;
    EXPECT_NE(to_canonical_line(*p).find(r.numerics), std::string::npos)
        << r.numerics << " is not in " << to_canonical_line(*p);
  }
}

TEST(Dispatch, OtherBlockFormats) {  // N8.5, N8.6
  for (const auto& [line, kernel] : {
           std::pair{"quantize fp8_block 64x128 bf16", "fp8_block vector"},
           std::pair{"quantize fp8_block 1x7 bf16 block=128x128", "fp8_block square"},
           std::pair{"quantize fp8_block 64x128 bf16 pow2=0", ""},
           std::pair{"quantize fp8_block 64x128 bf16 pow2=0 arch=sm90", "fp8_block vector"},
           std::pair{"quantize fp8_block 64x128 bf16 scales=gemm", ""},
           std::pair{"quantize fp8_block 64x128 bf16 dispatch=generic", ""},
           std::pair{"quantize mxfp4 64x128 bf16", ""},
           std::pair{"quantize mxfp8 64x128 bf16 col_source=row_dequantized", ""},
           std::pair{"quantize nvfp4/mxfp8 64x128 bf16", ""},
       }) {
    const auto p = parse_line(std::string(line) + " flavour=te");
    ASSERT_TRUE(p) << line << ": " << p.error().text();
    EXPECT_EQ(te_kernel(*p).name, kernel) << line;
    if (*kernel && p->row->format == FormatId::fp8_block) {
      EXPECT_EQ(p->row->numerics.scale_limit, ScaleLimit::source_max) << line;
    }
  }
}

TEST(Dispatch, GroupedKernels) {  // N8.7
  for (const auto& [line, kernel, changes] : {
           std::tuple{"split fp8_current 256x48 bf16 groups=100,156", "group fp8 current", "neg_zero=plus"},
           std::tuple{"split fp8_current 256x48 f32 groups=100,156 arch=sm90", "group fp8 current", ""},
           std::tuple{"split fp8_current 256x40 bf16 groups=100,156", "", ""},
           std::tuple{"split fp8_current 256x40 bf16 groups=100,156 arch=sm90", "group fp8 current", ""},
           std::tuple{"split mxfp8 256x48 bf16 groups=128,128", "group mxfp8", ""},
           std::tuple{"split mxfp8 256x48 bf16 groups=96,160", "", ""},
           std::tuple{"split mxfp8 128x256 bf16 vary=last groups=96,160", "", ""},
           std::tuple{"split mxfp8 256x48 bf16 groups=128,128 arch=sm90", "", ""},
           std::tuple{"split fp8_block 256x48 bf16 groups=128,128 arch=sm90", "group fp8_block",
                      "scale_limit=source_max"},
           std::tuple{"split fp8_block 256x48 bf16 groups=128,128", "", ""},
           std::tuple{
               "split nvfp4 256x128 bf16 groups=128,128 col.rht=1", "group nvfp4 rhtrc",
               "inf_amax=zero nan_amax=propagate nan_tensor_amax=unit nan_clamp=propagate col.rht_sum=tc16"},
           std::tuple{"split nvfp4 256x128 bf16 groups=64,192 col.rht=1", "group nvfp4 rows, columns rhtc",
                      "col.inf_amax=zero col.nan_amax=propagate col.nan_tensor_amax=unit "
                      "col.nan_clamp=propagate col.rht_sum=tc16"},
           std::tuple{"split nvfp4 256x128 bf16 groups=96,160 col.rht=1", "", ""},
           std::tuple{"split nvfp4 256x128 bf16 groups=64,192 dir=row", "group nvfp4 rows", ""},
           std::tuple{"split nvfp4 256x128 bf16 groups=128,128 col.rht=1 round=sr", "", ""},
           std::tuple{"split nvfp4 256x128 bf16 groups=128,128", "", ""},
           std::tuple{"split fp8_delayed 256x128 bf16 groups=128,128", "", ""},
           std::tuple{"split mxfp8/fp8_current 256x128 bf16 groups=128,128", "", ""},
       }) {
    const auto te = parse_line(std::string(line) + " flavour=te");
    ASSERT_TRUE(te) << line << ": " << te.error().text();
    EXPECT_EQ(te_kernel(*te).name, kernel) << line;
    EXPECT_EQ(te_kernel(*te).rejected.empty(), *kernel != 0) << line;
    EXPECT_EQ(*parse_line(to_line(*te)), *te) << line;
    const auto plain =
        parse_line(std::string(line).substr(0, std::string(line).find(" arch=")) + " " + changes);
    ASSERT_TRUE(plain) << line << ": " << plain.error().text();
    EXPECT_EQ(te->row->numerics, plain->row->numerics) << line;
    EXPECT_EQ(te->col.value_or(Quantizer{}).numerics, plain->col.value_or(Quantizer{}).numerics) << line;
  }
}

TEST(Dispatch, SwizzleCountsWholeBlocks) {  // N8.3
  EXPECT_EQ(parse_line("swizzle mxfp8 64x48 e8m0 flavour=te")->row->numerics.swizzle_extent,
            SwizzleExtent::floor);
  EXPECT_EQ(parse_line("swizzle mxfp8 64x48 e8m0")->row->numerics.swizzle_extent, SwizzleExtent::ceil);
}

TEST(Dispatch, SaysWhyThereIsNone) {
  for (const auto& [line, why] :
       {std::pair{"quantize nvfp4 64x128 bf16 row_scaled=1 dir=col", "row-scaled NVFP4 needs row data"},
        {"quantize mxfp8/nvfp4 128x128 bf16", "TransformerEngine has no single kernel for a pair of formats"},
        {"quantize nvfp4/mxfp8 128x128 bf16",
         "TransformerEngine has no single kernel for a pair of formats"}}) {
    const auto p = parse_line(std::string(line) + " flavour=te");
    ASSERT_TRUE(p) << p.error().text();
    EXPECT_EQ(te_kernel(*p).rejected, why);
  }
}

}  // namespace
}  // namespace assay
