// FP8 blockwise as a direction lane: 1x128 and 128x128 blocks, every Numerics (N9).
#pragma once
#include "fast/formats/fp8_current_scale.h"
#include "fast/move/direction.cuh"
#include "fast/move/fp8_block_scales.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct Fp8BlockDirection : WithoutAmaxPass {
  static constexpr bool kCopies = false;
  CurrentScale rule;
  Fp8Convert convert;
  ElementRule element;
  bool square = false, plus_zero = false, divides = false;

  static Fp8BlockDirection of(const Job& job, Direction d) {
    const Quantizer& q = *job.problem.quantizer(d);
    const bool divides = q.numerics.scale_order == ScaleOrder::decode_divide;
    return {{direction_planes(job, d)},
            current_scale(q, job.problem.x.source),
            {q.element, job.policy == Policy::general},
            ElementRule::of(q, divides),
            is_square(q.block),
            q.numerics.neg_zero == NegZero::plus,
            divides};
  }

  template <bool kRows> ASSAY_DEVICE void encode(const Tile& tile, Patch& patch, Step step) const {
    using A = Axis<kRows>;
    uint32_t scales[kPatch], decode_scales[kPatch];
    line_maxima<kRows>(patch, false, scales);  // N9.1
    if (square) tile_scales<kRows>(tile, step, scales, decode_scales);
    else line_scales<kRows>(tile, step, scales, decode_scales);

    uint2 codes[kPatch];
    if (element.on) {
      rule_codes<kRows>(element, patch, divides ? decode_scales : scales, divides, codes);
    } else {
#pragma unroll
      for (int l = 0; l < kPatch; ++l) {
        uint32_t pairs[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          pairs[k] = convert(scaled(A::at(patch, l, 2 * k), as_float(scales[l]), plus_zero),
                             scaled(A::at(patch, l, 2 * k + 1), as_float(scales[l]), plus_zero));  // N9.3
        codes[l] = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
      }
    }
    if (step.decode) {
#pragma unroll
      for (int l = 0; l < kPatch; ++l) {
        const float back = as_float(planes.gemm ? mx_scale(fp8_block_code(decode_scales[l]))
                                                : decode_scales[l]);  // N9.6: the exponent is what was stored
#pragma unroll
        for (int k = 0; k < kPatch; ++k)
          A::at(patch, l, k) =
              as_bits(__fmul_rn(as_float(convert.decoded(byte_of(codes[l], k))), back));  // N9.5
      }
    }
    if (step.store) store_bytes<kRows, true>(planes.data, tile, codes);
  }

 private:
  // From the maxima of the patch's lines to the scales of their blocks, stored by one thread a line. Holds
  // two barriers: what a thread writes before the first was read before the second of the call before.
  template <bool kRows>
  ASSAY_DEVICE void line_scales(const Tile& tile, Step step, uint32_t (&scales)[kPatch],
                                uint32_t (&decode_scales)[kPatch]) const {
    using A = Axis<kRows>;
    const TileShared shared = tile_shared();
    const int line = A::tile_line(tile), part = A::tile_first(tile) / kPatch;
#pragma unroll
    for (int l = 0; l < kPatch; ++l) shared.parts[part][line + l] = scales[l];
    __syncthreads();
    const int mine = int(threadIdx.x);
    if (mine < kTile) {
      uint32_t amax = 0;
#pragma unroll
      for (int k = 0; k < kParts; ++k) amax = shared.parts[k][mine] > amax ? shared.parts[k][mine] : amax;
      const Fp8Scales s = rule(amax);  // N9.2
      shared.scales[mine] = s.scale;
      shared.decode_scales[mine] = s.scale_inv;
      if (step.store)
        store_block_scale(planes.scales, planes.gemm, A::line_count(tile), A::element_count(tile),
                          first_line<kRows>(tile) + mine, tile_block<kRows>(tile), s.scale_inv);
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < kPatch; ++l) {
      scales[l] = shared.scales[line + l];
      decode_scales[l] = shared.decode_scales[line + l];
    }
  }
  // One block for the tile.
  template <bool kRows>
  ASSAY_DEVICE void tile_scales(const Tile& tile, Step step, uint32_t (&scales)[kPatch],
                                uint32_t (&decode_scales)[kPatch]) const {
    using A = Axis<kRows>;
    const Fp8Scales s = rule(tile_maximum(greatest(scales)));  // N9.2
#pragma unroll
    for (int l = 0; l < kPatch; ++l) scales[l] = s.scale, decode_scales[l] = s.scale_inv;
    const int mine = int(threadIdx.x);
    if (!step.store || mine >= kTile) return;
    store_tile_scale(planes.scales, planes.gemm, A::line_count(tile), A::element_count(tile),
                     first_line<kRows>(tile) / kTile, tile_block<kRows>(tile), mine, s.scale_inv);
  }
  // The tile's first line, and its place along the lines in blocks.
  template <bool kRows> ASSAY_DEVICE static int64_t first_line(const Tile& tile) {
    return Axis<kRows>::line(tile) & ~int64_t{kTile - 1};
  }
  template <bool kRows> ASSAY_DEVICE static int64_t tile_block(const Tile& tile) {
    return Axis<kRows>::first(tile) / kTile;
  }

  static constexpr int kParts = kTile / kPatch,
                       kPadded =
                           kTile + 4;  // of a line; padded so that the parts of a line lie in different banks
  struct TileShared {
    uint32_t (*parts)[kPadded];
    uint32_t *scales, *decode_scales;
  };
  // Not in a template: rows and columns share it.
  ASSAY_DEVICE static TileShared tile_shared() {
    ASSAY_SHARED(uint32_t, block_parts, [kParts][kPadded]);
    ASSAY_SHARED(uint32_t, block_scales, [2][kTile]);
    return {block_parts, block_scales[0], block_scales[1]};
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
