// FP8 blockwise as a direction lane: 1x128 and 128x128 blocks, every Numerics (N9).
#pragma once
#include "fast/formats/fp8_current_scale.h"
#include "fast/lane/fp8_block.cuh"
#include "fast/move/direction.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct Fp8BlockDirection {
  static constexpr const char* kName = "fp8_block";
  static constexpr bool kCopies = false;
  DirectionPlanes planes;
  CurrentScale rule;
  Fp8Convert convert;
  bool square = false, plus_zero = false;

  static Fp8BlockDirection of(const Job& job, Direction d) {
    const Quantizer& q = *job.problem.quantizer(d);
    return {direction_planes(job, d), current_scale(q, job.problem.x.source), {q.element == Encoding::e5m2, job.policy == Policy::general}, is_square(q.block),
            q.numerics.neg_zero == NegZero::plus};
  }
  Pass amax_pass() const { return Pass::none; }
  int64_t slots() const { return 0; }
  ASSAY_DEVICE void start(int64_t) const {}
  ASSAY_DEVICE void finish(int64_t) const {}
  template <bool kRows>
  ASSAY_DEVICE void accumulate(const Tile&, const Patch&) const {}

  template <bool kRows>
  ASSAY_DEVICE void encode(const Tile& tile, Patch& patch, Step step) const {
    using A = Axis<kRows>;
    uint32_t scales[kPatch], decode_scales[kPatch];
    line_maxima<kRows>(patch, false, scales);   // N9.1
    if (square) {
      scales[0] = rule(square_maximum<kTile>(greatest(scales)));
      decode_scales[0] = reciprocal(scales[0]);
#pragma unroll
      for (int l = 1; l < kPatch; ++l) scales[l] = scales[0], decode_scales[l] = decode_scales[0];
    } else {
      block_maxima<kRows, kTile>(tile, scales);
#pragma unroll
      for (int l = 0; l < kPatch; ++l) {
        scales[l] = rule(scales[l]);             // N9.2
        decode_scales[l] = reciprocal(scales[l]);
      }
    }
    if (step.store) store_f32_scales<kRows>(planes, tile, decode_scales, square);

    uint2 codes[kPatch];
#pragma unroll
    for (int l = 0; l < kPatch; ++l) {
      uint32_t pairs[4];
#pragma unroll
      for (int k = 0; k < 4; ++k)
        pairs[k] = convert(scaled(A::at(patch, l, 2 * k), as_float(scales[l]), plus_zero), scaled(A::at(patch, l, 2 * k + 1), as_float(scales[l]), plus_zero));   // N9.3
      codes[l] = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
      if (!step.decode) continue;
#pragma unroll
      for (int k = 0; k < kPatch; ++k) A::at(patch, l, k) = as_bits(__fmul_rn(as_float(convert.decoded(byte_of(codes[l], k))), as_float(decode_scales[l])));   // N9.5
    }
    if (step.store) store_bytes<kRows, true>(planes.data, tile, codes);
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
