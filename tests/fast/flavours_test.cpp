// What other libraries choose (N17), lane by lane with bytes worked by hand, and that a line's choices reach
// its kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "contract/numerics.h"
#include "fast/formats/fp8_current_scale.h"
#include "fast/lane/element_rule.cuh"
#include "fast/lane/mx_scale.cuh"
#include "fast/lane/nvfp4.cuh"
#include "tests/fast/run.h"

namespace assay::fast_host {
namespace {

uint32_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }
float value(uint32_t bits) { return std::bit_cast<float>(bits); }
double narrow(double v) { return static_cast<double>(static_cast<float>(v)); }

struct Random {
  uint64_t state;
  uint32_t operator()() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 32);
  }
};

ElementRule rule(Encoding element, Numerics n, bool divides = false) {
  Quantizer q;
  q.element = element;
  q.numerics = n;
  return ElementRule::of(q, divides);
}
ElementRule ties(Encoding element, ElementTies t, ElementOverflow o = ElementOverflow::saturate) {
  Numerics n;
  n.element_ties = t;
  n.element_overflow = o;
  return rule(element, n);
}
ElementRule zeros(NegZero zero) {
  Numerics n;
  n.neg_zero = zero;
  return rule(Encoding::e4m3, n);
}
ElementRule first_to(PreRound pre, Encoding element = Encoding::e4m3) {
  Numerics n;
  n.pre_round = pre;
  return rule(element, n);
}

constexpr ElementTies kTies[] = {ElementTies::even, ElementTies::zero, ElementTies::away};

TEST(Flavours, Ties) {  // N17.1
  struct Row {
    Encoding element;
    float tie;
    uint32_t want[3];  // even, zero, away
  };
  const Row rows[] = {
      {Encoding::e4m3, 1.0625f, {0x38, 0x38, 0x39}},
      {Encoding::e4m3, 1.1875f, {0x3A, 0x39, 0x3A}},
      {Encoding::e4m3, 0x1p-10f, {0x00, 0x00, 0x01}},
      {Encoding::e4m3, 0x3p-10f, {0x02, 0x01, 0x02}},
      {Encoding::e4m3, 464.0f, {0x7E, 0x7E, 0x7E}},
      {Encoding::e5m2, 1.125f, {0x3C, 0x3C, 0x3D}},
      {Encoding::e5m2, 1.375f, {0x3E, 0x3D, 0x3E}},
      {Encoding::e5m2, 0x1p-17f, {0x00, 0x00, 0x01}},
      {Encoding::e2m1, 0.25f, {0, 0, 1}},
      {Encoding::e2m1, 0.75f, {2, 1, 2}},
      {Encoding::e2m1, 1.25f, {2, 2, 3}},
      {Encoding::e2m1, 1.75f, {4, 3, 4}},
      {Encoding::e2m1, 2.5f, {4, 4, 5}},
      {Encoding::e2m1, 3.5f, {6, 5, 6}},
      {Encoding::e2m1, 5.0f, {6, 6, 7}},
      {Encoding::e2m1, 7.0f, {7, 7, 7}},
  };
  for (const Row& r : rows) {
    const uint32_t sign = r.element == Encoding::e2m1 ? 8 : 0x80,
                   below = ties(r.element, ElementTies::zero).cast(bits_of(r.tie));
    const uint32_t above = ties(r.element, ElementTies::away).cast(bits_of(r.tie));
    for (int t = 0; t < 3; ++t) {
      const ElementRule by = ties(r.element, kTies[t]);
      EXPECT_EQ(by.cast(bits_of(r.tie)), r.want[t]) << r.tie << ' ' << t;
      EXPECT_EQ(by.cast(bits_of(-r.tie)), r.want[t] | sign) << -r.tie << ' ' << t;
      EXPECT_EQ(by.cast(bits_of(r.tie) - 1), below)
          << r.tie << ' ' << t;  // what is no tie goes to the nearest
      EXPECT_EQ(by.cast(bits_of(r.tie) + 1), above) << r.tie << ' ' << t;
    }
  }
  EXPECT_FALSE(ties(Encoding::e4m3, ElementTies::even).on);
  EXPECT_TRUE(ties(Encoding::e4m3, ElementTies::zero).on);
}

TEST(Flavours, Overflow) {  // N17.2
  const auto cast = [](Encoding e, ElementTies t, float v) {
    return ties(e, t, ElementOverflow::nan).cast(bits_of(v));
  };
  EXPECT_EQ(cast(Encoding::e4m3, ElementTies::even, 464.0f), 0x7Eu);
  EXPECT_EQ(cast(Encoding::e4m3, ElementTies::zero, 464.0f), 0x7Eu);
  EXPECT_EQ(cast(Encoding::e4m3, ElementTies::away, 464.0f), 0x7Fu);
  EXPECT_EQ(cast(Encoding::e4m3, ElementTies::away, -464.0f), 0xFFu);
  EXPECT_EQ(cast(Encoding::e4m3, ElementTies::zero, 464.5f), 0x7Fu);
  EXPECT_EQ(cast(Encoding::e4m3, ElementTies::even, -INFINITY), 0xFFu);
  EXPECT_EQ(cast(Encoding::e4m3, ElementTies::even, -NAN), 0x7Fu);
  EXPECT_EQ(cast(Encoding::e5m2, ElementTies::even, 61440.0f),
            0x7Cu);  // an odd largest code: its tie leaves the range
  EXPECT_EQ(cast(Encoding::e5m2, ElementTies::zero, 61440.0f), 0x7Bu);
  EXPECT_EQ(cast(Encoding::e5m2, ElementTies::away, -61440.0f), 0xFCu);
  EXPECT_EQ(cast(Encoding::e5m2, ElementTies::even, INFINITY), 0x7Cu);
  EXPECT_EQ(cast(Encoding::e5m2, ElementTies::even, NAN), 0x7Fu);
  EXPECT_EQ(cast(Encoding::e2m1, ElementTies::even, -INFINITY), 0xFu);
  EXPECT_EQ(ties(Encoding::e4m3, ElementTies::zero).cast(bits_of(INFINITY)), 0x7Eu);
  EXPECT_FALSE(ties(Encoding::e2m1, ElementTies::even, ElementOverflow::nan).on);
}

TEST(Flavours, RoundedTwice) {  // N17.3
  const ElementFactor one{1.0f, false};
  const ElementRule none = first_to(PreRound::none), bf16 = first_to(PreRound::bf16),
                    f16 = first_to(PreRound::f16_rz);
  EXPECT_EQ(none.code(0x3F880001u, one), 0x39u);  // above 1.0625
  EXPECT_EQ(bf16.code(0x3F880001u, one), 0x38u);
  EXPECT_EQ(f16.code(0x3F880001u, one), 0x38u);
  EXPECT_EQ(none.code(0x3F97FFFFu, one), 0x39u);  // below 1.1875
  EXPECT_EQ(bf16.code(0x3F97FFFFu, one), 0x3Au);
  EXPECT_EQ(f16.code(0x3F97FFFFu, one), 0x39u);
  EXPECT_EQ(f16.rounded(bits_of(1e30f)), bits_of(65504.0f));  // finite stays finite
  EXPECT_EQ(f16.rounded(bits_of(-INFINITY)), bits_of(-INFINITY));
  EXPECT_EQ(f16.rounded(bits_of(-0x1p-25f)), kSign);
  EXPECT_EQ(bf16.rounded(kMaxFinite), kInf);
  EXPECT_TRUE(is_nan(bf16.rounded(bits_of(NAN))));
  EXPECT_TRUE(is_nan(f16.rounded(bits_of(NAN))));
  Numerics both;
  both.pre_round = PreRound::bf16;
  both.element_ties = ElementTies::away;
  EXPECT_EQ(rule(Encoding::e4m3, both).code(0x3F880001u, one), 0x39u);  // the second rounding sees a tie
}

TEST(Flavours, RoundedToTheNearestF16First) {  // N17.3
  const ElementFactor one{1.0f, false};
  const ElementRule f16 = first_to(PreRound::f16);
  EXPECT_EQ(f16.code(bits_of(1.0625f + 0x1p-11f), one), 0x38u);
  EXPECT_EQ(f16.code(bits_of(1.0625f + 0x1p-11f) + 1, one), 0x39u);
  EXPECT_EQ(f16.rounded(bits_of(65520.0f)), kInf);
  EXPECT_EQ(f16.rounded(bits_of(65519.0f)), bits_of(65504.0f));
  EXPECT_EQ(f16.rounded(bits_of(-0x1p-26f)), kSign);
}

TEST(Flavours, CodesOfNan) {  // N17.16
  const auto nan_code = [](const char* line) {
    return ElementRule::of(*parsed(line).row, false).code(kNan, {1.0f, false});
  };
  EXPECT_EQ(nan_code("quantize fp8_current 1x1 f32 nan_code=negative"), 0xFFu);
  EXPECT_EQ(nan_code("quantize mxfp4 1x32 f32 nan_code=minus_zero neg_zero=drop"), 8u);
  EXPECT_EQ(nan_code("quantize nvfp4 1x16 f32 element_ties=zero"), 7u);
}

TEST(Flavours, Zeros) {  // N5.6, N17.4
  struct Row {
    float x, factor;
    bool divides;
    uint32_t keep, plus, drop, minus;
  };
  const Row rows[] = {
      {0.0f, 1, false, 0x00, 0x00, 0x00, 0x80},
      {-0.0f, 1, false, 0x80, 0x00, 0x00, 0x80},
      {1e-30f, 1, false, 0x00, 0x00, 0x00, 0x00},
      {-1e-30f, 1, false, 0x80, 0x80, 0x00, 0x80},  // the cast makes it zero
      {1e-30f, 1e-30f, false, 0x00, 0x00, 0x00, 0x00},
      {-1e-30f, 1e-30f, false, 0x80, 0x80, 0x00, 0x80},  // the product underflows
      {3, 0, false, 0x00, 0x00, 0x00, 0x80},
      {-3, 0, false, 0x80, 0x00, 0x00, 0x80},
      {3, INFINITY, true, 0x00, 0x00, 0x00, 0x80},
      {-3, INFINITY, true, 0x80, 0x00, 0x00, 0x80},
      {1e-30f, 1e30f, true, 0x00, 0x00, 0x00, 0x00},
      {-1e-30f, 1e30f, true, 0x80, 0x80, 0x00, 0x80},
      {0.0f, 2, true, 0x00, 0x00, 0x00, 0x80},
      {-1, 1, false, 0xB8, 0xB8, 0xB8, 0xB8},
      {0.0f, 0.0f, true, 0x7F, 0x7F, 0x7F, 0x7F},
      {INFINITY, 0, false, 0x7F, 0x7F, 0x7F, 0x7F},
  };
  for (const Row& r : rows) {
    const ElementFactor f{r.factor, r.divides};
    EXPECT_EQ(zeros(NegZero::keep).code(bits_of(r.x), f), r.keep) << r.x << ' ' << r.factor;
    EXPECT_EQ(zeros(NegZero::plus).code(bits_of(r.x), f), r.plus) << r.x << ' ' << r.factor;
    EXPECT_EQ(zeros(NegZero::drop).code(bits_of(r.x), f), r.drop) << r.x << ' ' << r.factor;
    EXPECT_EQ(zeros(NegZero::minus).code(bits_of(r.x), f), r.minus) << r.x << ' ' << r.factor;
  }
  Numerics drop;
  drop.neg_zero = NegZero::drop;
  EXPECT_EQ(rule(Encoding::e2m1, drop).eight_stored(0xF9C8A180u), 0xF9C0A100u);
  EXPECT_EQ(zeros(NegZero::minus).eight_stored(0xF9C8A180u), 0xF9C8A180u);
  const uint32_t x[8] = {bits_of(-0.0f), bits_of(1), bits_of(-6), bits_of(0.5f),
                         bits_of(-0.1f), bits_of(2), bits_of(3),  bits_of(4)};
  EXPECT_EQ(rule(Encoding::e2m1, drop).eight(x, {1.0f, false}), 0x65401F20u);
  EXPECT_EQ(zeros(NegZero::minus).eight(x, {1.0f, false}),
            0x4844409D'30CC3880u);                                            // -0.1 is nearest to -0.1015625
  EXPECT_EQ(rule(Encoding::e2m1, drop).eight(x, {2.0f, true}), 0x43200D10u);  // halves: 0.25 is a tie to 0
}

TEST(Flavours, DecodeScaleFirst) {  // N17.5
  const auto scales = [](const char* keys, uint32_t amax) {
    return current_scale(*parsed(std::string("quantize fp8_current 1x1 f32 dir=row ") + keys).row,
                         Encoding::f32)(amax);
  };
  const auto expect = [&](const char* keys, uint32_t amax, uint32_t scale, uint32_t scale_inv) {
    EXPECT_EQ(scales(keys, amax).scale, scale) << keys << std::hex << ' ' << amax;
    EXPECT_EQ(scales(keys, amax).scale_inv, scale_inv) << keys << std::hex << ' ' << amax;
  };
  expect("scale_order=decode_first", bits_of(3), 0x43155555u, 0x3BDB6DB7u);  // 3 / 448
  expect("scale_order=decode_divide", bits_of(3), 0x43155555u, 0x3BDB6DB7u);
  expect("scale_order=decode_first element=e5m2", bits_of(28672), bits_of(2), bits_of(0.5f));
  expect("scale_order=decode_first pow2=1", bits_of(3), bits_of(128), 0x3C000000u);  // 2^-7
  expect("scale_order=decode_first pow2=1", bits_of(448), bits_of(1), bits_of(1));
  expect("scale_order=decode_first pow2=1", bits_of(448) + 1, bits_of(0.5f), bits_of(2));
  expect("scale_order=decode_first", 1u, kInf, 0u);  // no clamp: N3.5 does not apply
  expect("scale_order=decode_first pow2=1", 1u, kInf, 1u);
  expect("scale_order=decode_first pow2=1", 0x0800u, kInf, 8u);  // 2048 / 448 of 2^-149 is 5 of them
  expect("scale_order=decode_first pow2=1", 0x0700u, kInf, 4u);
  expect("scale_order=decode_first pow2=1", bits_of(-3), kOne, kOne);  // below eps, which is 0
  for (uint32_t special : {0u, kSign, kInf, kNan})
    expect("scale_order=decode_first pow2=1", special, kOne, kOne);  // N3.4
  expect("scale_order=decode_first inf_amax=zero", kInf, 0u, kInf);
  expect("scale_order=decode_divide inf_amax=zero pow2=1", kInf, 0u, kInf);
  for (uint32_t zero : {0u, kSign}) {  // N17.15
    expect("zero_amax=divided", zero, kInf, 0u);
    expect("scale_order=decode_first pow2=1 zero_amax=divided", zero, kInf, 0u);
    expect("scale_division=in_source zero_amax=divided", zero, kInf, 0u);
  }
  expect("scale_order=decode_first zero_amax=divided eps=448", 0u, kOne, kOne);
  for (uint32_t zero : {0u, kSign})  // N17.15
    for (const char* keys : {"zero_amax=epsilon", "zero_amax=epsilon scale_order=decode_divide pow2=1"})
      expect(keys, zero, bits_of(0x1p23f), bits_of(0x1p-23f));
  expect("zero_amax=epsilon scale_order=decode_first", 1u, bits_of(0x1p23f), bits_of(0x1p-23f));
  expect("zero_amax=epsilon scale_order=decode_first", bits_of(448), kOne, kOne);
  expect("scale_order=decode_first eps=448", 0u, kOne, kOne);
  expect("scale_order=decode_first eps=448", bits_of(1), kOne, kOne);
  EXPECT_EQ(power_of_two_above(0x007FFFFFu), 0x00800000u);
  EXPECT_EQ(power_of_two_above(0x00800000u), 0x00800000u);
  EXPECT_EQ(power_of_two_above(0x00800001u), 0x01000000u);
  EXPECT_EQ(power_of_two_above(3u), 4u);
  EXPECT_EQ(power_of_two_above(kSign), kSign | 1u);
  EXPECT_EQ(power_of_two_above(bits_of(-1.5f)), bits_of(-2));
  EXPECT_EQ(power_of_two_above(kSign | kInf), kSign | kInf);
  // Both divisions in binary64, narrowed once; not the encode scale of N3.3, and not its reciprocal.
  Random random{5};
  int other_scale = 0, other_inverse = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t a = 0x30000000u + random() % 0x20000000u;
    const double d = narrow(double(value(a)) / 448);
    const Fp8Scales s = scales("scale_order=decode_first", a);
    ASSERT_EQ(s.scale_inv, bits_of(static_cast<float>(d)));
    ASSERT_EQ(s.scale, bits_of(static_cast<float>(1 / d)));
    const Fp8Scales usual = scales("scale_order=encode_first", a);
    other_scale += s.scale != usual.scale, other_inverse += s.scale_inv != usual.scale_inv;
  }
  EXPECT_GT(other_scale, 1000);
  EXPECT_GT(other_inverse, 1000);
}

constexpr MxScale kMxScales[] = {MxScale::up,        MxScale::floor, MxScale::ceil,   MxScale::even,
                                 MxScale::even_e2m1, MxScale::down,  MxScale::nearest};

MxScaleRule rule_of(Encoding element, MxScale by, bool inf_is_nan) {
  Quantizer q;
  q.element = element;
  q.numerics.mx_scale = by;
  q.numerics.mx_inf = inf_is_nan ? MxInf::nan : MxInf::max;
  return MxScaleRule::of(q);
}

TEST(Flavours, E8m0Scales) {  // N17.6
  struct Row {
    Encoding element;
    uint32_t amax;
    int want[7];  // in the order of kMxScales
  };
  const Row rows[] = {
      {Encoding::e4m3, bits_of(448), {127, 127, 128, 127, 128, 127, 127}},
      {Encoding::e4m3, bits_of(447), {127, 127, 128, 127, 127, 126, 127}},
      {Encoding::e4m3, bits_of(256), {127, 127, 127, 127, 127, 126, 126}},
      {Encoding::e4m3, bits_of(495), {128, 127, 128, 127, 128, 127, 127}},
      {Encoding::e4m3, bits_of(496), {128, 127, 128, 128, 128, 127, 127}},  // + 16 is 512
      {Encoding::e4m3, bits_of(671), {128, 128, 129, 128, 128, 127, 127}},
      {Encoding::e4m3, bits_of(-672), {128, 128, 129, 128, 128, 127, 128}},
      {Encoding::e5m2, bits_of(61439), {128, 127, 128, 127, 128, 127, 127}},
      {Encoding::e5m2, bits_of(61440), {128, 127, 128, 128, 128, 127, 127}},  // + 4096 is 65536
      {Encoding::e2m3, bits_of(7.5f), {127, 127, 128, 127, 128, 127, 127}},
      {Encoding::e2m3, bits_of(7.75f), {128, 127, 128, 128, 128, 127, 127}},  // + 1/4 is 8
      {Encoding::e2m3, bits_of(12), {128, 128, 129, 128, 128, 127, 128}},
      {Encoding::e3m2, bits_of(28), {127, 127, 128, 127, 128, 127, 127}},
      {Encoding::e3m2, bits_of(30), {128, 127, 128, 128, 128, 127, 127}},  // + 2 is 32
      {Encoding::e2m1, bits_of(6), {127, 127, 128, 127, 127, 127, 127}},
      {Encoding::e2m1, bits_of(7), {128, 127, 128, 128, 128, 127, 127}},
      {Encoding::e2m1, bits_of(8.99f), {128, 128, 129, 128, 128, 127, 127}},
      {Encoding::e2m1, bits_of(9), {128, 128, 129, 128, 128, 127, 128}},  // 1.5: half goes up
      {Encoding::e2m1,
       0x01400000u,
       {0, 0, 1, 0, 0, 0, 0}},  // 6 * 2^-127: half under the exponent field 0 stays
      {Encoding::e2m1, 0x01400003u, {1, 0, 1, 0, 0, 0, 1}},
      {Encoding::e4m3, kMaxFinite, {247, 246, 247, 247, 247, 246, 246}},
      {Encoding::e2m1, kMaxFinite, {253, 252, 253, 253, 253, 252, 252}},
      {Encoding::e4m3, 0u, {0, 0, 0, 0, 0, 0, 0}},
      {Encoding::e4m3, 0x007FFFFFu, {0, 0, 0, 0, 0, 0, 0}},
  };
  for (const Row& r : rows)
    for (size_t i = 0; i < std::size(kMxScales); ++i)
      for (bool nan : {false, true})
        EXPECT_EQ(rule_of(r.element, kMxScales[i], nan)(r.amax), uint32_t(r.want[i]))
            << std::hex << r.amax << ' ' << i;
  for (MxScale by : kMxScales)  // N17.7
    for (Encoding e : {Encoding::e4m3, Encoding::e5m2, Encoding::e2m3, Encoding::e3m2, Encoding::e2m1}) {
      EXPECT_EQ(rule_of(e, by, false)(kInf), 254u);
      EXPECT_EQ(rule_of(e, by, true)(kInf), 255u);
      EXPECT_EQ(rule_of(e, by, false)(0x7F800001u), 255u);
      EXPECT_EQ(rule_of(e, by, true)(kNan), 255u);
    }
}

Nvfp4Chain chain(const std::string& keys, Encoding source = Encoding::f32) {
  return Nvfp4Chain::of(*parsed("scale_chain nvfp4 1x2 f32 " + keys).row, source);
}

TEST(Flavours, Nvfp4BlockScale) {  // N17.8
  const auto scale = [](const char* keys, uint32_t amax, uint32_t block_amax) {
    const Nvfp4Chain c = chain(keys);
    return c.block_scale(c.of_tensor(amax), block_amax);
  };
  const uint32_t whole = bits_of(2688);  // S = P = 1
  for (const char* keys : {"nvfp4_scale=folded", "nvfp4_scale=quotient_first", "nvfp4_scale=product_first",
                           "nvfp4_scale=decode", "nvfp4_scale=decode_product", "nvfp4_scale=unit"}) {
    EXPECT_EQ(scale(keys, whole, bits_of(6)), 0x38u) << keys;
    EXPECT_EQ(scale(keys, whole, bits_of(2688)), 0x7Eu) << keys;
    EXPECT_EQ(scale(keys, whole, kInf), 0x7Eu) << keys;
    EXPECT_EQ(scale(keys, whole, kNan), 0x7Eu) << keys;  // N10.3
    EXPECT_EQ(scale((std::string(keys) + " nan_clamp=propagate").c_str(), whole, kNan), 0x7Fu) << keys;
    EXPECT_EQ(scale(keys, whole, 0u), 0u) << keys;
  }
  // P has no special case: 0 / 0 under an amax of zero is a NaN that the minimum drops.
  EXPECT_EQ(scale("nvfp4_scale=decode", 0u, 0u), 0x7Eu);
  EXPECT_EQ(scale("nvfp4_scale=decode nan_clamp=propagate", 0u, 0u), 0x7Fu);
  EXPECT_EQ(scale("nvfp4_scale=decode_product", 0u, 0u), 0x7Eu);
  EXPECT_EQ(scale("nvfp4_scale=decode", kInf, bits_of(6)), 0u);
  EXPECT_EQ(scale("nvfp4_scale=unit", 0u, 0u), 0u);
  EXPECT_EQ(scale("nvfp4_scale=unit", kNan, bits_of(12)), 0x40u);
  EXPECT_EQ(bits_of(chain("nvfp4_scale=unit").of_tensor(bits_of(3)).encode), kOne);
  EXPECT_EQ(bits_of(chain("nvfp4_scale=unit").of_tensor(kInf).decode), kOne);
  // Every step in binary64, narrowed once; each order differs from the first often enough to be seen.
  const double sixth = double(value(kSixth));
  Random random{7};
  int other[5] = {};
  const char* const kKeys[] = {"nvfp4_scale=quotient_first", "nvfp4_scale=product_first",
                               "nvfp4_scale=decode", "nvfp4_scale=decode_product", "nvfp4_scale=unit"};
  const Nvfp4Chain folded,
      by[] = {chain(kKeys[0]), chain(kKeys[1]), chain(kKeys[2]), chain(kKeys[3]), chain(kKeys[4])};
  for (int i = 0; i < 200000; ++i) {
    const uint32_t amax = (0x38000000u + random() % 0x10000000u) & 0xFFFF0000u,
                   block_amax = (amax - random() % 0x03000000u) & 0xFFFF0000u;
    const double b = double(value(block_amax)), s = narrow(2688 / double(value(amax))),
                 p = narrow(double(value(amax)) / 2688);
    const double want[] = {narrow(narrow(b / 6) * s), narrow(s * narrow(b * sixth)),
                           narrow(narrow(b / 6) / p), narrow(b / narrow(6 * p)), narrow(b / 6)};
    for (int k = 0; k < 5; ++k) {
      const Nvfp4Scales t = by[k].of_tensor(amax);
      ASSERT_EQ(by[k].scaled_amax(t, block_amax), bits_of(static_cast<float>(want[k]))) << kKeys[k];
      other[k] += by[k].block_scale(t, block_amax) != folded.block_scale(folded.of_tensor(amax), block_amax);
    }
  }
  for (int k = 0; k < 5; ++k) EXPECT_GT(other[k], 30) << kKeys[k];
}

TEST(Flavours, Nvfp4ScalesThatVanish) {  // N17.9
  const auto scale = [](const char* keys, uint32_t block_amax) {
    const Nvfp4Chain c = chain(keys);
    return c.block_scale(c.of_tensor(bits_of(2688)), block_amax);
  };
  const uint32_t gone = bits_of(6 * 0x1p-12f),
                 small = bits_of(6 * 0x1p-8f);  // rounds to 00; a subnormal code
  EXPECT_EQ(scale("", gone), 0x00u);
  EXPECT_EQ(scale("", small), 0x02u);
  EXPECT_EQ(scale("nvfp4_floor=least_normal", 0u), 0x08u);
  EXPECT_EQ(scale("nvfp4_floor=least_normal", small), 0x08u);
  EXPECT_EQ(scale("nvfp4_floor=least_normal", bits_of(6)), 0x38u);
  EXPECT_EQ(scale("nvfp4_floor=least_normal nan_clamp=propagate", kNan), 0x7Fu);
  EXPECT_EQ(scale("nvfp4_floor=least_normal", bits_of(-6)), 0x08u);
  for (uint32_t b : {0u, gone}) EXPECT_EQ(scale("nvfp4_floor=eighth", b), 0x20u);
  EXPECT_EQ(scale("nvfp4_floor=one", 0u), 0x38u);
  EXPECT_EQ(scale("nvfp4_floor=one", gone), 0x01u);
  EXPECT_EQ(scale("nvfp4_floor=one", small), 0x02u);
  EXPECT_EQ(scale("nvfp4_floor=eighth", small), 0x02u);
}

TEST(Flavours, Nvfp4Elements) {  // N17.10
  const auto factor = [](const std::string& keys, uint32_t amax, uint32_t scale) {
    const Nvfp4Chain c = chain(keys);
    return ElementFactor{c.multiplier(c.of_tensor(amax), scale), c.divides(scale)};
  };
  const auto expect = [&](const std::string& keys, uint32_t amax, uint32_t scale, uint32_t want,
                          bool divides) {
    EXPECT_EQ(canonical(bits_of(factor(keys, amax, scale).value)), want)
        << keys << std::hex << ' ' << amax << ' ' << scale;
    EXPECT_EQ(factor(keys, amax, scale).divides, divides) << keys;
  };
  const uint32_t four = bits_of(672), quarter = bits_of(10752);  // S = 4 and 1/4, P = 1/4 and 4
  expect("multiplier=quotient", four, 0x44, bits_of(4.0f / 3), false);
  expect("multiplier=decode_reciprocal", four, 0x44, bits_of(4.0f / 3), false);
  expect("multiplier=divide_product", four, 0x44, bits_of(0.75f), true);
  expect("multiplier=divide_quotient", four, 0x44, bits_of(0.75f), true);
  expect("multiplier=divide_product", quarter, 0x7E, bits_of(1792), true);
  expect("multiplier=quotient", four, 0x00, kMaxFinite, false);
  expect("multiplier=decode_reciprocal", four, 0x00, kMaxFinite, false);
  expect("multiplier=divide_product", four, 0x00, 0u, true);
  expect("multiplier=divide_quotient", four, 0x00, 0u, true);
  expect("multiplier=decode_reciprocal", kInf, 0x00, kMaxFinite, false);  // (1 / inf) / 0, dropped
  expect("multiplier=decode_reciprocal nan_clamp=propagate", kInf, 0x00, kNan, false);
  expect("multiplier=divide_product", kInf, 0x00, kNan, true);  // a division has no minimum
  expect("multiplier=quotient", four, 0x7F, kMaxFinite, false);
  expect("multiplier=divide_quotient nan_clamp=drop", four, 0x7F, kNan, true);
  for (const char* by : {"reciprocal", "bf16_quotient", "quotient", "decode_reciprocal", "divide_product",
                         "divide_quotient"}) {
    const std::string keys = std::string("zero_multiplier=zero multiplier=") + by;
    expect(keys, four, 0x00, 0u, false);
    expect(keys, four, 0x80, 0u, false);
    EXPECT_NE(bits_of(factor(keys, four, 0x01).value), 0u);
  }
  expect("multiplier=divide_twice", four, 0x44, bits_of(3), true);  // the scale itself, after P
  expect("multiplier=divide_twice", four, 0x00, 0u, true);
  expect("zero_multiplier=tiny", four, 0x00, 0x322BCC77u, false);
  expect("zero_multiplier=tiny multiplier=divide_twice", four, 0x80, 0x322BCC77u, false);
  const Nvfp4Chain twice = chain("multiplier=divide_twice nvfp4_scale=decode_first");
  EXPECT_EQ(twice.factor(twice.of_tensor(quarter), 0x44).before, 4.0f);
  EXPECT_EQ(value(rule(Encoding::e2m1, {}, true).scaled(bits_of(5), {3.0f, true, 7.0f})), 5.0f / 7 / 3);
  // fl(x / d) is not fl(x * fl(1 / d)).
  const ElementRule divided = rule(Encoding::e2m1, {}, true);
  EXPECT_TRUE(divided.on);
  EXPECT_EQ(value(divided.scaled(bits_of(5), {3.0f, true})), 5.0f / 3);
  EXPECT_EQ(divided.code(bits_of(1), {0.0f, true}), 7u);  // 1 / 0
  EXPECT_EQ(divided.code(bits_of(0), {0.0f, true}), 7u);  // NaN
  EXPECT_EQ(divided.code(bits_of(1), {0.0f, false}), 0u);
  EXPECT_EQ(divided.code(bits_of(-1), {0.0f, false}), 8u);
  EXPECT_EQ(divided.code(kInf, {0.0f, false}), 7u);
}

TEST(Flavours, Nvfp4ScalesRoundedUp) {  // N17.11
  struct Row {
    float v;
    uint32_t code;
  };
  const Row rows[] = {{0, 0x00},        {-0.0f, 0x80},
                      {1, 0x38},        {1.0000001f, 0x39},
                      {1.125f, 0x39},   {0x1p-149f, 0x01},
                      {0x1p-9f, 0x01},  {0x1.000002p-9f, 0x02},
                      {0x1p-6f, 0x08},  {0x1.fffffep-7f, 0x08},
                      {416, 0x7D},      {416.1f, 0x7E},
                      {448, 0x7E},      {449, 0x7E},
                      {INFINITY, 0x7E}, {-1.06f, 0xB8},
                      {-1e-5f, 0x80},   {-1000, 0xFE}};
  for (const Row& r : rows) EXPECT_EQ(encode_e4m3_up(bits_of(r.v)), r.code) << r.v;
  EXPECT_EQ(encode_e4m3_up(kNan), 0x7Fu);
  const Nvfp4Chain up = chain("scale_round=rp");
  EXPECT_EQ(up.block_scale(up.of_tensor(bits_of(2688)), bits_of(6.01f)), 0x39u);
  EXPECT_EQ(up.block_scale(up.of_tensor(bits_of(2688)), bits_of(3000)), 0x7Eu);
}

TEST(Flavours, Nvfp4ScalesOfGguf) {  // N17.11
  struct Row {
    float v;
    uint32_t code;
  };
  const Row rows[] = {{0, 0x00},
                      {-0.0f, 0x80},
                      {0x1.fffffcp-11f, 0x00},
                      {0x1.fffffep-11f, 0x01},
                      {0x1p-10f, 0x01},
                      {0x1.8p-9f, 0x02},
                      {0x1.9ffffep-7f, 0x06},
                      {0x1.Ap-7f, 0x07},
                      {0x1.Ep-7f, 0x07},
                      {0x1.fffffep-7f, 7},
                      {0x1p-6f, 0x08},
                      {0x1.0ffffep-6f, 0x08},
                      {0x1.1p-6f, 0x09},
                      {1.0625f, 0x39},
                      {240, 0x77},
                      {0x1.effffep7f, 0x77},
                      {248, 0x7E},
                      {INFINITY, 0x7E},
                      {-1.0625f, 0xB9},
                      {-300, 0xFE}};
  for (const Row& r : rows) EXPECT_EQ(encode_e4m3_away_240(bits_of(r.v)), r.code) << r.v;
  EXPECT_EQ(encode_e4m3_away_240(kNan), 0x7Fu);
  // Beside ggml's own steps in plain arithmetic: half up at the place of the value, by integers.
  Random random{11};
  for (int i = 0; i < 100000; ++i) {
    const uint32_t v = 0x39000000u + random() % 0x0B000000u;  // 2^-13 to 2^9
    const float a = value(v);
    uint32_t want = 0;
    if (a < 0x1p-6f) {
      const int n = static_cast<int>(std::floor(a * 512.0f + 0.5f));
      want = static_cast<uint32_t>(n > 7 ? 7 : n);
    } else {
      const uint32_t up = (v + (1u << 19)) >> 20;  // of exponent and three digits
      want = up - ((127u - 7u) << 3);
      if (want > 0x77u) want = 0x7E;
    }
    ASSERT_EQ(encode_e4m3_away_240(v), want) << a;
  }
}

// Rounded to the encoding in value space: its quantum at the value's exponent, ties to even by nearbyint.
double rounded_to(Encoding e, double v) {
  if (e == Encoding::f32 || v == 0 || !std::isfinite(v)) return narrow(v);
  const int mantissa = e == Encoding::bf16 ? 7 : 10, least = e == Encoding::bf16 ? -126 : -14;
  const double quantum = std::ldexp(1.0, std::max(std::ilogb(narrow(v)), least) - mantissa),
               y = std::nearbyint(narrow(v) / quantum) * quantum;
  return std::fabs(y) > (e == Encoding::bf16 ? 0x1.FEp127 : 65504.0) ? std::copysign(INFINITY, y) : y;
}

TEST(Flavours, DivisionOfFp8Scales) {  // N17.14
  const auto scales = [](const std::string& keys, Encoding source) {
    return current_scale(*parsed("quantize fp8_current 1x1 f32 dir=row " + keys).row, source);
  };
  const auto expect = [&](const std::string& keys, Encoding source, uint32_t amax, uint32_t scale,
                          uint32_t scale_inv) {
    const Fp8Scales s = scales(keys, source)(amax);
    EXPECT_EQ(s.scale, scale) << keys << std::hex << ' ' << amax;
    EXPECT_EQ(s.scale_inv, scale_inv) << keys << std::hex << ' ' << amax;
  };
  const Encoding f32 = Encoding::f32, bf16 = Encoding::bf16, f16 = Encoding::f16;
  const std::string by_reciprocal = "scale_division=reciprocal", in_source = "scale_division=in_source",
                    first = " scale_order=decode_first";
  expect("", bf16, bits_of(3), 0x43155555u, 0x3BDB6DB7u);                     // 448 / 3
  expect(by_reciprocal, bf16, bits_of(3), 0x43155556u, 0x3BDB6DB6u);          // 448 * 3EAAAAAB
  expect(by_reciprocal + first, bf16, bits_of(3), 0x43155555u, 0x3BDB6DB8u);  // 3 * 3B124925
  expect(in_source, f32, bits_of(3), 0x43155556u, 0x3BDB6DB6u);
  expect(in_source + first, f32, bits_of(3), 0x43155555u, 0x3BDB6DB7u);
  expect(in_source, bf16, bits_of(3), bits_of(150),
         bits_of(0x1.B4p-8f));  // 448 * 0.333984375 = 149.625; 1 / 150 = 218.45 of 2^-15
  expect(in_source + first, bf16, bits_of(3), bits_of(150),
         bits_of(0x1.B6p-8f));  // 219.43 of 2^-15; 2^15 / 219 = 149.6
  expect(in_source, f16, bits_of(3), bits_of(149.25f),
         bits_of(0x1.B7p-8f));  // 448 * 0.333251953125 = 149.297; 1 / 149.25 = 1756.4 of 2^-18
  expect(in_source + " pow2=1", bf16, bits_of(3), bits_of(128), bits_of(0x1p-7f));
  expect(in_source + first + " pow2=1", bf16, bits_of(448) + 1, bits_of(1),
         bits_of(1));  // d rounds to 1 first
  expect("pow2=1" + first, bf16, bits_of(448) + 1, bits_of(0.5f), bits_of(2));
  expect(in_source, f16, bits_of(0x1p-17f), kMaxFinite, 0u);  // 1 / a is infinite in F16; 1 / FLT_MAX is 0
  expect(in_source + " scale_limit=source_max", f16, bits_of(0x1p-17f), bits_of(65504), bits_of(0x1p-16f));
  expect(in_source, bf16, 1u, kMaxFinite, 0x00200000u);
  expect(by_reciprocal, f32, bits_of(0x1p-127f), kMaxFinite, 0x00200000u);
  expect(in_source, f16, bits_of(0x1p100f), 0u, kInf);
  expect(in_source + first, f16, bits_of(0x1p-17f), kInf, 0u);  // d rounds to 0
  expect(in_source + first + " pow2=1", f16, bits_of(0x1p-17f), kInf, 1u);
  for (const std::string& keys : {by_reciprocal, in_source, in_source + first})
    for (uint32_t special : {0u, kSign, kInf, kNan}) expect(keys, bf16, special, kOne, kOne);  // N3.4
  expect(in_source + " inf_amax=zero", bf16, kInf, 0u, kInf);
  expect(by_reciprocal + first + " inf_amax=zero", bf16, kInf, 0u, kInf);

  Random random{11};
  for (Encoding e : {f32, bf16, f16}) {
    const CurrentScale encode = scales(in_source, e), decode = scales(in_source + first, e),
                       encode_by = scales(by_reciprocal, e), decode_by = scales(by_reciprocal + first, e);
    for (int i = 0; i < 20000; ++i) {
      const uint32_t a =
          0x3C800000u + random() % 0x07000000u;  // from 2^-6 to 2^8, so that no step leaves F16
      const auto rd = [&](double v) { return rounded_to(e, v); };
      const double x = double(value(a)), scale = rd(448 * rd(1 / x)), d = rd(x / 448);
      const Fp8Scales s = encode(a), t = decode(a), u = encode_by(a), v = decode_by(a);
      ASSERT_EQ(value(s.scale), scale) << std::hex << a;
      ASSERT_EQ(value(s.scale_inv), rd(1 / scale)) << std::hex << a;
      ASSERT_EQ(value(t.scale_inv), d) << std::hex << a;
      ASSERT_EQ(value(t.scale), rd(1 / d)) << std::hex << a;
      ASSERT_EQ(value(u.scale), narrow(448 * narrow(1 / x))) << std::hex << a;
      ASSERT_EQ(value(v.scale_inv), narrow(x * narrow(1.0 / 448))) << std::hex << a;
      ASSERT_EQ(value(v.scale), narrow(1 / double(value(v.scale_inv)))) << std::hex << a;
    }
  }
}

TEST(Flavours, DivisionOfNvfp4Scales) {  // N17.14
  const std::string by_reciprocal = "scale_division=reciprocal", in_source = "scale_division=in_source";
  const Encoding f32 = Encoding::f32, bf16 = Encoding::bf16, f16 = Encoding::f16;
  const auto expect = [&](const std::string& keys, Encoding source, uint32_t amax, uint32_t s, uint32_t p) {
    const Nvfp4Scales t = chain(keys, source).of_tensor(amax);
    EXPECT_EQ(bits_of(t.encode), s) << keys << std::hex << ' ' << amax;
    EXPECT_EQ(bits_of(t.decode_first), p) << keys << std::hex << ' ' << amax;
  };
  expect("", bf16, bits_of(5), 0x44066666u, 0x3AF3CF3Du);             // 2688 / 5 = 537.6
  expect(by_reciprocal, bf16, bits_of(5), 0x44066667u, 0x3AF3CF3Du);  // 2688 * 3E4CCCCD
  expect(in_source, f32, bits_of(5), 0x44066667u, 0x3AF3CF3Du);
  expect(in_source, bf16, bits_of(5), bits_of(540),
         bits_of(0x1.E8p-10f));  // 2688 * 0.2001953125 = 538.1, 134.5 of 4; 5 / 2688 = 243.8 of 2^-17
  expect(in_source, f16, bits_of(5), bits_of(537.5f),
         bits_of(0x1.E78p-10f));                              // 2688 * 0.199951171875 = 537.47
  expect(in_source, f16, bits_of(0x1p-17f), kMaxFinite, 0u);  // 1 / A is infinite in F16; P vanishes
  expect(in_source, f16, bits_of(0x1p100f), kOne, kInf);      // S vanishes, so that it is 1
  expect(in_source + " inf_amax=zero", bf16, kInf, 0u, kInf);
  expect(in_source, bf16, kInf, kOne, kInf);
  expect(in_source, bf16, 0u, kOne, 0u);
  expect(in_source + " nvfp4_scale=unit", bf16, bits_of(5), kOne, kOne);
  EXPECT_EQ(bits_of(chain(in_source, bf16).of_tensor(kNan).encode), kMaxFinite);  // N10.3
  EXPECT_EQ(bits_of(chain(in_source + " nan_clamp=propagate", f16).of_tensor(kNan).encode), kNan);
  EXPECT_EQ(bits_of(chain(in_source + " nan_tensor_amax=unit", bf16).of_tensor(kNan).encode), kOne);
  EXPECT_EQ(bits_of(chain(in_source, bf16).of_tensor(bits_of(5)).decode),
            0x3AF2B9D6u);  // D = fl(1 / 540): N10.7 is not rounded again
  EXPECT_EQ(bits_of(chain(in_source + " e4m3_max=256", bf16).of_tensor(bits_of(3)).encode),
            bits_of(512));  // 1536 * 0.333984375 = 513

  // A sixth of 7 is 1.1666666: 149.3 of 2^-7 in BF16, 1194.7 of 2^-10 in F16. Not where a product takes the
  // place of the division.
  const Nvfp4Scales one{2688, 1, 1, value(kSixth), 1};
  for (const char* keys : {" nvfp4_scale=quotient_first", " nvfp4_scale=decode", " nvfp4_scale=unit"}) {
    const Nvfp4Chain divided = chain(by_reciprocal + keys, bf16), brain = chain(in_source + keys, bf16),
                     half = chain(in_source + keys, f16);
    EXPECT_EQ(divided.scaled_amax(one, bits_of(7)), 0x3F955555u) << keys;
    EXPECT_EQ(brain.scaled_amax(one, bits_of(7)), bits_of(0x1.2Ap0f)) << keys;
    EXPECT_EQ(half.scaled_amax(one, bits_of(7)), bits_of(0x1.2ACp0f)) << keys;
    EXPECT_EQ(brain.scaled_amax(one, kNan), kMaxFinite) << keys;
  }
  for (const auto& [keys, want] : {std::pair{"", 0x3F955556u},
                                   {" nvfp4_scale=product_first", 0x3F955556u},
                                   {" nvfp4_scale=decode_product", 0x3F955555u},
                                   {" nvfp4_scale=decode_first", 0x3F955555u}})
    EXPECT_EQ(chain(in_source + keys, bf16).scaled_amax(one, bits_of(7)), want) << keys;

  Random random{13};
  for (Encoding e : {f32, bf16, f16}) {
    const Nvfp4Chain c = chain(in_source, e), r = chain(by_reciprocal, e),
                     q = chain(in_source + " nvfp4_scale=quotient_first", e),
                     d = chain(in_source + " nvfp4_scale=decode", e);
    for (int i = 0; i < 20000; ++i) {
      const uint32_t amax = 0x3E000000u + random() % 0x08000000u,
                     block_amax = amax - random() % 0x03000000u;  // no step leaves F16
      const auto rd = [&](double v) { return rounded_to(e, v); };
      const double x = double(value(amax)), b = double(value(block_amax)), s = rd(2688 * rd(1 / x)),
                   p = rd(x / 2688);
      ASSERT_EQ(c.of_tensor(amax).encode, s) << std::hex << amax;
      ASSERT_EQ(c.of_tensor(amax).decode_first, p) << std::hex << amax;
      ASSERT_EQ(r.of_tensor(amax).encode, narrow(2688 * narrow(1 / x))) << std::hex << amax;
      ASSERT_EQ(r.of_tensor(amax).decode_first, narrow(x * narrow(1.0 / 2688))) << std::hex << amax;
      ASSERT_EQ(value(q.scaled_amax(q.of_tensor(amax), block_amax)), narrow(rd(b / 6) * s))
          << std::hex << amax;
      ASSERT_EQ(value(d.scaled_amax(d.of_tensor(amax), block_amax)), narrow(rd(b / 6) / p))
          << std::hex << amax;
    }
  }
}

// --- from the line to the kernel -----------------------------------------------------------------

// Every choice about an element reaches the codes, in both directions: fp8_delayed with a scale of 1 casts x
// itself.
TEST(Flavours, ElementsOfALine) {
  for (const char* source : {"f32", "bf16"})
    for (const char* element : {"e4m3", "e5m2"})
      for (const char* keys :
           {"element_ties=zero", "element_ties=away", "element_ties=away element_overflow=nan",
            "element_overflow=nan", "pre_round=bf16", "pre_round=f16_rz", "pre_round=f16", "neg_zero=drop",
            "neg_zero=minus", "neg_zero=minus pre_round=bf16 element_ties=zero"}) {
        const std::string line = std::string("quantize fp8_delayed 24x40 ") + source +
                                 " scale=0.25 element=" + element + " " + keys;
        const Problem p = parsed(line);
        Planes given;
        Bytes x(static_cast<size_t>(24 * 40 * info(p.x.source).bytes()));
        const float kinds[] = {0.0f,     -0.0f, 1.0625f,    -1.1875f, 464.0f, -61440.0f, 1e-30f,   -1e-30f,
                               INFINITY, NAN,   1.0625001f, 3e38f,    0.3f,   -0x3p-10f, 70000.0f, 5.0f};
        for (int i = 0; i < 24 * 40; ++i) {
          const uint32_t bits = bits_of(4 * kinds[(i * 7 + i / 16) % 16]),
                         code = p.x.source == Encoding::f32 ? bits : bits >> 16;
          std::memcpy(x.data() + i * info(p.x.source).bytes(), &code,
                      static_cast<size_t>(info(p.x.source).bytes()));
        }
        given["x"] = x;
        given["row.given.scale"] = given["col.given.scale"] = Bytes(4);
        const uint32_t quarter = bits_of(0.25f);
        std::memcpy(given["row.given.scale"].data(), &quarter, 4);
        given["col.given.scale"] = given["row.given.scale"];
        const Ran r = run(line, {}, given);
        EXPECT_EQ(r.served.by.rfind("pair<", 0), 0u) << r.served.by;  // no tuned kernel
        const ElementRule by = ElementRule::of(*p.row, false);
        for (int i = 0; i < 24; ++i)
          for (int j = 0; j < 40; ++j) {
            const uint32_t bits = decode_from(p.x.source, at(x, i * 40 + j, info(p.x.source).bytes())),
                           want = by.code(bits, {0.25f, false});
            ASSERT_EQ(at(r.out.at("row.data"), i * 40 + j, 1), want) << line << ' ' << i << ',' << j;
            ASSERT_EQ(at(r.out.at("col.data"), j * 24 + i, 1), want) << line << ' ' << i << ',' << j;
          }
      }
}

// The encoding of x reaches the scales of N17.14, in every format.
TEST(Flavours, ScalesInTheSourceOfALine) {
  const std::pair<const char*, uint32_t> want[] = {
      {"f32", 0x43155556u}, {"bf16", bits_of(150)}, {"f16", bits_of(149.25f)}};
  for (const auto& [source, scale] : want) {
    const std::string tail = std::string(" 8x16 ") + source + " scale_division=in_source pow2=0";
    Planes given;
    const Problem p = parsed("quantize fp8_block" + tail);
    Bytes x(static_cast<size_t>(8 * 16 * info(p.x.source).bytes()));
    const uint32_t three = bits_of(3), code = p.x.source == Encoding::f32    ? three
                                              : p.x.source == Encoding::bf16 ? three >> 16
                                                                             : 0x4200u;
    for (int i = 0; i < 8 * 16; ++i)
      std::memcpy(x.data() + i * info(p.x.source).bytes(), &code,
                  static_cast<size_t>(info(p.x.source).bytes()));
    given["x"] = x;
    const Ran tensor = run("quantize fp8_current" + tail, {}, given),
              rows = run("quantize fp8_current" + tail + " row_scaled=1", {}, given),
              blocks = run(p, *make_host_subject(), {}, given);
    const uint32_t inverse = bits_of(static_cast<float>(rounded_to(p.x.source, 1 / double(value(scale)))));
    for (const char* d : {"row.", "col."}) {
      EXPECT_EQ(at(tensor.out.at(std::string(d) + "scale"), 0, 4), scale) << source;
      EXPECT_EQ(at(rows.out.at(std::string(d) + "scale"), 7, 4), scale) << source;
      EXPECT_EQ(at(rows.out.at(std::string(d) + "scale_inv"), 7, 4), inverse) << source;
      EXPECT_EQ(at(blocks.out.at(std::string(d) + "scale_inv"), 0, 4), inverse) << source;
    }
    // A scale_chain's amaxes are F32.
    const uint32_t amaxes[2] = {bits_of(5), bits_of(5)};
    Planes pair;
    pair["x"] = Bytes(8);
    std::memcpy(pair["x"].data(), amaxes, 8);
    given["row.given.amax"] = given["col.given.amax"] = Bytes(pair["x"].begin(), pair["x"].begin() + 4);
    EXPECT_EQ(
        at(run("scale_chain nvfp4 1x2 f32 scale_division=in_source", {}, pair).out.at("encode_scale"), 0, 4),
        0x44066667u);
    const std::string keys = "scale_division=in_source nvfp4_scale=quotient_first";
    const Ran fp4 = run(std::string("quantize nvfp4 8x16 ") + source + " amax=5 " + keys, {}, given);
    const Nvfp4Chain c = chain(keys, p.x.source);
    EXPECT_EQ(at(fp4.out.at("row.scale_inv"), 0, 1), c.block_scale(c.of_tensor(bits_of(5)), three)) << source;
  }
}

// The last step of a trace is the code that the kernel stored.
void expect_traced(const Problem& p, const Ran& ran, const std::string& what) {
  std::vector<ConstBuffer> inputs;
  for (size_t i = 0; i < ran.in.size(); ++i) inputs.push_back({&ran.in_planes[i], ran.in[i]});
  for (const Plane& plane : ran.out_planes) {
    if (plane.name != "row.data" && plane.name != "col.data") continue;
    for (int64_t r = 3; r < p.x.shape.rows; r += 21)
      for (int64_t c = 1; c < p.x.shape.cols; c += 7) {
        const std::vector<TraceStep> steps = make_host_subject()->trace(p, inputs, *plane.direction, r, c);
        ASSERT_FALSE(steps.empty());
        const int64_t index = plane.transposed ? c * plane.padded.cols + r : r * plane.padded.cols + c;
        const uint32_t byte = at(ran.out.at(plane.name), plane.packed ? index / 2 : index, 1);
        ASSERT_EQ(steps.back().bits, plane.packed ? byte >> (index % 2 * 4) & 0xF : byte)
            << what << ' ' << plane.name << ' ' << r << ',' << c;
      }
  }
}

// Default lines keep their tuned kernels; every other value of every field leaves them, and gives the same
// bytes from each launch and in a trace.
TEST(Flavours, NoTunedKernelServesThem) {
  for (const auto& [keys, kernel] :
       {std::pair{"mxfp8 64x64 bf16", "mxfp8_pair<"},
        {"mxfp4 64x64 bf16", "mxfp4_pair<"},
        {"nvfp4 64x64 bf16", "nvfp4_pair<"},
        {"fp8_block 64x64 bf16", "fp8_block_pair<"},
        {"fp8_block 64x64 bf16 pow2=0 eps=1e-6", "fp8_block_pair<"},
        {"fp8_block 64x64 bf16 block=128x128", "fp8_block_pair<"},
        {"fp8_delayed 64x64 bf16", "fp8_delayed_pair<"},
        {"fp8_current 64x64 bf16", "fp8_current_pair<"},
        {"fp8_current 64x64 bf16 inf_amax=zero scale_limit=source_max", "fp8_current_pair<"}})
    EXPECT_NE(run(std::string("quantize ") + keys).served.by.find(kernel), std::string::npos) << keys;
  int lines = 0;
  for (const NumericInfo& field : kNumerics) {
    if (field.clause.substr(0, 4) != "N17.") continue;
    for (const char* format : {"fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "mxfp4", "nvfp4"}) {
      std::string values(field.values.substr(field.values.find(',') + 1));
      values += ',';
      for (size_t from = 0, to; (to = values.find(',', from)) != std::string::npos; from = to + 1) {
        const std::string word =
            values.substr(values.find_first_not_of(' ', from), to - values.find_first_not_of(' ', from));
        const std::string keys = std::string(format) + " 64x64 bf16 " + std::string(field.name) + "=" + word;
        const auto p = parse_line("quantize " + keys);
        if (!p) continue;  // not a key of this format
        const Ran both = run(*p, *make_host_subject()), general = run(*p, *make_general_host_subject()),
                  apart = run(*p, *make_apart_host_subject());
        EXPECT_NE(both.served.by.find("pair<" + std::string(format) + " row, "), std::string::npos)
            << both.served.by;
        expect_equal(general.out, both.out, keys + ", general");
        expect_equal(apart.out, both.out, keys + ", apart");
        expect_traced(*p, both, keys);
        const Ran split = run("split " + keys + " vary=none groups=64");
        for (const char* plane : {"row.data", "col.data", "row.scale_inv", "col.scale_inv"})
          ASSERT_EQ(split.out.at(plane), both.out.at(plane)) << keys << ' ' << plane;
        ++lines;
      }
    }
  }
  EXPECT_GT(lines, 50);
}

TEST(Flavours, GivenScalesAreTheReferences) {  // N17.12
  const Support s = make_host_subject()->supports(parsed("quantize mxfp8 64x64 bf16 scale_from=amax"));
  EXPECT_FALSE(s.yes);
  EXPECT_NE(s.why.find("N17.12"), std::string::npos);
}

}  // namespace
}  // namespace assay::fast_host
