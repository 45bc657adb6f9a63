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
  int64_t members = 1;

  static Fp8TensorDirection of(const Job& job, Direction d) {
    const Quantizer& q = *job.problem.quantizer(d);
    Fp8TensorDirection lane;
    lane.planes = direction_planes(job, d);
    lane.delayed = q.format == FormatId::fp8_delayed;
    if (!lane.delayed) lane.rule = current_scale(q, job.problem.x.source);
    lane.convert = {q.element == Encoding::e5m2, job.policy == Policy::general};
    lane.plus_zero = q.numerics.neg_zero == NegZero::plus;
    lane.divides = q.numerics.scale_order == ScaleOrder::decode_divide;
    lane.element = ElementRule::of(q, lane.divides);
    lane.members = member_count(job.problem);
    return lane;
  }
  Pass amax_pass() const { return delayed ? Pass::during : planes.amax != nullptr ? Pass::before : Pass::none; }   // N3.1
  int64_t start_slots() const { return delayed || planes.amax != nullptr ? members : 0; }
  int64_t finish_slots() const { return delayed ? 0 : members; }

  ASSAY_DEVICE void start(int64_t slot) const {
    planes.amax[slot] = delayed ? planes.prior[slot] : 0u;                  // N3.1
    if (delayed) planes.scale_inv[slot] = reciprocal(planes.given[slot]);   // N3.11
  }
  ASSAY_DEVICE void finish(int64_t slot) const {
    const Fp8Scales s = rule(planes.given != nullptr ? planes.given[slot] : planes.amax[slot]);
    planes.scale[slot] = s.scale;
    planes.scale_inv[slot] = s.scale_inv;
  }
  template <bool kRows>
  ASSAY_DEVICE void accumulate(const Tile&, const Patch& patch) const { accumulate_amax(patch, planes.amax); }

  template <bool kRows>
  ASSAY_DEVICE void encode(const Tile& tile, Patch& patch, Step step) const {
    using A = Axis<kRows>;
    const float multiplier = as_float(delayed ? *planes.given : *planes.scale), scale_inv = as_float(*planes.scale_inv);
    uint2 codes[kPatch];
    if (element.on) {
      const uint32_t factor = as_bits(divides ? scale_inv : multiplier);
      rule_codes<kRows>(element, patch, {factor, factor, factor, factor, factor, factor, factor, factor}, divides, codes);
    } else {
#pragma unroll
      for (int l = 0; l < kPatch; ++l) {
        uint32_t pairs[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          pairs[k] = convert(scaled(A::at(patch, l, 2 * k), multiplier, plus_zero), scaled(A::at(patch, l, 2 * k + 1), multiplier, plus_zero));   // N3.8
        codes[l] = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
      }
    }
    if (step.decode) {   // N3.10
#pragma unroll
      for (int l = 0; l < kPatch; ++l)
#pragma unroll
        for (int k = 0; k < kPatch; ++k) A::at(patch, l, k) = as_bits(__fmul_rn(as_float(convert.decoded(byte_of(codes[l], k))), scale_inv));
    }
    if (step.store) store_bytes<kRows, true>(planes.data, tile, codes);   // N3.9
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
