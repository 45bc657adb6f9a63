// Every cause of a dequantize, put in by a dequantizer of this file: binary32 arithmetic of C++ over the
// bytes of the planes, no code of Assay's but for their places. Without a cause it makes the reference's
// bytes.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

// ---- a dequantizer of rows, and the ways in which it can be wrong ---------------------------------------

struct Ways {
  float (*value)(float code, float scale, float amax) = [](float c, float s, float) { return c * s; };
  enum class Scale {
    right,
    first,
    unpadded,
    compact,
    exponent_field,
    no_nan,
    nan_of_128
  } scale = Scale::right;
  enum class Result { nearest, truncated, flushed, through_bf16 } result = Result::nearest;
  int64_t turned = 0;
  bool halves = false;   // elements of a byte are half a block apart
  bool derived = false;  // the block is as long as the line divided by its number of blocks, rounded up
};

constexpr auto kNan = std::bit_cast<float>(0x7FFFFFFFu);  // N1.3

float small_float(uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const int sign = 1 << (exponent_bits + mantissa_bits),
            mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  const int exponent = static_cast<int>(code & static_cast<uint32_t>(sign - 1)) >> mantissa_bits;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits)
                                   : std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)),
                                                exponent - bias - mantissa_bits);
  return code & static_cast<uint32_t>(sign) ? -size : size;
}
float e4m3(uint32_t code) { return (code & 0x7F) == 0x7F ? kNan : small_float(code, 4, 3, 7); }
float e2m1(uint32_t code) { return small_float(code, 2, 1, 1); }

uint16_t bf16_code(float v, bool truncated) {
  if (std::isnan(v)) return 0x7FFF;
  const auto bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((truncated ? bits : bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Where scale k of line i stands among the bytes: rows of `pitch`, or tiles of 128 by 4 that hold 32 by 4
// by 4.
int64_t place(const Plane& p, int64_t i, int64_t k, Ways::Scale scale) {
  if (scale == Ways::Scale::first) return 0;
  if (scale == Ways::Scale::unpadded) return i * p.logical.cols + k;
  if (p.layout != ScaleLayout::gemm || scale == Ways::Scale::compact) return i * p.padded.cols + k;
  return (i / 128 * (p.padded.cols / 4) + k / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + k % 4;
}

std::vector<std::byte> dequantized(const planes::Case& c, const Ways& ways) {
  const PlaneData *data = nullptr, *scales = nullptr;
  float amax = 1;
  for (const PlaneData& p : c.inputs) {
    if (p.plane.name == "row.data") data = &p;
    else if (p.plane.name == "row.amax") std::memcpy(&amax, p.bytes.data(), 4);
    else scales = &p;
  }
  const bool four = data->plane.encoding == Encoding::e2m1, power = scales->plane.encoding == Encoding::e8m0;
  const PlaneData& y = c.want.front();
  std::vector<std::byte> out(y.bytes.size());
  for (int64_t n = 0; n < c.problem.x.shape.count(); ++n) {
    const int64_t i = n / c.problem.x.shape.cols, j = n % c.problem.x.shape.cols, in_block = j % 32,
                  half = j - in_block + in_block % 16 * 2 + in_block / 16,
                  at = (ways.halves ? n - j + half : n) ^ ways.turned;
    const auto byte = static_cast<uint32_t>(data->bytes[static_cast<size_t>(four ? at / 2 : at)]);
    const float code = four ? e2m1(byte >> (at % 2 * 4) & 15) : e4m3(byte);
    const int64_t length = power ? 32 : 16, cols = c.problem.x.shape.cols,
                  blocks = (cols + length - 1) / length,
                  block = j / (ways.derived ? (cols + blocks - 1) / blocks : length);
    const auto k =
        static_cast<uint32_t>(scales->bytes[static_cast<size_t>(place(scales->plane, i, block, ways.scale))]);
    float scale = !power ? e4m3(k) : k == 0xFF ? kNan : std::ldexp(1.0f, static_cast<int>(k) - 127);
    if (power && ways.scale == Ways::Scale::exponent_field) scale = std::bit_cast<float>(k << 23);
    if (ways.scale == Ways::Scale::no_nan || ways.scale == Ways::Scale::nan_of_128)
      scale = k == 0xFF ? INFINITY : k == 127 + 7 && ways.scale == Ways::Scale::nan_of_128 ? kNan : scale;
    float v = ways.value(code, scale, amax);
    if (std::isnan(v)) v = kNan;
    if (ways.result == Ways::Result::through_bf16)
      v = std::bit_cast<float>(static_cast<uint32_t>(bf16_code(v, false)) << 16);
    if (y.plane.encoding == Encoding::f32) {
      if (ways.result == Ways::Result::flushed && std::fpclassify(v) == FP_SUBNORMAL)
        v = std::copysign(0.0f, v);
      std::memcpy(out.data() + 4 * n, &v, 4);
    } else {
      const uint16_t code16 = bf16_code(v, ways.result == Ways::Result::truncated);
      std::memcpy(out.data() + 2 * n, &code16, 2);
    }
  }
  return out;
}

Diagnosis diagnosed(const planes::Case& c, const Ways& ways) {
  Observation seen{c.problem, "test", c.inputs, c.want};
  seen.got.front().bytes = dequantized(c, ways);
  const auto d = diagnose(seen, *make_reference_subject(), {});
  return d ? *d : Diagnosis{};
}

// ---- the causes ------------------------------------------------------------------------------------------

constexpr float kRange = 6 * 448;
constexpr Ways kOfNvfp4{.value = [](float c, float s, float a) { return c * (s * a * (1 / kRange)); }};

struct Row {
  const char *id, *line;
  Ways ways;
};
Ways valued(float (*value)(float, float, float)) { return {.value = value}; }
Ways scaled(Ways::Scale scale, Ways w = {}) { return w.scale = scale, w; }
Ways rounded(Ways::Result result, Ways w = {}) { return w.result = result, w; }

// A subnormal scale m * 2^-9 as another number of m.
float of_subnormal(float s, float (*other)(float m)) {
  return s != 0 && std::fabs(s) < 0x1p-6f ? other(s * 512) : s;
}
template <float (*other)(float m)> Ways with_subnormal_scales() {
  return valued([](float c, float s, float a) { return c * (of_subnormal(s, other) * a * (1 / kRange)); });
}
float with_one(float m) { return (8 + m) / 1024; }
float with_one_of_least(float m) { return (8 + m) / 512; }
float halved(float m) { return m / 1024; }
float zero(float) { return 0; }

std::vector<Row> rows() {
  using enum Ways::Scale;
  using enum Ways::Result;
  const char* nvfp4 = "dequantize nvfp4 64x256 f32 dir=row";
  const char* subnormal = "dequantize nvfp4 16x256 f32 dir=row fill=amax_edges";
  Ways turned = kOfNvfp4;
  turned.turned = 1;
  return {
      {"scale.inverted", "dequantize mxfp8 64x256 bf16 dir=row",
       valued([](float c, float s, float) { return c / s; })},
      {"scale.left_out", "dequantize mxfp8 64x256 bf16 dir=row",
       valued([](float c, float, float) { return c; })},
      {"scale.first", nvfp4, scaled(first, kOfNvfp4)},
      {"scale.exponent_field", "dequantize mxfp8 64x256 f32 dir=row input=codes", scaled(exponent_field)},
      {"scale.nan_as_infinity", "dequantize mxfp8 64x256 f32 dir=row input=codes", scaled(no_nan)},
      {"scale.nan_by_value=128", "dequantize mxfp4 64x256 bf16 dir=row input=codes", scaled(nan_of_128)},
      {"scale.leading_one", subnormal, with_subnormal_scales<with_one>()},
      {"scale.leading_one_of_least", subnormal, with_subnormal_scales<with_one_of_least>()},
      {"scale.subnormal_halved", subnormal, with_subnormal_scales<halved>()},
      {"scale.flushed", subnormal, with_subnormal_scales<zero>()},
      {"scale.unpadded", "dequantize mxfp8 64x224 bf16 dir=row", scaled(unpadded)},
      {"code.halves", "dequantize mxfp4 64x256 bf16 dir=row", {.halves = true}},
      {"scale.block_derived", "dequantize mxfp8 64x200 bf16 dir=row", {.derived = true}},
      {"scale.compact", "dequantize mxfp8 160x256 bf16 dir=row scales=gemm", scaled(compact)},
      {"result.truncated", "dequantize nvfp4 64x256 bf16 dir=row", rounded(truncated, kOfNvfp4)},
      {"result.flushed", "dequantize mxfp8 64x256 f32 dir=row fill=denormal", rounded(flushed)},
      {"result.through_bf16", nvfp4, rounded(through_bf16, kOfNvfp4)},
      {"code.nibbles_swapped", nvfp4, turned},
      {"amax.left_out", nvfp4, valued([](float c, float s, float) { return c * s; })},
      {"amax.first", nvfp4, valued([](float c, float s, float a) { return c * (s * (a / kRange)); })},
      {"amax.last", nvfp4, valued([](float c, float s, float a) { return c * s * (a / kRange); })},
      {"amax.divided", nvfp4, valued([](float c, float s, float a) { return c * (s * a / kRange); })},
      {"amax.without_six", nvfp4,
       valued([](float c, float s, float a) { return c * (s * a * (6 / kRange)); })},
  };
}

TEST(Dequantized, WithoutACauseTheBytesAreTheReferences) {
  for (const Row& row : rows()) {
    const planes::Case c(row.line);
    const bool nvfp4 = std::string(row.line).find("nvfp4") != std::string::npos;
    EXPECT_EQ(dequantized(c, nvfp4 ? kOfNvfp4 : Ways{}), c.want.front().bytes) << row.line;
  }
}

TEST(Dequantized, NoCauseIsLeftOut) {
  std::set<std::string> known, tried;
  for (const Row& row : rows()) {
    tried.insert(std::string("dequantize.") + row.id);
    for (const Hypothesis& h : line_hypotheses(planes::Case(row.line).problem))
      if (h.id.starts_with("dequantize.")) known.insert(h.id);
  }
  EXPECT_EQ(known, tried);
}

TEST(Dequantized, EveryCauseIsNamed) {
  for (const Row& row : rows()) {
    const Diagnosis d = diagnosed(planes::Case(row.line), row.ways);
    bool named = false;
    for (const Explanation& e : d.explanations)
      named |= e.exact() && e.ids == std::vector{std::string("dequantize.") + row.id};
    EXPECT_TRUE(named) << row.id << '\n' << diagnosis_screen(d);
  }
}

}  // namespace
}  // namespace assay
