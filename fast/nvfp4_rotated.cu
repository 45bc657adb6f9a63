// NVFP4 whose columns are rotated by the random Hadamard transform (N11), default numerics, BF16, in
// registers. Two lanes that share 16 rows exchange halves of their patches once: then each holds 16 rows of 4
// columns, and the rotation, the block's amax, its scale and its random words need no other thread.
#include "fast/nvfp4_rotated.h"

#include "fast/lane/value_pairs.cuh"
#include "fast/move/amax.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

using Bf16 = Source<Encoding::bf16>;
using PatchWords = uint32_t[kPatch][Bf16::kWords];

// Rotates one column of 16 rows (N11.3): `mine` are the signed leaves of this lane's 8 rows, `other` those of
// the lane that has the other half, `second` says that mine are the last. The outputs are packed.
ASSAY_LANE void rotate_column(float (&mine)[kPatch], float (&other)[kPatch], bool second,
                              uint32_t (&first_line)[Bf16::kWords], uint32_t (&last_line)[Bf16::kWords]) {
#pragma unroll
  for (int h = 1; h < kPatch; h <<= 1)
#pragma unroll
    for (int i = 0; i < kPatch; ++i) {
      if ((i & h) != 0) continue;
      const float a = mine[i], b = mine[i + h], c = other[i], d = other[i + h];
      mine[i] = __fadd_rn(a, b), mine[i + h] = __fsub_rn(a, b);
      other[i] = __fadd_rn(c, d), other[i + h] = __fsub_rn(c, d);
    }
  // The first half less the second, whichever of them is mine: a product with 1 or -1 is exact.
  const float sign = second ? -1.0f : 1.0f;
  float sum[kPatch], difference[kPatch];
#pragma unroll
  for (int k = 0; k < kPatch; ++k) {
    sum[k] = __fmul_rn(__fadd_rn(mine[k], other[k]), 0.25f);
    difference[k] = __fmul_rn(__fmaf_rn(sign, mine[k], __fmul_rn(-sign, other[k])), 0.25f);
  }
#pragma unroll
  for (int w = 0; w < Bf16::kWords; ++w) {
    first_line[w] = narrowed_pair<Encoding::bf16>(sum[2 * w], sum[2 * w + 1]);
    last_line[w] = narrowed_pair<Encoding::bf16>(difference[2 * w], difference[2 * w + 1]);
  }
}

// lines[2 c] and lines[2 c + 1]: the first and the last 8 rotated elements of column c of the four that this
// lane takes of the 8 that it shares: the first where it holds the first rows. `words` is overwritten.
ASSAY_DEVICE void rotate_patch(uint32_t sign_mask, int lane, PatchWords& words, PatchWords& lines) {
  const bool second = (lane & 8) != 0;
  const uint32_t signs = second ? sign_mask >> 8 : sign_mask;
#pragma unroll
  for (int i = 0; i < kPatch; ++i) {
    const uint32_t flip = (signs >> i & 1u) != 0 ? 0x80008000u : 0u;  // N11.1
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const uint32_t keep = second ? words[i][2 + w] : words[i][w],
                     give = second ? words[i][w] : words[i][2 + w];
      words[i][w] = keep ^ flip;
      words[i][2 + w] = __shfl_xor_sync(kAllLanes, give ^ flip, 8);
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float mine[kPatch], other[kPatch];
#pragma unroll
    for (int i = 0; i < kPatch; ++i)
      mine[i] = as_float(Bf16::widen(words[i], c)), other[i] = as_float(Bf16::widen(words[i] + 2, c));
    rotate_column(mine, other, second, lines[2 * c], lines[2 * c + 1]);
  }
}

// Columns, rotated: 4 blocks of 16 a lane, put for store_nvfp4_columns. There are a multiple of 16 rows
// (N11.2).
template <bool kDrawn>
ASSAY_DEVICE void rotated_direction(const Nvfp4PairArgs& a, const Place& at, const Nvfp4Scales& tensor,
                                    PatchWords& words) {
  PatchWords lines;
  a.col.store_amax();
  rotate_patch(a.sign_mask, at.lane, words, lines);
  uint32_t items[Bf16::kWords], amaxes[4];
  bool wild = maxima<Bf16, true>(lines, items);
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const uint32_t low = Bf16::widen(items, 2 * c), high = Bf16::widen(items, 2 * c + 1);
    amaxes[c] = low > high ? low : high;
  }
  const Nvfp4Four four = Nvfp4Four::of(tensor, amaxes);
  wild |= four.wild;
  const bool tame = __any_sync(kAllLanes, wild) == 0;

  const int64_t i = at.col + ((at.lane & 8) != 0 ? 4 : 0), j = at.row >> 4, blocks = a.extent.rows >> 4;
  put_nvfp4_column_scales(i, a.extent.cols, j, blocks, four.scales);
  uint4 drawn[4] = {};
  if constexpr (kDrawn)
    a.col.draws.four(uint64_t(i) * uint64_t(blocks) + uint64_t(j), uint64_t(blocks), drawn);
  if (at.cols == 0) return;  // cols is a multiple of 8, and rows of 16: all four columns lie inside, or none
  const int column = int(i & (kTile - 1));
  uint32_t* to =
      e2m1_columns(column / kPatch) + column % kPatch * kColumnWords + int(j * 2 & (kColumnWords - 1));
#pragma unroll
  for (int c = 0; c < 4; ++c, to += kColumnWords) {
    uint32_t codes[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int l = 2 * c + h;
      float x[kPatch];
#pragma unroll
      for (int k = 0; k < kPatch; ++k) x[k] = as_float(Bf16::widen(lines[l], k));
      const uint32_t signs = line_signs<Bf16, true>(lines, l);
      if constexpr (kDrawn)
        codes[h] = Hardware::e2m1_drawn(
            x, four.multipliers[c], signs, tame,
            h == 0 ? make_uint2(drawn[c].x, drawn[c].y) : make_uint2(drawn[c].z, drawn[c].w));
      else codes[h] = Hardware::e2m1_codes(x, four.multipliers[c], signs, tame);
    }
    store8(to, make_uint2(codes[0], codes[1]));
  }
}

template <bool kRow, bool kDrawn>
__global__ void __launch_bounds__(kThreads, 2) nvfp4_rotated_pair(Nvfp4PairArgs a) {
  if (is_noop(a.noop)) return;
  const Place at = a.place();
  PatchWords words;
  load_patch<Bf16, true>(a.x, a.extent, at, words);
  const Nvfp4Chain chain;
  if constexpr (kRow)
    nvfp4_direction<Bf16, true, false, kDrawn>(a.row, a.extent, at, chain.of_tensor(*a.row.amax), words);
  rotated_direction<kDrawn>(a, at, chain.of_tensor(*a.col.amax), words);
  __syncthreads();
  store_nvfp4_columns(a.col, a.extent, at);
}

// Raises *row (where not null) to the amax of x, and *col to that of the rotated columns (N11.4).
__global__ void __launch_bounds__(kThreads, 2)
    nvfp4_rotated_amax(const void* x, Extent extent, uint32_t sign_mask, const uint32_t* noop, uint32_t* row,
                       uint32_t* col) {
  if (is_noop(noop)) return;
  const Place at = my_place(extent);
  PatchWords words, lines;
  load_patch<Bf16, true, true>(x, extent, at, words);
  if (row != nullptr) block_atomic_max(patch_maximum<Bf16>(words), row, nullptr);
  rotate_patch(sign_mask, at.lane, words, lines);
  const uint32_t best = block_maximum(patch_maximum<Bf16>(lines));
  // As signed integers, so that a negative value there is less than any maximum.
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<int*>(col), int(best));
}

}  // namespace

void launch_nvfp4_rotated_amax(const Nvfp4PairArgs& args, uint32_t* row, uint32_t* col) {
  launch({.name = "nvfp4_rotated_amax", .grid = args.extent.tiles(), .block = kThreads}, nvfp4_rotated_amax,
         args.x, args.extent, args.sign_mask, args.noop, row, col);
}

void launch_nvfp4_rotated(const Nvfp4PairArgs& args, bool drawn) {
  const LaunchConfig config{.name = "nvfp4_rotated_pair", .grid = args.extent.tiles(), .block = kThreads};
  with_flag(args.row.data != nullptr, [&](auto row) {
    with_flag(drawn, [&](auto d) { launch(config, nvfp4_rotated_pair<row.value, d.value>, args); });
  });
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
