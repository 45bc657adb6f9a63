// Random words: Philox4x32 (N12.1), and which word serves which element (N12.2, N12.4, docs/draws.md), by
// shifts and masks.
#pragma once
#include "contract/problem.h"
#include "fast/lane/layout.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// One round: two 32 x 32 products, whose halves change places.
ASSAY_LANE uint4 philox_round(uint4 c, uint2 key) {
  const uint64_t p0 = uint64_t(c.x) * 0xD2511F53u, p1 = uint64_t(c.z) * 0xCD9E8D57u;
  return make_uint4(uint32_t(p1 >> 32) ^ c.y ^ key.x, uint32_t(p1), uint32_t(p0 >> 32) ^ c.w ^ key.y,
                    uint32_t(p0));
}
// The words of a counter under a key.
ASSAY_LANE uint4 philox(uint4 counter, uint2 key, int rounds = 10) {
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
    counter = philox_round(counter, key);
    key.x += 0x9E3779B9u, key.y += 0xBB67AE85u;
  }
  return counter;
}

// Where the random words of one direction come from. Elements are named by their place in the stored data, i
// the row and j the column.
struct Draws {
  uint64_t offset = 0;
  uint2 key{};
  Draw draw = Draw::logical;
  bool columns = false;  // the direction
  bool as_rows = false;  // by a kernel's mapping of rows: row data, and columns that were rotated before that
                         // kernel saw them
  bool both = false;     // the kernel makes both directions in one launch
  bool interleaved = false;  // N12.5

  // Of direction d of a Problem in which it draws.
  static Draws of(const Problem& p, Direction d) {
    const Quantizer& q = *p.quantizer(d);
    Draws out;
    out.offset = p.rng.offset;
    out.key = make_uint2(uint32_t(p.rng.seed), uint32_t(p.rng.seed >> 32));
    out.draw = q.numerics.draw;
    out.columns = d == Direction::col;
    const bool launched_apart = q.rht && (q.numerics.draw == Draw::te_t1d || q.numerics.draw == Draw::te_fb);
    out.as_rows = !out.columns || launched_apart;
    if (launched_apart) out.offset += 1024;
    out.both = p.row && p.col && p.col_source == ColSource::original && p.row->format == FormatId::nvfp4 &&
               p.col->format == FormatId::nvfp4 && p.row->round == Round::sr && p.col->round == Round::sr &&
               p.row->numerics.draw == p.col->numerics.draw && !p.col->rht;
    out.interleaved = q.numerics.sr_bytes == SrBytes::interleaved;
    return out;
  }

  // The words of the elements (i, j) to (i, j + 7), j a multiple of 8, four elements a word and byte e of it
  // for element e of the four. The stored data have `rows` rows of `cols`. `block` is the number of the
  // block, see block(); it steps by blocks_of(cols) from one row to the next, so that a loop has no product.
  ASSAY_LANE uint2 eight(uint64_t block, int64_t i, int64_t j, int64_t rows, int64_t cols,
                         uint32_t member) const {
    const bool high = (j & 8) != 0;
    uint4 words;
    bool swapped = false;
    if (draw == Draw::logical) {  // N12.2
      words = philox(make_uint4(uint32_t(offset), uint32_t(offset >> 32), uint32_t(block),
                                (uint32_t(block >> 32) & 0x3FFFu) | member << 14 | (columns ? kSign : 0u)),
                     key);
    } else {
      const uint64_t r = uint64_t(as_rows ? i : j), c = uint64_t(as_rows ? j : i);
      const uint64_t width = uint64_t(as_rows ? cols : rows), height = uint64_t(as_rows ? rows : cols);
      const Address at = address(r, c, height, (width + 127) >> 7);
      const uint64_t low = offset + at.tick,
                     sequence = at.sequence + (low < offset ? 1u : 0u);  // one counter of 128 bits
      swapped = at.swapped;
      words = philox(
          make_uint4(uint32_t(low), uint32_t(low >> 32), uint32_t(sequence), uint32_t(sequence >> 32)), key);
    }
    const bool second = high != swapped;
    const uint2 two = second ? make_uint2(words.z, words.w) : make_uint2(words.x, words.y);
    return interleaved ? make_uint2(__byte_perm(two.x, 0, 0x3120), __byte_perm(two.y, 0, 0x3120)) : two;
  }
  ASSAY_LANE static uint64_t block(int64_t i, int64_t j, int64_t cols) {
    return uint64_t(i) * blocks_of(cols) + (uint64_t(j) >> 4);
  }
  ASSAY_LANE static uint64_t blocks_of(int64_t cols) { return (uint64_t(cols) + 15) >> 4; }

  // Where a kernel of TransformerEngine finds the words of a block: which sequence, which word of four in it,
  // and whether its halves change places.
  struct Address {
    uint64_t sequence = 0;
    uint32_t tick = 0;
    bool swapped = false;
  };
  // Of element (r, c) of the matrix that the kernel tiles: `height` rows, `across` tiles of 128 columns
  // (N12.4).
  ASSAY_LANE Address address(uint64_t r, uint64_t c, uint64_t height, uint64_t across) const {
    const uint32_t rt = uint32_t(r) & 127u, ct = uint32_t(c) & 127u, two = both ? 1u : 0u;
    const uint64_t tile = (c >> 7) + across * (r >> 7);
    switch (draw) {
      case Draw::logical: break;
      case Draw::te_t1d: {
        const uint32_t stage = rt >> 6 << 1 | ct >> 6;
        if (as_rows)
          return {tile << 7 | (rt & 31u) << 2 | ((ct >> 4) & 3u), (stage << (1 + two)) + ((rt >> 5) & 1u),
                  (rt & 4u) != 0};
        const uint32_t lane = (ct & 63u) >> 1, warp = ((rt >> 4) - (lane >> 1)) & 3u;
        return {tile << 7 | warp << 5 | lane, (stage << 2) + 2u + (ct & 1u), false};
      }
      case Draw::te_q2d: {
        const uint32_t tick = (rt >> 5 << (1 + two)) + ((rt >> 4) & 1u);
        if (as_rows) return {tile << 7 | (rt & 15u) << 3 | ct >> 4, tick + (two << 1), (rt & 2u) != 0};
        return {tile << 7 | ct, tick, false};
      }
      case Draw::te_fb: {
        if (as_rows) return {tile << 8 | (rt & 31u) << 3 | ct >> 4, rt >> 5, false};
        const uint32_t p = ct >> 1;
        return {tile << 8 | (p & 31u) << 3 | rt >> 4, (two << 2) + (p >> 5 << 1) + (ct & 1u), false};
      }
      case Draw::te_rhtrc: {
        // 8 tiles of rows make a group; a shorter matrix is one group of fewer.
        const bool grouped = height >= 1024;
        const uint64_t deep = grouped ? 8 : (height + 127) >> 7, n = r >> 7, group = grouped ? n >> 3 : 0,
                       k = grouped ? n & 7 : n;
        const uint64_t place = deep * ((c >> 7) + group * across) + k;
        if (as_rows)
          return {((place + 1) << 9) + 256 + (rt >> 4 << 5 | (rt & 15u) << 1 | ct >> 6), (ct >> 4) & 3u,
                  false};
        return {(place << 9) + 128 + ct, rt >> 4, false};
      }
    }
    return {};
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
