// Which random byte serves which element (N12.1, N12.2, N12.4, N12.5; docs/draws.md), with addresses worked
// by hand.
#include <map>
#include <set>
#include <tuple>

#include "reference/draws.h"
#include "reference/stochastic.h"
#include "tests/reference/run_line.h"

namespace assay {
namespace {

using reference::Address;
using reference::Counter;
using reference::Draws;
using reference::Words;

Counter counter(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return ((static_cast<Counter>(w) << 32 | z) << 32 | y) << 32 | x;
}
std::string text(const Address& a) {
  char out[96];
  std::snprintf(out, sizeof out, "%08X %08X %08X %08X word %d byte %d", static_cast<uint32_t>(a.counter),
                static_cast<uint32_t>(a.counter >> 32), static_cast<uint32_t>(a.counter >> 64),
                static_cast<uint32_t>(a.counter >> 96), static_cast<int>(a.word), static_cast<int>(a.byte));
  return out;
}
std::string text(Counter c, int64_t word, int64_t byte) { return text(Address{c, word, byte}); }
// Of element (r, c) of x.
std::string at(const std::string& line, Direction d, int64_t r, int64_t c) {
  const Draws draws(problem(line), d);
  return text(d == Direction::row ? draws.at(r, c) : draws.at(c, r));
}
constexpr Direction kRow = Direction::row, kCol = Direction::col;

TEST(
    Draws,
    Philox) {  // N12.1: Random123's vector for zeros, and counters that carry (TransformerEngine's generator)
  EXPECT_EQ(reference::philox4x32(0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(reference::philox4x32(counter(7, 0, 5, 0), 0x0123456789ABCDEF),
            (Words{0x91b7d2e0, 0xa4d4b6c4, 0xc6acf628, 0xe0e4b442}));
  const Counter before = counter(0xFFFFFFFF, 0, 3, 1);
  EXPECT_EQ(reference::philox4x32(before, 1234), (Words{0x9be1ae3f, 0x75518a10, 0xeed9c1bc, 0xde577383}));
  EXPECT_EQ(reference::philox4x32(before + 1, 1234), (Words{0xc5791049, 0xa08b9d43, 0x89368438, 0x6b841110}));
}

TEST(Draws, PhiloxAsAnOp) {  // N12.1: counters and keys by rows; one round by hand
  const Outputs out =
      run_line("philox u32 2x4 u32 rounds=1", {{"x", blob<uint32_t>({1, 2, 3, 4, 0, 0, 0x10000, 0})},
                                               {"key", blob<uint32_t>({5, 6, 0, 0xFFFFFFFF})}});
  // 3 * CD9E8D57 = 2 68DBA805, 1 * D2511F53: 2 ^ 2 ^ 5, 68DBA805, 0 ^ 4 ^ 6, D2511F53
  // 10000 * CD9E8D57 = CD9E 8D570000
  EXPECT_EQ(out.u32("y"),
            (std::vector<uint32_t>{5, 0x68DBA805, 2, 0xD2511F53, 0xCD9E, 0x8D570000, 0xFFFFFFFF, 0}));
}

TEST(Draws, LogicalByHand) {  // N12.2: 30x40 has 3 blocks in a row of x, 2 in a column
  const std::string line = "quantize nvfp4 30x40 bf16 round=sr rng=9,7,";
  EXPECT_EQ(at(line + "0", kRow, 0, 0), text(counter(7, 0, 0, 0), 0, 0));
  EXPECT_EQ(at(line + "0", kRow, 1, 39), text(counter(7, 0, 5, 0), 1, 3));
  EXPECT_EQ(at(line + "0", kRow, 29, 22), text(counter(7, 0, 88, 0), 1, 2));
  EXPECT_EQ(at(line + "0", kCol, 29, 22), text(counter(7, 0, 45, 0x80000000), 3, 1));
  EXPECT_EQ(at(line + "3", kCol, 17, 39), text(counter(7, 0, 79, 0x8000C000), 0, 1));
  EXPECT_EQ(at(line + "131071", kRow, 29, 39), text(counter(7, 0, 89, 0x7FFFC000), 1, 3));
  EXPECT_EQ(at("quantize nvfp4 30x40 bf16 round=sr rng=9,18446744069414584325,0", kRow, 0, 0),
            text(counter(5, 0xFFFFFFFF, 0, 0), 0, 0));
  // Neither tiles nor the rotation change it.
  EXPECT_EQ(at("quantize nvfp4 32x48 bf16 round=sr block=16x16 rng=9,7,0", kCol, 29, 22),
            text(counter(7, 0, 45, 0x80000000), 3, 1));
  EXPECT_EQ(at("quantize nvfp4 32x48 bf16 round=sr col.rht=1 rng=9,7,0", kCol, 29, 22),
            text(counter(7, 0, 45, 0x80000000), 3, 1));
}

TEST(Draws,
     LogicalBlocksBeyond32Bits) {  // N12.2: the block's upper bits share a word with member and direction
  Problem p = problem("quantize nvfp4 16x16 bf16 round=sr rng=0,0,5");
  p.x.shape = {int64_t{1} << 40, 1024};  // 64 blocks in a row
  const Draws draws(p, kRow);
  EXPECT_EQ(text(draws.at((int64_t{1} << 26) + 1, 20)), text(counter(0, 0, 65, 1 | 5 << 14), 1, 0));
  EXPECT_EQ(text(draws.at((int64_t{1} << 40) - 1, 1023)),
            text(counter(0, 0, 0xFFFFFFFF, 0x3FFF | 5 << 14), 3, 3));
}

TEST(Draws, Kernels) {  // N12.4
  const std::string t1d = "quantize nvfp4 256x256 bf16 round=sr draw=te_t1d rng=0,7,0";
  EXPECT_EQ(at(t1d, kRow, 70, 37), text(counter(7 + 8, 0, 26, 0), 3, 1));    // stage 2, base 8, g = 1
  EXPECT_EQ(at(t1d, kCol, 70, 37), text(counter(7 + 11, 0, 114, 0), 1, 2));  // lane 18, warp 3
  EXPECT_EQ(at(t1d + " dir=row", kRow, 70, 37),
            text(counter(7 + 4, 0, 26, 0), 3, 1));  // base 2 s where columns are not made
  // (200, 150): bx = 1, by = 1, GX = 2: 128 + 256; stage 2 (72 / 64) + 0 = 2; t = 4 * 8 + 22 / 16 = 33; g =
  // 0; e = 6
  EXPECT_EQ(at(t1d, kRow, 200, 150), text(counter(7 + 8, 0, 128 + 256 + 33, 0), 1, 2));
  // column: lane 11, warp (8 / 16 - 5) mod 4 = 3, tick 8 + 2 + 0; e = 8
  EXPECT_EQ(at(t1d, kCol, 200, 150), text(counter(7 + 10, 0, 128 + 256 + 96 + 11, 0), 2, 0));

  const std::string q2d = "quantize nvfp4 256x256 bf16 block=16x16 round=sr draw=te_q2d rng=0,7,0";
  // (70, 37): s = 2, base 8; row: 8 * 6 + 2 = 50, tick 8 + 2 + 0, g = 1, e = 5; column: 37, tick 8 + 0, e = 6
  EXPECT_EQ(at(q2d, kRow, 70, 37), text(counter(7 + 10, 0, 50, 0), 3, 1));
  EXPECT_EQ(at(q2d, kRow, 74, 37), text(counter(7 + 10, 0, 82, 0), 3, 1));  // g = (74 mod 4) / 2
  EXPECT_EQ(at(q2d, kCol, 70, 37), text(counter(7 + 8, 0, 37, 0), 1, 2));
  EXPECT_EQ(at(q2d + " dir=row", kRow, 70, 37), text(counter(7 + 4, 0, 50, 0), 3, 1));
  EXPECT_EQ(at(q2d + " dir=col", kCol, 90, 165),
            text(counter(7 + 5, 0, 128 + 37, 0), 2, 2));  // r % 32 = 26: tick 4 + 1

  const std::string fb = "quantize nvfp4 250x250 bf16 round=sr draw=te_fb rng=0,7,0";
  // (70, 37): row 8 * 6 + 2, tick 2, e = 5; column: p = 18, 8 * 18 + 4, tick 4 + 0 + 1, e = 6
  EXPECT_EQ(at(fb, kRow, 70, 37), text(counter(7 + 2, 0, 50, 0), 1, 1));
  EXPECT_EQ(at(fb, kCol, 70, 37), text(counter(7 + 5, 0, 148, 0), 1, 2));
  EXPECT_EQ(at(fb + " dir=col", kCol, 70, 37), text(counter(7 + 1, 0, 148, 0), 1, 2));
  // (200, 230): bx = by = 1, GX = 2: 256 + 512; row 8 * 8 + 6, tick 2; column: p = 51, 8 * 19 + 4, tick 4 + 2
  // + 0
  EXPECT_EQ(at(fb, kRow, 200, 230), text(counter(7 + 2, 0, 768 + 70, 0), 1, 2));
  EXPECT_EQ(at(fb, kCol, 200, 230), text(counter(7 + 6, 0, 768 + 156, 0), 2, 0));

  const std::string rhtrc = "quantize nvfp4 1280x256 bf16 round=sr col.rht=1 draw=te_rhtrc rng=0,7,0";
  // (1100, 200): KT = 8, n = 8, k = 0, lin = 1 + 2 * 1 = 3; row: T = 32 * 4 + 2 * 12 + 72 / 64 = 153; column:
  // 128 + 72
  EXPECT_EQ(at(rhtrc, kRow, 1100, 200), text(counter(7 + 0, 0, 256 + 153 + 512 + 512 * 24, 0), 2, 0));
  EXPECT_EQ(at(rhtrc, kCol, 1100, 200), text(counter(7 + 4, 0, 128 + 72 + 512 * 24, 0), 3, 0));
  EXPECT_EQ(at(rhtrc, kRow, 300, 70), text(counter(7 + 0, 0, 256 + 32 * 2 + 2 * 12 + 1 + 512 * 3, 0), 1,
                                           2));  // k = 2: rows count one more
}

TEST(Draws, RotatedColumnsAreRowsOfAnotherLaunch) {  // N12.4
  const std::string t1d = "quantize nvfp4 256x256 bf16 round=sr col.rht=1 draw=te_t1d rng=0,7,0";
  EXPECT_EQ(at(t1d, kCol, 70, 37),
            text(counter(7 + 1024 + 3, 0, 20, 0), 3, 2));                  // stage 1, base 2, g = 1, e = 6
  EXPECT_EQ(at(t1d, kRow, 70, 37), text(counter(7 + 4, 0, 26, 0), 3, 1));  // alone in its launch
  // 96x384: the other launch sees 384x96, so GX = 1: (50, 300) is its (300, 50), by = 2
  EXPECT_EQ(at("quantize nvfp4 96x384 bf16 round=sr col.rht=1 draw=te_t1d rng=0,7,0", kCol, 50, 300),
            text(counter(7 + 1024 + 0 + 1, 0, 128 * 2 + 4 * 12 + 3, 0), 2,
                 2));  // (300 mod 64) / 32 = 1; g = (300 mod 8) / 4 = 1, e = 2
  EXPECT_EQ(at("quantize nvfp4 96x384 bf16 round=sr col.rht=1 draw=te_fb rng=0,7,0", kCol, 50, 300),
            text(counter(7 + 1024 + 1, 0, 256 * 2 + 8 * 12 + 3, 0), 0, 2));
  // The sum of offset and 1024 has 64 bits; that of offset and tick carries.
  EXPECT_EQ(at("quantize nvfp4 96x384 bf16 round=sr col.rht=1 draw=te_fb rng=0,18446744073709551615,0", kCol,
               50, 300),
            text(counter(1023 + 1, 0, 256 * 2 + 8 * 12 + 3, 0), 0, 2));
  EXPECT_EQ(at("quantize nvfp4 96x384 bf16 round=sr draw=te_fb rng=0,18446744073709551615,0", kRow, 50, 300),
            text(counter(0, 0, 256 * 2 + 8 * 18 + 2 + 1, 0), 3, 0));
}

TEST(Draws, DirectionsOfOneLaunch) {  // docs/draws.md: both rounding stochastically, by one mapping, from x
  const std::string row = text(counter(4, 0, 26, 0), 3, 1), with_columns = text(counter(8, 0, 26, 0), 3, 1);
  const std::string line = "quantize nvfp4 256x256 bf16 row.round=sr row.draw=te_t1d rng=0,0,0 ";
  EXPECT_EQ(at(line + "col.round=sr col.draw=te_t1d", kRow, 70, 37), with_columns);
  EXPECT_EQ(at(line, kRow, 70, 37), row);
  EXPECT_EQ(at(line + "col.round=sr", kRow, 70, 37), row);
  EXPECT_EQ(at(line + "col.round=sr col.draw=te_t1d col_source=row_dequantized", kRow, 70, 37), row);
  EXPECT_EQ(at("quantize nvfp4/mxfp4 256x256 bf16 row.round=sr row.draw=te_t1d rng=0,0,0", kRow, 70, 37),
            row);
}

TEST(Draws, BytesOfAWord) {  // N12.5
  for (const char* draw : {"logical", "te_fb"})
    for (Direction d : kDirections)
      for (int64_t i : {0, 17})
        for (int64_t j = 0; j < 16; ++j) {
          const std::string line = "quantize nvfp4 32x32 bf16 round=sr rng=1,2,0 draw=" + std::string(draw);
          const Address up = Draws(problem(line), d).at(i, j),
                        mixed = Draws(problem(line + " sr_bytes=interleaved"), d).at(i, j);
          EXPECT_EQ(up.byte, j % 4);
          EXPECT_EQ(mixed.byte, (std::array{0, 2, 1, 3}[static_cast<size_t>(j % 4)]));
          EXPECT_EQ(up.counter, mixed.counter);
          EXPECT_EQ(up.word, mixed.word);
        }
}

TEST(Draws, NoTwoElementsShareAByte) {  // both directions of a call together
  for (const char* line :
       {"quantize nvfp4 30x40 bf16 round=sr", "quantize nvfp4 48x80 bf16 round=sr sr_bytes=interleaved",
        "quantize nvfp4 1x100 bf16 round=sr", "quantize nvfp4 160x288 bf16 round=sr draw=te_t1d",
        "quantize nvfp4 160x288 bf16 round=sr draw=te_t1d dir=row",
        "quantize nvfp4 160x288 bf16 round=sr draw=te_t1d col.rht=1",
        "quantize nvfp4 160x288 bf16 block=16x16 round=sr draw=te_q2d",
        "quantize nvfp4 160x288 bf16 block=16x16 round=sr draw=te_q2d dir=col",
        "quantize nvfp4 130x301 bf16 round=sr draw=te_fb",
        "quantize nvfp4 130x301 bf16 round=sr draw=te_fb dir=col",
        "quantize nvfp4 144x301 bf16 round=sr draw=te_fb col.rht=1",
        "quantize nvfp4 320x256 bf16 round=sr draw=te_rhtrc col.rht=1",
        "quantize nvfp4 1216x128 bf16 round=sr draw=te_rhtrc col.rht=1"}) {
    const Problem p = problem(line);
    std::set<std::tuple<Counter, int64_t, int64_t>> seen;
    int64_t drawn = 0;
    for (Direction d : kDirections) {
      if (!p.quantizer(d)) continue;
      const Draws draws(p, d);
      const Shape stored = geometry(*p.quantizer(d), p.x.shape, d).data;
      for (int64_t i = 0; i < stored.rows; ++i)
        for (int64_t j = 0; j < stored.cols; ++j, ++drawn) {
          const Address a = draws.at(i, j);
          seen.emplace(a.counter, a.word, a.byte);
        }
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), drawn) << line;
  }
}

TEST(Draws, MembersAndOffsetsAreApart) {  // N12.2: no counter of one is another's
  std::set<Counter> seen;
  size_t drawn = 0;
  for (const char* rng : {"0,0,0", "0,0,1", "0,1,0", "0,4294967296,0", "0,0,131071"}) {
    const Problem p = problem("quantize nvfp4 48x80 bf16 round=sr rng=" + std::string(rng));
    std::set<Counter> own;
    for (Direction d : kDirections)
      for (int64_t i = 0; i < 48; ++i)
        for (int64_t j = 0; j < 48; ++j) own.insert(Draws(p, d).at(i, j).counter);
    drawn += own.size();
    seen.insert(own.begin(), own.end());
  }
  EXPECT_EQ(drawn, 5u * 2 * 48 * 3);
  EXPECT_EQ(seen.size(), drawn);
}

// Elements of every block at 6, of partial ones too, and the others a quarter, under an amax that makes every
// multiplier 1: an element goes up when its byte is 128 or more.
TEST(Draws, ReachTheElementsTheyServe) {
  constexpr int64_t kRows = 30, kCols = 40;
  std::vector<uint16_t> x(kRows * kCols, 0x3E80);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kCols; ++c)
      if (r % 8 == c % 8) x[static_cast<size_t>(r * kCols + c)] = 0x40C0;
  for (const char* keys :
       {"rng=81985529216486895,7,3", "rng=5,7,0 draw=te_fb", "rng=5,7,0 draw=te_fb sr_bytes=interleaved"}) {
    const std::string line = "quantize nvfp4 30x40 bf16 round=sr amax=2688 " + std::string(keys);
    const Blob amax = blob<uint32_t>({0x45280000});
    const Outputs out = run_line(line, {{"x", blob(x)}, {"row.given.amax", amax}, {"col.given.amax", amax}});
    const Problem p = problem(line);
    for (Direction d : kDirections) {
      const Shape stored = geometry(*p.quantizer(d), p.x.shape, d).data;
      const std::vector<uint8_t> data = out.u8(plane_name(d, "data"));
      for (int64_t i = 0; i < stored.rows; ++i)
        for (int64_t j = 0; j < stored.cols; ++j) {
          const size_t flat = static_cast<size_t>(i * stored.cols + j);
          const int code = data[flat / 2] >> (flat % 2 * 4) & 15;
          const Address a = Draws(p, d).at(i, j);
          const uint32_t byte =
              reference::philox4x32(a.counter, p.rng.seed)[static_cast<size_t>(a.word)] >> (8 * a.byte) & 255;
          ASSERT_EQ(code, i % 8 == j % 8 ? 7
                          : byte >= 128  ? 1
                                         : 0)
              << line << " " << name_of(d) << " " << i << " " << j;
        }
    }
  }
}

}  // namespace
}  // namespace assay
