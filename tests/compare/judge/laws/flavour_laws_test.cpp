// Laws know the choices of N17: what the reference makes under one value of a field obeys the laws of that
// value, and breaks those of another.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compare/judge/claims.h"
#include "contract/line.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

constexpr const char* kFills[] = {"normal", "ties",           "amax_edges", "nonfinite",
                                  "wide",   "negative_zeros", "zeros"};

// Breaches of the laws of `judged` by what the reference makes of `made`, over all fills.
size_t breaches(const std::string& made, const std::string& judged) {
  const auto reference = make_reference_subject();
  size_t n = 0;
  for (const char* fill : kFills) {
    const Problem maker = fakes::problem(made + " fill=" + fill),
                  judge = fakes::problem(judged + " fill=" + fill);
    const Execution e = execute(*reference, maker, *make_inputs(maker, *reference), {});
    n += check_laws(judge, *make_inputs(judge, *reference), e.planes, "fake").size();
  }
  return n;
}

struct Field {
  std::string line, key;
  std::vector<std::string> values;
  std::vector<std::pair<std::string, std::string>> alike =
      {};  // made by the first, the laws of the second hold: no law can tell, or none does
};
const std::vector<Field> kFields = {
    {"quantize mxfp8 33x70 bf16", "element_ties", {"even", "zero", "away"}},
    {"quantize mxfp4 33x70 bf16", "element_ties", {"even", "zero", "away"}},
    {"quantize fp8_delayed 33x70 bf16 scale=17", "element_overflow", {"saturate", "nan"}},
    {"quantize fp8_delayed 33x70 bf16 scale=17 element=e5m2", "element_overflow", {"saturate", "nan"}},
    {"quantize fp8_current 33x70 f32 amax=0", "zero_amax", {"guarded", "divided", "epsilon"}},
    {"quantize fp8_block 33x200 f32 scale_order=decode_divide",
     "zero_amax",
     {"guarded", "divided", "epsilon"}},
    {"quantize mxfp8 33x70 bf16", "zero_amax", {"guarded", "divided"}},
    {"quantize mxfp8 33x70 bf16", "nan_code", {"positive", "negative"}},
    {"quantize fp8_current 33x70 f32", "pre_round", {"none", "bf16", "f16_rz"}},
    {"quantize nvfp4 33x70 f32", "pre_round", {"none", "bf16", "f16_rz"}},
    {"quantize fp8_current 33x70 f32", "pre_round", {"none", "bf16", "f16"}},
    {"quantize mxfp8 33x70 bf16", "neg_zero", {"plus", "drop", "minus"}},
    {"quantize nvfp4 32x64 bf16", "neg_zero", {"plus", "drop", "minus"}},
    {"quantize fp8_current 33x70 f32 amax=11", "scale_order", {"encode_first", "decode_first"}},
    {"quantize fp8_current 33x70 f32 amax=11 pow2=1",
     "scale_order",
     {"encode_first", "decode_first"},
     {{"encode_first", "decode_first"}, {"decode_first", "encode_first"}}},  // one power of two
    {"quantize fp8_current 33x70 bf16 amax=3", "scale_division", {"divide", "reciprocal", "in_source"}},
    {"quantize fp8_current 33x70 f16 amax=3 scale_order=decode_divide",
     "scale_division",
     {"divide", "reciprocal", "in_source"}},
    {"quantize fp8_current 33x70 bf16 pow2=1 amax=225", "scale_division", {"divide", "in_source"}},
    {"quantize fp8_block 33x200 bf16 pow2=0", "scale_division", {"divide", "reciprocal", "in_source"}},
    {"scale_chain nvfp4 512x2 f32", "scale_division", {"divide", "reciprocal"}},
    {"quantize nvfp4 33x70 bf16 nvfp4_scale=quotient_first", "scale_division", {"divide", "in_source"}},
    {"quantize nvfp4 33x70 bf16 nvfp4_scale=decode_product multiplier=divide_product",
     "scale_division",
     {"divide", "in_source"}},
    {"quantize mxfp8 33x70 bf16",
     "mx_scale",
     {"up", "floor", "ceil", "even", "even_e2m1", "down", "nearest"},
     {{"even_e2m1", "up"}}},  // apart at 1.75 2^e alone
    {"quantize mxfp8 33x70 bf16 element=e5m2",
     "mx_scale",
     {"up", "floor", "ceil", "even", "down", "nearest"}},
    {"quantize mxfp4 33x70 bf16", "mx_scale", {"up", "floor", "ceil", "even", "down", "nearest"}},
    {"scale_chain mxfp4 64x64 f32", "mx_scale", {"up", "floor", "ceil", "even", "down", "nearest"}},
    {"quantize mxfp8 33x70 bf16 mx_scale=floor", "mx_inf", {"max", "nan"}},
    {"quantize nvfp4 33x70 bf16", "nvfp4_scale", {"folded", "unit"}},
    {"quantize nvfp4 33x70 bf16", "nvfp4_floor", {"none", "least_normal", "one", "eighth"}},
    {"quantize nvfp4 33x70 bf16", "scale_round", {"rne", "rp", "away_240"}},
    {"quantize nvfp4 33x70 bf16", "zero_multiplier", {"limit", "zero"}},
    {"scale_chain nvfp4 512x2 f32", "multiplier", {"reciprocal", "divide_product"}},
    {"scale_chain nvfp4 512x2 f32", "zero_multiplier", {"limit", "zero", "tiny"}},
    {"quantize fp8_block 33x200 bf16 scale_order=decode_first", "scale_from", {"amax", "scale"}},
    {"quantize mxfp4 33x70 bf16", "scale_from", {"amax", "scale"}},
    {"quantize nvfp4 32x64 bf16 block=16x16", "scale_from", {"amax", "scale"}},
};

TEST(FlavourLaws, TellTheValuesOfAFieldApart) {
  for (const Field& f : kFields)
    for (const std::string& made : f.values)
      for (const std::string& judged : f.values) {
        const std::string line = f.line + " " + f.key + "=";
        const bool alike =
            made == judged || std::ranges::find(f.alike, std::pair(made, judged)) != f.alike.end();
        EXPECT_EQ(breaches(line + made, line + judged) == 0, alike)
            << line << made << " judged as " << judged;
      }
}

// Lines that only the reference runs obey their laws: no suite judges them.
TEST(FlavourLaws, GivenScales) {  // N17.12
  const char* const sweeps[] = {
      "quantize mxfp8 {33x70,64x64} bf16 element={e4m3,e5m2} block={1x32,32x32} scale_from={amax,scale} "
      "scales={compact,gemm} fill={normal,nonfinite}",
      "quantize mxfp4 {33x70,64x64} bf16 scale_from={amax,scale} scales={compact,gemm} mx_scale={up,floor} "
      "fill={normal,nonfinite}",
      "quantize nvfp4 {33x70,32x64} {f32,bf16} block={1x16,16x16} scale_from={amax,scale} "
      "scales={compact,gemm} multiplier={reciprocal,divide_product}",
      "quantize nvfp4 32x64 bf16 round=sr scale_from={amax,scale}",
      "quantize fp8_block {33x200,130x260} bf16 block={1x128,128x128} scale_from={amax,scale} "
      "scale_order={decode_first,decode_divide} pow2={0,1} fill={normal,nonfinite}",
      "quantize fp8_block 33x200 bf16 scale_from={amax,scale} scale_order=decode_first scales=gemm "
      "fill={normal,wide}",
      "quantize fp8_block 33x200 {bf16,f16} scale_from={amax,scale} scale_order={decode_first,decode_divide} "
      "pow2={0,1} scale_division={reciprocal,in_source} fill={normal,nonfinite}",
      "quantize nvfp4 32x64 {bf16,f16} scale_from={amax,scale} scale_division=in_source nvfp4_scale=decode "
      "multiplier={quotient,decode_reciprocal,divide_product} fill={normal,wide}",
      "quantize mxfp8/fp8_block 33x70 bf16 row.scale_from=scale col.scale_from=amax"};
  const auto reference = make_reference_subject();
  for (const char* sweep : sweeps) {
    const std::vector<std::string> lines = *expand_sweep(sweep);
    for (const std::string& line : lines) {
      const Problem p = fakes::problem(line);
      const std::vector<PlaneData> inputs = *make_inputs(p, *reference);
      const Execution e = execute(*reference, p, inputs, {});
      ASSERT_FALSE(e.error) << line;
      std::vector<std::string> evaluated;
      for (const Breach& b : check_laws(p, inputs, e.planes, "reference", &evaluated))
        ADD_FAILURE() << line << ": " << b.plane << " " << b.where << ": " << b.message;
      EXPECT_NE(std::ranges::count(evaluated, "range"), 0) << line;
    }
  }
}

}  // namespace
}  // namespace assay
