// The microscaling formats as one direction lane: they differ in the scaled amax, the element, and how data
// and columns are stored (N5, N15, N18).
#pragma once
#include "fast/lane/mx_scale.cuh"
#include "fast/move/direction.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

using MxConvert = Convert<Encoding::e4m3, Encoding::e5m2, Encoding::e2m3, Encoding::e3m2, Encoding::e2m1>;
static_assert(are_elements_of<Encoding::e4m3, Encoding::e5m2, Encoding::e2m3, Encoding::e3m2, Encoding::e2m1>(
                  Family::mx),
              "a row of formats.def has an element that the lane of microscaling formats does not know");

// How the codes of a line are stored (N6.1, N6.8).
enum class MxCodes : uint8_t { bytes, sixes, nibbles };

struct MxDirection : WithoutAmaxPass {
  static constexpr bool kCopies = false;
  MxConvert convert;
  MxScaleRule scale_code;
  ElementRule element;
  MxCodes stored{};
  bool transposed = false, square = false, nan_wins = false, plus_zero = false;

  static MxDirection of(const Job& job, Direction d) {
    const Quantizer& q = *job.problem.quantizer(d);
    return {{direction_planes(job, d)},
            {q.element, job.policy == Policy::general},
            MxScaleRule::of(q),
            ElementRule::of(q, false),
            !is_packed(q)               ? MxCodes::bytes
            : info(q.element).bits == 4 ? MxCodes::nibbles
                                        : MxCodes::sixes,
            info(q.format).column_data == ColumnData::transposed,
            is_square(q.block),
            q.numerics.nan_amax == NanAmax::propagate,
            q.numerics.neg_zero == NegZero::plus};
  }

  template <bool kRows> ASSAY_DEVICE void encode(const Tile& tile, Patch& patch, Step step) const {
    uint32_t scales[kPatch];
    line_maxima<kRows>(patch, nan_wins, scales);  // N5.1, N5.7
    uint2 codes;
    if (square) {  // N5.8
      const uint32_t code = scale_code(square_maximum<32>(greatest(scales))) * 0x01010101u;
      codes = make_uint2(code, code);
    } else {  // each of the 4 lanes that share the blocks works out the scales of two lines
      constexpr int kNext = Axis<kRows>::kNext;
      const uint2 amax = quad_maxima<Source<Encoding::f32>, kNext, 2 * kNext>(scales, tile.at.lane);
      codes = quad_gather<kNext, 2 * kNext>(scale_code(amax.x) | scale_code(amax.y) << 8, tile.at.lane);
    }
    if (step.store) {
#pragma unroll
      for (int l = 0; l < kPatch; ++l) scales[l] = byte_of(codes, l);
      if (transposed || kRows) store_byte_scales<kRows, 32, false>(planes, tile, scales);
      else store_byte_scales<kRows, 32, true>(planes, tile, scales);
    }
    if (stored == MxCodes::nibbles) encode4<kRows>(tile, patch, codes, step);
    else encode8<kRows>(tile, patch, codes, step);
  }

 private:
  template <bool kRows>
  ASSAY_DEVICE void encode8(const Tile& tile, Patch& patch, uint2 scales,
                            Step step) const {  // one byte a line, which takes fewer registers than a word
    using A = Axis<kRows>;
    uint2 codes[kPatch];
    if (element.on) by_rule<kRows>(patch, scales, codes);
#pragma unroll
    for (int l = 0; l < kPatch; ++l) {
      if (!element.on) {
        const float multiplier = as_float(scale_code.multiplier(byte_of(scales, l)));
        uint32_t pairs[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          pairs[k] = convert(scaled(A::at(patch, l, 2 * k), multiplier, plus_zero),
                             scaled(A::at(patch, l, 2 * k + 1), multiplier, plus_zero));  // N5.5, N18.3
        codes[l] = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
      }
      if (!step.decode) continue;
      const float scale = as_float(mx_scale(byte_of(scales, l)));
#pragma unroll
      for (int k = 0; k < kPatch; ++k)
        A::at(patch, l, k) =
            as_bits(__fmul_rn(as_float(convert.decoded(byte_of(codes[l], k))), scale));  // N5.9
    }
    if (!step.store) return;
    if (stored == MxCodes::sixes) store_sixes<kRows>(planes.data, tile, codes);
    else if (transposed) store_bytes<kRows, true>(planes.data, tile, codes);
    else store_bytes<kRows, false>(planes.data, tile, codes);
  }
  template <bool kRows>
  ASSAY_DEVICE void encode4(const Tile& tile, Patch& patch, uint2 scales,
                            Step step) const {  // one byte a line, which takes fewer registers than a word
    using A = Axis<kRows>;
    uint32_t codes[kPatch];
    if (element.on) {
      uint2 wide[kPatch];
      by_rule<kRows>(patch, scales, wide);
#pragma unroll
      for (int l = 0; l < kPatch; ++l) codes[l] = wide[l].x;
    }
#pragma unroll
    for (int l = 0; l < kPatch; ++l) {
      if (!element.on) {
        const float multiplier = as_float(scale_code.multiplier(byte_of(scales, l)));
        codes[l] = 0;
#pragma unroll
        for (int k = 0; k < kPatch; k += 2) {
          const uint32_t pair = convert(scaled(A::at(patch, l, k), multiplier, plus_zero),
                                        scaled(A::at(patch, l, k + 1), multiplier, plus_zero));  // N15.3
          codes[l] |= pair << (4 * k);
        }
      }
      if (!step.decode) continue;
      const float scale = as_float(mx_scale(byte_of(scales, l)));
#pragma unroll
      for (int k = 0; k < kPatch; ++k)
        A::at(patch, l, k) =
            as_bits(__fmul_rn(as_float(convert.decoded((codes[l] >> (4 * k)) & 15u)), scale));  // N5.9
    }
    if (step.store) store_nibbles<kRows>(planes.data, tile, codes);
  }
  template <bool kRows>
  ASSAY_DEVICE void by_rule(const Patch& patch, uint2 scales, uint2 (&codes)[kPatch]) const {
    uint32_t multipliers[kPatch];
#pragma unroll
    for (int l = 0; l < kPatch; ++l) multipliers[l] = scale_code.multiplier(byte_of(scales, l));
    rule_codes<kRows>(element, patch, multipliers, false, codes);
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
