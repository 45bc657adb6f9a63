// The rotation of NVFP4 columns (N11) on the reference: hand-worked bytes, the Sylvester matrix, the order of
// its sums, tensor-core recordings.
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>

#include "fixtures/safetensors.h"
#include "reference/exact_sum.h"
#include "reference/hadamard.h"
#include "reference/rounding.h"
#include "reference/tensor_core.h"
#include "tests/reference/run_line.h"
#include "tests/source_path.h"

namespace assay {
namespace {

using Group = std::array<uint16_t, 16>;
constexpr const char* kSums[] = {"butterfly", "exact", "tc16"};

float value(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }
uint16_t bf16(float v) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
}  // for values that BF16 has
// To nearest even, for finite values.
uint16_t rounded_bf16(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// One group through op hadamard: x is a column of 16.
Group rotated(const Group& v, const std::string& keys = "") {
  const Outputs out =
      run_line("hadamard nvfp4 16x1 bf16 " + keys, {{"x", blob(std::vector<uint16_t>(v.begin(), v.end()))}});
  Group y;
  std::copy_n(out.u16("y").begin(), 16, y.begin());
  return y;
}

// Elements with exponents from `low` to `high`, of either sign.
Group wide(std::mt19937& random, int low, int high) {
  Group v;
  for (uint16_t& e : v)
    e = static_cast<uint16_t>((random() % 2) << 15 |
                              (127 + low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)))
                                  << 7 |
                              random() % 128);
  return v;
}

// The same from 2^-14 to 1, with a large pair: half of the outputs lose both of it, and what binary32 had
// kept beside it.
Group cancelling(std::mt19937& random) {
  Group v = wide(random, -14, 0);
  const size_t place = random() % 8;
  v[place] = v[8 + place] = static_cast<uint16_t>(0x4B00 | random() % 128);  // 2^23 and more
  return v;
}

TEST(Hadamard, GoldenRow) {  // bf16(0.1 (i + 1)) under the signs D7E8 (TransformerEngine's own matrix)
  Group v;
  for (int i = 0; i < 16; ++i) v[static_cast<size_t>(i)] = rounded_bf16(0.1f * static_cast<float>(i + 1));
  const Group y = {0xBFC6, 0xBF40, 0x3F40, 0xBD44, 0x3F40, 0xBD58, 0xBFC6, 0x3F5A,
                   0x3F59, 0x3FD3, 0x3E18, 0x3E17, 0x3E19, 0xBE7E, 0x3F87, 0xBFE0};
  for (const char* sum : kSums) EXPECT_EQ(rotated(v, "rht_sum=" + std::string(sum)), y) << sum;
}

TEST(Hadamard,
     ImpulsesAreTheRowsOfTheMatrix) {  // N11.1: Sylvester's doubling, and the signs on the input index
  std::vector<std::vector<int>> h = {{1}};
  while (h.size() < 16) {
    const size_t n = h.size();
    std::vector<std::vector<int>> twice(2 * n, std::vector<int>(2 * n));
    for (size_t i = 0; i < 2 * n; ++i)
      for (size_t j = 0; j < 2 * n; ++j) twice[i][j] = h[i % n][j % n] * (i >= n && j >= n ? -1 : 1);
    h = twice;
  }
  constexpr int kSigns[] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  for (size_t i = 0; i < 16; ++i) {
    Group v{};
    v[i] = bf16(12);
    for (const char* sum : kSums) {
      Group with_signs, plain;
      for (size_t j = 0; j < 16; ++j) {
        with_signs[j] = bf16(static_cast<float>(3 * kSigns[i] * h[i][j]));
        plain[j] = bf16(static_cast<float>(3 * h[i][j]));
      }
      EXPECT_EQ(rotated(v, "rht_sum=" + std::string(sum)), with_signs) << i << " " << sum;
      EXPECT_EQ(rotated(v, "sign_mask=0 rht_sum=" + std::string(sum)), plain) << i << " " << sum;
    }
  }
}

TEST(Hadamard, TwiceIsTheIdentity) {  // N11.1: on small integers every sum is exact, in BF16 too
  std::mt19937 random(1);
  for (int n = 0; n < 200; ++n) {
    Group v;
    for (uint16_t& e : v) e = bf16(static_cast<float>(static_cast<int>(random() % 7) - 3));
    for (uint16_t& e : v)
      if (value(e) == 0) e = 0;
    for (const char* sum : kSums) {
      const std::string keys = "sign_mask=0 rht_sum=" + std::string(sum);
      EXPECT_EQ(rotated(rotated(v, keys), keys), v) << sum;
    }
  }
}

// ---- the order of the sum -----------------------------------------------------------------------

// The butterfly as it is done in place, in the processor's own binary32.
Group in_place(const Group& v, uint16_t mask) {
  float a[16];
  for (int i = 0; i < 16; ++i)
    a[i] = (mask >> i & 1) ? -value(v[static_cast<size_t>(i)]) : value(v[static_cast<size_t>(i)]);
  for (int h : {1, 2, 4, 8})
    for (int i = 0; i < 16; ++i) {
      if (i & h) continue;
      const float x = a[i], y = a[i + h];
      a[i] = x + y;
      a[i + h] = x - y;
    }
  Group out;
  for (size_t i = 0; i < 16; ++i) out[i] = rounded_bf16(a[i] * 0.25f);
  return out;
}

// One output as a tree whose halves are even and odd leaves: what the stages would give in the order 8, 4,
// 2, 1.
float other_tree(const float* leaves, int n, int stride, int j) {
  if (n == 1) return leaves[0];
  const float a = other_tree(leaves, n / 2, 2 * stride, j),
              b = other_tree(leaves + stride, n / 2, 2 * stride, j);
  return j & stride ? a - b : a + b;
}

TEST(Hadamard, ButterflyInPlaceGivesTheSameTrees) {  // N11.3
  std::mt19937 random(2);
  int other_order = 0;
  for (int n = 0; n < 2000; ++n) {
    const Group v = n % 2 ? wide(random, -12, 12) : cancelling(random);
    const Group y = rotated(v);
    EXPECT_EQ(y, in_place(v, 0xD7E8));
    float leaves[16];
    for (int i = 0; i < 16; ++i)
      leaves[i] = (0xD7E8 >> i & 1) ? -value(v[static_cast<size_t>(i)]) : value(v[static_cast<size_t>(i)]);
    for (int j = 0; j < 16; ++j)
      other_order += y[static_cast<size_t>(j)] != rounded_bf16(other_tree(leaves, 16, 1, j) * 0.25f);
  }
  EXPECT_GT(other_order, 0);  // the data would show another order of the stages
}

// Output 0 under no signs: the plain sum of v0, v1, v2 and v8, over 4.
uint16_t plain_sum(const char* sum, float v0, float v1, float v2, float v8) {
  Group v{};
  v[0] = bf16(v0);
  v[1] = bf16(v1);
  v[2] = bf16(v2);
  v[8] = bf16(v8);
  return rotated(v, "sign_mask=0 rht_sum=" + std::string(sum))[0];
}

TEST(Hadamard, WhatEachSumKeeps) {  // N11.3, by hand
  // 2^25 + 1 rounds to 2^25 in binary32, and is whole in the other two: a grid of 2^(23-25) holds a quarter.
  EXPECT_EQ(plain_sum("butterfly", 0x1p25f, 1, 0, -0x1p25f), 0x0000);
  EXPECT_EQ(plain_sum("exact", 0x1p25f, 1, 0, -0x1p25f), 0x3E80);
  EXPECT_EQ(plain_sum("tc16", 0x1p25f, 1, 0, -0x1p25f), 0x3E80);
  // 2^25 / 4 on a grid of 1: 7 / 4 is cut to 1, and -7 / 4 to -1, toward zero.
  EXPECT_EQ(plain_sum("butterfly", 0x1p27f, 7, 0, -0x1p27f), 0x0000);
  EXPECT_EQ(plain_sum("exact", 0x1p27f, 7, 0, -0x1p27f), 0x3FE0);
  EXPECT_EQ(plain_sum("tc16", 0x1p27f, 7, 0, -0x1p27f), 0x3F80);
  EXPECT_EQ(plain_sum("exact", 0x1p27f, -7, 0, -0x1p27f), 0xBFE0);
  EXPECT_EQ(plain_sum("tc16", 0x1p27f, -7, 0, -0x1p27f), 0xBF80);
  // The exponent of a product is that of its operands: 1.5 * 2^25 counts as 2^25.
  EXPECT_EQ(plain_sum("tc16", 0x1.8p27f, 5, 0, -0x1.8p27f), 0x3F80);
  // The sum is truncated to 24 bits: 2^23 + 3/4 in quarters is 2^25 + 3, of which 2^25 + 2 fits; a BF16 tie
  // then falls to even either way, so the truncation shows where it takes the value below a tie: 1 + 2^-8 -
  // 2^-24 keeps 24 bits, and rounds down.
  EXPECT_EQ(plain_sum("tc16", 4, 0x1p-6f, -0x1p-23f, 0), 0x3F80);
  // The exact sum 1 + 2^-8 + 2^-33 is a BF16 tie once it is in binary32; 2^-23 above the tie it goes up.
  EXPECT_EQ(plain_sum("exact", 4, 0x1p-6f, 0x1p-31f, 0), 0x3F80);
  EXPECT_EQ(plain_sum("exact", 4, 0x1p-6f, 0x1p-21f, 0), 0x3F81);
  // The whole range of BF16 at once: 2^-130 / 4 survives beside 2^120.
  EXPECT_EQ(plain_sum("exact", 0x1p120f, 0x1p-130f, 0, -0x1p120f), 0x0002);
  EXPECT_EQ(plain_sum("tc16", 0x1p120f, 0x1p-130f, 0, -0x1p120f), 0x0000);
}

TEST(Hadamard, WideDataSeparateTheSums) {
  std::mt19937 random(3);
  int butterfly_exact = 0, butterfly_tc16 = 0, exact_tc16 = 0;
  for (int n = 0; n < 2000; ++n) {
    const Group v = cancelling(random);
    const Group b = rotated(v), e = rotated(v, "rht_sum=exact"), t = rotated(v, "rht_sum=tc16");
    for (size_t j = 0; j < 16; ++j) {
      butterfly_exact += b[j] != e[j];
      butterfly_tc16 += b[j] != t[j];
      exact_tc16 += e[j] != t[j];
    }
  }
  EXPECT_GT(butterfly_exact, 0);
  EXPECT_GT(butterfly_tc16, 0);
  EXPECT_GT(exact_tc16, 0);
}

TEST(Hadamard, SpecialElements) {  // N11.3
  for (const char* sum : kSums) {
    SCOPED_TRACE(sum);
    const std::string keys = "sign_mask=0 rht_sum=" + std::string(sum);
    Group v{};
    v[3] = 0xFFC1;
    EXPECT_EQ(rotated(v, keys), (Group{0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF,
                                       0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF}));
    v[3] = 0x7F80;
    v[0] = bf16(1);
    Group y = rotated(v, keys);
    EXPECT_EQ(y[0], 0x7F80);
    EXPECT_EQ(y[1], 0xFF80);  // H[3][1] is -1
    v[0] = 0xFF80;
    y = rotated(v, keys);
    EXPECT_EQ(y[0], 0x7FFF);
    EXPECT_EQ(y[1], 0xFF80);  // both are -infinity
    Group huge;
    huge.fill(0x7F7F);
    EXPECT_EQ(rotated(huge, keys)[0], 0x7F80);  // 4 times BF16's largest
    EXPECT_EQ(rotated(huge, keys)[1], 0x0000);  // neighbours cancel
  }
  Group zeros;
  zeros.fill(0x8000);
  EXPECT_EQ(rotated(zeros, "sign_mask=0")[0], 0x8000);
  EXPECT_EQ(rotated(zeros, "sign_mask=0")[1], 0x0000);  // -0 - -0
  EXPECT_EQ(rotated(zeros, "sign_mask=0 rht_sum=exact")[0], 0x0000);
  EXPECT_EQ(rotated(zeros, "sign_mask=0 rht_sum=tc16")[0], 0x0000);
}

TEST(Hadamard,
     ColumnsInGroupsOfSixteenRows) {  // N11.2, N11.4: y is [cols, rows], its amax the largest of all
  std::vector<uint16_t> x(32 * 3);
  x[5 * 3 + 1] = bf16(4);    // row 5, column 1
  x[18 * 3 + 2] = bf16(-8);  // row 18, column 2: element 2 of the second group
  const Outputs out = run_line("hadamard nvfp4 32x3 bf16", {{"x", blob(x)}});
  const std::vector<uint16_t> y = out.u16("y");
  for (size_t j = 0; j < 16; ++j) {
    EXPECT_EQ(y[j], 0) << j;
    EXPECT_EQ(value(y[32 + j]), -reference::hadamard_sign(5, static_cast<int>(j))) << j;  // sign 5 is -1
    EXPECT_EQ(y[32 + 16 + j], 0) << j;
    EXPECT_EQ(y[64 + j], 0) << j;
    EXPECT_EQ(value(y[64 + 16 + j]), -2 * reference::hadamard_sign(2, static_cast<int>(j))) << j;
  }
  EXPECT_EQ(out.u32("amax")[0], 0x40000000u);
}

// ---- the pieces ---------------------------------------------------------------------------------

TEST(Hadamard, ExactSumRoundsOnce) {
  std::mt19937_64 random(4);
  for (int n = 0; n < 20000;
       ++n) {  // against 128-bit integers, which gcc and clang convert with one rounding
    const int shift = static_cast<int>(random() % 60);
    __extension__ __int128 whole = 0;
    reference::ExactSum sum;
    for (int k = 0; k < 16; ++k) {
      const int64_t significand = static_cast<int64_t>(random() % 512) - 256;
      const int up = k % 2 == 0 ? shift : static_cast<int>(random() % 60);
      __extension__ const __int128 term =
          static_cast<__int128>(significand) * (static_cast<__int128>(1) << up);
      whole += term;
      sum.add(std::ldexp(static_cast<double>(significand), up - 100));
    }
    EXPECT_EQ(sum.rounded(), std::ldexp(static_cast<double>(static_cast<float>(whole)), -100));
  }
  const auto sum_of = [](std::initializer_list<double> terms) {
    reference::ExactSum sum;
    for (double t : terms) sum.add(t);
    return sum.rounded();
  };
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_FALSE(std::signbit(sum_of({-0.0})));
  EXPECT_EQ(sum_of({0x1p24, 1.0}), 0x1p24);                // a tie, to even
  EXPECT_EQ(sum_of({0x1p24, 1.0, 0x1p-298}), 0x1p24 + 2);  // above it by the least there is
  EXPECT_EQ(sum_of({0x1p24, 1.0, -0x1p-298}), 0x1p24);     // below it
  EXPECT_EQ(sum_of({-0x1p24, -1.0, -0x1p-298}), -0x1p24 - 2);
  EXPECT_EQ(sum_of({0x1p127, 0x1p127}), reference::kInfinity);
  EXPECT_EQ(sum_of({-0x1p256, 0x1p256, 0x1p-149}), 0x1p-149);
  EXPECT_EQ(sum_of({0x1p-150}), 0.0);  // half of the least subnormal
  EXPECT_EQ(sum_of({0x1p-150, 0x1p-298}), 0x1p-149);
}

double step(std::initializer_list<double> a, std::initializer_list<double> b, double c) {
  return reference::tensor_core_step(reference::kHopperF16,
                                     reference::factors_of(std::vector<double>(a), -126),
                                     reference::factors_of(std::vector<double>(b), -126), c);
}

TEST(Hadamard, TensorCoreByHand) {
  EXPECT_EQ(step({1, 2}, {3, 4}, 5), 16);
  EXPECT_FALSE(std::signbit(step({-0.0, 0}, {1, 1}, -0.0)));
  EXPECT_EQ(step({1}, {0x1p-26}, 1), 1);              // below the grid of 2^-25
  EXPECT_EQ(step({1, 1}, {0x1p-25, 0x1p-25}, 1), 1);  // both are kept, their sum is truncated to 24 bits
  EXPECT_EQ(step({1, 1, 1, 1}, {0x1p-25, 0x1p-25, 0x1p-25, 0x1p-25}, 1), 1 + 0x1p-23);
  EXPECT_EQ(step({1.5}, {1.5}, 0x1p-24),
            2.25 + 0x1p-24 - 0x1p-24);  // 2.25 has the exponent 0: kept by the grid, lost to 24 bits
  // A subnormal operand counts as 2^-126, so that the grid is 2^-51 and cuts all of the small terms.
  EXPECT_EQ(step({0x1p-127, 0x1p-52, 0x1p-52, 0x1p-52, 0x1p-52}, {0x1p100, 1, 1, 1, 1}, 0), 0x1p-27);
  EXPECT_EQ(step({0x1p-127, 0x1p-51, 0x1p-51, 0x1p-51, 0x1p-51}, {0x1p100, 1, 1, 1, 1}, 0),
            0x1p-27 + 0x1p-49);
  EXPECT_EQ(step({0x1p-130}, {0x1p-19}, 0), 0x1p-149);
  EXPECT_EQ(step({0x1p127}, {4}, 0), reference::kInfinity);
  EXPECT_TRUE(std::isnan(step({reference::kInfinity}, {0}, 0)));
  EXPECT_TRUE(std::isnan(step({reference::kInfinity}, {1}, -reference::kInfinity)));
  EXPECT_EQ(step({-reference::kInfinity}, {1}, 7), -reference::kInfinity);
}

// Products of two rows of 16 as a GPU gave them: tensors a, b [n, 16] of BF16, c and d [n] of F32. The folder
// is fixtures/vectors/silicon, or the one that ASSAY_SILICON names; ci/gpu leaves a recording of its own GPU.
TEST(Hadamard, TensorCoreRecordings) {
  const char* named = std::getenv("ASSAY_SILICON");
  const std::string folder = named ? named : source_path("fixtures/vectors/silicon");
  int recordings = 0;
  for (const char* gpu : {"h100", "h200", "gpu"}) {
    const auto file = safetensors::read(folder + "/" + gpu + "_bf16.safetensors");
    if (!file) continue;
    ++recordings;
    const auto words = [&](const char* name, auto code) {
      std::vector<decltype(code)> out(static_cast<size_t>(file->find(name)->count()));
      std::memcpy(out.data(), file->find(name)->bytes.data(), file->find(name)->bytes.size());
      return out;
    };
    const auto a = words("a", uint16_t{}), b = words("b", uint16_t{});
    const auto c = words("c", uint32_t{}), d = words("d", uint32_t{});
    int wrong = 0;
    for (size_t row = 0; row < d.size(); ++row) {
      std::array<double, 16> x, y;
      for (size_t k = 0; k < 16; ++k) {
        x[k] = value(a[16 * row + k]);
        y[k] = value(b[16 * row + k]);
      }
      wrong += reference::f32_code(reference::tensor_core_step(
                   reference::kHopperF16, reference::factors_of(x, -126), reference::factors_of(y, -126),
                   std::bit_cast<float>(c[row]))) != d[row];
    }
    EXPECT_GT(d.size(), 0u) << gpu;
    EXPECT_EQ(wrong, 0) << gpu;
  }
  if (recordings == 0) GTEST_SKIP() << folder << " holds no recordings of tensor cores";
}

}  // namespace
}  // namespace assay
