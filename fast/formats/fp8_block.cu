// FP8 blockwise: one tuned patch kernel for either direction or both, 1x128 and 128x128; other Numerics and
// alignments by direction lanes (lane/fp8_block_direction.cuh). Dequantized patch by patch (N9).
#include "fast/choose.h"
#include "fast/directions.h"
#include "fast/formats/fp8_current_scale.h"
#include "fast/lane/fp8_tensor.cuh"
#include "fast/move/dequantize.cuh"
#include "fast/move/fp8_block_scales.cuh"
#include "fast/move/pair.cuh"
#include "fast/move/turned_tile.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {
namespace {

// Where one direction goes, and the rule of its scales.
struct Fp8BlockTarget {
  uint8_t *data = nullptr, *scales = nullptr;
  bool gemm = false;
  CurrentScale rule;
};
struct Fp8BlockPairArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Extent extent;
  Fp8BlockTarget row, col;
};

// What the warps of a tile tell each other: the maxima of its rows over 64 columns, of its columns over 32
// rows, and the scales of both.
struct alignas(16) Fp8BlockShared {
  uint32_t rows[2][kTile], cols[4][kTile], scales[2][kTile];
};
ASSAY_DEVICE Fp8BlockShared& fp8_block_shared() {
  ASSAY_SHARED(Fp8BlockShared, fp8_block_tile, [1]);
  return fp8_block_tile[0];
}

// The maxima of the warp's 32 rows, or of its 64 columns.
template <class S, bool kRows>
ASSAY_DEVICE void share_maxima(const Place& at, const uint32_t (&words)[kPatch][S::kWords]) {
  const int warp = int(threadIdx.x >> 5), eighth = at.lane & 7;
  uint32_t items[S::kWords];
  maxima<S, kRows>(words, items);
  uint2 two = quad_maxima < S, kRows ? 1 : 8, kRows ? 2 : 16 > (items, at.lane);
  if constexpr (kRows) {
    const uint32_t x = __shfl_xor_sync(kAllLanes, two.x, 4), y = __shfl_xor_sync(kAllLanes, two.y, 4);
    two = make_uint2(x > two.x ? x : two.x, y > two.y ? y : two.y);
    if (eighth < 4)
      store8(&fp8_block_shared().rows[warp & 1][(warp >> 1) * 32 + at.row_group() * kPatch + 2 * eighth],
             two);
  } else {
    store8(&fp8_block_shared().cols[warp >> 1][(warp & 1) * 64 + eighth * kPatch + 2 * at.row_group()], two);
  }
}
// The 8 scales of this thread's rows or columns.
template <bool kRows> ASSAY_DEVICE void shared_scales(const Place& at, float (&scales)[kPatch]) {
  const int first = int((kRows ? at.row : at.col) & (kTile - 1));
#pragma unroll
  for (int k = 0; k < kPatch; ++k) scales[k] = as_float(fp8_block_shared().scales[kRows ? 0 : 1][first + k]);
}

// One thread for each stored row of the tile in each direction: from the maxima to the scale, which is also
// stored (N9.1, N9.2).
template <bool kRow, bool kCol> ASSAY_DEVICE void line_scales(const Fp8BlockPairArgs& a, const Place& at) {
  Fp8BlockShared& shared = fp8_block_shared();
  const int mine = int(threadIdx.x & (kTile - 1));
  const int64_t row = at.row & ~int64_t{kTile - 1}, col = at.col & ~int64_t{kTile - 1};
  if (kRow && threadIdx.x < kTile) {
    const uint32_t left = shared.rows[0][mine], right = shared.rows[1][mine];
    const Fp8Scales s = a.row.rule(left > right ? left : right);
    shared.scales[0][mine] = s.scale;
    store_block_scale(a.row.scales, a.row.gemm, a.extent.rows, a.extent.cols, row + mine, col / kTile,
                      s.scale_inv);
  }
  if (kCol && threadIdx.x >= kTile) {
    uint32_t amax = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) amax = shared.cols[k][mine] > amax ? shared.cols[k][mine] : amax;
    const Fp8Scales s = a.col.rule(amax);
    shared.scales[1][mine] = s.scale;
    store_block_scale(a.col.scales, a.col.gemm, a.extent.cols, a.extent.rows, col + mine, row / kTile,
                      s.scale_inv);
  }
}
// One block for the tile: its scale, which is also stored.
template <class S, bool kRow, bool kCol>
ASSAY_DEVICE float tile_scale(const Fp8BlockPairArgs& a, const Place& at,
                              const uint32_t (&words)[kPatch][S::kWords]) {
  ASSAY_SHARED(uint32_t, fp8_block_by_warp, [kThreads / 32]);
  const uint32_t warp_max = __reduce_max_sync(kAllLanes, patch_maximum<S>(words));
  if (at.lane == 0) fp8_block_by_warp[threadIdx.x >> 5] = warp_max;
  __syncthreads();
  uint32_t amax = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) amax = fp8_block_by_warp[w] > amax ? fp8_block_by_warp[w] : amax;
  const Fp8Scales s = (kRow ? a.row : a.col).rule(amax);
  const int mine = int(threadIdx.x & (kTile - 1));
  if (kRow && threadIdx.x < kTile)
    store_tile_scale(a.row.scales, a.row.gemm, a.extent.rows, a.extent.cols, at.row / kTile, at.col / kTile,
                     mine, s.scale_inv);
  if (kCol && threadIdx.x >= kTile)
    store_tile_scale(a.col.scales, a.col.gemm, a.extent.cols, a.extent.rows, at.col / kTile, at.row / kTile,
                     mine, s.scale_inv);
  return as_float(s.scale);
}

// One read, a thread per patch. x is 16-byte and data 8-byte aligned, cols a multiple of 8, and rows too
// where there are columns. Of 128x128 blocks the column codes are the row codes (N9.3).
template <class S, Encoding E, bool kSquare, bool kRow, bool kCol>
__global__ void __launch_bounds__(kThreads, S::kBlocks > 2 ? 2 : S::kBlocks)
    fp8_block_pair(Fp8BlockPairArgs a) {
  if (is_noop(a.noop)) return;
  const Fp8Tensor<E, Hardware, false> element;
  const Place at = my_place(a.extent);
  uint32_t words[kPatch][S::kWords];
  load_patch<S, true>(a.x, a.extent, at, words);

  float scales[kPatch];
  if constexpr (kSquare) {
    scales[0] = tile_scale<S, kRow, kCol>(a, at, words);
#pragma unroll
    for (int k = 1; k < kPatch; ++k) scales[k] = scales[0];
  } else {
    if constexpr (kRow) share_maxima<S, true>(at, words);
    if constexpr (kCol) share_maxima<S, false>(at, words);
    __syncthreads();
    line_scales<kRow, kCol>(a, at);
    __syncthreads();
    shared_scales<kRow>(at, scales);
  }

  uint2 turned[kPatch];
  const int64_t pitch = kRow ? a.extent.cols : 0;  // without rows data is null, which nothing is added to
  uint8_t* to = a.row.data + at.row * pitch + (kRow ? at.col : 0);
#pragma unroll
  for (int i = 0; i < kPatch; ++i, to += pitch) {  // N9.3
    turned[i] = make_uint2(0, 0);
    if (i >= at.rows || (!kRow && !kSquare)) continue;
    turned[i] = encode_row<S>(element, words[i], [&](int) { return scales[i]; });
    if constexpr (kRow) store_codes<true>(to, at.cols, turned[i]);
  }
  if constexpr (!kCol) return;
  if constexpr (!kSquare) {
    if constexpr (kRow) shared_scales<false>(at, scales);
#pragma unroll
    for (int i = 0; i < kPatch; ++i)
      turned[i] = encode_row<S>(element, words[i], [&](int j) { return scales[j]; });
  }
  transpose8(turned);
  store_turned(a.col.data, a.extent, at, turned);
}

// What the tuned kernel needs: the default Numerics but for what the scale alone shows, one element and one
// block for both directions; of 128x128 blocks, one scale.
bool tunable(const Problem& p) {
  const Quantizer& any = p.row ? *p.row : *p.col;
  Numerics tuned;
  tuned.inf_amax = any.numerics.inf_amax, tuned.scale_limit = any.numerics.scale_limit;
  for (Direction d : kDirections) {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (q && (q->numerics != tuned || q->element != any.element || q->block != any.block ||
              q->pow2 != any.pow2 || q->eps != any.eps))
      return false;
  }
  return true;
}

}  // namespace

std::string quantize_fp8_block(const Job& job) {
  const Problem& p = job.problem;
  const Shape s = p.x.shape;
  auto target = [&](Direction d) -> Fp8BlockTarget {
    const std::optional<Quantizer>& q = p.quantizer(d);
    if (!q) return {};
    return {job.output<uint8_t>(d, "data"), job.output<uint8_t>(d, scale_stem(q->scales)),
            q->scales == ScaleLayout::gemm, current_scale(*q, p.x.source)};
  };
  const Fp8BlockPairArgs args{job.input<void>("x"),
                              job.input("noop"),
                              {s.rows, s.cols},
                              target(Direction::row),
                              target(Direction::col)};
  const bool vector = s.cols % kPatch == 0 && (!p.col || s.rows % kPatch == 0) && aligned(16, {args.x}) &&
                      aligned(8, {args.row.data, args.col.data});
  if (!vector || job.policy == Policy::general || !tunable(p)) return quantize_directions(job);

  const LaunchConfig config{.name = "fp8_block_pair", .grid = args.extent.tiles(), .block = kThreads};
  const Quantizer& any = p.row ? *p.row : *p.col;
  if (s.count() != 0)
    with_source(p.x.source, [&](auto source) {
      using S = decltype(source);
      with_fp8(any.element, [&](auto element) {
        constexpr Encoding E = element.value;
        with_flag(is_square(any.block), [&](auto square) {
          constexpr bool kSquare = square.value;
          if (p.row && p.col) launch(config, fp8_block_pair<S, E, kSquare, true, true>, args);
          else if (p.row) launch(config, fp8_block_pair<S, E, kSquare, true, false>, args);
          else launch(config, fp8_block_pair<S, E, kSquare, false, true>, args);
        });
      });
    });
  return "fp8_block_pair<" + directions(p) + "> " + how(p);
}

std::string dequantize_fp8_block(const Job& job) {
  const Direction d = job.problem.row ? Direction::row : Direction::col;
  const ScaleLayout layout = job.problem.quantizer(d)->scales;
  return dequantize_blocks<FormatId::fp8_block>(
      job, Fp8BlockScale{job.input<void>(d, scale_stem(layout)), layout == ScaleLayout::gemm});
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
