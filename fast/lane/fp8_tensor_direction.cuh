// Per-tensor FP8, delayed and current, as a direction lane (N3).
#pragma once
#include "fast/formats/fp8_current_scale.h"
#include "fast/lane/fp8_tensor.cuh"
#include "fast/move/direction.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct Fp8TensorDirection {
  static constexpr bool kCopies = false;
  DirectionPlanes planes;
  CurrentScale rule;
  Fp8Convert convert;
  ElementRule element;
  bool delayed = false, plus_zero = false, divides = false;
  bool given_decodes = false;  // delayed: the given number is the decode scale (N17.5)
  int64_t slots = 1;

  static Fp8TensorDirection of(const Job& job, Direction d) {
    const Quantizer& q = *job.problem.quantizer(d);
    Fp8TensorDirection lane;
    lane.planes = direction_planes(job, d);
    lane.delayed = q.format == FormatId::fp8_delayed;
    if (!lane.delayed) lane.rule = current_scale(q, job.problem.x.source);
    lane.convert = {q.element, job.policy == Policy::general};
    lane.plus_zero = q.numerics.neg_zero == NegZero::plus;
    lane.divides = q.numerics.scale_order == ScaleOrder::decode_divide;
    lane.given_decodes = lane.delayed && q.numerics.scale_order != ScaleOrder::encode_first;
    lane.element = ElementRule::of(q, lane.divides);
    lane.slots = amax_slots(job.problem, d);
    return lane;
  }
  Pass amax_pass() const {
    return delayed ? Pass::during : planes.amax != nullptr ? Pass::before : Pass::none;
  }  // N3.1
  int64_t start_slots() const { return delayed || planes.amax != nullptr ? slots : 0; }
  int64_t finish_slots() const { return delayed ? 0 : slots; }

  ASSAY_DEVICE void start(int64_t slot) const {
    planes.amax[slot] = delayed ? planes.prior[slot] : 0u;  // N3.1
    if (!delayed) return;
    const uint32_t number = planes.given[slot];
    planes.scale_inv[slot] = given_decodes ? canonical(number) : reciprocal(number);  // N17.5, N3.11
  }
  ASSAY_DEVICE void finish(int64_t slot) const {
    const Fp8Scales s = rule(planes.given != nullptr ? planes.given[slot] : planes.amax[slot]);
    planes.scale[slot] = s.scale;
    planes.scale_inv[slot] = s.scale_inv;
  }
  template <bool kRows> ASSAY_DEVICE void accumulate(const Tile& tile, const Patch& patch) const {
    if (planes.by_line) accumulate_line_amaxes<kRows>(tile, patch, planes.amax);  // N3.12
    else accumulate_amax(patch, planes.amax);
  }

  template <bool kRows> ASSAY_DEVICE void encode(const Tile& tile, Patch& patch, Step step) const {
    using A = Axis<kRows>;
    const uint32_t* scales = delayed ? planes.given : divides ? planes.scale_inv : planes.scale;
    uint32_t factor[kPatch];
    uint2 codes[kPatch];
    of_lines<kRows>(tile, scales, factor);
    if (given_decodes && !divides)
#pragma unroll
      for (int l = 0; l < kPatch; ++l) factor[l] = reciprocal(factor[l]);  // N17.5
    if (element.on) {
      rule_codes<kRows>(element, patch, factor, divides, codes);
    } else {
#pragma unroll
      for (int l = 0; l < kPatch; ++l) {
        uint32_t pairs[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          pairs[k] = convert(scaled(A::at(patch, l, 2 * k), as_float(factor[l]), plus_zero),
                             scaled(A::at(patch, l, 2 * k + 1), as_float(factor[l]), plus_zero));  // N3.8
        codes[l] = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
      }
    }
    if (step.decode) {  // N3.10
      of_lines<kRows>(tile, planes.scale_inv, factor);
#pragma unroll
      for (int l = 0; l < kPatch; ++l)
#pragma unroll
        for (int k = 0; k < kPatch; ++k)
          A::at(patch, l, k) =
              as_bits(__fmul_rn(as_float(convert.decoded(byte_of(codes[l], k))), as_float(factor[l])));
    }
    if (step.store) store_bytes<kRows, true>(planes.data, tile, codes);  // N3.9
  }

 private:
  // What each line of the patch has in `plane`: the tensor's value, or that of its stored row (N3.12); 1
  // outside the tensor.
  template <bool kRows>
  ASSAY_DEVICE void of_lines(const Tile& tile, const uint32_t* plane, uint32_t (&out)[kPatch]) const {
    using A = Axis<kRows>;
    const uint32_t* from = plane + (planes.by_line ? A::line(tile) : 0);
#pragma unroll
    for (int l = 0; l < kPatch; ++l) out[l] = !planes.by_line ? *from : l < A::lines(tile) ? from[l] : kOne;
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
