// Stochastic rounding: other keys and counters, and other bytes of the right draw (N12).
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using std::string;

// ---- other keys and counters ----

void add_rng(Rows& rows, const string& id, string title, Rng with) {
  if (with.member >= 1u << 17 || with == rows.lane.rng) return;
  rows.add("draw." + id, std::move(title), Stage::code, "N12.2").keys =
      fmt::format("rng={},{},{}", with.seed, with.offset, with.member);
}

constexpr uint64_t low_half(uint64_t v) { return v & 0xFFFFFFFF; }
constexpr uint64_t swapped_halves(uint64_t v) { return v << 32 | v >> 32; }

struct RngRow {
  const char* id;
  const char* title;
  Rng (*with)(Rng r);
};
constexpr RngRow kRngRows[] = {
    {"seed_zero", "the key is 0",
     [](Rng r) {
       return Rng{0, r.offset, r.member};
     }},
    {"seed_low", "the key is only the low half of the seed",
     [](Rng r) {
       return Rng{low_half(r.seed), r.offset, r.member};
     }},
    {"seed_high", "the key is only the high half of the seed",
     [](Rng r) {
       return Rng{r.seed >> 32 << 32, r.offset, r.member};
     }},
    {"seed_halves_swapped", "the halves of the seed are swapped",
     [](Rng r) {
       return Rng{swapped_halves(r.seed), r.offset, r.member};
     }},
    {"seed_turned", "the key is the complement of the seed",
     [](Rng r) {
       return Rng{~r.seed, r.offset, r.member};
     }},
    {"offset_zero", "the offset is left out",
     [](Rng r) {
       return Rng{r.seed, 0, r.member};
     }},
    {"offset_low", "the offset is cut to 32 bits",
     [](Rng r) {
       return Rng{r.seed, low_half(r.offset), r.member};
     }},
    {"offset_halves_swapped", "the halves of the offset are swapped",
     [](Rng r) {
       return Rng{r.seed, swapped_halves(r.offset), r.member};
     }},
    {"seed_and_offset_swapped", "seed and offset are swapped",
     [](Rng r) {
       return Rng{r.offset, r.seed, r.member};
     }},
};

void add_rngs(Rows& rows) {
  const Rng r = rows.lane.rng;
  for (int by = 1; by <= 32; ++by)
    for (const int sign : {1, -1}) {
      const uint64_t offset = r.offset + static_cast<uint64_t>(static_cast<int64_t>(sign * by));
      add_rng(rows, fmt::format("offset={:+}", sign * by),
              fmt::format("draws are taken {} counter{} too {}", by, by == 1 ? "" : "s",
                          sign > 0 ? "late" : "early"),
              {r.seed, offset, r.member});
    }
  for (const int64_t by : {-4, -3, -2, -1, 1, 2, 3, 4})
    add_rng(rows, fmt::format("seed={:+}", by), "the key is another seed",
            {r.seed + static_cast<uint64_t>(by), r.offset, r.member});
  for (const RngRow& row : kRngRows) add_rng(rows, row.id, row.title, row.with(r));
  for (uint32_t by = 1; by <= 4; ++by) {
    add_rng(rows, fmt::format("member=+{}", by), "draws are those of another member",
            {r.seed, r.offset, r.member + by});
    if (r.member >= by)
      add_rng(rows, fmt::format("member=-{}", by), "draws are those of another member",
              {r.seed, r.offset, r.member - by});
  }
  add_rng(rows, "member_zero", "draws are those of the first member", {r.seed, r.offset, 0});
}

// ---- other bytes ----

struct PhiloxWords {
  uint32_t word[4];
};

// Philox4x32 (N12.1) by key and counter.
PhiloxWords philox4x32(uint64_t key, uint64_t low, uint64_t high, int rounds) {
  const auto lower = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto upper = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  uint32_t c[4] = {lower(low), upper(low), lower(high), upper(high)};
  uint32_t k0 = lower(key), k1 = upper(key);
  for (int r = 0; r < rounds; ++r) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {upper(b) ^ c[1] ^ k0, lower(b), upper(a) ^ c[3] ^ k1, lower(a)};
    std::copy(next, next + 4, c);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

// The draw of one code (N12.2): element e of a block of 16, the block counted along the lines.
struct DrawOf {
  const CodeView& c;
  Rng rng;
  uint64_t direction;

  int64_t e() const { return c.j % 16; }
  uint64_t along() const { return static_cast<uint64_t>(c.j / 16); }
  uint64_t line() const { return static_cast<uint64_t>(c.i); }
  uint64_t block() const { return static_cast<uint64_t>(c.i * ceil_div(c.length, 16) + c.j / 16); }
  uint32_t byte(int64_t word, int64_t place, uint64_t of_block, uint64_t of_direction,
                int rounds = 10) const {
    const uint64_t high = (of_block >> 32 & 0x3FFF) | uint64_t{rng.member} << 14 | of_direction << 31;
    return philox4x32(rng.seed, rng.offset, low_half(of_block) | high << 32, rounds).word[word] >>
               (8 * place) &
           255;
  }
  uint32_t byte(int64_t word, int64_t place) const { return byte(word, place, block(), direction); }
  // The right byte of another block's draw.
  uint32_t of_block(uint64_t other) const { return byte(e() / 4, e() % 4, other, direction); }
};

struct DrawRow {
  const char* id;
  const char* title;
  uint32_t (*byte)(const DrawOf& d);
};
constexpr DrawRow kDrawRows[] = {
    {"words_reversed", "the words of a draw serve in the other order",
     [](const DrawOf& d) { return d.byte(3 - d.e() / 4, d.e() % 4); }},
    {"bytes_reversed", "the bytes of a word serve in the other order",
     [](const DrawOf& d) { return d.byte(d.e() / 4, 3 - d.e() % 4); }},
    {"all_reversed", "the bytes of a draw serve in the other order",
     [](const DrawOf& d) { return d.byte(3 - d.e() / 4, 3 - d.e() % 4); }},
    {"word_by_byte", "the word and the byte of a draw are swapped",
     [](const DrawOf& d) { return d.byte(d.e() % 4, d.e() / 4); }},
    {"one_byte=0", "byte 0 of a word serves all its elements",
     [](const DrawOf& d) { return d.byte(d.e() / 4, 0); }},
    {"one_byte=1", "byte 1 of a word serves all its elements",
     [](const DrawOf& d) { return d.byte(d.e() / 4, 1); }},
    {"one_byte=2", "byte 2 of a word serves all its elements",
     [](const DrawOf& d) { return d.byte(d.e() / 4, 2); }},
    {"one_byte=3", "byte 3 of a word serves all its elements",
     [](const DrawOf& d) { return d.byte(d.e() / 4, 3); }},
    {"one_word=0", "word 0 of a draw serves all its elements",
     [](const DrawOf& d) { return d.byte(0, d.e() % 4); }},
    {"one_word=1", "word 1 of a draw serves all its elements",
     [](const DrawOf& d) { return d.byte(1, d.e() % 4); }},
    {"one_word=2", "word 2 of a draw serves all its elements",
     [](const DrawOf& d) { return d.byte(2, d.e() % 4); }},
    {"one_word=3", "word 3 of a draw serves all its elements",
     [](const DrawOf& d) { return d.byte(3, d.e() % 4); }},
    {"complement", "the bytes of draws are turned",
     [](const DrawOf& d) { return 255 - d.byte(d.e() / 4, d.e() % 4); }},
    {"rounds=7", "Philox has 7 rounds",
     [](const DrawOf& d) { return d.byte(d.e() / 4, d.e() % 4, d.block(), d.direction, 7); }},
    {"other_direction", "draws are those of the other direction",
     [](const DrawOf& d) { return d.byte(d.e() / 4, d.e() % 4, d.block(), 1 - d.direction); }},
    {"block=+1", "draws are those of the neighbouring block",
     [](const DrawOf& d) { return d.of_block(d.block() + 1); }},
    {"block=-1", "draws are those of the neighbouring block",
     [](const DrawOf& d) { return d.of_block(d.block() - 1); }},
    {"blocks_down", "blocks are counted down the columns",
     [](const DrawOf& d) { return d.of_block(static_cast<uint64_t>(d.c.j / 16 * d.c.lines + d.c.i)); }},
    {"block_alone", "draws depend on the block of a line, but not on the line",
     [](const DrawOf& d) { return d.of_block(d.along()); }},
    {"line_alone", "draws depend on the line, but not on the block",
     [](const DrawOf& d) { return d.of_block(d.line()); }},
    {"zero", "every draw is 0", [](const DrawOf&) { return 0u; }},
    {"half", "every draw is 128", [](const DrawOf&) { return 128u; }},
};

// N12.3: the E2M1 code of a scaled value by a random byte.
template <class Byte> uint32_t drawn_code(double s, Byte byte) {
  const uint32_t sign = std::signbit(s) ? 8u : 0u;
  const double magnitude = std::fabs(s);
  if (std::isnan(s)) return 7u;
  if (magnitude >= 6) return sign | 7u;
  uint32_t lower = element_code(Encoding::e2m1, magnitude);
  if (value_of(Encoding::e2m1, lower) > magnitude) --lower;
  const double lo = value_of(Encoding::e2m1, lower), step = value_of(Encoding::e2m1, lower + 1) - lo;
  const auto f = static_cast<uint32_t>(std::floor(256 * ((magnitude - lo) / step)));
  return sign | (f + byte() >= 256 ? lower + 1 : lower);
}

// The same where the byte is added to the signed value, which is then floored: a negative value goes away
// from zero under the small bytes, not the large ones.
uint32_t drawn_signed(double s, uint32_t byte) {
  if (!std::signbit(s) || std::isnan(s)) return drawn_code(s, [=] { return byte; });
  const uint32_t lower = drawn_code(s, [] { return 0u; }), upper = lower + 1;
  const double lo = value_of(Encoding::e2m1, lower);
  if (s == lo || (lower & 7) == 7) return lower;
  const double step = value_of(Encoding::e2m1, upper) - lo;
  return static_cast<uint32_t>(std::floor(256 * (1 - (s - lo) / step))) + byte < 256 ? upper : lower;
}

}  // namespace

void add_draw_rows(Rows& rows) {
  add_rngs(rows);
  if (rows.q.numerics.draw != Draw::logical || rows.q.numerics.sr_rule != SrRule::integer) return;
  const uint64_t direction = rows.d == Direction::col;
  for (const DrawRow& row : kDrawRows)
    rows.add(string("draw.") + row.id, row.title, Stage::code, "N12.2").code =
        [byte = row.byte, rng = rows.lane.rng, direction](const CodeView& c) {
          return drawn_code(c.scaled(), [&] { return byte(DrawOf{c, rng, direction}); });
        };
  rows.add("draw.of_signed",
           "the byte is added to the signed value, so negative elements are rounded by its complement",
           Stage::code, "N12.3")
      .code = [rng = rows.lane.rng, direction](const CodeView& c) {
    const DrawOf d{c, rng, direction};
    return drawn_signed(c.scaled(), d.byte(d.e() / 4, d.e() % 4));
  };
}

}  // namespace assay
