#include "reference/draws.h"

#include <algorithm>

#include "contract/planes.h"

namespace assay::reference {

namespace {

constexpr Counter kSequence = Counter{1} << 64;  // the weight of a counter's upper half

// ---- the tables of N12.4: (r, c) of an M x K matrix; both = 1 when one launch makes both directions ---

struct Place {
  int64_t r, c, M, K, both;
};
struct Ticket {
  int64_t sequence, tick, word;
};

int64_t tiles_across(const Place& p) { return ceil_div(p.K, 128); }  // GX
// What the blocks of 128x128 before this one take, at n threads each.
int64_t launch(int64_t n, const Place& p) { return n * (p.c / 128) + n * tiles_across(p) * (p.r / 128); }
// The word of element e of a block, and the same with the halves of the block swapped where g is 1.
int64_t straight(int64_t e) { return e / 4; }
int64_t swapped(int64_t e, int64_t g) { return 2 * ((e / 8 + g) % 2) + e % 8 / 4; }

int64_t t1d_stage(const Place& p) { return 2 * (p.r % 128 / 64) + p.c % 128 / 64; }
Ticket t1d_row(const Place& p) {
  const int64_t base = 2 * t1d_stage(p) * (1 + p.both);
  return {launch(128, p) + 4 * (p.r % 32) + p.c % 64 / 16, base + p.r % 64 / 32,
          swapped(p.c % 16, p.r % 8 / 4)};
}
Ticket t1d_col(const Place& p) {
  const int64_t lane = p.c % 64 / 2, warp = (p.r % 64 / 16 - lane / 2 + 64) % 4;  // + 64: not negative
  return {launch(128, p) + 32 * warp + lane, 4 * t1d_stage(p) + 2 + p.c % 2, straight(p.r % 16)};
}

int64_t q2d_base(const Place& p) { return 2 * (p.r % 128 / 32) * (1 + p.both); }
Ticket q2d_row(const Place& p) {
  return {launch(128, p) + 8 * (p.r % 16) + p.c % 128 / 16, q2d_base(p) + 2 * p.both + p.r % 32 / 16,
          swapped(p.c % 16, p.r % 4 / 2)};
}
Ticket q2d_col(const Place& p) {
  return {launch(128, p) + p.c % 128, q2d_base(p) + p.r % 32 / 16, straight(p.r % 16)};
}

Ticket fb_row(const Place& p) {
  return {launch(256, p) + 8 * (p.r % 32) + p.c % 128 / 16, p.r % 128 / 32, straight(p.c % 16)};
}
Ticket fb_col(const Place& p) {
  const int64_t pair = p.c % 128 / 2;
  return {launch(256, p) + 8 * (pair % 32) + p.r % 128 / 16, 4 * p.both + 2 * (pair / 32) + p.c % 2,
          straight(p.r % 16)};
}

Ticket rhtrc(const Place& p, Direction d) {
  const int64_t tiles_down = ceil_div(std::min<int64_t>(p.M, 1024), 128);  // KT
  const int64_t n = p.r / 128, k = n % tiles_down, lin = p.c / 128 + tiles_across(p) * (n / tiles_down);
  const int64_t before = 512 * tiles_down * lin;
  if (d == Direction::col) return {128 + p.c % 128 + 512 * k + before, p.r % 128 / 16, straight(p.r % 16)};
  const int64_t thread = 32 * (p.r % 128 / 16) + 2 * (p.r % 16) + p.c % 128 / 64;
  return {256 + thread + 512 * (k + 1) + before, p.c % 64 / 16, straight(p.c % 16)};
}

// One launch makes both directions of the line (docs/draws.md).
bool made_together(const Problem& p) {
  return p.row && p.col && p.row->format == FormatId::nvfp4 && p.col->format == FormatId::nvfp4 &&
         p.row->round == Round::sr && p.col->round == Round::sr &&
         p.row->numerics.draw == p.col->numerics.draw && p.col_source == ColSource::original && !p.col->rht;
}

}  // namespace

Draws::Draws(const Problem& p, Direction d)
    : direction_(d),
      shape_(p.x.shape),
      rng_(p.rng),
      kind_(p.quantizer(d)->numerics.draw),
      bytes_(p.quantizer(d)->numerics.sr_bytes),
      rht_(p.quantizer(d)->rht),
      both_(made_together(p)) {}

Address Draws::logical(int64_t i, int64_t j) const {
  const int64_t length = direction_ == Direction::row ? shape_.cols : shape_.rows;  // of a stored row
  const int64_t block = i * ceil_div(length, 16) + j / 16;                          // N12.2
  const uint64_t direction = direction_ == Direction::row ? 0 : 1;
  // N12.2: 46 bits of block, 17 of member, the direction in the last
  const uint64_t upper =
      static_cast<uint64_t>(block) + rng_.member * (uint64_t{1} << 46) + direction * (uint64_t{1} << 63);
  return {upper * kSequence + rng_.offset, j % 16 / 4, j % 4};
}

Address Draws::of_kernel(int64_t i, int64_t j) const {
  const bool rows = direction_ == Direction::row;
  uint64_t offset = rng_.offset;
  Place p{rows ? i : j, rows ? j : i, shape_.rows, shape_.cols, both_};
  Direction d = direction_;
  if (rht_ && (kind_ == Draw::te_t1d || kind_ == Draw::te_fb)) {  // N12.4: the rows of a launch of their own
    p = {i, j, shape_.cols, shape_.rows, 0};
    d = Direction::row;
    offset += 1024;
  }
  const bool row = d == Direction::row;
  const Ticket t = kind_ == Draw::te_t1d   ? (row ? t1d_row(p) : t1d_col(p))
                   : kind_ == Draw::te_q2d ? (row ? q2d_row(p) : q2d_col(p))
                   : kind_ == Draw::te_fb  ? (row ? fb_row(p) : fb_col(p))
                                           : rhtrc(p, d);
  return {static_cast<uint64_t>(t.sequence) * kSequence + offset + static_cast<uint64_t>(t.tick), t.word,
          j % 4};  // N12.4
}

namespace {

// N12.5: which byte of a word serves the element of that place among four.
int64_t byte_of(int64_t place, SrBytes bytes) {
  constexpr int64_t kInterleaved[] = {0, 2, 1, 3};
  return bytes == SrBytes::interleaved ? kInterleaved[place] : place;
}
uint32_t byte_in(uint32_t word, int64_t byte) {
  constexpr uint32_t kWeights[] = {1, 256, 65536, 16777216};
  return word / kWeights[byte] % 256;
}

}  // namespace

Address Draws::at(int64_t i, int64_t j) const {
  Address a = kind_ == Draw::logical ? logical(i, j) : of_kernel(i, j);
  a.byte = byte_of(a.byte, bytes_);
  return a;
}

uint32_t Draws::word_at(const Address& a, Last& last) const {
  if (!last.any || last.counter != a.counter)
    last = {true, a.counter, philox4x32(a.counter, rng_.seed)};  // N12.2
  return last.words[static_cast<size_t>(a.word)];
}

uint32_t Draws::byte_at(int64_t i, int64_t j, Last& last) const {
  const Address a = at(i, j);
  return byte_in(word_at(a, last), a.byte);  // N12.2, N12.5
}

std::array<uint32_t, 4> Draws::bytes_at(int64_t i, int64_t j, Last& last) const {
  const uint32_t word = word_at(at(i, j), last);
  std::array<uint32_t, 4> of;
  for (int64_t place = 0; place < 4; ++place)
    of[static_cast<size_t>(place)] = byte_in(word, byte_of(place, bytes_));
  return of;
}

}  // namespace assay::reference
