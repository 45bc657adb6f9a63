// The random Hadamard transform of 16 rows of a column (N11), in the 8x8 patches of move/patch.cuh: rows 0..7
// of a group of 16 are in one lane, rows 8..15 in the lane 8 above. `half` says which of the two a lane is;
// it holds leaves 8 * half + k and makes outputs 8 * half + k.
//   butterfly   three stages in registers, the fourth between the two lanes, in binary32
//   exact       the transform of 16 integers: leaves in units of the least exponent, or digit by digit where
//               64 bits do not hold them all
//   tc16        the same integers, cut as a tensor core aligns them. All outputs of a group share the largest
//               exponent, and truncation is toward zero,
//               so that a cut leaf differs between outputs only in its sign. This also serves GPUs: mma.sync
//               would give one architecture's sum
#pragma once
#include "contract/numerics.h"
#include "fast/lane/encode.cuh"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

struct Rht {
  bool on = false;
  uint32_t sign_mask = 0;
  RhtSum sum = RhtSum::butterfly;
};

// Leaf i with its sign (N11.1).
ASSAY_LANE uint32_t rht_leaf(uint32_t bits, uint32_t sign_mask, int i) {
  return bits ^ ((sign_mask >> i) & 1u) << 31;
}
// The BF16 nearest, widened.
ASSAY_LANE uint32_t rounded_to_bf16(uint32_t bits) {
  return encode<Encoding::bf16>(bits, Round::rne, Overflow::nosat) << 16;
}

// Stages 1, 2 and 4 of the butterfly (N11.3).
ASSAY_LANE void butterfly_within(uint32_t (&v)[kPatch]) {
#pragma unroll
  for (int h = 1; h < kPatch; h <<= 1)
#pragma unroll
    for (int i = 0; i < kPatch; ++i) {
      if ((i & h) != 0) continue;
      const float a = as_float(v[i]), b = as_float(v[i + h]);
      v[i] = as_bits(__fadd_rn(a, b)), v[i + h] = as_bits(__fsub_rn(a, b));
    }
}
// Stage 8, the quarter and the one rounding, from this lane's value and that of the other half.
ASSAY_LANE uint32_t butterfly_across(uint32_t mine, uint32_t other, int half) {
  const float sum =
      half == 0 ? __fadd_rn(as_float(mine), as_float(other)) : __fsub_rn(as_float(other), as_float(mine));
  return rounded_to_bf16(as_bits(__fmul_rn(sum, 0.25f)));
}

// m * 2^scale as binary32, subnormals kept: to nearest even, `sticky` saying that less than one unit of m was
// left out, or truncated.
ASSAY_LANE uint32_t f32_of_integer(uint64_t m, int scale, bool sticky, bool nearest) {
  if (m == 0) return 0;
  const int top = 63 - __clzll(static_cast<long long>(m)), exponent = top + scale;
  const int unit = exponent - 23 > -149 ? exponent - 23 : -149, drop = unit - scale;
  uint32_t kept;
  bool up = false;
  if (drop <= 0) {
    kept = uint32_t(m << -drop);
  } else {
    kept = uint32_t(m >> drop);
    const bool half = ((m >> (drop - 1)) & 1u) != 0,
               rest = sticky || (m & ((uint64_t{1} << (drop - 1)) - 1u)) != 0;
    up = nearest && half && (rest || (kept & 1u) != 0);
  }
  if (exponent > 127) return kInf;
  return (exponent >= -126 ? uint32_t(exponent + 126) << 23 : 0u) + kept +
         (up ? 1u : 0u);  // the hidden bit counts as an exponent
}

// Bits i of row j of the matrix that are -1 (N11.1).
ASSAY_LANE uint32_t hadamard_row(uint32_t j) {
  return ((j & 1u) != 0 ? 0xAAAAu : 0u) ^ ((j & 2u) != 0 ? 0xCCCCu : 0u) ^ ((j & 4u) != 0 ? 0xF0F0u : 0u) ^
         ((j & 8u) != 0 ? 0xFF00u : 0u);
}

// A BF16 leaf apart: significand of 8 bits and exponent field, that of a subnormal being 1.
ASSAY_LANE uint32_t bf16_significand(uint32_t bits) {
  return ((bits >> 16) & 0x7Fu) | ((bits & kInf) != 0u ? 0x80u : 0u);
}
ASSAY_LANE int bf16_exponent(uint32_t bits) {
  const int field = int((bits >> 23) & 0xFFu);
  return field == 0 ? 1 : field;
}

// The exact sum of the leaves, digit by digit of 32 bits from the least exponent up; `flips` are the leaves
// that row j negates. The sum and its negative are followed together, because the sign is only known at the
// end.
ASSAY_LANE uint32_t rht_by_digits(const uint32_t (&leaf)[16], uint32_t flips, int least) {
  struct Leading {
    uint64_t two = 0;  // the leading digit that is not 0, and the one below it
    int place = 0;
    uint32_t last = 0;
    bool below = false, sticky = false;
    ASSAY_LANE void take(uint32_t digit, int w) {
      if (digit != 0u) two = uint64_t(digit) << 32 | last, place = w, sticky = below;
      below = below || last != 0u;
      last = digit;
    }
  };
  Leading plus, minus;
  int64_t sum = 0;
  uint32_t borrow = 1;
#pragma unroll 1
  for (int w = 0; w < 9; ++w) {
#pragma unroll 1  // rare: 16 leaves taken apart at once would cost every caller its registers
    for (int i = 0; i < 16; ++i) {
      const int place = bf16_exponent(leaf[i]) - least;
      const uint32_t significand = bf16_significand(leaf[i]);
      if (significand == 0u || place >> 5 != w) continue;
      const int64_t term = int64_t(uint64_t(significand) << (place & 31));
      sum += (leaf[i] >> 31 ^ ((flips >> i) & 1u)) != 0u ? -term : term;
    }
    const uint32_t digit = uint32_t(uint64_t(sum)), negated = ~digit + borrow;
    borrow = borrow != 0u && negated == 0u ? 1u : 0u;
    plus.take(digit, w), minus.take(negated, w);
    sum >>= 32;
  }
  const bool negative = sum < 0;
  const Leading& size = negative ? minus : plus;
  const uint32_t bits = f32_of_integer(size.two, 32 * (size.place - 1) + least - 136, size.sticky, true);
  return bits | (negative ? kSign : 0u);
}

// The 8 outputs of one half from all 16 signed leaves, rounded to BF16 (N11.3). Leaves are BF16 values.
ASSAY_LANE void rht_by_integers(const uint32_t (&leaf)[16], int half, bool tensor_core,
                                uint32_t (&out)[kPatch]) {
  uint32_t infinite = 0, negative = 0;
  bool nan = false;
  int least = 255, greatest = 1;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const uint32_t a = leaf[i] & kAbs;
    nan = nan || a > kInf;
    infinite |= a == kInf ? 1u << i : 0u;
    negative |= (leaf[i] >> 31) << i;
    const int e = bf16_exponent(leaf[i]);
    if (a == 0u) continue;  // zero products take no part
    least = e < least ? e : least, greatest = e > greatest ? e : greatest;
  }
  if (nan || infinite != 0u) {
#pragma unroll
    for (int k = 0; k < kPatch; ++k) {
      const uint32_t minus = (negative ^ hadamard_row(uint32_t(8 * half + k))) & infinite;
      out[k] = nan || (minus != 0u && minus != infinite) ? 0x7FFF0000u
               : minus != 0u                             ? kSign | kInf
                                                         : kInf;  // N1.3
    }
    return;
  }
  if (!tensor_core && greatest - least > 50) {  // 8 bits, 16 of them: 62 bits hold a spread of 50
    uint32_t listed[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) listed[i] = leaf[i];
#pragma unroll 1
    for (int k = 0; k < kPatch; ++k) {
      const uint32_t rounded =
          rounded_to_bf16(rht_by_digits(listed, hadamard_row(uint32_t(8 * half + k)), least));
#pragma unroll
      for (int l = 0; l < kPatch; ++l)
        out[l] = l == k ? rounded : out[l];  // k is no constant, and registers have no index
    }
    return;
  }
  int64_t sum[kPatch];
#pragma unroll
  for (int k = 0; k < kPatch; ++k) {
    int64_t term[2];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint32_t bits = leaf[k + 8 * part], significand = bf16_significand(bits);
      const int e = bf16_exponent(bits), away = greatest - e < 31 ? greatest - e : 31;
      const int64_t size = tensor_core         ? int64_t((significand << 18) >> away)
                           : significand == 0u ? 0
                                               : int64_t(uint64_t(significand) << (e - least));
      term[part] = bits >> 31 != 0u ? -size : size;
    }
    sum[k] = half == 0 ? term[0] + term[1] : term[0] - term[1];
  }
#pragma unroll
  for (int h = 1; h < kPatch; h <<= 1)
#pragma unroll
    for (int i = 0; i < kPatch; ++i) {
      if ((i & h) != 0) continue;
      const int64_t a = sum[i], b = sum[i + h];
      sum[i] = a + b, sum[i + h] = a - b;
    }
  // Significands stand 7 bits, the quarter 2 and the tensor core's alignment 18 above the exponent field's
  // unit, 2^-127.
  const int scale = tensor_core ? greatest - 154 : least - 136;
#pragma unroll
  for (int k = 0; k < kPatch; ++k) {
    const bool minus = sum[k] < 0;
    const uint64_t size = minus ? uint64_t{0} - uint64_t(sum[k]) : uint64_t(sum[k]);
    out[k] = rounded_to_bf16(f32_of_integer(size, scale, false, !tensor_core) | (minus ? kSign : 0u));
  }
}

// All 16 rows of a group in one place: what two lanes make of it.
ASSAY_LANE void rotate_group(const Rht& rht, uint32_t (&group)[16]) {
  uint32_t leaf[16], part[2][kPatch];
  for (int i = 0; i < 16; ++i) leaf[i] = part[i >> 3][i & 7] = rht_leaf(group[i], rht.sign_mask, i);
  for (int half = 0; half < 2; ++half) {
    if (rht.sum == RhtSum::butterfly) butterfly_within(part[half]);
    else rht_by_integers(leaf, half, rht.sum == RhtSum::tc16, part[half]);
  }
  for (int i = 0; i < 16; ++i)
    group[i] = rht.sum == RhtSum::butterfly
                   ? butterfly_across(part[i >> 3][i & 7], part[1 - (i >> 3)][i & 7], i >> 3)
                   : part[i >> 3][i & 7];
}

// Rotates 8 rows of one column, half a group of 16, in place. Every lane of the warp calls.
ASSAY_DEVICE void rotate_line(const Rht& rht, int lane, uint32_t (&line)[kPatch]) {
  const int half = (lane >> 3) & 1;
  uint32_t mine[kPatch], other[kPatch];
#pragma unroll
  for (int k = 0; k < kPatch; ++k) mine[k] = rht_leaf(line[k], rht.sign_mask, 8 * half + k);
  if (rht.sum == RhtSum::butterfly) butterfly_within(mine);
#pragma unroll
  for (int k = 0; k < kPatch; ++k) other[k] = __shfl_xor_sync(kAllLanes, mine[k], 8);
  if (rht.sum == RhtSum::butterfly) {
#pragma unroll
    for (int k = 0; k < kPatch; ++k) line[k] = butterfly_across(mine[k], other[k], half);
  } else {
    uint32_t leaf[16];
#pragma unroll
    for (int k = 0; k < kPatch; ++k)
      leaf[k] = half == 0 ? mine[k] : other[k], leaf[k + 8] = half == 0 ? other[k] : mine[k];
    rht_by_integers(leaf, half, rht.sum == RhtSum::tc16, line);
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
