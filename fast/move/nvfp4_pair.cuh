// NVFP4 with default numerics in registers: what one direction of a patch comes to (N10.4 to N10.9), for the
// kernels of fast/formats/nvfp4.cu and fast/nvfp4_rotated.cu.
#pragma once
#include "fast/lane/nvfp4.cuh"
#include "fast/lane/value_pairs.cuh"
#include "fast/move/e2m1_lines.cuh"
#include "fast/move/pair_draws.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// Where one direction goes, the amax of the tensor that it goes by, where that is stored (null where it is
// given), and what it draws by.
struct Nvfp4Target {
  uint8_t *data = nullptr, *scales = nullptr;
  bool gemm = false;
  const uint32_t* amax = nullptr;
  uint32_t* amax_to = nullptr;
  BlockDraws draws;

  ASSAY_DEVICE void store_amax() const {
    if (amax_to != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *amax_to = *amax;
  }
};
struct Nvfp4PairArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Extent extent;
  Nvfp4Target row, col;
  uint32_t sign_mask = 0;  // of rotated columns
  // Tiles from the last to the first: what the amax pass over x read last is in the cache still.
  bool backwards = false;

  ASSAY_DEVICE Place place() const {
    return place_in_tile(extent, backwards ? gridDim.x - 1u - blockIdx.x : blockIdx.x);
  }
};

// The scales of four blocks (N10.6, N10.8), the amaxes as binary32.
struct Nvfp4Four {
  uint32_t scales = 0;  // a byte each
  float multipliers[4];
  bool wild = false;  // the largest of some block comes to 7 or more, or to NaN

  // kOne: the four blocks are one.
  template <bool kOne = false>
  ASSAY_LANE static Nvfp4Four of(const Nvfp4Scales& tensor, const uint32_t (&amaxes)[4]) {
    const Nvfp4Chain chain;
    Nvfp4Four out;
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      if (kOne && k > 0) {
        out.scales *= 0x10001u;
        out.multipliers[2] = out.multipliers[3] = out.multipliers[0];
        continue;
      }
      const float lo = as_float(chain.scaled_amax(tensor, amaxes[k])),
                  hi = kOne ? lo : as_float(chain.scaled_amax(tensor, amaxes[k + 1]));
      const uint32_t pair = Hardware::pair<Encoding::e4m3>(lo, hi);
      const ValuePair values = values_of_pair<Encoding::e4m3>(pair);
      out.scales |= pair << (8 * k);
      out.multipliers[k] = chain.multiplier_of(tensor, values.lo);
      out.multipliers[k + 1] = chain.multiplier_of(tensor, values.hi);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) out.wild |= !(__fmul_rn(as_float(amaxes[k]), out.multipliers[k]) < 7.0f);
    return out;
  }
};

// Stores the scales of block j of rows i to i + 3, a byte each, in words: four blocks of a row lie in eight
// neighbouring lanes, and these turn what they have. The padding gets 0 (N6.4, N10.14). scales is 4-byte
// aligned. Every lane of the warp calls.
ASSAY_DEVICE void store_nvfp4_row_scales(const Nvfp4Target& to, int lane, int64_t i, int64_t lines, int64_t j,
                                         int64_t blocks, uint32_t scales) {
  const int64_t padded = (blocks + 3) & ~int64_t{3};
  const bool right = (lane & 4) != 0, odd = (lane & 2) != 0;
  uint32_t turned = j < blocks ? scales : 0u;
  turned = __byte_perm(turned, __shfl_xor_sync(kAllLanes, turned, 4), right ? 0x3276 : 0x5410);
  turned = __byte_perm(turned, __shfl_xor_sync(kAllLanes, turned, 2), odd ? 0x3715 : 0x6240);
  i += (lane >> 1) & 3, j &= ~int64_t{3};
  if (j < padded)
    *reinterpret_cast<uint32_t*>(to.scales + (to.gemm ? gemm_index(i, j, padded >> 2) : i * padded + j)) =
        i < lines ? turned : 0u;
}

inline constexpr int kNvfp4Block = 16;  // N10.4

// The scales of a tile's columns, two words of four blocks each. Groups of 8 columns lie a word further apart
// than they are long: then what the lanes of a warp put at once lies in different banks.
inline constexpr int kNvfp4ColumnWords = kTile / kNvfp4Block / 4;
ASSAY_DEVICE uint32_t* nvfp4_column_scales(int column) {
  ASSAY_SHARED(uint32_t, nvfp4_scale_tile, [kTile / kPatch][kPatch * kNvfp4ColumnWords + 1]);
  return nvfp4_scale_tile[column / kPatch] + column % kPatch * kNvfp4ColumnWords;
}
// Puts the scales of block j of columns i to i + 3, a byte each; 0 where there is no such block (N6.4,
// N10.14).
ASSAY_DEVICE void put_nvfp4_column_scales(int64_t i, int64_t lines, int64_t j, int64_t blocks,
                                          uint32_t scales) {
  const uint32_t four = i < lines && j < blocks ? scales : 0u;
  uint8_t* to =
      reinterpret_cast<uint8_t*>(nvfp4_column_scales(int(i & (kTile - 1)))) + (j & (kTile / kNvfp4Block - 1));
#pragma unroll
  for (int k = 0; k < 4; ++k) to[k * 4 * kNvfp4ColumnWords] = uint8_t(four >> (8 * k));
}
// Stores what all threads of the block put before a barrier: the codes and the scales of columns, a word of
// the latter for each thread. `data` and scales are 4-byte aligned, and rows and cols are multiples of 8.
ASSAY_DEVICE void store_nvfp4_columns(const Nvfp4Target& to, const Extent& extent, const Place& at) {
  static_assert(kThreads == kTile * kNvfp4ColumnWords);
  store_e2m1_columns(to.data, extent, at);
  const int64_t blocks = (extent.rows + kNvfp4Block - 1) / kNvfp4Block, padded = (blocks + 3) & ~int64_t{3};
  // In the order in which they lie in memory.
  const int t = int(threadIdx.x), column = to.gemm ? (t & 3) * 32 + (t >> 2 & 31) : t >> 1,
            word = to.gemm ? t / kTile : t & 1;
  const int64_t i = (at.col & ~int64_t{kTile - 1}) + column,
                j = (at.row & ~int64_t{kTile - 1}) / kNvfp4Block + word * 4;
  if (j < padded)
    *reinterpret_cast<uint32_t*>(to.scales + (to.gemm ? gemm_index(i, j, padded >> 2) : i * padded + j)) =
        nvfp4_column_scales(column)[word];
}

// One direction of a patch: lines are rows (kRows) or columns, and stored rows. A block of 16 lies in two
// lanes; each of them makes the scales of 4 of the 8 lines, and draws for these (kDrawn). The amax of a 16x16
// block goes over four lanes (N10.4). x as load_patch<S, true> needs it; the stored rows a multiple of 8
// long. Rows are stored, columns put for store_nvfp4_columns.
template <class S, bool kRows, bool kSquare, bool kDrawn>
ASSAY_DEVICE void nvfp4_direction(const Nvfp4Target& to, const Extent& extent, const Place& at,
                                  const Nvfp4Scales& tensor, const uint32_t (&words)[kPatch][S::kWords]) {
  constexpr int kNext = kRows ? 1 : 8, kHalf = S::kWords / 2;
  to.store_amax();
  const int64_t line = kRows ? at.row : at.col, first = kRows ? at.col : at.row;
  const int64_t lines = kRows ? extent.rows : extent.cols, elements = kRows ? extent.cols : extent.rows;
  const bool second = (at.lane & kNext) != 0;

  uint32_t items[S::kWords], half[kHalf];
  bool wild = maxima<S, kRows>(words, items);  // some scaled element may be NaN, or 7 and more
  if constexpr (kSquare) {
    uint32_t best = items[0];
#pragma unroll
    for (int w = 1; w < S::kWords; ++w) best = S::max(best, items[w]);
    if constexpr (S::kHalves) best = S::max(best, best >> 16 | best << 16);
    best = S::max(best, __shfl_xor_sync(kAllLanes, best, 1));
    best = S::max(best, __shfl_xor_sync(kAllLanes, best, 8));
#pragma unroll
    for (int w = 0; w < kHalf; ++w) half[w] = best;
  } else {
#pragma unroll
    for (int w = 0; w < kHalf; ++w) {
      const uint32_t keep = second ? items[kHalf + w] : items[w], give = second ? items[w] : items[kHalf + w];
      half[w] = S::max(keep, __shfl_xor_sync(kAllLanes, give, kNext));
    }
  }
  const uint32_t amaxes[4] = {S::widen(half, 0), S::widen(half, 1), S::widen(half, 2), S::widen(half, 3)};
  const Nvfp4Four four = Nvfp4Four::of<kSquare>(tensor, amaxes);
  wild |= four.wild;
  const bool tame = __any_sync(kAllLanes, wild) == 0;
  float multiplier[kPatch];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float mine = four.multipliers[k];
    const float other = kSquare ? mine : __shfl_xor_sync(kAllLanes, mine, kNext);
    multiplier[k] = second ? other : mine, multiplier[4 + k] = second ? mine : other;
  }

  const int64_t i = line + (second ? 4 : 0), j = first >> 4, blocks = (elements + 15) >> 4;
  if constexpr (kRows) store_nvfp4_row_scales(to, at.lane, i, lines, j, blocks, four.scales);
  else put_nvfp4_column_scales(i, lines, j, blocks, four.scales);
  uint2 bytes[kPatch] = {};
  if constexpr (kDrawn)
    draw_lines<kNext>(to.draws, uint64_t(i) * uint64_t(blocks) + uint64_t(j), uint64_t(blocks), second,
                      bytes);
  move_e2m1_lines<kRows>(to.data, extent, at, [&](int l) {
    float x[kPatch];
    line_values<S, kRows>(words, l, x);
    const uint32_t signs = line_signs<S, kRows>(words, l);
    if constexpr (kDrawn) return Hardware::e2m1_drawn(x, multiplier[l], signs, tame, bytes[l]);
    else return Hardware::e2m1_codes(x, multiplier[l], signs, tame);  // N10.9
  });
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
