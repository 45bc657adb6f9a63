// The kernel in registers of formats with blocks at default numerics: reads the tensor once and writes one
// direction or both, of one format or of two. Vectors only; every other case is served by direction lanes
// (fast/directions.h).
//
// A side is what one direction does with a patch:
//   kFormat        whose side it is
//   kTileScales    whether it puts its scales (tile_scales.cuh), which the kernel stores; as rows, of two
//   tiles kStrip         whether it is for strips: as rows it puts its scales too (strip_scales.cuh)
//   kTileCodes     whether, as columns, it puts its codes into shared memory
//   kSecondPass    whether another pass has read x before this one
//   kWide          whether it needs more registers than three blocks of BF16 leave a thread
//   to             where its codes and these scales go
//   encode<S, kRows>(extent, at, words)
//                  device: makes codes and scales. Every thread of the block calls
//   store_columns(extent, at)
//                  device: after a barrier, stores what all threads have put; with kTileCodes alone
#pragma once
#include "fast/choose.h"
#include "fast/lane/mxfp8.cuh"
#include "fast/move/pair.cuh"
#include "fast/move/strip_scales.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// A direction that is not produced.
struct NoSide {
  static constexpr bool kTileScales = false, kStrip = false, kTileCodes = false, kSecondPass = false,
                        kWide = false;
  Target to;
  template <class S, bool kRows, class Words>
  ASSAY_DEVICE void encode(const Extent&, const Place&, const Words&) const {}
};

// MXFP8, stored as the tensor's rows. kBoth: of square blocks, `same` is where the other direction goes,
// whose codes are the same (N5.8). kOfStrip: its scales are compact.
template <Encoding E, bool kSquare, bool kBoth = false, bool kOfStrip = false> struct Mxfp8Side {
  static constexpr FormatId kFormat = FormatId::mxfp8;
  static constexpr bool kTileScales = false, kStrip = kOfStrip, kTileCodes = false, kSecondPass = false,
                        kWide = kSquare && !kBoth;
  Target to, same;

  template <class S, bool kRows>
  ASSAY_DEVICE void encode(const Extent& extent, const Place& at,
                           const uint32_t (&words)[kPatch][S::kWords]) const {
    const uint2 codes = scale_codes<S, kRows>(words, at.lane);
    if constexpr (kStrip && kRows) put_strip_scales(at, codes);
    else if constexpr (kStrip) store_strip_columns(extent, at, codes);
    else store_scales<kRows>(to, extent, at, codes);
    if constexpr (kBoth) store_scales<!kRows>(same, extent, at, codes);
    float multiplier[kPatch];
    if constexpr (!kRows)
#pragma unroll
      for (int l = 0; l < kPatch; ++l) multiplier[l] = as_float(mx_multiplier(byte_of(codes, l)));
    const int64_t first = at.row * extent.cols + at.col;
    uint8_t *out = to.data + first, *again = kBoth ? same.data + first : nullptr;
#pragma unroll
    for (int i = 0; i < kPatch; ++i, out += extent.cols, again += kBoth ? extent.cols : 0) {
      if (i >= at.rows)
        continue;  // around the arithmetic too: in one straight line, ptxas widens the whole
                   // patch first and spills
      if constexpr (kRows) multiplier[0] = as_float(mx_multiplier(byte_of(codes, i)));
      const uint2 bytes =
          encode_row<S>(Mxfp8<E, Hardware>{}, words[i], [&](int j) { return multiplier[kRows ? 0 : j]; });
      store8(out, bytes);
      if constexpr (kBoth) store8(again, bytes);
    }
  }

 private:
  // Of the 8 rows (kRows) or columns of this patch.
  template <class S, bool kRows>
  ASSAY_DEVICE static uint2 scale_codes(const uint32_t (&words)[kPatch][S::kWords], int my_lane) {
    constexpr int kLow = kRows ? 1 : 8, kHigh = kRows ? 2 : 16;
    using Lane = Mxfp8<E, Hardware>;
    uint32_t items[S::kWords];
    maxima<S, kRows>(words, items);
    if constexpr (kSquare) {
      const uint32_t code = Lane::scale_code(square_maximum<S>(items)) * 0x01010101u;
      return make_uint2(code, code);
    }
    const uint2 amax = quad_maxima<S, kLow, kHigh>(items, my_lane);
    return quad_gather<kLow, kHigh>(Lane::scale_code(amax.x) | Lane::scale_code(amax.y) << 8, my_lane);
  }
  // Compact scales of columns lie in [block][line] (N6.2). Each of the four lanes that share a block has two,
  // side by side: a warp fills whole sectors. Outside the tensor elements are zeros, and their blocks have
  // the code 0, which the padding asks for (N6.4); a strip may go beyond it.
  ASSAY_DEVICE void store_strip_columns(const Extent& extent, const Place& at, uint2 codes) const {
    const int item = 2 * at.row_group();
    const int64_t col = at.col + item, pitch = (extent.cols + kTile - 1) / kTile * kTile;
    const uint32_t two = (item < 4 ? codes.x : codes.y) >> (8 * (item & 3));
    if (col < pitch) *reinterpret_cast<uint16_t*>(to.scales + (at.row >> 5) * pitch + col) = uint16_t(two);
  }
  // Each of the four lanes that share a block stores two. Words by way of shared memory would take registers
  // that are not there.
  template <bool kRows>
  ASSAY_DEVICE static void store_scales(const Target& to, const Extent& extent, const Place& at,
                                        uint2 codes) {
    const int64_t lines = kRows ? extent.rows : extent.cols, elements = kRows ? extent.cols : extent.rows,
                  pitch = kRows ? (elements + kTile - 1) / kTile * 4 : (lines + kTile - 1) / kTile * kTile,
                  tiles = (elements + kTile - 1) / kTile, j = (kRows ? at.col : at.row) >> 5;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int item = 2 * (kRows ? at.quad() : at.row_group()) + k;
      const int64_t i = (kRows ? at.row : at.col) + item;
      const bool meaningful = i < lines && (j << 5) < elements;
      to.scales[to.gemm ? gemm_index(i, j, tiles)
                : kRows ? i * pitch + j
                        : j * pitch + i] = meaningful ? uint8_t(byte_of(codes, item)) : uint8_t(0);
    }
  }
};

template <class RowSide, class ColSide> struct BlockPairArgs {
  const void* x = nullptr;
  const uint32_t* noop = nullptr;
  Extent extent;
  RowSide row;
  ColSide col;
};

// For sm_120a ptxas needs more registers for the columns of strips than three blocks of BF16 leave a thread.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
inline constexpr bool kWideStripColumns = true;
#else
inline constexpr bool kWideStripColumns = false;
#endif
template <class S, class RowSide, class ColSide>
inline constexpr int kBlockPairBlocks =
    (RowSide::kWide || ColSide::kWide || (kWideStripColumns && ColSide::kStrip)) && S::kBlocks > 2
        ? 2
        : S::kBlocks;

// A tile, or a strip. `strip`: a function that says which strip it is, where rows' scales are stored.
// `again`: the block has taken another one before.
template <class S, Spread kSpread, class RowSide, class ColSide, class Strip>
ASSAY_DEVICE void take_tile(const BlockPairArgs<RowSide, ColSide>& a, const TileAt& tile, Strip strip,
                            bool again) {
  constexpr bool kStrip = kSpread == Spread::strip;
  const Place at = place_at<kSpread>(a.extent, tile);
  uint32_t words[kPatch][S::kWords];
  load_patch<S, true>(a.x, a.extent, at, words);
  if (again) __syncthreads();  // what the tile before put has been stored
  a.row.template encode<S, true>(a.extent, at, words);
  if constexpr (RowSide::kStrip) {
    // Here and not at the end: behind a barrier ptxas does not begin with the columns while rows hold
    // registers.
    __syncthreads();
    store_strip_scales(a.row.to, a.extent, strip);
  }
  a.col.template encode<S, false>(a.extent, at, words);
  constexpr bool kTileScales = RowSide::kTileScales || ColSide::kTileScales;
  static_assert(!(kStrip && (kTileScales || ColSide::kTileCodes)));
  if constexpr (kTileScales || ColSide::kTileCodes) __syncthreads();
  if constexpr (ColSide::kTileScales) store_tile_columns(a.col.to, a.extent, at);
  if constexpr (ColSide::kTileCodes) a.col.store_columns(a.extent, at);
}

// One thread per patch. x is 16-byte aligned, and cols a multiple of 8; data as the sides need it. Strips are
// for sides that put no tile scales and no codes, and have no scales in the GEMM layout. Where rows put tile
// scales, a block takes two tiles.
template <class S, class RowSide, class ColSide>
__global__ void __launch_bounds__(kThreads, kBlockPairBlocks<S, RowSide, ColSide>)
    block_pair(BlockPairArgs<RowSide, ColSide> a) {
  if (is_noop(a.noop)) return;
  // From the last tile to the first, where a pass before has left the last ones in the cache.
  constexpr bool kBackwards = RowSide::kSecondPass || ColSide::kSecondPass;
  const unsigned block = kBackwards ? gridDim.x - 1u - blockIdx.x : blockIdx.x;
  if constexpr (RowSide::kTileScales) {
    const unsigned across = unsigned((a.extent.cols + kTile - 1) / kTile), pairs = (across + 1) / 2,
                   tile_row = block / pairs, first = (block - tile_row * pairs) * 2;
#pragma unroll 1
    for (unsigned tile = first; tile < across && tile < first + 2; ++tile)
      take_tile<S, Spread::blocks>(
          a, {tile_row, tile}, [] { return TileAt{}; }, tile != first);  // no strips here: nobody asks
    store_tile_rows(a.row.to, a.extent, tile_row, first);
  } else {
    constexpr bool kStrip = RowSide::kStrip || ColSide::kStrip;
    static_assert(!(kStrip && kBackwards));  // `strip` below counts from the first
    constexpr Spread kSpread = kStrip ? Spread::strip : Spread::blocks;
    // From blockIdx once more: what a Place is made of would hold registers until there.
    const auto strip = [&] {
      const unsigned across = unsigned((a.extent.cols + kStripCols - 1) / kStripCols);
      return TileAt{blockIdx.x / across, blockIdx.x % across};
    };
    take_tile<S, kSpread>(a, tile_at<kSpread>(a.extent, block), strip, false);
  }
}

template <class S, class RowSide, class ColSide>
void launch_block_pair(const char* name, const Job& job, const RowSide& row, const ColSide& col) {
  const Shape s = job.problem.x.shape;
  if (s.count() == 0) return;
  const BlockPairArgs<RowSide, ColSide> args{
      job.input<void>("x"), job.input("noop"), {s.rows, s.cols}, row, col};
  const unsigned grid = RowSide::kStrip || ColSide::kStrip ? args.extent.strips()
                        : RowSide::kTileScales             ? args.extent.pairs_of_tiles()
                                                           : args.extent.tiles();
  launch({.name = name, .grid = grid, .block = kThreads}, block_pair<S, RowSide, ColSide>, args);
}

// Where a direction of a format with E8M0 scales goes.
inline Target block_target(const Job& job, Direction d) {
  const std::optional<Quantizer>& q = job.problem.quantizer(d);
  if (!q) return {};
  return {job.output<uint8_t>(d, "data"), job.output<uint8_t>(d, scale_stem(q->scales)),
          q->scales == ScaleLayout::gemm};
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
