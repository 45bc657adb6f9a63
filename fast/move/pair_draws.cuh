// The random words of a patch under the logical mapping (N12.2), for kernels with default numerics: one call
// of Philox serves one thread, though the block of 16 that it is for lies in two.
#pragma once
#include "fast/lane/philox.cuh"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// What the counters of one direction have in common.
struct BlockDraws {
  uint64_t offset = 0;
  uint2 key{};
  uint32_t high = 0;  // member and direction, in the counter's last word

  // Of direction d of a Problem in which it draws.
  static BlockDraws of(const Problem& p, Direction d) {
    const Draws draws = Draws::of(p, d);
    return {draws.offset, draws.key, p.rng.member << 14 | (draws.columns ? kSign : 0u)};
  }

  // The words of four blocks, `step` apart, at once: their rounds do not wait for one another.
  ASSAY_LANE void four(uint64_t block, uint64_t step, uint4 (&words)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k, block += step)
      words[k] = make_uint4(uint32_t(offset), uint32_t(offset >> 32), uint32_t(block),
                            (uint32_t(block >> 32) & 0x3FFFu) | high);
    uint2 round_key = key;
#pragma unroll
    for (int r = 0; r < 10; ++r) {
#pragma unroll
      for (int k = 0; k < 4; ++k) words[k] = philox_round(words[k], round_key);
      round_key.x += 0x9E3779B9u, round_key.y += 0xBB67AE85u;
    }
  }
};

// The bytes of 8 lines of a patch, 8 elements of each, where the other 8 of each block lie kNext lanes away:
// either lane draws for four lines, and each gets from the other what it lacks. `block`: that of the first
// line that this lane draws for; `second`: whether it holds the second half of the blocks, and draws for the
// last four.
template <int kNext>
ASSAY_DEVICE void draw_lines(const BlockDraws& draws, uint64_t block, uint64_t step, bool second,
                             uint2 (&bytes)[kPatch]) {
  uint4 words[4];
  draws.four(block, step, words);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint2 low = make_uint2(words[k].x, words[k].y), high = make_uint2(words[k].z, words[k].w);
    const uint2 mine = second ? high : low, give = second ? low : high;
    const uint2 other =
        make_uint2(__shfl_xor_sync(kAllLanes, give.x, kNext), __shfl_xor_sync(kAllLanes, give.y, kNext));
    bytes[k] = second ? other : mine, bytes[4 + k] = second ? mine : other;
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
