// Conversions against NVIDIA's own host headers, where they were found (fixtures/headers).
#include "fixtures/headers/subject_headers.h"

#include <gtest/gtest.h>

#include <cstring>

#include "contract/line.h"
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

TEST(PtxHeaders, ConversionsAreThoseOfNvidiasHostHeaders) {
  const auto headers = make_headers_subject();
  if (!headers->present().yes) GTEST_SKIP() << headers->present().why;
  const auto x = samples();
  struct Row {
    const char* cast;
    const char* text;
    int out_bits;
  };
  // The value goes to the upper part of a pair, so that a result in the wrong half shows.
  const Row rows[] = {
      {"e4m3", "cvt.rn.satfinite.e4m3x2.f32 $d, $a, 0f00000000;\nshr.b16 $d, $d, 8;", 16},
      {"e5m2", "cvt.rn.satfinite.e5m2x2.f32 $d, $a, 0f00000000;\nshr.b16 $d, $d, 8;", 16},
      {"e2m3", "cvt.rn.satfinite.e2m3x2.f32 $d, $a, 0f00000000;\nshr.b16 $d, $d, 8;", 16},
      {"e3m2", "cvt.rn.satfinite.e3m2x2.f32 $d, $a, 0f00000000;\nshr.b16 $d, $d, 8;", 16},
      {"e2m1",
       "{\n.reg .b8 %both;\ncvt.rn.satfinite.e2m1x2.f32 %both, $a, 0f00000000;\nmov.b16 $d, {%both, "
       "0};\nshr.b16 $d, $d, 4;\n}",
       16},
      {"e8m0 round=rp", "cvt.rp.satfinite.ue8m0x2.f32 $d, $a, 0f3F800000;\nshr.b16 $d, $d, 8;", 16},
      {"e8m0 round=rz", "cvt.rz.satfinite.ue8m0x2.f32 $d, $a, 0f3F800000;\nshr.b16 $d, $d, 8;", 16},
      {"bf16 overflow=nosat", "cvt.rn.bf16.f32 $d, $a;", 16},
      {"f16 overflow=nosat", "cvt.rn.f16.f32 $d, $a;", 16}};
  for (const Row& row : rows) {
    const auto want = by_headers(*headers, row.cast, row.out_bits == 16 && row.cast[0] != 'e' ? 2 : 1, x);
    if (want.empty()) {
      ADD_FAILURE() << "the headers do not offer cast " << row.cast;
      continue;
    }
    const auto got = evaluate(row.text, row.out_bits, {{32, x}});
    for (size_t n = 0; n < x.size(); ++n)
      ASSERT_EQ(got[n], want[n]) << row.cast << std::hex << " of " << x[n];
  }
}

}  // namespace
}  // namespace assay::ptx
