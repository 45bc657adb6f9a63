// Attention's result and the gradient of its logits tile by tile with a running maximum (sums=online,
// N20.19): exponentials are cast before they are divided by their sum, what was summed before a larger logit
// came is scaled down, and the sum of dS S is that of dO O. A thread has a row.
#pragma once
#include "fast/attention_numbers.h"
#include "fast/lane/exponential.cuh"
#include "fast/move/attention.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

inline constexpr int kOnlineRows = 64, kOnlineTile = 64;

struct OnlineArgs {
  const uint16_t *p = nullptr, *v = nullptr;  // logits; V, [sequence, head of keys, key, element]
  const float* scale = nullptr;               // of S; null: its slot casts to n
  const uint8_t* keep = nullptr;
  float* sums = nullptr;    // [rows, depth]: what a row has summed so far
  uint16_t* out = nullptr;  // (token, sequence, head, element)
  int64_t rows = 0, heads = 0, repeats = 1, depth = 0;
  float keep_factor = 1;  // 1 / (1 - dropout)
  float largest_code = 448;
  bool computes_scale = false;  // exponentials are at most 1, so the scale is the largest code
  ExpRule exp{};
};

// What the products take of an exponential: its code, or what n has of it.
template <Encoding N, Encoding E>
ASSAY_DEVICE float cast_exponential(const OnlineArgs& a, float scale, float e) {
  if (a.scale == nullptr && !a.computes_scale) return once_rounded<N>(e);
  return as_float(decode<E>(encode<E>(as_bits(__fmul_rn(e, scale)), Round::rne, Overflow::sat)));
}

template <Encoding N, Encoding E, class MaskOf>
__global__ void __launch_bounds__(kOnlineRows) attention_online(OnlineArgs a, MaskOf mask) {
  ASSAY_SHARED(uint16_t, logits, [kOnlineRows][kOnlineTile + 2]);
  ASSAY_SHARED(float, weights, [kOnlineRows][kOnlineTile + 1]);
  const int64_t first_row = int64_t(blockIdx.x) * kOnlineRows, row = first_row + threadIdx.x;
  const int64_t keys = mask.kv.count, head = row / mask.q.count;
  const auto seen = mask.seen(row < a.rows ? head / a.heads : 0, row < a.rows ? row % mask.q.count : 0);
  const float scale = a.computes_scale ? a.largest_code : a.scale != nullptr ? a.scale[0] : 1.0f;
  float most = as_float(kInf | kSign), total = 0.0f;
  float* const mine = a.sums + row * a.depth;
  const uint16_t* const v = a.v + head / a.repeats * keys * a.depth;
  for (int64_t e = 0; row < a.rows && e < a.depth; ++e) mine[e] = 0.0f;
#pragma unroll 1
  for (int64_t first = 0; first < keys; first += kOnlineTile) {
    const int count = keys - first < kOnlineTile ? int(keys - first) : kOnlineTile;
    __syncthreads();
#pragma unroll 1
    for (int r = 0; r < kOnlineRows; ++r)
      if (first_row + r < a.rows && int(threadIdx.x) < count)
        logits[r][threadIdx.x] = a.p[(first_row + r) * keys + first + threadIdx.x];
    __syncthreads();
    if (row >= a.rows) continue;
    float now = most;
    for (int c = 0; c < count; ++c) {
      const float x = seen(first + c) ? as_float(decode<N>(logits[threadIdx.x][c])) : -10000.0f;
      weights[threadIdx.x][c] = x;
      now = fmaxf(now, x);
    }
    const float less = exponential(a.exp, __fadd_rn(most, as_float(as_bits(now) ^ kSign)));
    total = __fmul_rn(total, less);
    for (int c = 0; c < count; ++c) {
      const float e = exponential(a.exp, __fadd_rn(weights[threadIdx.x][c], as_float(as_bits(now) ^ kSign)));
      total = __fadd_rn(total, e);
      // keep_factor is applied behind the sum: here it could take an exponential beyond the largest code.
      const bool dropped = a.keep != nullptr && a.keep[row * keys + first + c] == 0;
      weights[threadIdx.x][c] = cast_exponential<N, E>(a, scale, dropped ? 0.0f : e);
    }
    most = now;
    for (int64_t e = 0; e < a.depth; ++e) {
      float sum = __fmul_rn(mine[e], less);
      for (int c = 0; c < count; ++c)
        sum = accumulate(sum, weights[threadIdx.x][c], nominal_value<N>(v, (first + c) * a.depth + e));
      mine[e] = sum;
    }
  }
  if (row >= a.rows) return;
  const int64_t b = head / a.heads, h = head % a.heads, i = row % mask.q.count,
                batch = a.rows / mask.q.count / a.heads;
  const float inverse = __fdiv_rn(a.keep_factor, __fmul_rn(total, scale));
  for (int64_t e = 0; e < a.depth; ++e)
    a.out[((i * batch + b) * a.heads + h) * a.depth + e] =
        seen.padding || keys == 0 ? uint16_t(0) : nominal_code<N>(__fmul_rn(mine[e], inverse));
}

struct OnlineGradientArgs {
  const uint16_t *p = nullptr, *ds = nullptr;  // logits; the gradient of S
  const uint16_t *o = nullptr,
                 *d_o = nullptr;  // O before its cast; dO behind it, both (token, sequence, head, element)
  uint16_t* out = nullptr;        // of the logits
  int64_t rows = 0, heads = 0, depth = 0;
  ExpRule exp{};
};

using OnlineRows = uint16_t[kOnlineRows][kOnlineTile + 2];
ASSAY_DEVICE void load_online_rows(const uint16_t* from, int64_t first_row, int64_t rows, int64_t first,
                                   int64_t keys, OnlineRows& tile) {
  const int64_t key = first + threadIdx.x;
#pragma unroll 1
  for (int r = 0; r < kOnlineRows; ++r)
    if (first_row + r < rows && key < keys) tile[r][threadIdx.x] = from[(first_row + r) * keys + key];
}

template <Encoding N, class MaskOf>
__global__ void __launch_bounds__(kOnlineRows) attention_online_gradient(OnlineGradientArgs a, MaskOf mask) {
  ASSAY_SHARED(uint16_t, logits, [kOnlineRows][kOnlineTile + 2]);
  ASSAY_SHARED(uint16_t, gradients, [kOnlineRows][kOnlineTile + 2]);
  const int64_t first_row = int64_t(blockIdx.x) * kOnlineRows, row = first_row + threadIdx.x;
  const int64_t keys = mask.kv.count, head = row / mask.q.count, i = row % mask.q.count;
  const bool mine = row < a.rows;
  const auto seen = mask.seen(mine ? head / a.heads : 0, mine ? i : 0);
  const auto logit = [&](int64_t first, int c) {
    return seen(first + c) ? as_float(decode<N>(logits[threadIdx.x][c])) : -10000.0f;
  };
  const auto count_of = [&](int64_t first) {
    return keys - first < kOnlineTile ? int(keys - first) : kOnlineTile;
  };
  float most = as_float(kInf | kSign), total = 0.0f;
#pragma unroll 1
  for (int64_t first = 0; first < keys; first += kOnlineTile) {
    __syncthreads();
    load_online_rows(a.p, first_row, a.rows, first, keys, logits);
    __syncthreads();
    if (!mine) continue;
    float now = most;
    for (int c = 0; c < count_of(first); ++c) now = fmaxf(now, logit(first, c));
    const float minus = as_float(as_bits(now) ^ kSign);
    total = __fmul_rn(total, exponential(a.exp, __fadd_rn(most, minus)));
    for (int c = 0; c < count_of(first); ++c)
      total = __fadd_rn(total, exponential(a.exp, __fadd_rn(logit(first, c), minus)));
    most = now;
  }
  float sum = 0.0f;  // of dO O, in place of dS S
  const int64_t batch = mine ? a.rows / mask.q.count / a.heads : 1,
                at = mine ? ((i * batch + head / a.heads) * a.heads + head % a.heads) * a.depth : 0;
  for (int64_t e = 0; mine && e < a.depth; ++e)
    sum = accumulate(sum, nominal_value<N>(a.d_o, at + e), nominal_value<N>(a.o, at + e));
  const float less = as_float(as_bits(sum) ^ kSign), inverse = __frcp_rn(total),
              minus = as_float(as_bits(most) ^ kSign);
#pragma unroll 1
  for (int64_t first = 0; first < keys; first += kOnlineTile) {
    __syncthreads();
    load_online_rows(a.p, first_row, a.rows, first, keys, logits);
    load_online_rows(a.ds, first_row, a.rows, first, keys, gradients);
    __syncthreads();
    for (int c = 0; mine && c < count_of(first); ++c) {
      const float s = __fmul_rn(exponential(a.exp, __fadd_rn(logit(first, c), minus)), inverse),
                  apart = __fadd_rn(as_float(decode<N>(gradients[threadIdx.x][c])), less);
      gradients[threadIdx.x][c] = seen(first + c) ? nominal_code<N>(__fmul_rn(s, apart)) : uint16_t(0);
    }
    __syncthreads();
    const int64_t key = first + threadIdx.x;
#pragma unroll 1
    for (int r = 0; r < kOnlineRows; ++r)
      if (first_row + r < a.rows && key < keys)
        a.out[(first_row + r) * keys + key] = gradients[r][threadIdx.x];
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
