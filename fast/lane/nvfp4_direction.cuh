// NVFP4 as a direction lane: blocks of 16 or 16x16, one amax for the tensor or for each stored row, four over
// six, columns of the rotated tensor, stochastic rounding, with every value of the Numerics at run time (N10,
// N11, N12).
#pragma once
#include "fast/lane/hadamard.cuh"
#include "fast/lane/nvfp4.cuh"
#include "fast/lane/philox.cuh"
#include "fast/lane/stochastic.cuh"
#include "fast/move/direction.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct Nvfp4Direction {
  static constexpr bool kCopies = false;
  DirectionPlanes planes;
  Nvfp4Chain chain;
  FourOverSixRule four_over_six;
  Rht rht;
  Draws draws;
  ElementRule element;
  bool square = false, nan_wins = false, plus_zero = false, drawn = false, by_fma = false, integers = false;
  int64_t amaxes = 0;  // slots

  static Nvfp4Direction of(const Job& job, Direction d) {
    const Problem& p = job.problem;
    const Quantizer& q = *p.quantizer(d);
    Nvfp4Direction lane;
    lane.planes = direction_planes(job, d);
    lane.chain = Nvfp4Chain::of(q, p.x.source);
    lane.four_over_six = FourOverSixRule::of(q);
    lane.rht = {q.rht, q.sign_mask, q.numerics.rht_sum};
    if (q.round == Round::sr) lane.draws = Draws::of(p, d);
    lane.element = ElementRule::of(q, lane.chain.by_division);
    lane.square = is_square(q.block);
    lane.nan_wins = q.numerics.nan_amax == NanAmax::propagate;
    lane.plus_zero = q.numerics.neg_zero == NegZero::plus;
    lane.drawn = q.round == Round::sr;
    lane.by_fma = q.numerics.sr_rule == SrRule::fma;
    lane.integers = job.policy == Policy::general;
    lane.amaxes = amax_slots(p, d);
    return lane;
  }

  Pass amax_pass() const { return planes.amax != nullptr ? Pass::before : Pass::none; }  // N10.1
  int64_t start_slots() const { return planes.amax != nullptr ? amaxes : 0; }
  int64_t finish_slots() const { return 0; }
  ASSAY_DEVICE void start(int64_t slot) const { planes.amax[slot] = 0; }
  ASSAY_DEVICE void finish(int64_t) const {}

  template <bool kRows> ASSAY_DEVICE void accumulate(const Tile& tile, const Patch& patch) const {
    if constexpr (!kRows) {
      if (rht.on) {  // N11.4
        PatchLines lines;
        take_lines<kRows>(patch, lines);
        uint32_t best = 0;
#pragma unroll 1
        for (int l = 0; l < kPatch; ++l) {
          rotate_line(rht, tile.at.lane, lines.line[l]);
#pragma unroll
          for (int k = 0; k < kPatch; ++k) best = raised(best, lines.line[l][k], false);
        }
        return accumulate_amax(best, planes.amax);
      }
    }
    if (planes.by_line) accumulate_line_amaxes<kRows>(tile, patch, planes.amax);
    else accumulate_amax(patch, planes.amax);
  }

  template <bool kRows> ASSAY_DEVICE void encode(const Tile& tile, Patch& patch, Step step) const {
    using A = Axis<kRows>;
    PatchLines lines;
    take_lines<kRows>(patch, lines);
    if constexpr (!kRows) {
      if (rht.on) {  // N11.4
#pragma unroll 1
        for (int l = 0; l < kPatch; ++l) rotate_line(rht, tile.at.lane, lines.line[l]);
      }
    }
    Scope scope{planes.amax != nullptr ? planes.amax : planes.given, {}};
    if (!planes.by_line) scope.tensor = chain.of_tensor(*scope.amax);
    uint32_t scales[kPatch];
#pragma unroll 1
    for (int l = 0; l < kPatch; ++l) {  // N10.4
      uint32_t best = 0;
#pragma unroll
      for (int k = 0; k < kPatch; ++k) best = raised(best, lines.line[l][k], nan_wins);
      scales[l] = best;
    }
    if (square) {
      const uint32_t whole = square_maximum<16>(greatest(scales));
#pragma unroll
      for (int l = 0; l < kPatch; ++l) scales[l] = whole;
    } else {
      block_maxima<kRows, 16>(scales);
    }
    if (four_over_six.on) {
      choose_scales<kRows>(scope, tile, lines, scales);
    } else {
#pragma unroll 1
      for (int l = 0; l < kPatch; ++l)
        scales[l] = chain.block_scale(scales_of<kRows>(scope, tile, l), scales[l]);
    }
    if (step.store) store_byte_scales<kRows, 16, false>(planes, tile, scales);  // N10.14

    uint32_t codes[kPatch];
    uint64_t block = 0;
    if (drawn) block = Draws::block(A::line(tile), A::first(tile), A::element_count(tile));
#pragma unroll 1
    for (int l = 0; l < kPatch; ++l) {
      uint32_t(&line)[kPatch] = lines.line[l];
      const ElementFactor by = factor(scales_of<kRows>(scope, tile, l), scales[l]);
      if (drawn) {
        codes[l] = drawn_codes<kRows>(tile, line, l, by, block);
        block += Draws::blocks_of(A::element_count(tile));
      } else {
        codes[l] = nearest_codes(line, by);
      }
      if (!step.decode) continue;
      const float back = chain.decode_multiplier(as_bits(scales_of<kRows>(scope, tile, l).amax), scales[l]);
#pragma unroll
      for (int k = 0; k < kPatch; ++k)
        line[k] = as_bits(
            __fmul_rn(as_float(decode<Encoding::e2m1>((codes[l] >> (4 * k)) & 15u)), back));  // N10.15
    }
    if (step.decode) put_lines<kRows>(lines, patch);
    if (step.store) store_nibbles<kRows>(planes.data, tile, codes);
  }

 private:
  // Where the amax stands, and what it comes to where the tensor has one.
  struct Scope {
    const uint32_t* amax = nullptr;
    Nvfp4Scales tensor;
  };
  // The scales of line l (N10.1, N10.9). Lines outside the tensor have those of no elements.
  template <bool kRows>
  ASSAY_DEVICE Nvfp4Scales scales_of(const Scope& scope, const Tile& tile, int l) const {
    if (!planes.by_line) return scope.tensor;
    return chain.of_tensor(l < Axis<kRows>::lines(tile) ? scope.amax[Axis<kRows>::line(tile) + l] : 0u);
  }

  ASSAY_LANE uint32_t pair(float lo, float hi) const {
#if !defined(__CUDA_ARCH__)
    if (integers) return Bits::pair<Encoding::e2m1>(lo, hi);
#endif
    return Hardware::pair<Encoding::e2m1>(lo, hi);
  }
  ASSAY_LANE ElementFactor factor(const Nvfp4Scales& t, uint32_t scale) const {
    return chain.factor(t, scale);
  }
  // The 8 codes of a line, the first lowest (N10.9).
  ASSAY_LANE uint32_t nearest_codes(const uint32_t (&line)[kPatch], ElementFactor by) const {
    if (element.on) return uint32_t(element.eight(line, by));
    uint32_t codes = 0;
#pragma unroll
    for (int k = 0; k < kPatch; k += 2)
      codes |= pair(scaled(line[k], by.value, plus_zero), scaled(line[k + 1], by.value, plus_zero))
               << (4 * k);
    return codes;
  }
  template <bool kRows>
  ASSAY_DEVICE uint32_t drawn_codes(const Tile& tile, const uint32_t (&line)[kPatch], int l, ElementFactor by,
                                    uint64_t block) const {
    using A = Axis<kRows>;
    const uint2 bytes = draws.eight(block, A::line(tile) + l, A::first(tile), A::line_count(tile),
                                    A::element_count(tile), tile.member);
    uint32_t codes = 0;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint32_t four = part == 0 ? bytes.x : bytes.y;
      float y[4];
#pragma unroll
      for (int k = 0; k < 4; ++k)
        y[k] = element.on ? as_float(element.scaled(line[4 * part + k], by))
                          : scaled(line[4 * part + k], by.value, plus_zero);
      uint32_t some = 0;
      if (by_fma) {  // N12.3
#pragma unroll
        for (int k = 0; k < 4; ++k)
          some |= stochastic_fma(as_bits(y[k]), (four >> (8 * k)) & 0xFFu) << (4 * k);
      } else {
        some = stochastic(y, four);
      }
      codes |= some << (16 * part);
    }
    return element.on ? element.eight_stored(codes) : codes;
  }
  ASSAY_LANE uint32_t stochastic(const float (&y)[4], uint32_t bytes) const {
#if !defined(__CUDA_ARCH__)
    if (integers) return StochasticBits::four(y[0], y[1], y[2], y[3], bytes);
#endif
    return StochasticHardware::four(y[0], y[1], y[2], y[3], bytes);
  }

  // Turns block amaxes into the scale of the candidate with the smaller error (N10.10 to N10.13).
  template <bool kRows>
  ASSAY_DEVICE void choose_scales(const Scope& scope, const Tile& tile, const PatchLines& lines,
                                  uint32_t (&scales)[kPatch]) const {
    using A = Axis<kRows>;
    uint32_t candidate[2][kPatch];  // for a largest code of 6, and of 4
    float error[2][kPatch];
#pragma unroll 1
    for (int four = 0; four < 2; ++four) {
      // Elements add in stored order: the first 8 of a block, then in the next lane the other 8 on top of
      // them. One loop does both, so that there is one copy of the code.
      const int second = (A::tile_first(tile) >> 3) & 1;
#pragma unroll 1
      for (int l = 0; l < kPatch; ++l) {
        candidate[four][l] = four_over_six.scale(scales_of<kRows>(scope, tile, l), scales[l], four != 0);
        float sum = 0;
#pragma unroll 1
        for (int part = 0; part < 2; ++part) {
          if (part == second) sum = add_errors<kRows>(scope, tile, lines.line[l], l, candidate[four][l], sum);
          const float other = __shfl_xor_sync(kAllLanes, sum, A::kNext);
          if (part != second) sum = other;
        }
        error[four][l] = sum;
      }
      if (!square) continue;
        // N10.13: lines l and l + 8 lie in lanes side by side across the lines.
#pragma unroll
      for (int l = 0; l < kPatch; ++l)
        error[four][l] = __fadd_rn(error[four][l], __shfl_xor_sync(kAllLanes, error[four][l], A::kAcross));
#pragma unroll
      for (int h = 4; h > 0; h >>= 1)
#pragma unroll
        for (int l = 0; l < kPatch; ++l)
          if (l < h) error[four][l] = __fadd_rn(error[four][l], error[four][l + h]);
    }
#pragma unroll
    for (int l = 0; l < kPatch; ++l) {
      const int e = square ? 0 : l;
      scales[l] = error[1][e] < error[0][e] ? candidate[1][l] : candidate[0][l];
    }
  }
  // err and the errors of the elements of line l that lie inside the tensor.
  template <bool kRows>
  ASSAY_DEVICE float add_errors(const Scope& scope, const Tile& tile, const uint32_t (&line)[kPatch], int l,
                                uint32_t scale, float err) const {
    using A = Axis<kRows>;
    if (l >= A::lines(tile)) return err;
    const Nvfp4Scales t = scales_of<kRows>(scope, tile, l);
    const float value = as_float(decode<Encoding::e4m3>(scale));
    const uint32_t codes = nearest_codes(line, factor(t, scale));
#pragma unroll
    for (int k = 0; k < kPatch; ++k)
      if (k < A::elements(tile))
        err = four_over_six.add(err, chain, t, value, line[k], (codes >> (4 * k)) & 15u);
    return err;
  }
};

}  // namespace assay::ASSAY_FAST_NAMESPACE
