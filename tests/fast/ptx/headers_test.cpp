// Conversions against NVIDIA's own host headers, where they were found (fixtures/headers).
#include "fixtures/headers/subject_headers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "contract/line.h"
#include "tests/fast/ptx/every_pattern.h"
#include "tests/fast/ptx/samples.h"

namespace assay::ptx {
namespace {

// What the headers make of every pattern.
std::vector<uint64_t> by_headers(Subject& headers, const std::string& keys, int out_bytes,
                                 const std::vector<uint64_t>& x) {
  const auto p =
      parse_line("cast " + keys.substr(0, keys.find(' ')) + " 1x" + std::to_string(x.size()) + " f32" +
                 (keys.find(' ') == std::string::npos ? "" : keys.substr(keys.find(' '))));
  if (!p || !headers.supports(*p).yes) return {};
  const auto in = input_planes(*p), out = output_planes(*p);
  const auto bytes = bytes_of({32, x});
  std::vector<std::byte> y(out[0].bytes());
  const ConstBuffer input{&in[0], bytes};
  const Buffer output{&out[0], y};
  headers.run(*p, {&input, 1}, {&output, 1}, {});
  std::vector<uint64_t> codes(x.size());
  for (size_t n = 0; n < codes.size(); ++n)
    std::memcpy(&codes[n], y.data() + n * static_cast<size_t>(out_bytes), static_cast<size_t>(out_bytes));
  return codes;
}

struct Conversion {
  const char* name;
  const char* cast;
  const char* text;
};

// The value goes to the upper part of a pair, so that a result in the wrong half shows.
const Conversion kConversions[] = {
    {"e4m3", "e4m3", "cvt.rn.satfinite.e4m3x2.f32 $d, $a, 0f00000000;\nshr.b16 $d, $d, 8;"},
    {"e5m2", "e5m2", "cvt.rn.satfinite.e5m2x2.f32 $d, $a, 0f00000000;\nshr.b16 $d, $d, 8;"},
    {"e2m3", "e2m3", "cvt.rn.satfinite.e2m3x2.f32 $d, $a, 0f00000000;\nshr.b16 $d, $d, 8;"},
    {"e3m2", "e3m2", "cvt.rn.satfinite.e3m2x2.f32 $d, $a, 0f00000000;\nshr.b16 $d, $d, 8;"},
    {"e2m1", "e2m1",
     "{\n.reg .b8 %both;\ncvt.rn.satfinite.e2m1x2.f32 %both, $a, 0f00000000;\nmov.b16 $d, {%both, "
     "0};\nshr.b16 $d, "
     "$d, 4;\n}"},
    {"e8m0_up", "e8m0 round=rp", "cvt.rp.satfinite.ue8m0x2.f32 $d, $a, 0f3F800000;\nshr.b16 $d, $d, 8;"},
    {"e8m0_down", "e8m0 round=rz", "cvt.rz.satfinite.ue8m0x2.f32 $d, $a, 0f3F800000;\nshr.b16 $d, $d, 8;"},
    // What nvcc makes of __nv_cvt_float_to_e8m0 where there is no such instruction (sm_90a).
    {"e8m0_up_of_bf16", "e8m0 round=rp",
     "and.b32 $a, $a, 2147483647;\ncvt.rp.bf16.f32 %rs1, $a;\nshr.u16 %rs2, %rs1, 7;\nand.b16 %rs3, %rs1, "
     "127;\nsetp.ne.s16 %p1, %rs3, 0;\nand.b16 %rs4, %rs1, 32767;\nsetp.gt.u16 %p2, %rs4, 64;\nand.pred "
     "%p3, %p2, %p1;\nand.b16 %rs5, %rs1, 32640;\nsetp.ne.s16 %p4, %rs5, 32640;\nand.pred %p5, %p4, "
     "%p3;\nselp.u16 %rs6, 1, 0, %p5;\nadd.s16 %rs7, %rs6, %rs2;\nand.b16 %rs8, %rs7, 255;\nsetp.lt.u16 "
     "%p6, %rs4, 32641;\nsetp.eq.s16 %p7, %rs8, 255;\nand.pred %p8, %p6, %p7;\nselp.s16 %rs9, -1, 0, "
     "%p8;\nadd.s16 $d, %rs7, %rs9;\nand.b16 $d, $d, 255;"},
    {"bf16", "bf16 overflow=nosat", "cvt.rn.bf16.f32 $d, $a;"},
    {"f16", "f16 overflow=nosat", "cvt.rn.f16.f32 $d, $a;"}};

class PtxHeaders : public testing::TestWithParam<Conversion> {
 protected:
  // The headers and the interpreter on the same patterns.
  void expect_equal(Subject& headers, const std::vector<uint64_t>& x) {
    const Conversion& c = GetParam();
    const auto want = by_headers(headers, c.cast, c.cast[0] == 'e' ? 1 : 2, x);
    ASSERT_FALSE(want.empty()) << "the headers do not offer cast " << c.cast;
    const auto got = evaluate(c.text, 16, {{32, x}});
    for (size_t n = 0; n < x.size(); ++n)
      if (got[n] != want[n])
        FAIL() << c.cast << std::hex << " of " << x[n] << " gives " << got[n] << ", not " << want[n];
  }
};

// A sample, or, where ASSAY_PTX_EXHAUSTIVE is set (ci/ptx_long), all 2^32 patterns: some minutes for each.
TEST_P(PtxHeaders, ConversionsAreThoseOfNvidiasHostHeaders) {
  const auto headers = make_headers_subject();
  if (!headers->present().yes) GTEST_SKIP() << headers->present().why;
  if (!std::getenv("ASSAY_PTX_EXHAUSTIVE")) return expect_equal(*headers, samples());
  with_every_pattern([&](const std::vector<uint64_t>& x) { expect_equal(*make_headers_subject(), x); });
}
INSTANTIATE_TEST_SUITE_P(Conversions, PtxHeaders, testing::ValuesIn(kConversions),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace assay::ptx
