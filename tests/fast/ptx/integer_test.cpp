// Integer and bit instructions on their edges, against computations of another kind: bit by bit, or in 128
// bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

const std::vector<uint64_t> kEdges32 = {0,          1,          2,          3,          7,
                                        0x80,       0xFF,       0x7FFF,     0x8000,     0xFFFF,
                                        0x10000,    0x00FFFFFF, 0x01000000, 0x7FFFFFFE, 0x7FFFFFFF,
                                        0x80000000, 0x80000001, 0xAAAAAAAA, 0xFFFFFFFE, 0xFFFFFFFF};
const std::vector<uint64_t> kEdges64 = {0,
                                        1,
                                        2,
                                        0x7FFFFFFF,
                                        0x80000000,
                                        0xFFFFFFFF,
                                        0x100000000,
                                        0x7FFFFFFFFFFFFFFF,
                                        0x8000000000000000,
                                        0x8000000000000001,
                                        0xFFFFFFFF00000000,
                                        0xFFFFFFFFFFFFFFFF,
                                        0x123456789ABCDEF0};

// Every combination of the edges.
std::vector<Column> pairs(const std::vector<uint64_t>& edges, int bits) {
  std::vector<Column> c = {{bits, {}}, {bits, {}}};
  for (uint64_t a : edges)
    for (uint64_t b : edges) c[0].values.push_back(a), c[1].values.push_back(b);
  return c;
}
__int128 sign_of(uint64_t v, int bits) {
  return bits == 64 ? static_cast<__int128>(static_cast<int64_t>(v))
                    : static_cast<__int128>(static_cast<int64_t>(v << (64 - bits)) >> (64 - bits));
}
uint64_t low(unsigned __int128 v, int bits) {
  return bits == 64 ? static_cast<uint64_t>(v) : static_cast<uint64_t>(v) & ((uint64_t{1} << bits) - 1);
}

template <class F>
void expect(const std::string& instruction, int out_bits, const std::vector<Column>& c, F f) {
  const auto got = evaluate(instruction, out_bits, c);
  int shown = 0;
  for (size_t n = 0; n < got.size() && shown < 4; ++n) {
    const uint64_t a = c[0].values[n], b = c.size() > 1 ? c[1].values[n] : 0,
                   third = c.size() > 2 ? c[2].values[n] : 0;
    const uint64_t want = f(a, b, third);
    if (got[n] != want)
      ++shown, ADD_FAILURE() << instruction << std::hex << " of " << a << ", " << b << ", " << third
                             << " gives " << got[n] << ", not " << want;
  }
}

TEST(PtxInteger, ArithmeticIsThatOfTheWholeNumbersModuloTwoToTheN) {
  for (int bits : {32, 64}) {
    const auto c = pairs(bits == 32 ? kEdges32 : kEdges64, bits);
    for (bool sign : {false, true}) {
      const std::string type = (sign ? ".s" : ".u") + std::to_string(bits);
      const auto as = [&](uint64_t v) { return sign ? sign_of(v, bits) : static_cast<__int128>(v); };
      const auto name = [&](const char* op) { return op + type + " $d, $a, $b;"; };
      expect(name("add"), bits, c,
             [&](uint64_t a, uint64_t b, uint64_t) { return low(as(a) + as(b), bits); });
      expect(name("sub"), bits, c,
             [&](uint64_t a, uint64_t b, uint64_t) { return low(as(a) - as(b), bits); });
      expect(name("mul.lo"), bits, c, [&](uint64_t a, uint64_t b, uint64_t) {
        return low(static_cast<unsigned __int128>(as(a)) * static_cast<unsigned __int128>(as(b)), bits);
      });
      expect(name("min"), bits, c,
             [&](uint64_t a, uint64_t b, uint64_t) { return low(std::min(as(a), as(b)), bits); });
      expect(name("max"), bits, c,
             [&](uint64_t a, uint64_t b, uint64_t) { return low(std::max(as(a), as(b)), bits); });
      expect("sad" + type + " $d, $a, $b, $a;", bits, c, [&](uint64_t a, uint64_t b, uint64_t) {
        return low(as(a) + (as(a) > as(b) ? as(a) - as(b) : as(b) - as(a)), bits);
      });
      if (bits == 32) {
        expect(name("mul.hi"), 32, c,
               [&](uint64_t a, uint64_t b, uint64_t) { return low((as(a) * as(b)) >> 32, 32); });
        expect(name("mul.wide"), 64, c,
               [&](uint64_t a, uint64_t b, uint64_t) { return low(as(a) * as(b), 64); });
        expect("mad.wide" + type + " $d, $a, $b, 5;", 64, c,
               [&](uint64_t a, uint64_t b, uint64_t) { return low(as(a) * as(b) + 5, 64); });
        expect("mad.lo" + type + " $d, $a, $b, $a;", 32, c,
               [&](uint64_t a, uint64_t b, uint64_t) { return low(as(a) * as(b) + as(a), 32); });
      }
    }
  }
}

TEST(PtxInteger, DivisionTruncatesAndTheLeastNumberOverMinusOneStays) {
  auto c = pairs(kEdges32, 32);
  for (size_t n = c[1].values.size(); n-- > 0;)
    if (c[1].values[n] == 0)
      c[0].values.erase(c[0].values.begin() + static_cast<long>(n)),
          c[1].values.erase(c[1].values.begin() + static_cast<long>(n));
  expect("div.u32 $d, $a, $b;", 32, c, [](uint64_t a, uint64_t b, uint64_t) { return a / b; });
  expect("rem.u32 $d, $a, $b;", 32, c, [](uint64_t a, uint64_t b, uint64_t) { return a % b; });
  expect("div.s32 $d, $a, $b;", 32, c,
         [](uint64_t a, uint64_t b, uint64_t) { return low(sign_of(a, 32) / sign_of(b, 32), 32); });
  expect("rem.s32 $d, $a, $b;", 32, c,
         [](uint64_t a, uint64_t b, uint64_t) { return low(sign_of(a, 32) % sign_of(b, 32), 32); });
}

TEST(PtxInteger, CarriesGoFromWordToWord) {
  const auto c = pairs(kEdges64, 64);
  const std::string sum =
      "mov.b64 {%r0, %r1}, $a;\nmov.b64 {%r2, %r3}, $b;\nadd.cc.u32 %r4, %r0, %r2;\naddc.u32 %r5, %r1, "
      "%r3;\nmov.b64 $d, {%r4, %r5};";
  expect(sum, 64, c, [](uint64_t a, uint64_t b, uint64_t) { return a + b; });
  const std::string difference =
      "mov.b64 {%r0, %r1}, $a;\nmov.b64 {%r2, %r3}, $b;\nsub.cc.u32 %r4, %r0, %r2;\nsubc.u32 %r5, %r1, "
      "%r3;\nmov.b64 $d, {%r4, %r5};";
  expect(difference, 64, c, [](uint64_t a, uint64_t b, uint64_t) { return a - b; });
}

// What ptxas makes of such texts, with -O3 from constants and as IADD3 and IADD3.X: a difference is a sum
// with the complement and 1, and its carry is set where nothing was borrowed.
TEST(PtxInteger, ADifferenceLeavesTheCarryOfItsSum) {
  const auto c = pairs(kEdges32, 32);
  const auto carry = [](unsigned __int128 sum) { return static_cast<uint64_t>(sum >> 32) & 1; };
  const auto difference = [](uint64_t a, uint64_t b) {
    return static_cast<unsigned __int128>(a) + low(~b, 32) + 1;
  };
  expect("sub.cc.u32 %r4, $a, $b;\naddc.u32 $d, 0, 0;", 32, c,
         [&](uint64_t a, uint64_t b, uint64_t) { return carry(difference(a, b)); });
  expect("sub.cc.u32 %r4, $a, $b;\nmadc.lo.u32 $d, $a, 3, $b;", 32, c,
         [&](uint64_t a, uint64_t b, uint64_t) { return low(3 * a + b + carry(difference(a, b)), 32); });
  expect("add.cc.u32 %r4, $a, $b;\nsubc.u32 $d, $a, $b;", 32, c, [&](uint64_t a, uint64_t b, uint64_t) {
    return low(a + low(~b, 32) + carry(static_cast<unsigned __int128>(a) + b), 32);
  });
  expect("sub.cc.u32 %r4, $a, $b;\nsubc.cc.u32 %r5, $b, $a;\naddc.u32 $d, 0, 0;", 32, c,
         [&](uint64_t a, uint64_t b, uint64_t) {
           return carry(static_cast<unsigned __int128>(b) + low(~a, 32) + carry(difference(a, b)));
         });
  expect("sub.cc.u64 %rd4, $a, $b;\naddc.u64 $d, 0, 0;", 64, pairs(kEdges64, 64),
         [&](uint64_t a, uint64_t b, uint64_t) { return uint64_t{a >= b}; });
}

// Amounts from 0 to 300: an amount is unsigned and clamped, never taken modulo the width.
TEST(PtxInteger, ShiftsClampTheirAmount) {
  for (int bits : {16, 32, 64}) {
    std::vector<Column> c = {{bits, {}}, {32, {}}};
    for (uint64_t a : {uint64_t{1}, uint64_t{0x8001}, uint64_t{0x7FFF}, uint64_t{0x80000001},
                       uint64_t{0x8000000000000001}, ~uint64_t{0}})
      for (uint64_t n = 0; n <= 300; ++n) c[0].values.push_back(low(a, bits)), c[1].values.push_back(n);
    c[0].values.push_back(low(~uint64_t{0}, bits)), c[1].values.push_back(0xFFFFFFFF);
    const std::string size = std::to_string(bits);
    expect("shl.b" + size + " $d, $a, $b;", bits, c, [&](uint64_t a, uint64_t n, uint64_t) {
      return n >= static_cast<uint64_t>(bits) ? 0 : low(static_cast<unsigned __int128>(a) << n, bits);
    });
    expect("shr.u" + size + " $d, $a, $b;", bits, c, [&](uint64_t a, uint64_t n, uint64_t) {
      return n > 127 ? 0 : low(static_cast<unsigned __int128>(a) >> n, bits);
    });
    expect("shr.s" + size + " $d, $a, $b;", bits, c, [&](uint64_t a, uint64_t n, uint64_t) {
      return low(sign_of(a, bits) >> std::min<uint64_t>(n, 127), bits);
    });
  }
}

TEST(PtxInteger, FunnelShiftsClampOrWrap) {
  std::vector<Column> c = {{32, {}}, {32, {}}, {32, {}}};
  for (uint64_t n = 0; n <= 300; ++n)
    c[0].values.push_back(0x89ABCDEF), c[1].values.push_back(0x01234567), c[2].values.push_back(n);
  const auto both = [](uint64_t a, uint64_t b) { return static_cast<unsigned __int128>(b) << 32 | a; };
  expect("shf.l.wrap.b32 $d, $a, $b, $c;", 32, c,
         [&](uint64_t a, uint64_t b, uint64_t n) { return low(both(a, b) << (n % 32) >> 32, 32); });
  expect("shf.l.clamp.b32 $d, $a, $b, $c;", 32, c, [&](uint64_t a, uint64_t b, uint64_t n) {
    return low(both(a, b) << std::min<uint64_t>(n, 32) >> 32, 32);
  });
  expect("shf.r.wrap.b32 $d, $a, $b, $c;", 32, c,
         [&](uint64_t a, uint64_t b, uint64_t n) { return low(both(a, b) >> (n % 32), 32); });
  expect("shf.r.clamp.b32 $d, $a, $b, $c;", 32, c, [&](uint64_t a, uint64_t b, uint64_t n) {
    return low(both(a, b) >> std::min<uint64_t>(n, 32), 32);
  });
}

// The ISA's own pseudocode of bfe and bfi (9.7.1.19, 9.7.1.20), bit by bit, for every position and length.
TEST(PtxInteger, BitFields) {
  for (int bits : {32, 64})
    for (uint64_t value : {uint64_t{0x9234567889ABCDE5}, uint64_t{0x6DCBA98776543211}}) {
      std::vector<Column> c = {{bits, {}}, {32, {}}, {32, {}}};
      for (uint64_t place = 0; place < 256; ++place)
        for (uint64_t count = 0; count < 256; ++count)
          c[0].values.push_back(low(value, bits)), c[1].values.push_back(place), c[2].values.push_back(count);
      const std::string size = std::to_string(bits);
      const auto extract = [&](bool sign) {
        return [=](uint64_t a, uint64_t place, uint64_t count) {
          const uint64_t msb = static_cast<uint64_t>(bits) - 1;
          const uint64_t top = std::min(place + count - 1, msb), s = !sign || count == 0 ? 0 : a >> top & 1;
          uint64_t d = 0;
          for (uint64_t i = 0; i <= msb; ++i)
            d |= (i < count && place + i <= msb ? a >> (place + i) & 1 : s) << i;
          return d;
        };
      };
      expect("bfe.u" + size + " $d, $a, $b, $c;", bits, c, extract(false));
      expect("bfe.s" + size + " $d, $a, $b, $c;", bits, c, extract(true));
      const uint64_t under = low(0x0F0F3C3C5A5AA5A5, bits);
      expect("bfi.b" + size + " $d, $a, " + std::to_string(under) + ", $b, $c;", bits, c,
             [=](uint64_t a, uint64_t place, uint64_t count) {
               uint64_t d = under;
               for (uint64_t i = 0; i < count && place + i < static_cast<uint64_t>(bits); ++i)
                 d = (d & ~(uint64_t{1} << (place + i))) | (a >> i & 1) << (place + i);
               return d;
             });
    }
}

TEST(PtxInteger, PermutedBytes) {
  std::vector<Column> c = {{32, {}}, {32, {}}, {32, {}}};
  for (uint64_t s = 0; s < 65536; ++s)
    c[0].values.push_back(0x83127F04), c[1].values.push_back(0x7680F5C1), c[2].values.push_back(s);
  expect("prmt.b32 $d, $a, $b, $c;", 32, c, [](uint64_t a, uint64_t b, uint64_t s) {
    uint64_t d = 0;
    for (int k = 0; k < 4; ++k) {
      const uint64_t n = s >> (4 * k) & 15, byte = (n & 4 ? b : a) >> (8 * (n & 3)) & 0xFF;
      d |= (n & 8 ? (byte >= 128 ? 255u : 0u) : byte) << (8 * k);
    }
    return d;
  });
}

TEST(PtxInteger, EveryTableOfThreeOperands) {
  for (int table = 0; table < 256; ++table) {
    const std::vector<Column> c = {{32, {0xF0F0F0F0}}, {32, {0xCCCCCCCC}}, {32, {0xAAAAAAAA}}};
    expect("lop3.b32 $d, $a, $b, $c, " + std::to_string(table) + ";", 32, c,
           [&](uint64_t, uint64_t, uint64_t) { return static_cast<uint64_t>(table) * 0x01010101u; });
  }
}

TEST(PtxInteger, CountsAndPositionsOfBits) {
  const std::vector<Column> c = {{32, kEdges32}};
  const auto highest = [](uint64_t v) {
    return v == 0 ? 0xFFFFFFFFu : static_cast<uint64_t>(63 - __builtin_clzll(v));
  };
  expect("clz.b32 $d, $a;", 32, c, [&](uint64_t a, uint64_t, uint64_t) { return a ? 31 - highest(a) : 32; });
  expect("popc.b32 $d, $a;", 32, c, [](uint64_t a, uint64_t, uint64_t) {
    uint64_t n = 0;
    for (; a; a &= a - 1) ++n;
    return n;
  });
  expect("bfind.u32 $d, $a;", 32, c, [&](uint64_t a, uint64_t, uint64_t) { return highest(a); });
  expect("bfind.s32 $d, $a;", 32, c,
         [&](uint64_t a, uint64_t, uint64_t) { return highest(a >> 31 ? ~a & 0xFFFFFFFF : a); });
  expect("brev.b32 $d, $a;", 32, c, [](uint64_t a, uint64_t, uint64_t) {
    uint64_t d = 0;
    for (int k = 0; k < 32; ++k) d = d << 1 | (a >> k & 1);
    return d;
  });
}

TEST(PtxInteger, DotProductsOfBytes) {
  const std::vector<Column> c = {
      {32, {0x80FF7F01, 0xFFFFFFFF}}, {32, {0x02FE7F80, 0xFFFFFFFF}}, {32, {0xFFFFFFFF, 7}}};
  const auto byte = [](uint64_t v, int k, bool sign) {
    const auto b = static_cast<int>(v >> (8 * k) & 255);
    return sign && b > 127 ? b - 256 : b;
  };
  for (bool sa : {false, true})
    for (bool sb : {false, true})
      expect(std::string("dp4a.") + (sa ? "s32" : "u32") + (sb ? ".s32" : ".u32") + " $d, $a, $b, $c;", 32, c,
             [&](uint64_t a, uint64_t b, uint64_t d) {
               int64_t sum = static_cast<int64_t>(d);
               for (int k = 0; k < 4; ++k) sum += byte(a, k, sa) * byte(b, k, sb);
               return low(static_cast<unsigned __int128>(sum), 32);
             });
}

TEST(PtxInteger, SaturatedSumsAndHalves) {
  const auto c = pairs(kEdges32, 32);
  const auto clamp = [](__int128 v) { return low(std::clamp<__int128>(v, INT32_MIN, INT32_MAX), 32); };
  expect("add.sat.s32 $d, $a, $b;", 32, c,
         [&](uint64_t a, uint64_t b, uint64_t) { return clamp(sign_of(a, 32) + sign_of(b, 32)); });
  expect("sub.sat.s32 $d, $a, $b;", 32, c,
         [&](uint64_t a, uint64_t b, uint64_t) { return clamp(sign_of(a, 32) - sign_of(b, 32)); });
  expect("add.u16x2 $d, $a, $b;", 32, c, [](uint64_t a, uint64_t b, uint64_t) {
    return ((a + b) & 0xFFFF) | (((a >> 16) + (b >> 16)) & 0xFFFF) << 16;
  });
  expect("max.s16x2 $d, $a, $b;", 32, c, [](uint64_t a, uint64_t b, uint64_t) {
    return low(std::max(sign_of(a & 0xFFFF, 16), sign_of(b & 0xFFFF, 16)), 16) |
           low(std::max(sign_of(a >> 16, 16), sign_of(b >> 16, 16)), 16) << 16;
  });
  expect("mul24.lo.u32 $d, $a, $b;", 32, c, [](uint64_t a, uint64_t b, uint64_t) {
    return low(static_cast<unsigned __int128>(a & 0xFFFFFF) * (b & 0xFFFFFF), 32);
  });
  expect("mul24.hi.s32 $d, $a, $b;", 32, c, [](uint64_t a, uint64_t b, uint64_t) {
    return low((sign_of(a & 0xFFFFFF, 24) * sign_of(b & 0xFFFFFF, 24)) >> 16, 32);
  });
}

// 9.7.9.4: two halves of 64, the lower first.
TEST(PtxMoves, RegistersOf128BitsAreTwoHalves) {
  const std::vector<Column> in = {{64, {1, 0x123456789ABCDEF0}}, {64, {2, 0xFEDCBA9876543210}}};
  const std::string pair = ".reg .b128 %q, %u;\nmov.b128 %q, {$a, $b};\nmov.b128 %u, %q;\n";
  EXPECT_EQ(evaluate(pair + "mov.b128 {$d, _}, %u;", 64, in), in[0].values);
  EXPECT_EQ(evaluate(pair + "mov.b128 {_, $d}, %u;", 64, in), in[1].values);
  EXPECT_EQ(evaluate(".local .align 16 .b8 own[32];\n" + pair +
                         "st.local.b128 [own+16], %u;\nld.local.b64 $d, [own+24];",
                     64, in),
            in[1].values);
  EXPECT_EQ(evaluate(".local .align 16 .b8 own[32];\n" + pair +
                         "st.local.v2.b64 [own], {$b, $a};\nld.local.b128 %q, [own];\nmov.b128 {_, $d}, %q;",
                     64, in),
            in[0].values);
}

}  // namespace
}  // namespace assay::ptx
