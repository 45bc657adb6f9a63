// Comparisons of f16 and bf16 that give numbers, or two predicates (9.7.7): every relation of two numbers, by
// the relations of doubles.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

struct Relation {
  const char* word;
  std::function<bool(double, double)> of;
};
bool unordered(double a, double b) { return std::isunordered(a, b); }
const Relation kRelations[] = {{"eq", [](double a, double b) { return a == b; }},
                               {"ne", [](double a, double b) { return !unordered(a, b) && a != b; }},
                               {"lt", [](double a, double b) { return a < b; }},
                               {"le", [](double a, double b) { return a <= b; }},
                               {"gt", [](double a, double b) { return a > b; }},
                               {"ge", [](double a, double b) { return a >= b; }},
                               {"equ", [](double a, double b) { return unordered(a, b) || a == b; }},
                               {"neu", [](double a, double b) { return a != b; }},
                               {"ltu", [](double a, double b) { return unordered(a, b) || a < b; }},
                               {"leu", [](double a, double b) { return unordered(a, b) || a <= b; }},
                               {"gtu", [](double a, double b) { return unordered(a, b) || a > b; }},
                               {"geu", [](double a, double b) { return unordered(a, b) || a >= b; }},
                               {"num", [](double a, double b) { return !unordered(a, b); }},
                               {"nan", [](double a, double b) { return unordered(a, b); }}};

struct Named {
  uint64_t f16, bf16;
  double value;
};
// Codes by the definitions of the formats.
const Named kNumbers[] = {{0x0000, 0x0000, 0.0},       {0x8000, 0x8000, -0.0},     {0x3C00, 0x3F80, 1.0},
                          {0xBC00, 0xBF80, -1.0},      {0x3C01, 0x3F81, 1.01},     {0x7C00, 0x7F80, HUGE_VAL},
                          {0xFC00, 0xFF80, -HUGE_VAL}, {0x7E00, 0x7FC0, NAN},      {0xFFFF, 0xFFFF, NAN},
                          {0x0001, 0x0001, 0x1p-200},  {0x8001, 0x8001, -0x1p-200}};

struct Pairs {
  Column a{16, {}}, b{16, {}};
  std::vector<double> x, y;
  // Two pairs in one register: the halves of the second lie above those of the first.
  Column both(const Column& low) const {
    Column c{32, {}};
    for (size_t n = 0; n < low.values.size(); ++n)
      c.values.push_back(low.values[n] | low.values[(n + 7) % low.values.size()] << 16);
    return c;
  }
  size_t above(size_t n) const { return (n + 7) % x.size(); }
};
Pairs pairs(bool bf16) {
  Pairs p;
  for (const Named& a : kNumbers)
    for (const Named& b : kNumbers) {
      p.a.values.push_back(bf16 ? a.bf16 : a.f16), p.b.values.push_back(bf16 ? b.bf16 : b.f16);
      p.x.push_back(a.value), p.y.push_back(b.value);
    }
  return p;
}
std::string opcode_of(const Relation& r, const std::string& to, const std::string& of,
                      const std::string& modifiers = "") {
  return "set." + std::string(r.word) + modifiers + "." + to + "." + of;
}

TEST(PtxSetHalf, OneComparisonGivesOneOrAllBits) {
  for (const bool bf16 : {false, true}) {
    const Pairs p = pairs(bf16);
    const std::string type = bf16 ? "bf16" : "f16";
    for (const Relation& r : kRelations) {
      const auto one = evaluate(opcode_of(r, type, type) + " $d, $a, $b;", 16, {p.a, p.b});
      const auto half = evaluate(opcode_of(r, "u16", type) + " $d, $a, $b;", 16, {p.a, p.b});
      const auto whole = evaluate(opcode_of(r, "s32", type) + " $d, $a, $b;", 32, {p.a, p.b});
      for (size_t n = 0; n < p.x.size(); ++n) {
        const bool yes = r.of(p.x[n], p.y[n]);
        ASSERT_EQ(one[n], yes ? (bf16 ? 0x3F80u : 0x3C00u) : 0u) << type << r.word << n;
        ASSERT_EQ(half[n], yes ? 0xFFFFu : 0u) << type << r.word << n;
        ASSERT_EQ(whole[n], yes ? 0xFFFFFFFFu : 0u) << type << r.word << n;
      }
    }
  }
}

TEST(PtxSetHalf, PairsCompareEachHalf) {
  for (const bool bf16 : {false, true}) {
    const Pairs p = pairs(bf16);
    const Column a = p.both(p.a), b = p.both(p.b);
    const std::string type = bf16 ? "bf16x2" : "f16x2";
    for (const Relation& r : kRelations) {
      const auto ones = evaluate(opcode_of(r, type, type) + " $d, $a, $b;", 32, {a, b});
      const auto bits = evaluate(opcode_of(r, "u32", type) + " $d, $a, $b;", 32, {a, b});
      const auto predicates =
          evaluate("setp." + std::string(r.word) + "." + type +
                       " %p1|%p2, $a, $b;\nselp.b32 %r1, 1, 0, %p1;\nselp.b32 %r2, 2, 0, %p2;\nor.b32 $d, "
                       "%r1, %r2;",
                   32, {a, b});
      for (size_t n = 0; n < p.x.size(); ++n) {
        const size_t m = p.above(n);
        const uint64_t low = r.of(p.x[n], p.y[n]), high = r.of(p.x[m], p.y[m]);
        const uint64_t one = bf16 ? 0x3F80 : 0x3C00;
        ASSERT_EQ(ones[n], low * one | (high * one) << 16) << type << r.word << n;
        ASSERT_EQ(bits[n], low * 0xFFFF | (high * 0xFFFF) << 16) << type << r.word << n;
        ASSERT_EQ(predicates[n], low | high << 1) << type << r.word << n;
      }
    }
  }
}

// 0x0001 is a subnormal number, 0x3C00 is one.
TEST(PtxSetHalf, FtzAndJoinedPredicates) {
  const Column a{16, {0x0001, 0x8001, 0x0400, 0x3C00}}, zero{16, {0, 0, 0, 0}};
  EXPECT_EQ(evaluate("set.eq.u32.f16 $d, $a, $b;", 32, {a, zero}), (std::vector<uint64_t>{0, 0, 0, 0}));
  EXPECT_EQ(evaluate("set.eq.ftz.u32.f16 $d, $a, $b;", 32, {a, zero}),
            (std::vector<uint64_t>{0xFFFFFFFF, 0xFFFFFFFF, 0, 0}));
  const std::string given = "setp.ne.u16 %p1, $a, 1;\n";
  EXPECT_EQ(evaluate(given + "set.gt.and.f16.f16 $d, $a, $b, %p1;", 16, {a, zero}),
            (std::vector<uint64_t>{0, 0, 0x3C00, 0x3C00}));
  EXPECT_EQ(evaluate(given + "set.gt.or.f16.f16 $d, $a, $b, !%p1;", 16, {a, zero}),
            (std::vector<uint64_t>{0x3C00, 0, 0x3C00, 0x3C00}));
  const Column two{32, {0x3C000001, 0x00003C00}}, none{32, {0, 0}};
  const std::string odd = "setp.eq.u32 %p1, $a, 0x3C00;\n";
  EXPECT_EQ(evaluate(odd + "set.gt.xor.f16x2.f16x2 $d, $a, $b, %p1;", 32, {two, none}),
            (std::vector<uint64_t>{0x3C003C00, 0x3C000000}));
  EXPECT_EQ(evaluate(odd + "setp.gt.xor.f16x2 %p1|%p2, $a, $b, %p1;\nselp.b32 %r1, 1, 0, %p1;\nselp.b32 %r2, "
                           "2, 0, %p2;\nor.b32 $d, %r1, %r2;",
                     32, {two, none}),
            (std::vector<uint64_t>{3, 2}));
}

TEST(PtxSetHalf, Binary64GivesAllBitsOrOne) {
  const Column a{64, {0x3FF0000000000000, 0x7FF8000000000000, 0}}, b{64, {0, 0, 0x8000000000000000}};
  EXPECT_EQ(evaluate("set.gt.u32.f64 $d, $a, $b;", 32, {a, b}), (std::vector<uint64_t>{0xFFFFFFFF, 0, 0}));
  EXPECT_EQ(evaluate("set.equ.f32.f64 $d, $a, $b;", 32, {a, b}),
            (std::vector<uint64_t>{0, 0x3F800000, 0x3F800000}));
}

TEST(PtxSetHalf, PairsOfPredicatesNeedBoth) {
  EXPECT_THROW(evaluate("setp.eq.f16x2 %p1, $a, $b;", 32, {{32, {0}}, {32, {0}}}), Fault);
}

}  // namespace
}  // namespace assay::ptx
