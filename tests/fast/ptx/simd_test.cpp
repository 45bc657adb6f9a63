// Packed integers, extrema that are not negative, functions of halves with a bound, and atomics of 16 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

using Words = std::vector<uint64_t>;

// Words with edges of bytes and halves, and drawn ones.
std::vector<Column> drawn_words(size_t count) {
  std::vector<Column> c(count, Column{32, {}});
  const Words edges = {0,          1,          0x7F,       0x80,       0xFF,       0x100,
                       0x7FFF,     0x8000,     0xFFFF,     0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                       0xFFFFFF80, 0xFFFFFF7F, 0xFFFF8000, 0xFFFF7FFF, 0x00FF00FF, 0x80FF017F};
  for (const uint64_t a : edges)
    for (const uint64_t b : edges)
      for (size_t k = 0; k < count; ++k)
        c[k].values.push_back(k == 0 ? a : k == 1 ? b : a * 0x9E3779B9 % 0x100000000);
  Draw draw{7};
  for (size_t n = 0; n < 4000; ++n)
    for (Column& column : c) column.values.push_back(draw() >> (n % 33) & 0xFFFFFFFF);
  return c;
}

TEST(PtxSimd, DifferencesOfBytes) {
  const auto c = drawn_words(3);
  const auto got = evaluate("vabsdiff4.u32.u32.u32 $d, $a, $b, $c;", 32, c),
             bounded = evaluate("vabsdiff4.u32.u32.u32.sat $d, $a, $b, $c;", 32, c),
             sums = evaluate("vabsdiff4.u32.u32.u32.add $d, $a, $b, $c;", 32, c);
  for (size_t n = 0; n < got.size(); ++n) {
    uint64_t want = 0, sum = c[2].values[n];
    for (int k = 24; k >= 0; k -= 8) {
      const auto byte = [&](size_t of) { return static_cast<int>(c[of].values[n] >> k & 0xFF); };
      const auto difference = static_cast<uint64_t>(std::abs(byte(0) - byte(1)));
      want = want * 256 + difference, sum += difference;
    }
    ASSERT_EQ(got[n], want) << n;
    ASSERT_EQ(bounded[n], want) << n;
    ASSERT_EQ(sums[n], sum % 0x100000000) << n;
  }
}

TEST(PtxSimd, PackedPartsAreClampedToTheirRange) {
  const struct {
    const char* type;
    int bits;
    int64_t least, most;
  } kParts[] = {{"u8", 8, 0, 255}, {"s8", 8, -128, 127}, {"u4", 4, 0, 15},      {"s4", 4, -8, 7},
                {"u2", 2, 0, 3},   {"s2", 2, -2, 1},     {"u16", 16, 0, 65535}, {"s16", 16, -32768, 32767}};
  const auto c = drawn_words(3);
  for (const auto& p : kParts) {
    const std::string text = std::string("cvt.pack.sat.") + p.type + ".s32" +
                             (p.bits < 16 ? ".b32 $d, $a, $b, $c;" : " $d, $a, $b;");
    const auto got = evaluate(text, 32, c);
    for (size_t n = 0; n < got.size(); ++n) {
      const auto part = [&](size_t of) {
        int64_t v = static_cast<int64_t>(c[of].values[n]);
        if (v >= int64_t{1} << 31) v -= int64_t{1} << 32;
        v = std::min(std::max(v, p.least), p.most);
        return static_cast<uint64_t>(v < 0 ? v + (int64_t{1} << p.bits) : v);
      };
      uint64_t want = part(1) + (part(0) << p.bits);
      if (p.bits < 16) want += c[2].values[n] << (2 * p.bits) & 0xFFFFFFFF;
      ASSERT_EQ(got[n], want) << text << n;
    }
  }
  // By hand: 300 and -5 under 0xABCD.
  const Column a{32, {300}}, b{32, {0xFFFFFFFB}}, above{32, {0xABCD}};
  EXPECT_EQ(evaluate("cvt.pack.sat.u8.s32.b32 $d, $a, $b, $c;", 32, {a, b, above}), (Words{0xABCDFF00}));
  EXPECT_EQ(evaluate("cvt.pack.sat.s8.s32.b32 $d, $a, $b, $c;", 32, {a, b, above}), (Words{0xABCD7FFB}));
}

TEST(PtxSimd, ExtremaAreNotNegative) {
  const auto c = drawn_words(2);
  const auto signed_part = [](uint64_t v, int shift, int bits) {
    const auto part = static_cast<int64_t>(v >> shift & ((uint64_t{1} << bits) - 1));
    return part >= int64_t{1} << (bits - 1) ? part - (int64_t{1} << bits) : part;
  };
  for (const bool greatest : {false, true}) {
    const std::string name = greatest ? "max" : "min";
    const auto whole = evaluate(name + ".relu.s32 $d, $a, $b;", 32, c),
               halves = evaluate(name + ".s16x2.relu $d, $a, $b;", 32, c);
    for (size_t n = 0; n < whole.size(); ++n) {
      const auto of = [&](int shift, int bits) {
        const int64_t a = signed_part(c[0].values[n], shift, bits),
                      b = signed_part(c[1].values[n], shift, bits), v = greatest == (a > b) ? a : b;
        return static_cast<uint64_t>(v < 0 ? 0 : v);
      };
      ASSERT_EQ(whole[n], of(0, 32)) << name << n;
      ASSERT_EQ(halves[n], of(0, 16) | of(16, 16) << 16) << name << n;
    }
  }
}

double value_of_half(uint64_t code, bool bf16) {
  const int fraction = bf16 ? 7 : 10, bias = bf16 ? 127 : 15, all = bf16 ? 255 : 31;
  const auto exponent = static_cast<int>(code >> fraction) & all;
  const auto rest = static_cast<double>(code & ((1u << fraction) - 1));
  const double sign = code >> 15 ? -1 : 1;
  if (exponent == all) return rest != 0 ? std::nan("") : sign * HUGE_VAL;
  return sign * std::ldexp(exponent ? rest + (1 << fraction) : rest, std::max(exponent, 1) - bias - fraction);
}

// 9.7.4.9, 9.7.4.10: the bounds of the ISA, over every code, and the special values that it lists.
TEST(PtxSimd, FunctionsOfHalvesKeepTheirBounds) {
  Column codes{16, {}}, both{32, {}};
  for (uint64_t n = 0; n < 0x10000; ++n)
    codes.values.push_back(n), both.values.push_back(n << 16 | (n ^ 0x8000));
  for (const bool bf16 : {false, true}) {
    const std::string type = bf16 ? "bf16" : "f16", ftz = bf16 ? ".ftz" : "";
    const auto tanh = evaluate("tanh.approx." + type + " $d, $a;", 16, {codes}),
               power = evaluate("ex2.approx" + ftz + "." + type + " $d, $a;", 16, {codes}),
               tanhs = evaluate("tanh.approx." + type + "x2 $d, $a;", 32, {both}),
               powers = evaluate("ex2.approx" + ftz + "." + type + "x2 $d, $a;", 32, {both});
    for (uint64_t n = 0; n < 0x10000; ++n) {
      ASSERT_EQ(tanhs[n], tanh[n] << 16 | tanh[n ^ 0x8000]) << n;
      ASSERT_EQ(powers[n], power[n] << 16 | power[n ^ 0x8000]) << n;
      const double v = value_of_half(n, bf16);
      if (v != v) {
        ASSERT_EQ(tanh[n], 0x7FFFu);
        ASSERT_EQ(power[n], 0x7FFFu);
        continue;
      }
      ASSERT_EQ(tanh[n] >> 15, n >> 15) << type << n;
      ASSERT_LE(std::fabs(value_of_half(tanh[n], bf16) - std::tanh(v)), bf16 ? 0x1p-8 : std::exp2(-10.987));
      const double want = std::exp2(v), got = value_of_half(power[n], bf16),
                   least = bf16 ? 0x1p-126 : 0x1p-14;
      ASSERT_EQ(power[n] >> 15, 0u) << type << n;
      if (want >= (bf16 ? 0x1p128 : 65520.0)) {
        ASSERT_EQ(got, HUGE_VAL) << type << n;
        continue;
      }
      const double bound = want < least ? (bf16 ? 0x1p-126 : 0x1p-25) : want * std::exp2(bf16 ? -7 : -9.9);
      ASSERT_LE(std::fabs(got - want), bound) << type << n;
      ASSERT_TRUE(!bf16 || got == 0 || got >= least) << n;
    }
  }
}

TEST(PtxSimd, ApproximateHalvesMoveByOnePlaceWhereTheyAreAsked) {
  const auto values = [](uint64_t perturb) {
    RunOptions options;
    options.perturb = perturb;
    return words_of_warp(
        ".reg .b32 %r<3>;\n.reg .b64 %rd;\nmov.u32 %r0, %tid.x;\nmad.lo.u32 %r1, %r0, 0x200, "
        "0x3C000000;\ntanh.approx.f16x2 %r1, %r1;\nld.param.u64 %rd, [out];\nmad.wide.u32 %rd, %r0, 4, "
        "%rd;\nst.global.u32 [%rd], %r1;\nret;",
        options);
  };
  const auto exact = values(0), down = values(1), up = values(2), drawn = values(3);
  EXPECT_EQ(exact[0], 0x3A180000u);  // tanh 1 = .76159, and 0
  for (size_t n = 0; n < 32; ++n) {
    const bool normal = (exact[n] & 0x7FFF) >= 0x0400;
    EXPECT_EQ(down[n], exact[n] - 0x10000 - (normal && exact[n] % 0x8000 != 0x0400 ? 1 : 0)) << n;
    EXPECT_EQ(up[n], exact[n] + 0x10000 + (normal ? 1 : 0)) << n;
    EXPECT_LE((drawn[n] >> 16) - (exact[n] >> 16) + 1, 2u) << n;
    EXPECT_LE((drawn[n] & 0xFFFF) - (exact[n] & 0xFFFF) + 1, 2u) << n;
  }
}

// Barriers that combine, in the form that whole warps need not reach together.
TEST(PtxSimd, BarriersCombinePredicates) {
  std::vector<uint32_t> out(64);
  Module m(kernel_text(
      ".param .u64 out",
      ".reg .pred %p<5>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [out];\nmov.u32 %r0, "
      "%tid.x;\nmad.wide.u32 %rd1, %r0, 4, %rd1;\nsetp.lt.u32 %p0, %r0, 37;\nbarrier.red.popc.u32 %r1, 1, "
      "%p0;\nbarrier.cta.red.and.aligned.pred %p1, 2, 64, %p0;\nbarrier.red.or.pred %p2, 3, %p0;\n"
      "barrier.red.and.pred %p3, 0, 64, !%p2;\nselp.b32 %r2, 100, 0, %p1;\nselp.b32 %r3, 1000, 0, %p2;\n"
      "selp.b32 %r4, 10000, 0, %p3;\nadd.u32 %r1, %r1, %r2;\nadd.u32 %r1, %r1, %r3;\nadd.u32 %r1, %r1, "
      "%r4;\nst.global.u32 [%rd1], %r1;\nret;"));
  Memory memory;
  memory.add(out.data(), out.size() * 4, "out");
  Launch launch;
  launch.block = {64, 1, 1};
  launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(out.data())});
  for (const uint64_t order : {0, 1, 2}) {
    RunOptions options;
    options.order = order, options.check = true;
    run(m, "kernel", launch, memory, options);
    for (const uint32_t v : out) EXPECT_EQ(v, 1037u);
  }
}

TEST(PtxSimd, CompareAndSwapOfSixteenBits) {
  std::vector<uint16_t> out = {3, 3, 5, 0xFFFF};
  Module m(kernel_text(
      ".param .u64 out",
      ".reg .b16 %h<4>;\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n.shared .align 2 .b8 s[8];\nld.param.u64 %rd1, "
      "[out];\nmov.u16 %h0, 3;\nmov.u16 %h1, 7;\natom.global.cas.b16 %h2, [%rd1], %h0, "
      "%h1;\natom.acq_rel.gpu.global.cas.b16 %h3, [%rd1], %h0, %h1;\nst.global.b16 [%rd1+2], "
      "%h2;\nst.global.b16 [%rd1+4], %h3;\nst.shared.b16 [s+2], %h0;\natom.shared.cas.b16 %h2, [s+2], %h0, "
      "%h1;\nld.shared.b16 %h2, [s+2];\nst.global.b16 [%rd1+6], %h2;\nret;"));
  Memory memory;
  memory.add(out.data(), out.size() * 2, "out");
  Launch launch;
  launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(out.data())});
  RunOptions options;
  options.check = true;
  run(m, "kernel", launch, memory, options);
  EXPECT_EQ(out, (std::vector<uint16_t>{7, 3, 7, 7}));
}

}  // namespace
}  // namespace assay::ptx
