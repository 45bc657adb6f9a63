// Attention's movement (N20.1, N20.2): from the layouts of a line to (sequence, head, token, element) and
// back, and products of such tensors tile by tile.
#pragma once
#include "contract/attention.h"
#include "fast/lane/decode.cuh"
#include "fast/lane/encode.cuh"
#include "fast/lane/gemm.cuh"
#include "fast/move/element.cuh"
#include "fast/move/patch.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

// The kernels' own sizes: 64-bit, as products of them are places.
struct AttentionExtent {
  int64_t batch = 0, heads = 0, kv_heads = 0, q = 0, kv = 0, depth = 0;
};

template <Encoding N> ASSAY_DEVICE float nominal_value(const uint16_t* p, int64_t i) {
  return as_float(decode<N>(p[i]));
}
template <Encoding N> ASSAY_LANE uint16_t nominal_code(float v) {
  return uint16_t(encode<N>(as_bits(v), Round::rne, Overflow::nosat));
}
template <Encoding N> ASSAY_LANE float once_rounded(float v) {
  return as_float(decode<N>(nominal_code<N>(v)));
}

// The tokens of one side of the attention.
struct Tokens {
  TokenOrder order = TokenOrder::batch_first;
  int64_t count = 0, batch = 0;    // of a sequence, and sequences
  const uint32_t* ends = nullptr;  // cu_seqlens, where lengths are given

  ASSAY_DEVICE int64_t length(int64_t b) const {
    return ends != nullptr ? int64_t(ends[b + 1] - ends[b]) : count;
  }
  // The row of a token, or -1 for one that a ragged layout does not have.
  ASSAY_DEVICE int64_t row(int64_t b, int64_t i) const {
    if (order == TokenOrder::sequence_first) return i * batch + b;
    if (order == TokenOrder::batch_first) return b * count + i;
    return i < length(b) ? int64_t(ends[b]) + i : -1;
  }
};

struct MoveArgs {
  const uint16_t* from = nullptr;
  uint16_t* to = nullptr;
  Tokens tokens;
  int64_t heads = 0, depth = 0;  // of the side in the layout
  int64_t repeats = 1;           // heads of `from` that are summed into one of `to` (N20.16)
  int64_t tensors = 1, which = 0;
  bool within_heads = false;
  int64_t count = 0;

  // The place in the layout's plane, or -1.
  ASSAY_DEVICE int64_t place(int64_t b, int64_t h, int64_t i, int64_t e) const {
    const int64_t row = tokens.row(b, i), head = within_heads ? h * tensors + which : which * heads + h;
    return row < 0 ? -1 : (row * tensors * heads + head) * depth + e;
  }
};

// An element of (sequence, head, token, element), or of (token, sequence, head, element): the order of O.
struct ElementOf {
  int64_t b, h, i, e;
};
ASSAY_DEVICE ElementOf element_of(const MoveArgs& a, int64_t at, bool result) {
  const int64_t e = at % a.depth, row = at / a.depth;
  if (result) return {row / a.heads % a.tokens.batch, row % a.heads, row / a.heads / a.tokens.batch, e};
  return {row / a.tokens.count / a.heads, row / a.tokens.count % a.heads, row % a.tokens.count, e};
}

template <bool kResult> __global__ void __launch_bounds__(kThreads) attention_gather(MoveArgs a) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= a.count) return;
  const ElementOf x = element_of(a, at, kResult);
  const int64_t from = a.place(x.b, x.h, x.i, x.e);
  a.to[at] = from < 0 ? uint16_t(0) : a.from[from];
}

// N20.17: codes of E and the descales of their heads, [sequence, head of keys]; `group` heads share one.
struct DescaleArgs {
  MoveArgs move;
  const uint8_t* codes = nullptr;
  const float* descales = nullptr;
  int64_t group = 1;
};
template <Encoding N, Encoding E>
__global__ void __launch_bounds__(kThreads) attention_descale(DescaleArgs a) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= a.move.count) return;
  const ElementOf x = element_of(a.move, at, false);
  const int64_t from = a.move.place(x.b, x.h, x.i, x.e);
  const float scale = a.descales[x.b * (a.move.heads / a.group) + x.h / a.group];
  a.move.to[at] =
      from < 0 ? uint16_t(0) : nominal_code<N>(__fmul_rn(as_float(decode<E>(a.codes[from])), scale));
}

template <Encoding N, bool kResult>
__global__ void __launch_bounds__(kThreads) attention_scatter(MoveArgs a) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= a.count) return;
  const ElementOf x = element_of(a, at, kResult);
  const int64_t to = a.place(x.b, x.h, x.i, x.e);
  if (to < 0) return;
  if (a.repeats == 1) {
    a.to[to] = a.from[at];
    return;
  }
  float sum = 0.0f;  // N20.16
  for (int64_t r = 0; r < a.repeats; ++r) {
    const int64_t head = (x.b * a.heads + x.h) * a.repeats + r;
    sum = __fadd_rn(sum, nominal_value<N>(a.from, (head * a.tokens.count + x.i) * a.depth + x.e));
  }
  a.to[to] = nominal_code<N>(sum);
}

// One operand of a product: n codes, a line and a k apart by strides, heads by others.
struct AttentionOperand {
  const uint16_t* data = nullptr;
  int64_t by_batch = 0, by_head = 0, by_line = 0, by_k = 0;
  int64_t repeats = 1;  // heads that read the same one
  int64_t lines = 0;

  ASSAY_DEVICE int64_t first(int64_t b, int64_t h) const { return b * by_batch + h / repeats * by_head; }
};

inline constexpr int kAttentionTile = 64, kAttentionDepth = 32, kAttentionPitch = kAttentionTile + 4,
                     kAttentionThreads = 64;

// Lines first_line .. + 63 and k first_k .. + 31 to tile[k][line], k by k; zeros outside.
template <Encoding N>
ASSAY_DEVICE void load_attention_tile(const AttentionOperand& o, int64_t head, int64_t k_count,
                                      int64_t first_line, int64_t first_k, bool scales, float scale,
                                      float (&tile)[kAttentionDepth][kAttentionPitch]) {
#pragma unroll 1
  for (int r = 0; r < kAttentionTile * kAttentionDepth / kAttentionThreads; ++r) {
    const int at = r * kAttentionThreads + int(threadIdx.x);
    const int k = o.by_k == 1 ? at % kAttentionDepth : at / kAttentionTile,
              line = o.by_k == 1 ? at / kAttentionDepth : at % kAttentionTile;
    const int64_t at_k = first_k + k, at_line = first_line + line;
    float v = 0.0f;
    if (at_k < k_count && at_line < o.lines) {
      v = nominal_value<N>(o.data, head + at_line * o.by_line + at_k * o.by_k);
      if (scales) v = once_rounded<N>(__fmul_rn(v, scale));
    }
    tile[k][line] = v;
  }
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
