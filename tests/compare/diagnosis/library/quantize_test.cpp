// Causes of whole quantizes, and codes that saturate too low.
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "compare/process/plain_run.h"
#include "tests/compare/diagnosis/named.h"

namespace assay {
namespace {

using named::called;
using named::expect_named;
using named::Planes;

float bf16_value(const std::vector<std::byte>& bytes, size_t i) {
  uint16_t code;
  std::memcpy(&code, bytes.data() + 2 * i, sizeof code);
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}
void put_bf16(std::vector<std::byte>& bytes, size_t i, float v) {
  const auto code = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
  std::memcpy(bytes.data() + 2 * i, &code, sizeof code);
}
Planes made(const planes::Case& c, const Planes& inputs) {
  return *plain_run(*make_reference_subject(), c.problem, inputs);
}

TEST(QuantizeCauses, CodesOfE5m2ThatSaturateAt448AreNamed) {
  planes::Case c("quantize fp8_current 33x65 bf16 dir=row element=e5m2");
  for (std::byte& code : c["row.data"].bytes) {  // 5F is 1.75 * 2^8
    const auto sign = code & std::byte{0x80};
    if ((code & std::byte{0x7F}) > std::byte{0x5F}) code = sign | std::byte{0x5F};
  }
  expect_named("code.max_448", c, c.got);
}

// The second half of every block is eight times the first. Under scales of their own both halves have the
// same codes.
TEST(QuantizeCauses, HalvesOfBlocksWithScalesOfTheirOwnAreNamed) {
  planes::Case c("quantize mxfp8 24x96 bf16 dir=row");
  std::vector<std::byte>& x = called(c.inputs, "x").bytes;
  for (size_t i = 0; i < 24 * 96; ++i)
    if (i % 32 >= 16) put_bf16(x, i, 8 * bf16_value(x, i - 16));
  c.want = made(c, c.inputs);
  Planes halved = c.inputs;
  for (size_t i = 0; i < 24 * 96; ++i)
    if (i % 32 >= 16) put_bf16(called(halved, "x").bytes, i, 0);
  Planes got = made(c, halved);
  std::vector<std::byte>& codes = called(got, "row.data").bytes;
  for (size_t i = 0; i < codes.size(); ++i)
    if (i % 32 >= 16) codes[i] = codes[i - 16];
  expect_named("block.parts=2,row", c, got);
  for (std::byte& scale : called(got, "row.scale_inv").bytes)  // padding is 0
    if (scale != std::byte{0}) scale = static_cast<std::byte>(std::to_integer<int>(scale) + 3);
  expect_named("block.parts=2,last,row", c, got);
}

// The rows' values as binary32 has them: code * (scale * amax / (6 * 448)).
TEST(QuantizeCauses, ColumnsOfRowsThatAreNotRoundedAreNamed) {
  planes::Case c("quantize nvfp4/mxfp8 33x64 bf16 col_source=row_dequantized");
  constexpr float kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  float amax;
  std::memcpy(&amax, called(c.want, "row.amax").bytes.data(), 4);
  const PlaneData &data = c.wanted("row.data"), &scales = c.wanted("row.scale_inv");
  const planes::Case columns("quantize mxfp8 33x64 f32 dir=col");
  Planes in = columns.inputs;
  for (size_t i = 0; i < 33 * 64; ++i) {
    const auto code = std::to_integer<uint32_t>(data.bytes[i / 2]) >> (i % 2 * 4) & 15;
    const auto s = std::to_integer<int>(
        scales.bytes[i / 64 * static_cast<size_t>(scales.plane.padded.cols) + i % 64 / 16]);
    const float scale =
        s < 8 ? std::ldexp(static_cast<float>(s), -9) : std::ldexp(static_cast<float>(8 + s % 8), s / 8 - 10);
    const float v = (code & 8 ? -1.0f : 1.0f) * kE2m1[code % 8] * (scale * amax * (1 / (6 * 448.0f)));
    std::memcpy(called(in, "x").bytes.data() + 4 * i, &v, sizeof v);
  }
  Planes got = c.want;
  for (const PlaneData& plane : made(columns, in)) called(got, plane.plane.name).bytes = plane.bytes;
  ASSERT_NE(called(got, "col.data").bytes, c.wanted("col.data").bytes);
  expect_named("columns.of_unrounded_rows", c, got);
}

}  // namespace
}  // namespace assay
