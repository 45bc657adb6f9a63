// Causes of a Hadamard transform, of a swizzle back, of a scale chain and of Adam's moments. What came is
// made by loops of this file, or by a line that says the same in numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compare/process/plain_run.h"
#include "tests/compare/diagnosis/named.h"
#include "tests/compare/diagnosis/narrow.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using named::called, named::diagnosed, named::expect_named, named::Planes;
using std::string;

// The transform by the matrix itself: entry (i, j) of it is 1 or -1 by the parity of i & j.
float bf16_of_code(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }
uint16_t code_of(double v) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(v));
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Four times element `row` of a transformed column of x, which is 48 columns wide; `signs` turn the elements
// before it.
double sum_of_16(const std::vector<std::byte>& x, size_t row, size_t column, unsigned signs) {
  double sum = 0;
  for (size_t k = 0; k < 16; ++k) {
    uint16_t code;
    std::memcpy(&code, x.data() + 2 * ((row / 16 * 16 + k) * 48 + column), 2);
    const bool negative = ((signs >> k & 1) + static_cast<unsigned>(std::popcount(k & row % 16))) % 2 != 0;
    sum += negative ? -bf16_of_code(code) : bf16_of_code(code);
  }
  return sum;
}

TEST(OtherOps, ATransformWithSignsBehindItIsNamed) {
  const planes::Case c("hadamard nvfp4 64x48 bf16 sign_mask=0x9C3B");
  const std::vector<std::byte> x = find_plane(c.inputs, "x")->bytes;
  Planes got = c.want;
  float amax = 0;
  for (size_t column = 0; column < 48; ++column)
    for (size_t row = 0; row < 64; ++row) {
      const double sum = sum_of_16(x, row, column, 0);
      const uint16_t code = code_of(0x9C3B >> row % 16 & 1 ? -sum / 4 : sum / 4);
      std::memcpy(called(got, "y").bytes.data() + 2 * (column * 64 + row), &code, 2);
      amax = std::max(amax, std::fabs(bf16_of_code(code)));
    }
  std::memcpy(called(got, "amax").bytes.data(), &amax, 4);
  expect_named("rht.signs_after", c, got);
}

// Of the sums of 16 elements, before they are rounded to bf16.
TEST(OtherOps, AnAmaxOfUnroundedSumsIsNamed) {
  const planes::Case c("hadamard nvfp4 64x48 bf16 sign_mask=0x9C3B");
  const std::vector<std::byte> x = find_plane(c.inputs, "x")->bytes;
  float amax = 0;
  for (size_t column = 0; column < 48; ++column)
    for (size_t row = 0; row < 64; ++row)
      amax = std::max(amax, std::fabs(static_cast<float>(sum_of_16(x, row, column, 0x9C3B) / 4)));
  Planes got = c.want;
  const float rounded = narrow::to_bf16(amax);
  const PlaneData& own = called(got, "amax");
  ASSERT_EQ(code_at(own.plane, own.bytes, 0), std::bit_cast<uint32_t>(rounded));
  std::memcpy(called(got, "amax").bytes.data(), &amax, 4);
  expect_named("rht.amax_of_sums", c, got);
}

TEST(OtherOps, SignsOfATransformAreNamed) {
  const planes::Case c("hadamard nvfp4 64x48 bf16 sign_mask=0x9C3B");
  expect_named("rht.sign_bytes_swapped", c, planes::Case("hadamard nvfp4 64x48 bf16 sign_mask=0x3B9C").want);
}

TEST(OtherOps, ASwizzleBackThatReadsAnotherOrderIsNamed) {
  const planes::Case c("swizzle mxfp8 256x256 e8m0 dir=row inverse=1 fill=wide");
  Planes got = c.want;
  const std::vector<std::byte> from = c.inputs.front().bytes;
  for (size_t r = 0; r < 256; ++r)
    for (size_t k = 0; k < 8; ++k)  // the tile below comes next, where the one beside it should
      got.front().bytes[r * 8 + k] =
          from[(k / 4 * 2 + r / 128) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + k % 4];
  expect_named("swizzle.read_as:tiles_128x4_down", c, got);
}

// Most codes of a swizzle are in another order, and some are wrong besides.
TEST(OtherOps, ASwizzleWithWrongCodesIsNoOrderAlone) {
  const planes::Case c("swizzle mxfp8 256x512 e8m0 dir=row fill=wide");
  Planes got = c.want;
  for (size_t r = 0; r < 256; ++r)
    for (size_t k = 0; k < 16; ++k) got.front().bytes[k * 256 + r] = c.inputs.front().bytes[r * 16 + k];
  for (const size_t i : {3, 700, 1500, 2400, 4000}) got.front().bytes[i] ^= std::byte{0x55};
  EXPECT_NE(diagnosed(c, got).confidence, Confidence::certain);
}

TEST(OtherOps, ScalesInFewerBitsAreNamed) {
  for (const bool half : {false, true}) {
    const planes::Case c("dequantize fp8_current 64x64 bf16 dir=row row_scaled=1");
    Planes read = c.inputs;
    std::vector<std::byte>& scales = called(read, "row.scale_inv").bytes;
    for (size_t i = 0; i < scales.size() / 4; ++i) {
      float v;
      std::memcpy(&v, scales.data() + 4 * i, 4);
      v = half ? narrow::to_f16(v) : narrow::to_bf16(v);
      std::memcpy(scales.data() + 4 * i, &v, 4);
    }
    const auto got = plain_run(*make_reference_subject(), c.problem, read);
    ASSERT_TRUE(got);
    expect_named(half ? "dequantize.scale.in_f16" : "dequantize.scale.in_bf16", c, *got);
  }
}

TEST(OtherOps, ADecodeScaleThatIsDividedIsNamed) {
  const planes::Case c("scale_chain fp8_current 16x64 f32");
  Planes got = c.want;
  const std::vector<std::byte>& x = find_plane(c.inputs, "x")->bytes;
  PlaneData& inverse = called(got, "scale_inv");
  for (size_t i = 0; i < 16 * 64; ++i) {
    float amax;
    std::memcpy(&amax, x.data() + 4 * i, 4);
    const float divided = amax / 448;
    if (amax > 0 && std::isfinite(amax)) std::memcpy(inverse.bytes.data() + 4 * i, &divided, 4);
  }
  expect_named("scale_chain.inverse_divided", c, got);
}

// Codes of E8M0 that are not used by a kernel which keeps exponents of binary32 for normal numbers.
TEST(OtherOps, RangesOfE8m0CodesAreNamed) {
  struct Range {
    const char* id;
    int of_00, of_FF;
  };
  for (const char* line :
       {"scale_chain mxfp8 1x300 f32 fill=nonfinite", "scale_chain mxfp4 1x300 f32 fill=nonfinite"})
    for (const auto& [id, of_00, of_FF] : {Range{"codes_from_01_to_FE", 0x01, 0xFE},
                                           {"codes_from_01", 0x01, 0xFF},
                                           {"codes_to_FE", 0x00, 0xFE}}) {
      planes::Case c(line);
      for (size_t i = 0; i < 300; i += 7) {  // values that need no greater scale than the least
        const float least = i % 2 ? 0 : 0x1p-140f;
        std::memcpy(c.inputs.front().bytes.data() + 4 * i, &least, 4);
      }
      c.got = *plain_run(*make_reference_subject(), c.problem, c.inputs);
      int met_00 = 0, met_FF = 0;
      for (size_t i = 0; i < 300; ++i) {
        std::byte& code = c["scale_inv"].bytes[i];
        const bool is_00 = code == std::byte{0}, is_FF = code == std::byte{0xFF};
        met_00 += is_00, met_FF += is_FF;
        const int kept = is_00 ? of_00 : is_FF ? of_FF : 0;
        if (!is_00 && !is_FF) continue;
        code = static_cast<std::byte>(kept);
        if (kept == 0 || kept == 0xFF) continue;
        const float decoded = std::ldexp(1.0f, kept - 127), multiplier = std::ldexp(1.0f, 127 - kept);
        std::memcpy(c["decoded"].bytes.data() + 4 * i, &decoded, 4);
        std::memcpy(c["multiplier"].bytes.data() + 4 * i, &multiplier, 4);
      }
      ASSERT_TRUE(met_00 > 0 && met_FF > 0) << line;
      expect_named(string("scale_chain.") + id, c, c.got);
    }
}

// One step of Adam in binary32, with a slip in what the update is made of.
struct Moments {
  float p, m, v, c1, c2, eps;
};
TEST(OtherOps, StepsOfAdamAreNamed) {
  const std::pair<const char*, float (*)(const Moments&)> slips[] = {
      {"eps_in_root", [](const Moments& s) { return s.m / s.c1 / std::sqrt(s.v / s.c2 + s.eps); }},
      {"eps_before_correction",
       [](const Moments& s) { return s.m / s.c1 / ((std::sqrt(s.v) + s.eps) / std::sqrt(s.c2)); }},
      {"first_uncorrected", [](const Moments& s) { return s.m / (std::sqrt(s.v / s.c2) + s.eps); }},
      {"second_uncorrected", [](const Moments& s) { return s.m / s.c1 / (std::sqrt(s.v) + s.eps); }},
      {"root_missing", [](const Moments& s) { return s.m / s.c1 / (s.v / s.c2 + s.eps); }},
      {"", [](const Moments& s) { return s.m / s.c1 / (std::sqrt(s.v / s.c2) + s.eps); }},
  };
  const float lr = 0.001f, beta1 = 0.9f, beta2 = 0.999f;
  const planes::Case c("adam f32 16x16 f32 moments=f32 step=3 eps=0.01");
  const auto numbers = [&](const char* name) {
    std::vector<float> out(256);
    std::memcpy(out.data(), find_plane(c.inputs, name)->bytes.data(), 1024);
    return out;
  };
  const auto g = numbers("x"), p = numbers("p"), m = numbers("m"), v = numbers("v");
  for (const auto& [id, update] : slips) {
    Planes got = c.want;
    for (size_t i = 0; i < 256; ++i) {
      const Moments s{p[i],
                      beta1 * m[i] + (1 - beta1) * g[i],
                      beta2 * v[i] + (1 - beta2) * g[i] * g[i],
                      static_cast<float>(1 - std::pow(static_cast<double>(beta1), 3)),
                      static_cast<float>(1 - std::pow(static_cast<double>(beta2), 3)),
                      0.01f};
      const float next = -lr * (0 * s.p + update(s)) + s.p;
      std::memcpy(called(got, "next.p").bytes.data() + 4 * i, &next, 4);
    }
    if (*id) expect_named(string("adam.") + id, c, got);
    else EXPECT_EQ(called(got, "next.p").bytes, c.wanted("next.p").bytes) << "without a slip";
  }
}

TEST(OtherOps, ADecayBeforeTheUpdateIsNamed) {
  // With lr = 1 / 1024 and decay = 1 / 2 the product 1 - lr * decay is exact.
  const planes::Case exact("adam f32 16x16 f32 moments=f32 step=1 decay=0.5 lr=0.0009765625 beta1=0 eps=0");
  Planes late = exact.want;
  for (size_t i = 0; i < 256; ++i) {
    float p, g;
    std::memcpy(&p, find_plane(exact.inputs, "p")->bytes.data() + 4 * i, 4);
    std::memcpy(&g, find_plane(exact.inputs, "x")->bytes.data() + 4 * i, 4);
    float v;
    std::memcpy(&v, find_plane(exact.inputs, "v")->bytes.data() + 4 * i, 4);
    const float beta2 = 0.999f, second = beta2 * v + (1 - beta2) * g * g,
                c2 = static_cast<float>(1 - static_cast<double>(beta2)), root = std::sqrt(second / c2);
    const float u = g / root, next = -0.0009765625f * (0 * p + u) + p * (1 - 0.0009765625f * 0.5f);
    std::memcpy(called(late, "next.p").bytes.data() + 4 * i, &next, 4);
  }
  expect_named("adam.decay_first", exact, late);
}

TEST(OtherOps, MomentsOfAnotherEncodingAreNamed) {
  for (const bool half : {false, true}) {
    const planes::Case c("adam f32 8x16 bf16 moments=f32");
    Planes got = c.want;
    for (const char* name : {"next.m", "next.v"})
      for (size_t i = 0; i < 128; ++i) {
        float v;
        std::memcpy(&v, called(got, name).bytes.data() + 4 * i, 4);
        v = half ? narrow::to_f16(v) : narrow::to_bf16(v);
        std::memcpy(called(got, name).bytes.data() + 4 * i, &v, 4);
      }
    expect_named(half ? "adam.moments_in_f16" : "adam.moments_in_bf16", c, got);
  }
}

}  // namespace
}  // namespace assay
